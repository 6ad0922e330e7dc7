from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweep.logs import breaks, root_cause

SUMMARY = """
[rank1]: something before
============================================================
sft FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-01-01_00:00:01
  host      : here
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 13)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : here
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 12)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 12
============================================================
"""


def rank_folder(ranks: Path, rank: int, error: object = None) -> Path:
    folder = ranks / "none_abc" / "attempt_0" / str(rank)
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_text(f"out of {rank}\n")
    (folder / "stderr.log").write_text(f"err of {rank}\n")
    if error is not None:
        (folder / "error.json").write_text(json.dumps(error))
    return folder


def error(message: str, timestamp: int) -> object:
    return {"message": {"message": message, "extraInfo": {"timestamp": str(timestamp)}}}


def test_a_killed_rank_is_named_by_the_summary(tmp_path: Path) -> None:
    log = tmp_path / "launcher.log"
    log.write_text(SUMMARY)
    rank_folder(tmp_path / "ranks", 2)
    cause = root_cause.find(log, tmp_path / "ranks")
    assert cause.rank == 2
    assert cause.failure == "Signal 9 (SIGKILL) received by PID 12"
    assert cause.rank_tail == "out of 2\nerr of 2"


def test_without_a_summary_the_earliest_error_file_counts(tmp_path: Path) -> None:
    rank_folder(tmp_path / "ranks", 0, error("RuntimeError: connection\nclosed by peer", 20))
    rank_folder(tmp_path / "ranks", 3, error("ValueError: the cause", 10))
    cause = root_cause.find(tmp_path / "none.log", tmp_path / "ranks")
    assert (cause.rank, cause.failure) == (3, "ValueError: the cause")


def test_a_torn_error_file_is_not_believed(tmp_path: Path) -> None:
    (rank_folder(tmp_path / "ranks", 0) / "error.json").write_text('{"message": ')
    assert root_cause.find(tmp_path / "none.log", tmp_path / "ranks") == root_cause.RootCause()


def test_what_is_no_log_of_a_rank_is_passed_over(tmp_path: Path) -> None:
    rank_folder(tmp_path / "ranks", 1)
    (tmp_path / "ranks" / "mine").mkdir()
    (tmp_path / "ranks" / "mine" / "stderr.log").write_text("Graph break in user code\n")
    assert root_cause.last_words(tmp_path / "ranks") == "rank 1:\nerr of 1"
    (tmp_path / "launcher.log").write_text(SUMMARY.replace("rank      : 2", "rank      : 1"))
    assert root_cause.find(tmp_path / "launcher.log", tmp_path / "ranks").rank_tail.endswith("of 1")
    assert breaks.read(tmp_path) is None


def test_the_last_words_of_every_rank_are_kept_in_order(tmp_path: Path) -> None:
    for rank in (10, 9):
        rank_folder(tmp_path / "ranks", rank)
    words = root_cause.last_words(tmp_path / "ranks")
    assert words == "rank 9:\nerr of 9\nrank 10:\nerr of 10"


def test_a_rank_that_hung_is_quoted_where_it_hung_however_deep_its_stack(tmp_path: Path) -> None:
    calls = [f'  File "f.py", line {n} in outer{n}' for n in range(90)]
    stacks = [
        "Fatal Python error: Aborted",
        "Thread 0x02 (most recent call first):", '  File "queue.py", line 1 in get',
        "Current thread 0x01 (most recent call first):", '  File "nccl.py", line 1 in wait', *calls,
        "", "Extension modules: numpy (total: 1)",
    ]  # fmt: skip
    helper = ["Fatal Python error: Aborted", "", "Current thread 0x03 (most recent call first):",
              '  File "<string>", line 1 in <module>']  # fmt: skip
    stacks += helper
    (rank_folder(tmp_path / "ranks", 0) / "stderr.log").write_text("\n".join(stacks))
    words = root_cause.last_words(tmp_path / "ranks").splitlines()
    assert words[1:3] == [stacks[3], stacks[4]]
    assert len(words) == 16


@pytest.mark.parametrize("last", [
    "submitit WARNING (2026-01-01 00:00:00) - Bypassing signal SIGTERM",
    "submitit INFO (2026-01-01 00:00:00) - Job has timed out",
    "W0101 00:00:00.000000 12 torch/distributed/run.py:851] Setting OMP_NUM_THREADS",
    "/x/y.py:3: UserWarning: it is deprecated",
    "",
])  # fmt: skip
def test_a_warning_is_not_why_a_job_ended(last: str) -> None:
    said = "slurmstepd: error: Detected 1 oom_kill event"
    assert root_cause.last_complaint(f"before\n{said}\n{last}\n") == said
    assert root_cause.last_complaint(f"{last}\n") == ""
