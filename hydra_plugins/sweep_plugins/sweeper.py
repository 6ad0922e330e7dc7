"""The sweeper: Hydra's basic one, with a plan before the jobs and a judgement after them."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from hydra_plugins.sweep_plugins.launcher import Observed


class CaseSweeper(BasicSweeper):
    """Expands the command line as the basic sweeper does, and runs each case once."""

    def sweep(self, arguments: list[str]) -> Any:
        """Plan, run, record, judge, report; ends the process with the sweep's exit code."""
        from sweep.case.machine import this_machine
        from sweep.errors import RequestError
        from sweep.plan.request import Request
        from sweep.session.driver import Session

        assert self.hydra_context is not None
        assert self.config is not None
        assert self.launcher is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        machine, request = this_machine(), Request.of(self.config)
        planned = request.cases(parser.parse_overrides(arguments), self._compose, machine)
        launcher: Any = self.launcher
        if not isinstance(launcher, Observed):
            raise RequestError(f"{type(launcher).__name__}: choose hydra/launcher=local or slurm")
        if request.plan_only:
            limits = planned[0].settings.launch
            request.show(planned, partial(launcher.expected, machine, limits))
            sys.exit(0)
        if request.detach and not launcher.detachable:
            raise RequestError("detach=true: add hydra/launcher=slurm, whose jobs go on without us")
        if request.detach and request.conclusion is not None:
            raise RequestError("detach=true: this suite is about all its cases, and waits for them")
        session = Session.begin(
            planned, machine, request.experiment, request.earlier,
            detach=request.detach, conclusion=request.conclusion,
        )  # fmt: skip
        launcher.observer = session
        sys.exit(session.execute(lambda: launcher.launch(session.overrides(), 0)))

    def _compose(self, overrides: Sequence[str]) -> DictConfig:
        assert self.hydra_context is not None
        assert self.config is not None
        return self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
