"""Features that trade time for memory, and the compiler: one file each, put together by `apply`.

Each reports what it did as a counter (`sft/report/counters.py`), measured where it happens, so
that a feature that was asked for and did nothing is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Forward = Callable[..., Any]
"""A decoder layer's forward: hidden states first, then what all layers are given alike."""
