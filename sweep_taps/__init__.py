"""How a trainer shows what it computes: one import in any PyTorch trainer, inert unless asked.

    import sweep_taps
    sweep_taps.batch(step, input_ids, labels, position_ids)  # the rows that a step trains on
    sweep_taps.watch(model)                                  # optional: which model to look into

Nothing happens unless the environment variable SWEEP_TAPS names a folder. Then every rank adds the
rows that `batch` is given to a file of its own there (docs/oracle.md). With SWEEP_TAPS_INSIDE=1 it
also writes what is computed inside of the model and by its optimizer (docs/locate.md).
"""

from __future__ import annotations

from sweep_taps.batches import VARIABLE, batch, is_on, rank
from sweep_taps.watching import start, stepped, watch

__all__ = ["VARIABLE", "batch", "is_on", "rank", "start", "stepped", "watch"]

start()
