"""python -m sweep.versus: two commits side by side."""
