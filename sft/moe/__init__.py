"""Mixtures of experts: who computes them, which were chosen, and how they are balanced."""
