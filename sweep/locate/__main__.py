"""`python -m sweep.locate case=ID [sweep=ID]`: where a failed case parts from its reference."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.case import folder as sweep_folder
from sweep.cli import arguments
from sweep.cli.arguments import OUTPUTS, SWEEP, Argument, Usage
from sweep.errors import RequestError
from sweep.locate.look import look

JSON = "--json"
USAGE = Usage(
    "sweep.locate",
    "Run a case and what it is compared with once more, look inside of both, and say where they"
    "\npart first: step, stage, module, tokens or parameter, rank, and the difference's size."
    f"\nWith {JSON}, print JSON. Exits 0 if it says where, 1 if nothing inside differs.",
    "python -m sweep.locate case=llama-fsdp2_ep1-none sweep=latest",
    (
        Argument("case", "a case's id, as in reports"),
        SWEEP,
        Argument("against", "a case of the sweep, oracle, or uninterrupted", optional=True),
        Argument("keep", "true: leave what was recorded in the case's folder", "false"),
        OUTPUTS,
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Look into the case that the command line names; returns the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    is_json = JSON in argv
    rest = [word for word in argv if word != JSON]
    return arguments.run(USAGE, lambda values, _conf: _run(values, is_json), rest)


def _run(values: Mapping[str, str], is_json: bool) -> int:
    if values["keep"] not in ("true", "false"):
        raise RequestError(f"keep={values['keep']}: say true or false")
    folder = sweep_folder.find(Path(values["outputs"]), values["sweep"])
    found = look(folder, values["case"], values.get("against"), values["keep"] == "true")
    print(json.dumps(found.as_json(), indent=2) if is_json else found)
    return 0 if found.place is not None else 1


if __name__ == "__main__":
    sys.exit(main())
