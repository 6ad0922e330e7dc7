"""What a user can mend: raised with one line that says what to change."""

from __future__ import annotations


class ConfigError(ValueError):
    """The request cannot be run; the message names the setting and a value that can."""
