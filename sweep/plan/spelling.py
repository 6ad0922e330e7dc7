"""Strings as values of overrides."""

from __future__ import annotations

import re


def spelled(value: str) -> str:
    """A string as an override's value: quoted where Hydra would take a sign in it for its own."""
    return value if re.fullmatch(r"[\w.+:/-]+", value) else quoted(value)


def quoted(value: str) -> str:
    """A string as Hydra's override grammar reads it back unchanged, whatever is in it."""
    escaped = value.replace("\\'", "\\\\'").replace("'", "\\'")
    if escaped.endswith("\\"):
        escaped += "\\"
    return f"'{escaped}'"
