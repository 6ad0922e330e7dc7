"""Trains every architecture in every layout with every feature, and says what broke.

The steps: `plan`, `launch` (through Hydra and submitit), `trainers`, `facts`, `store`, `checks`,
`judge`, `report`. `session` is the process that drives them.
"""

__version__ = "0.1.0"
