"""The time, as it was when this process began and counted on from there.

The clock of a machine is set now and then (NTP, a virtual machine that was asleep): differences of
`time.time()` are negative then, or hours.
"""

from __future__ import annotations

import time

_OFFSET = time.time() - time.monotonic()


def now() -> float:
    """Seconds since the epoch; of two calls the later one never gives less."""
    return _OFFSET + time.monotonic()
