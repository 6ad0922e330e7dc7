"""A packed row is each of its documents alone on transformers' own, unpatched path.

For the sparse and compressed attentions, whose picks and windows depend on the row they are in.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from sft import model
from sft.config import Config, ModelConfig
from sft.context.sequence import Sequence, computing, document_ids
from sft.report import counters

LENGTHS = (101, 37, 3, 115)  # several windows and a rest, one window and a rest, less than any


@torch.no_grad()
@pytest.mark.usefixtures("one_thread", "first_of_equals")
@pytest.mark.parametrize("arch", ["glm_moe_dsa", "deepseek_v4", "qwen4_exp"])
def test_packed_documents_compute_what_transformers_computes_for_each_alone(
    checkpoint: Callable[[str], Path], arch: str
) -> None:
    path = checkpoint(arch)
    ours = model.load(Config(model=ModelConfig(path=str(path)))).eval()
    # outside of `computing` nothing of ours serves, and the reference attention is its own
    theirs = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
    positions = torch.cat([torch.arange(length) for length in LENGTHS])[None]
    tokens = torch.randint(5, 2000, positions.shape, generator=torch.Generator().manual_seed(1))
    counters.take()
    with computing(Sequence(positions, document_ids(positions), tokens)):
        packed = ours(input_ids=tokens, position_ids=positions, use_cache=False).logits
    assert counters.take()["indexer_keys_dropped"] > 0, "no indexer had to choose"
    for document, logits in zip(tokens.split(LENGTHS, 1), packed.split(LENGTHS, 1), strict=True):
        alone = theirs(input_ids=document, use_cache=False).logits
        # rounding alone: another pick would move a logit by 1e-2
        torch.testing.assert_close(logits, alone, rtol=1e-4, atol=1e-4)
