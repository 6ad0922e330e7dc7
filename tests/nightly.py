"""Which cases of a long test run with each change, and which only in `make test-all`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def representatives(values: Iterable[Any], *kept: Any) -> Collection[Any]:
    """`values` as parameters of a test; all but `kept` carry the marker `nightly`."""
    return [
        value if value in kept else pytest.param(value, marks=pytest.mark.nightly)
        for value in values
    ]
