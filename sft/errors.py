"""What a user can fix: raised with one line that says what to change."""

from __future__ import annotations


class ConfigError(ValueError):
    """The request cannot be run; the message names the setting and a value that can."""


class UnfitError(ConfigError):
    """The request is right, but this machine, layout, dtype or model cannot run it."""
