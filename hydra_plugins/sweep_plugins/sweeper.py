"""The sweeper: Hydra's basic one, with a plan before the jobs and a judgement after them."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.sweep_plugins.launcher import Observed


class CaseSweeper(BasicSweeper):
    """Expands the command line as the basic sweeper does, and runs each case once."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """As the basic sweeper's; keeps the task: it has the command line, and takes the code."""
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self._task: Any = task_function

    def sweep(self, arguments: list[str]) -> None:
        """Plan, run, record, judge, report. Returns, so that Hydra calls `on_multirun_end`."""
        from sweep.case.machine import this_machine
        from sweep.plan import honoured
        from sweep.plan.request import Request
        from sweep.session.driver import Session
        from sweep.session.notify import Notice

        assert self.hydra_context is not None
        assert self.config is not None
        launcher: Any = self.launcher
        honoured.check_sweep(self.config, self.hydra_context.callbacks.callbacks)
        honoured.check_launcher(self.config, isinstance(launcher, Observed))
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        machine, request = this_machine(), Request.of(self.config, launcher.detachable)
        words = [*self._parse_config(), *arguments]  # what is typed replaces hydra.sweeper.params
        planned = request.cases(parser.parse_overrides(words), self._compose, machine)
        if request.plan_only:
            limits = planned[0].settings.launch
            request.show(planned, partial(launcher.expected, machine, limits))
            return
        said = self.config
        notice = Notice.asked_for(said.notify, said.notify_form, said.notify_always)
        session = Session.begin(
            planned, machine, request.experiment, request.earlier,
            detach=request.detach, conclusion=request.conclusion, argv=self._task.argv,
        )  # fmt: skip
        session.locate(request.locate)
        session.notify(notice)
        launcher.observer = session
        self._task.exit_code = session.execute(
            lambda: launcher.launch(session.overrides(), 0), can_settle=True
        )

    def _compose(self, overrides: Sequence[str]) -> DictConfig:
        from sweep.plan import env_set

        assert self.hydra_context is not None
        assert self.config is not None
        kept = env_set.left_out(overrides, env_set.of(self.config))
        return self.hydra_context.config_loader.load_sweep_config(self.config, kept)
