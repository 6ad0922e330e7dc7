"""Regular expressions in files that people write."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field


def _compiles(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return value


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_compiles)]
"""Text that is a regular expression, checked when its file is read."""
