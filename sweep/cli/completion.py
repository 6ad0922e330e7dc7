"""Completion of `python -m sweep ...` in bash. Hydra knows the words, but only of a program.

Its own script is for `some_app` and `python some_app.py`; this one asks it about `python -m sweep`.
"""

from __future__ import annotations

import contextlib
import enum
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from sweep import schema
from sweep.errors import RequestError

FLAGS = {"-sc", "--shell-completion"}
HERE = {"arch": "llama", "layout": "single"}  # settings have names only where these are chosen

_SCRIPT = """\
_sweep_before=$(complete -p {python} 2>/dev/null | sed -n 's/.*-F \\([^ ]*\\).*/\\1/p')
[[ $_sweep_before != _sweep ]] || _sweep_before=
_sweep() {
    local asked='^[^ ]*python[0-9.]* +-m +sweep +(.*)$' last words
    if [[ ! ${COMP_LINE:0:COMP_POINT} =~ $asked ]]; then  # another program
        [[ -z $_sweep_before ]] || "$_sweep_before" "$@"
        return
    fi
    last=${BASH_REMATCH[1]##* }
    words=$(COMP_LINE="sweep ${BASH_REMATCH[1]}" "$1" -m sweep -sc query=bash 2>/dev/null)
    COMPREPLY=($(compgen -W "$words" -- "$last"))
    COMPREPLY=("${COMPREPLY[@]#"${last%"$2"}"}")  # readline splits words at =
}
complete -o nospace -o default -F _sweep python python3 {python}
"""


def answer(arguments: Sequence[str], ask: Callable[[], object]) -> None:
    """`-sc install=bash` prints the script; `query=bash` what may stand at the end of COMP_LINE.

    `ask` makes Hydra print what it knows. Raises RequestError.
    """
    wanted = [word for word in arguments if word not in FLAGS]
    if wanted == ["install=bash"]:
        print(_SCRIPT.replace("{python}", Path(sys.executable).name), end="")
    elif wanted == ["uninstall=bash"]:
        print("complete -r python python3", Path(sys.executable).name)
    elif wanted == ["query=bash"]:
        print(" ".join(_words(ask)))
    else:
        install = 'eval "$(python -m sweep -sc install=bash)"'
        raise RequestError(f"shell completion is for bash: {install}")


def _words(ask: Callable[[], object]) -> list[str]:
    """What may stand in the last word's place; after a comma, what may follow it."""
    line = os.environ.get("COMP_LINE", "")
    rest, _, last = line.rpartition(" ")
    key, equals, values = last.rpartition("=")
    before, comma, begun = values.rpartition(",")
    # Hydra completes choices, but no value that is begun
    os.environ["COMP_LINE"] = f"{_chosen(rest, key)} {key}{equals}{'' if equals else begun}"
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        ask()
    found = [value for word in said.getvalue().split() for value in _values(word)]
    if not equals:
        return found
    new = [one.partition("=")[2] for one in found]
    return [f"{key}={before}{comma}{one}" for one in new
            if one.startswith(begun) and one not in before.split(",")]  # fmt: skip


def _chosen(line: str, asked: str) -> str:
    """The line, with an arch and a layout where it has none and is not asked for one."""
    said = {word.partition("=")[0] for word in line.split()} | {asked}
    added = [f"{name}={value}" for name, value in HERE.items() if name not in said]
    return " ".join([line, *added])


def _values(word: str) -> Iterator[str]:
    """Hydra offers the value that a setting has: for enumerations and switches, all of them."""
    key, _, value = word.partition("=")
    kind, _, member = value.partition(".")
    known: Mapping[str, object] = vars(schema)
    choices = known.get(kind)
    if isinstance(choices, enum.EnumMeta) and member:
        yield from (f"{key}={one}" for one in choices.__members__)
    elif value in ("true", "false"):
        yield from (f"{key}=true", f"{key}=false")
    else:
        yield word
