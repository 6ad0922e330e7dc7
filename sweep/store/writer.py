"""Records a sweep's results in a thread, so that a slow store delays no case."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as OutOfTime
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from sweep import commands
from sweep.errors import MachineryError
from sweep.report import Result
from sweep.store.ending import End
from sweep.store.location import Location
from sweep.store.recorder import Recorder

Answer = TypeVar("Answer")
PAUSE_SECONDS = 60.0  # without an attempt after a failure
PATIENCE_SECONDS = 50.0  # with a server, once all cases have ended
LOCAL_PATIENCE_SECONDS = 300.0  # with a file, whose tables alone take a slow machine 15 s


class Writer:
    """Records the cases of one sweep as they end; after a failure `sweep.sync` records the rest.

    The thread is a daemon: waiting for a dead server must not keep the process alive.
    """

    def __init__(self, location: Location, folder: Path, patience: float | None = None) -> None:
        self.location = location
        usual = PATIENCE_SECONDS if location.is_server else LOCAL_PATIENCE_SECONDS
        self._patience = usual if patience is None else patience  # left
        self._recorder = Recorder(location, folder)
        self._left: list[tuple[Result, bool]] = []  # could not be recorded; whether once more
        self._paused_until = 0.0
        self.has_begun = False  # something was to be recorded
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None  # started with the first task
        self._prepared: threading.Thread | None = None

    def prepare(self) -> None:
        """Import MLflow in a thread, if it is not yet: while a trainer runs, that costs no time."""
        if self._prepared is None:
            self.location.set_environment()  # here: a thread must not change what a job inherits
            self._prepared = threading.Thread(
                target=self._import, name="mlflow-import", daemon=True
            )
            self._prepared.start()

    def _import(self) -> None:
        with suppress(Exception):  # whoever records meets it again, and reports it
            self.location.import_mlflow()

    def record(self, result: Result, again: bool = False) -> None:
        """Queue a case's run to be written; `again`: also where it was, before its last launch."""
        self.has_begun = True
        self._submit(lambda: self._record(result, again))

    def settle(self) -> None:
        """Wait until every case is in MLflow; those that failed are tried once more.

        Raises MachineryError if that fails or takes too long.
        """
        self.call(self._try_again)

    def set_aside(self, folder: Path, move: Callable[[], Path | None]) -> None:
        """Move a case's folder by `move` once all that is queued of it is recorded.

        What could not be recorded is tried again from where the folder is then.
        Raises MachineryError.
        """

        def work() -> None:
            if (moved := move()) is not None:
                self._left = [
                    (replace(result, folder=moved) if result.folder == folder else result, again)
                    for result, again in self._left
                ]

        self.call(work)

    def finish(self, results: Sequence[Result], end: End) -> None:
        """End the sweep's own run, with the reports in its folder; raises MachineryError."""
        self.call(lambda: self._recorder.finish(results, end))

    def call(self, work: Callable[[], Answer]) -> Answer:
        """Queue other work with the store and wait for it; raises MachineryError.

        All such waiting together is limited to the store's patience.
        """
        began = time.monotonic()
        try:
            answer: Answer = self._submit(work).result(min(self._patience, threading.TIMEOUT_MAX))
        except OutOfTime:
            raise self._failure("it takes too long") from None
        except Exception as error:
            raise self._failure(error) from error
        finally:
            self._patience = max(0.0, self._patience - (time.monotonic() - began))
        return answer

    def _submit(self, work: Callable[[], Any]) -> Future[Any]:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
            self._thread.start()
        done: Future[Any] = Future()
        self._tasks.put((work, done))
        return done

    def _work(self) -> None:
        while True:
            work, done = self._tasks.get()
            try:
                with self.location.exclusive():
                    done.set_result(work())
            except BaseException as error:  # noqa: BLE001  # MLflow raises what its backends raise
                done.set_exception(error)

    def _record(self, result: Result, again: bool) -> None:
        if time.monotonic() < self._paused_until:
            self._left.append((result, again))
            return
        try:
            self._recorder.record(result, again)
        except Exception:
            self._left.append((result, again))
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            raise

    def _try_again(self) -> None:
        while self._left:
            self._recorder.record(*self._left[0])
            del self._left[0]

    def _failure(self, reason: object) -> MachineryError:
        sync = commands.spelled("sweep.sync", [f"outputs={self._recorder.folder.parent}"])
        return MachineryError(
            f"results are on disk but not in MLflow ({self.location.shown}):"
            f" {self.location.said(reason)};"
            f" {sync} records them later"
        )
