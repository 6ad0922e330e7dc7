"""The command `python -m sweep`: Hydra composes, and what goes wrong is one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, open_dict

from sweep import schema
from sweep.cli import completion
from sweep.cli.complaints import one_line
from sweep.cli.terminal import check_linux, steady
from sweep.cli.usage import usage
from sweep.errors import RequestError, told
from sweep.files import ConfDirs, conf_dir, config_dir_of

schema.register()


def main() -> int:
    """Run Hydra on the command line; returns the exit code: 0, 1, 2 or 3 (or 130, interrupted)."""
    steady()
    argv, conf = sys.argv[1:], ConfDirs()
    try:
        check_linux()
        conf = ConfDirs.having(config_dir_of(argv)[0])
        return _run(argv, conf)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 2
    except BaseException as error:  # noqa: BLE001  # each has its line and its exit code
        return _answer(error, conf)


def _run(argv: list[str], conf: ConfDirs) -> int:
    if {"--help", "-h"} & set(argv):
        print(usage(conf))
        return 0
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors come here instead of being printed
    task = Task(argv, conf)
    run = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(task)
    if completion.FLAGS & set(argv):
        completion.answer(argv, run)
    else:
        sys.argv[1:] = options_first(argv)
        run()
    return task.exit_code


def options_first(argv: list[str]) -> list[str]:
    """The same command line as Hydra reads it, which takes no override behind an option."""
    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]  # in place of a page of usage
    parsed = parser.parse_intermixed_args(argv)
    if not (parsed.multirun or parsed.cfg or parsed.info or "hydra.mode=MULTIRUN" in argv):
        _check_is_a_case(parsed.overrides)
    options = list(argv)
    for override in parsed.overrides:
        options.remove(override)
    return [*options, *parsed.overrides]


def _check_is_a_case(overrides: Sequence[str]) -> None:
    """Raise RequestError for what is about a sweep; composing a case would miss its arch first."""
    from sweep.plan.suite import OF_THE_SWEEP

    for key, _, value in (override.partition("=") for override in overrides):
        if key in OF_THE_SWEEP and value not in ("null", "false"):
            raise RequestError(f"{key}=... is about a sweep: add -m (python -m sweep -m ...)")


def refuse(message: str) -> NoReturn:
    """What argparse calls."""
    raise RequestError(f"{message}; python -m sweep --help shows examples")


class Task:
    """What Hydra calls: one case in the foreground. Both it and the sweeper leave an exit code."""

    def __init__(self, argv: Sequence[str], conf: ConfDirs) -> None:
        self.argv, self._conf = argv, conf
        self.exit_code = 0

    def __call__(self, config: DictConfig) -> int:
        """Run the composed case. Always returns, so that Hydra calls its callbacks."""
        try:
            self.exit_code = _foreground(config, self.argv)
        except Exception as error:  # noqa: BLE001  # Hydra would print more than a line
            self.exit_code = _answer(error, self._conf)
        return self.exit_code


def _foreground(config: DictConfig, argv: Sequence[str]) -> int:
    from sweep.case.machine import this_machine
    from sweep.plan import honoured, plan_one
    from sweep.plan.suite import SET_BY_US
    from sweep.session import foreground

    with open_dict(config):
        config.hydra = HydraConfig.get()  # which Hydra keeps from its task
    honoured.check_case(config.hydra)
    for key in SET_BY_US:
        if config.get(key):
            raise RequestError(f"{key}: the sweep itself sets it; leave it out")
    planned = plan_one(config.hydra.overrides.task, config, this_machine())
    return foreground.run(planned, this_machine(), argv)


def _answer(error: BaseException, conf: ConfDirs) -> int:
    """Its line, printed, and its exit code."""
    line = one_line(error, conf)
    said, code = told(error) if line is None else (line, 2)
    print(f"sweep: {said}", file=sys.stderr)
    return code
