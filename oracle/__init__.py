"""A second opinion: what a training step computes, by plain transformers in one process.

Every document by itself, eager attention and eager experts, float32; AdamW, clipping and schedules
from their formulas. It imports neither the trainers nor the sweep that it is an opinion on.
docs/oracle.md explains every formula.
"""
