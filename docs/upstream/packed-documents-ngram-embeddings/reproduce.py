"""N-gram embeddings look back into the document that is packed before.

    python reproduce.py

Calls qwen4_exp's per-layer embedding on two documents packed into one row. Prints how far its
output for the second one moves when only the first one's tokens change: zero is expected.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextPLELayer

FIRST, SECOND, VOCABULARY, END = 20, 20, 512, 1


def layer() -> Qwen4ExpTextPLELayer:
    config = Qwen4ExpTextConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        ple_layer_ids=[1],
        ple_embed_dim=32,
        ngram_vocab_size_base=1000,
        eos_token_id=END,
    )
    built = Qwen4ExpTextPLELayer(config, layer_idx=0, ple_layer_index=0)
    for parameter in built.parameters():  # the convolution starts as zero in a fresh model
        torch.nn.init.normal_(parameter, std=0.5)
    return built


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    ple = layer()
    states = torch.randn(1, FIRST + SECOND, ple.hc_count * ple.hidden_size)
    for what, last in (("without an end-of-sequence token", 2), ("ending in one", END)):
        tokens = torch.randint(2, VOCABULARY, (1, FIRST + SECOND))
        tokens[:, FIRST - 1] = last
        changed = tokens.clone()
        changed[:, : FIRST - 1] = torch.randint(2, VOCABULARY, (1, FIRST - 1))
        changed[:, FIRST - 1] = END if last == END else 3
        embeddings, outputs = (
            (after - before).abs().amax(-1)[0, FIRST:]
            for before, after in (
                (ple.ple_embedding(tokens, None), ple.ple_embedding(changed, None)),
                (ple(states, tokens, None), ple(states, changed, None)),
            )
        )
        print(
            f"first document {what}: {(embeddings > 0).sum()} embeddings of the second moved, "
            f"{(outputs > 0).sum()} outputs of the layer, by up to {outputs.max():.2g}"
        )


if __name__ == "__main__":
    main()
