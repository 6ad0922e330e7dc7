"""The command `python -m sweep`: Hydra composes, and what goes wrong is one line."""

from __future__ import annotations

import os
import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from sweep import completion, schema
from sweep.complaints import one_line
from sweep.errors import MachineryError, RequestError
from sweep.files import conf_dir
from sweep.usage import usage

schema.register()


def main() -> int:
    """Run Hydra on the command line; returns the exit code: 0, 1, 2 or 3 (or 130, interrupted)."""
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(usage())
        return 0
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors come here instead of being printed
    run = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(task)
    try:
        if completion.FLAGS & set(sys.argv[1:]):
            completion.answer(sys.argv[1:], run)
        else:
            run()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 2
    except MachineryError as error:
        return _complain(str(error), 3)
    except KeyboardInterrupt:
        return _complain("interrupted before the first case", 130)
    except Exception as error:
        line = one_line(error)
        if line is None:
            raise
        return _complain(line, 2)
    return 0


def task(config: DictConfig) -> None:
    """One composed case, in the foreground: what Hydra calls without `-m`."""
    try:
        sys.exit(_foreground(config))
    except (RequestError, OmegaConfBaseException) as error:  # Hydra would print a traceback
        sys.exit(_complain(str(one_line(error)), 2))


def _foreground(config: DictConfig) -> int:
    from sweep import foreground
    from sweep.machine import this_machine
    from sweep.plan import plan_one
    from sweep.plan.suite import OF_THE_SWEEP

    for key in OF_THE_SWEEP:
        if config.get(key):
            raise RequestError(f"{key}=... is about a sweep: add -m (python -m sweep -m ...)")
    planned = plan_one(HydraConfig.get().overrides.task, config, this_machine())
    return foreground.run(planned, this_machine())


def _complain(line: str, code: int) -> int:
    print(f"sweep: {line}", file=sys.stderr)
    return code
