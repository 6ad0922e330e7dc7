"""One file an architecture; see `tiny_models.registry`."""
