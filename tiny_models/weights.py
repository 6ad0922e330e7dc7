"""Seeded weights: transformers' initialisation, then noise on every constant."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .errors import TinyModelError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig, PreTrainedModel

PERTURBATION = 0.05
"""Standard deviation of what is added to a constant; a quarter of its own for other vectors."""
EMBEDDING_GAIN = 10.0
"""How many times wider than other weights an embedding is that is not tied to the head."""
HASH_TABLE = "tid2eid"


def build(config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """A float32 CPU model of `config`; the caller's random state stays as it was."""
    import torch

    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(_seed_of(seed, "initialisation"))
        model = _initialised(config)
    with torch.no_grad():
        _keep_tokens_apart(model)
        for name, tensor in stored_tensors(model):
            _leave_no_constant(name, tensor, seed, config)
    _check_finite(model)
    return model


def _initialised(config: PreTrainedConfig) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    # Torch's layers would fill every weight once for transformers to fill it again; and tied before
    # they are filled, the weights of the head are never more than an address.
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.tie_weights()
    model.initialize_weights()
    return model.eval()


def stored_tensors(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers, each once (tied ones under their first name)."""
    kept = model.state_dict(keep_vars=True)
    yield from model.named_parameters()
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in kept)


def _keep_tokens_apart(model: PreTrainedModel) -> None:
    # With an embedding as narrow as the other weights, what attention averages drowns the token:
    # all of them choose the same experts, and some experts are never chosen.
    if not model.config.tie_word_embeddings:
        model.get_input_embeddings().weight.mul_(EMBEDDING_GAIN)


def _leave_no_constant(
    name: str, tensor: torch.Tensor, seed: int, config: PreTrainedConfig
) -> None:
    import torch

    generator = torch.Generator().manual_seed(_seed_of(seed, name))
    if name.endswith(HASH_TABLE):
        tensor.copy_(_hash_table(tensor, config.num_local_experts, generator))
    elif tensor.is_floating_point() and _is_predictable(tensor):
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
        own = float(tensor.std(correction=0))
        tensor.add_(noise.to(tensor.dtype), alpha=max(PERTURBATION, own / 4))


def _is_predictable(tensor: torch.Tensor) -> bool:
    # Vectors are constants or, as in mamba's A_log, the same for every seed: a load that loses
    # one would put the very same values back.
    return tensor.ndim <= 1 or len(set(_range(tensor))) == 1


def _range(tensor: torch.Tensor) -> tuple[float, float]:
    """Least and greatest value, both NaN if any is; allocates nothing of the tensor's size."""
    low, high = tensor.detach().aminmax()
    return float(low), float(high)


def _hash_table(like: torch.Tensor, experts: int, generator: torch.Generator) -> torch.Tensor:
    import torch

    order = torch.rand(like.shape[0], experts, generator=generator).argsort(dim=1, stable=True)
    return order[:, : like.shape[1]].to(like.dtype)


def _seed_of(seed: int, name: str) -> int:
    # Never the plain seed: a trainer that seeds torch with it would draw a lost tensor anew, equal.
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def _check_finite(model: PreTrainedModel) -> None:
    for name, tensor in stored_tensors(model):
        if tensor.is_floating_point() and not all(map(math.isfinite, _range(tensor))):
            raise TinyModelError(
                f"{name} of {model.config.model_type} was left uninitialised by transformers: "
                "nothing written; report it with the versions of torch and transformers"
            )
