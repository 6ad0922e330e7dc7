"""transformers' own `Trainer` on a causal language model: `python -m hf_sft CONFIG.json`.

What is trained on is `sft`'s: the same documents in the same rows.
"""
