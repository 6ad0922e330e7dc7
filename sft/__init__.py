"""A compact trainer: supervised fine-tuning of transformers models, sharded, on CPUs or GPUs."""
