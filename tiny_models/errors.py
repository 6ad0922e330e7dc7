"""The only error that a user of this package sees."""

from __future__ import annotations


class TinyModelError(ValueError):
    """A request that cannot be met; the message is one line that names the next step."""
