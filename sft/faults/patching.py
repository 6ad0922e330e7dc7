"""The two ways to change a place in running code: put something around it, or edit its source."""

from __future__ import annotations
import __future__

import functools
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from sft.config import Config
from sft.ranks import Ranks

Owner = ModuleType | type | object
Function = Callable[..., Any]
HANDLE = "_planted"
"""The name under which edited source finds the fault that edited it."""


class PlantError(Exception):
    """The place to change is gone, or reads otherwise than when the fault was written."""


@dataclass(frozen=True)
class Plant:
    """What a fault is given: the run's configuration, its rank, and how strong to be."""

    config: Config
    ranks: Ranks
    strength: float
    changed: list[tuple[Owner, str, Function]] = field(default_factory=list)
    """What was there before, in order."""

    def around(self, owner: Owner, name: str, make: Callable[[Function], Function]) -> None:
        """Let `make(original)` serve in place of `owner.name`."""
        original = found(owner, name)
        self.substitute(owner, name, functools.wraps(original)(make(original)))

    def after(self, owner: Owner, name: str, then: Callable[..., Any]) -> None:
        """Let `then(result, *arguments)` run when `owner.name` returns; a value replaces its."""

        def make(original: Function) -> Function:
            def both(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                replaced = then(result, *args, **kwargs)
                return result if replaced is None else replaced

            return both

        self.around(owner, name, make)

    def edit(self, owner: Owner, name: str, old: str, new: str) -> None:
        """Replace the one place in the source of `owner.name` that reads `old`.

        The new source sees this object as `_planted`.
        """
        original = found(owner, name)
        source = textwrap.dedent(inspect.getsource(original))
        if source.count(old) != 1:
            raise PlantError(
                f"{described(owner)}.{name} reads {old!r} {source.count(old)} times, not once;"
                " mend it in sft/faults"
            )
        function = compiled(original, name, source.replace(old, new))
        inspect.unwrap(original).__globals__[HANDLE] = self
        self.substitute(owner, name, function)

    def substitute(self, owner: Owner, name: str, new: Function) -> None:
        """Put `new` in place of `owner.name`, wherever the trainer imported it."""
        original = getattr(owner, name)
        places = [(owner, name), *imports_of(original)]
        for place, key in dict.fromkeys(places):
            self.changed.append((place, key, original))
            setattr(place, key, new)

    def restore(self) -> None:
        """Put back what was there."""
        while self.changed:
            owner, name, original = self.changed.pop()
            setattr(owner, name, original)


def found(owner: Owner, name: str) -> Function:
    """`owner`'s own `name`; raises `PlantError` where there is none, or it is inherited."""
    original = vars(owner).get(name)
    if not callable(original):
        raise PlantError(f"{described(owner)} has no {name} any more; mend it in sft/faults")
    return original


def described(owner: Owner) -> str:
    """The name of a module or class."""
    return str(getattr(owner, "__name__", owner))


def compiled(original: Function, name: str, source: str) -> Function:
    """A function from edited source, with the original's globals, readable in tracebacks."""
    file = f"<fault in {inspect.getsourcefile(original)}:{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    flags = __future__.annotations.compiler_flag
    scope: dict[str, Any] = {}
    code = compile(source, file, "exec", flags=flags, dont_inherit=True)
    exec(code, inspect.unwrap(original).__globals__, scope)
    return scope[name]


def imports_of(function: Function) -> list[tuple[ModuleType, str]]:
    """The modules of the trainer that have a function, and under which name."""
    ours = [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "sft"]
    return [(m, key) for m in ours for key, value in list(vars(m).items()) if value is function]
