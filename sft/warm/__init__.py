"""Ranks forked from a process that has torch, transformers and the model code imported."""
