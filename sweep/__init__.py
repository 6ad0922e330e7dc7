"""Trains every architecture in every layout with every feature, and says what broke.

A case's way, a folder each: `cli` reads the words, `plan` makes the case, `session` hands it to a
launcher, `run` starts it through `trainers`, `logs` and the readers give facts, `store` keeps them,
`checks` and `judge` decide, `report` tells.
"""

__version__ = "0.1.0"
