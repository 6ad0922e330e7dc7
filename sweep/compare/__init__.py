"""Two sweeps side by side: what moved between them, and whether that is a regression."""
