"""Serve a modeling module's function ourselves while a sequence is being computed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch import nn

from sft.context.sequence import active

_MARK = "serves_sequences"


def replace(owner: ModuleType | type, name: str, replacement: Callable[..., Any]) -> list[str]:
    """Let `replacement(sequence, *arguments)` serve `owner.name` inside of `computing`.

    Outside of it the original serves. Returns the name, or nothing where `owner` has no such
    function; doing it twice changes nothing.
    """
    original = getattr(owner, name, None)
    if original is None:
        return []
    if not hasattr(original, _MARK):
        setattr(owner, name, _dispatch(original, replacement))
    return [name]


def replace_forwards(modeling: ModuleType, **replacements: Callable[..., Any]) -> list[str]:
    """`replace` the forward of classes by name; returns the names of those that there are."""
    return [
        name
        for name, replacement in replacements.items()
        if hasattr(modeling, name) and replace(getattr(modeling, name), "forward", replacement)
    ]


def modeling_module(module: nn.Module) -> ModuleType:
    """The file that defines a module's class (FSDP puts a class of its own in front)."""
    names = (cls.__module__ for cls in type(module).__mro__)
    return sys.modules[next(name for name in names if ".modeling_" in name)]


def _dispatch(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        sequence = active()
        if sequence is None:
            return original(*args, **kwargs)
        return replacement(sequence, *args, **kwargs)

    setattr(dispatch, _MARK, True)
    return dispatch
