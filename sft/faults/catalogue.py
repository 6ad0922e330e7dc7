"""Every fault that can be planted, by the module that has its function.

Read without importing the trainer: a sweep asks for it while planning.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sft.faults.patching import Plant


@dataclass(frozen=True)
class Fault:
    """One way in which a trainer can be wrong; its function has the same name."""

    kind: str
    """The module of `sft.faults` that has the function."""
    name: str
    seen: tuple[str, ...]
    """Public reports of something alike; none where it is what the oracle is there for."""
    strength: str = ""
    """What the number after the colon is."""
    strengths: tuple[float, ...] = ()
    """Values worth trying, the default first; empty where there is nothing to choose."""

    @property
    def apply(self) -> Callable[[Plant], None]:
        """The function that plants it; importing it takes the trainer."""
        return getattr(importlib.import_module(f"sft.faults.{self.kind}"), self.name)

    @property
    def breaks(self) -> str:
        """What it breaks, in one line."""
        return str(self.apply.__doc__)


reduction = partial(Fault, "reduction")
losses = partial(Fault, "losses")
resuming = partial(Fault, "resuming")
context = partial(Fault, "context")
weights = partial(Fault, "weights")
routing = partial(Fault, "routing")
recompute = partial(Fault, "recompute")
compiler = partial(Fault, "compiler")
optimizing = partial(Fault, "optimizing")
offload = partial(Fault, "offload")
processes = partial(Fault, "processes")
formulas = partial(Fault, "formulas")
exporting = partial(Fault, "exporting")
documents = partial(Fault, "documents")

CATALOGUE = (
    reduction("ep_grad_scaled", ("hf#48687", "ds#5259"), "factor", (2, 1.01)),
    reduction(
        "router_grad_detached", ("hf#48205", "titan#4054"), "share of the weights", (1, 0.05)
    ),
    reduction("grad_reduce_skipped", ("pt#160285", "titan#4054"), "layer", (0, 1)),
    reduction("expert_scores_swapped", ("hf#48205",), "rank", (0, 1)),
    reduction("grad_norm_local_experts", ("am#3816", "mc#5916"), "share", (1, 0.1)),
    reduction("clip_by_local_norm", ("am#3816",), "share", (1, 0.1)),
    reduction("grad_norm_counts_replicas", ("ds#8475",), "replicas counted", (2, 1.1)),
    losses(
        "loss_local_mean", ("prime#1957", "verl#2857"), "how far from the right count", (1, 0.05)
    ),
    losses(
        "loss_count_times_cp",
        ("mc#673",),
        "factor on the count, 0 for the ranks of a sequence",
        (0, 1.01),
    ),
    losses("loss_no_accumulation_divide", ("mc#906", "prime#1957")),
    losses("aux_loss_times_dp", ("am#1408",), "factor, 0 for the data-parallel ranks", (0, 1.1)),
    losses("aux_loss_dropped", ("am#3544",), "share", (1, 0.1)),
    losses("labels_shifted_in_shard", ("hf#36607",), "tokens at the edge", (1, 2)),
    losses("labels_shifted_twice", ("hf#48493",), "share of the row", (1, 0.1)),
    resuming("resume_data_restart", ("prime#3332", "Lightning-AI/pytorch-lightning#20550")),
    resuming(
        "resume_data_rank0_only",
        ("KempnerInstitute/KempnerForge#57",),
        "rank that is restored",
        (0, 1),
    ),
    resuming("resume_data_skip_one", ("Lightning-AI/pytorch-lightning#20550",), "batches", (1, 2)),
    resuming("resume_twice_data", ("prime#3332",)),
    resuming(
        "resume_without_moments",
        ("KempnerInstitute/KempnerForge#115",),
        "share of the tensors",
        (1, 0.1),
    ),
    resuming("resume_without_scheduler", ("hf#25849",)),
    resuming("resume_scheduler_twice", ("mc#5976",), "steps", (1, 2)),
    resuming(
        "resume_stale_masters", ("databricks/flashoptim#3",), "share of the tensors", (1, 0.1)
    ),
    resuming("resume_step_counter", ("mc#5976",), "step that Adam counts from", (0, 1)),
    resuming("resume_without_rng", ("hf#31412",)),
    resuming("resume_older_step", ("prime#1825",), "steps too old", (1, 2)),
    resuming("resume_ignored", ("hf#35580",)),
    resuming("shard_truncated", ("prime#1825",), "share that is kept", (0.5, 0.99)),
    resuming("router_bias_not_saved", ("titan#3686", "flagos-ai/FlagScale#412"), "layers", (99, 1)),
    resuming("last_expert_not_saved", ("mc#5844",), "experts", (1, 4)),
    context("cp_positions_local", ("prime#3397",), "tokens, 0 for a slice", (0, 1)),
    context(
        "cp_padding_positions",
        ("NVIDIA-NeMo/Megatron-Bridge#2667",),
        "share of the padding",
        (1, 0.02),
    ),
    context("cp_sinks_dropped", ("pt#152261",), "share of the heads", (1, 0.25)),
    context("cp_state_not_carried", ("acc#4177",)),
    context("cp_silently_off", ("acc#4177", "NVIDIA-NeMo/Megatron-Bridge#2667")),
    context("masked_row_nan", ("pt#103749",)),
    context("window_ignored", ("hf#31670",)),
    context("window_off_by_one", ("hf#31670",), "tokens too many", (1, -1)),
    context(
        "packing_boundaries_lost",
        ("trl#3526",),
        "document that runs into the next, 0 for every one",
        (0, 1),
    ),
    context(
        "recurrent_state_not_reset",
        ("hf#47031", "trl#3526"),
        "boundaries that are missed, 0 for all",
        (0, 1),
    ),
    context("indexer_keeps_all", ("the suite this starts from",)),
    weights("experts_not_loaded", ("mc#5844", "am#2682"), "share of the experts", (1, 0.05)),
    weights("experts_transposed", ("hf#47031",), "share of the experts", (1, 0.05)),
    weights("gate_up_swapped", ("am#2682",), "share of the experts", (1, 0.05)),
    weights("embeddings_untied", ("am#2511", "acc#4171")),
    weights("buffers_not_initialised", ("titan#4783",), "share of each", (1, 0.1)),
    weights("dead_model", ("am#3701",), "factor on the logits", (0, 1e-6)),
    routing("router_bf16", ("ds#7747",), "share of the routers", (1, 0.1)),
    routing("correction_bias_bf16", ("titan#2389",), "share of the layers", (1, 0.1)),
    routing(
        "grouped_rows_not_masked", ("hf#48205", "prime#3378"), "size of what is there", (1, 0.001)
    ),
    routing("ep_zero_token_hang", ("am#935",), "call of the exchange", (1, 5)),
    routing("combine_dtype", ("titan#2505",)),
    recompute("ac_router_noise", ("am#3156",), "size of the noise", (0.1, 0.001)),
    recompute("ac_counts_twice", ("mc#1330", "am#3156")),
    compiler("graph_break_added", ("titan#2823",), "breaks", (1, 2)),
    compiler("split_sizes_to_list", ("pt#133571",)),
    compiler("recompile_every_step", ("pt#133571",), "every how many steps", (1, 2)),
    optimizing("optimizer_before_sharding", ("pt#149205",), "share of the tensors", (1, 0.1)),
    optimizing("param_group_dropped", ("acc#3256",), "tensors", (1, 5)),
    offload("act_offload_stale", ("trl#7195", "tune#1867"), "one in so many", (1, 10)),
    offload("act_offload_kept", ("mc#7398",), "one in so many", (1, 4)),
    offload("optim_offload_stale", ("ds#1643",), "share of the states", (1, 0.1)),
    offload("memory_leak", ("verl#7166",), "MiB a step", (64, 16)),
    offload("memory_leak_one_rank", ("verl#7874",), "MiB a step", (64, 16)),
    processes("save_rank0_only_hangs", ("pt#143536",)),
    processes("rank_dies_at_save", ("pt#143536",), "rank", (0, 1)),
    processes("rng_same_on_ranks", ("hf#31412",)),
    processes("slow_step", ("hf#48185",), "times the forward pass", (16, 8)),
    documents("prompt_trained", (), "share of the rows", (1, 0.05)),
    documents("labels_not_shifted", ("hf#48493",), "share of the rows", (1, 0.05)),
    documents("answer_start_not_trained", ("hf#36607",), "share of the rows", (1, 0.05)),
    documents("answer_end_not_trained", ("hf#36607",), "share of the rows", (1, 0.05)),
    documents("template_token_wrong", (), "share of the rows", (1, 0.05)),
    documents("documents_cut_short", (), "share of the rows", (1, 0.05)),
    documents("documents_reordered", (), "share of the rows", (1, 0.2)),
    documents("rows_all_the_same", (), "share of the rows", (1, 0.5)),
    formulas("rope_base_wrong", (), "share by which the base is too large", (1, 0.0006)),
    formulas("rope_scaling_wrong", (), "share by which positions are stretched", (1, 2e-05)),
    formulas("sinks_lowered", ("pt#152261",), "by how much a sink is lower", (10000.0, 0.0012)),
    formulas("attention_bf16", (), "share of the values", (1, 0.05)),
    formulas("attention_scale_wrong", (), "share", (0.1, 4e-05)),
    formulas("norm_epsilon_wrong", (), "factor", (10, 1.02)),
    formulas("experts_permuted", ("am#2682", "mc#5844"), "experts", (8, 2)),
    formulas("router_weights_scaled", (), "share", (0.5, 1e-05)),
    formulas("indexer_picks_fewer", (), "share of the keys", (0.5, 0.02)),
    formulas("residual_bf16", (), "share of the values", (1, 0.02)),
    formulas("weights_through_bf16", (), "share of the values", (1, 4e-05)),
    formulas("logits_scaled", (), "share", (0.1, 8e-06)),
    losses("loss_mean_of_rows", ("prime#1957",), "share", (1, 1e-05)),
    losses("z_loss_left_on", (), "coefficient", (0.0001, 1.5e-07)),
    losses("label_smoothing_left_on", (), "share", (0.1, 1e-05)),
    losses("loss_in_bf16", (), "share of the logits", (1, 0.007)),
    optimizing("decay_everywhere", (), "share of the decay", (1, 0.4)),
    optimizing("decay_nowhere", (), "share of the decay that is lost", (1, 0.35)),
    optimizing("beta1_wrong", (), "how much smaller", (0.1, 0.0002)),
    optimizing("beta2_wrong", (), "how much smaller", (0.049, 0.0005)),
    optimizing("adam_epsilon_wrong", (), "epsilon", (1e-05, 3e-08)),
    optimizing("bias_correction_skipped", (), "share", (1, 2.5e-05)),
    optimizing("warmup_off_by_one", (), "steps", (1, -1)),
    optimizing("rate_not_as_reported", (), "share", (0.1, 3e-05)),
    optimizing("clip_limit_wrong", (), "factor on the limit, 0 for none", (0, 1.00002)),
    exporting("export_experts_reordered", ("am#2682", "mc#5844"), "experts", (8, 2)),
    exporting("export_older_step", ("prime#1825",), "share of the tensors", (1, 0.05)),
    exporting("export_through_bf16", (), "share of the tensors", (1, 0.05)),
    exporting("export_tied_stale", ("am#2511", "acc#4171")),
    exporting("export_tensor_left_out", ("mc#5844",), "tensors", (5, 1)),
)

FAULTS = {fault.name: fault for fault in CATALOGUE}
