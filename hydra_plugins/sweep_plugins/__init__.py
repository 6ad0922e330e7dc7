"""Hydra finds its plugins here: the sweeper and the launchers of `sweep`."""
