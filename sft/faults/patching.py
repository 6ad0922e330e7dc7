"""The two ways to change a place in running code: put something around it, or edit its source."""

from __future__ import annotations

import __future__

import functools
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
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

    def around(self, owner: Owner, name: str, make: Callable[[Function], Function]) -> None:
        """Let `make(original)` serve in place of `owner.name`."""
        original = found(owner, name)
        substitute(owner, name, original, functools.wraps(original)(make(original)))

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
                f"{described(owner)}.{name} has {source.count(old) or 'no'} place"
                f"{'s' if source.count(old) > 1 else ''} that reads {old!r}; mend it in sft/faults"
            )
        function = compiled(original, name, source.replace(old, new))
        inspect.unwrap(original).__globals__[HANDLE] = self
        substitute(owner, name, original, function)


def found(owner: Owner, name: str) -> Function:
    """`owner.name`; raises `PlantError` where there is none of that name."""
    original = getattr(owner, name, None)
    if not callable(original):
        raise PlantError(f"{described(owner)} has no {name} any more; mend it in sft/faults")
    return original  # type: ignore[no-any-return]


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
    return scope[name]  # type: ignore[no-any-return]


def substitute(owner: Owner, name: str, original: Function, new: Function) -> None:
    """Put `new` in place of `original`, wherever the trainer imported it."""
    setattr(owner, name, new)
    for module in list(sys.modules.values()):
        if module is not None and module.__name__.partition(".")[0] == "sft":
            for key, value in list(vars(module).items()):
                if value is original:
                    setattr(module, key, new)
