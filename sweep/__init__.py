"""Trains every architecture in every layout with every feature, and says what broke.

A case's way, a folder each: `cli` reads the words, `plan` makes the case, `session` hands it to a
launcher, `run` starts it through `trainers`, `logs` and the readers give facts, `store` keeps them,
`checks` and `judge` decide, `report` tells.
"""

import sys

# As `python -m sweep`, the folder that we are started in comes first: its own sft/ or tiny_models/
# would be taken for ours. It comes last, as what is started from here gets it (-P).
if sys.argv[0] == "-m" and not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))

__version__ = "0.1.0"
