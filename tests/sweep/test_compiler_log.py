from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.facts import CompilerFacts, Happening
from sweep.logs import breaks as graph_breaks
from sweep.logs import compiler_log
from sweep.logs.breaks import relative

PROGRAM = Path(__file__).with_name("breaking.py")
BY_HAND = "Call to `torch._dynamo.graph_break()`: User-inserted graph break. Message: None"
SAID = {
    "explicit": BY_HAND, "helper": BY_HAND, "looped": BY_HAND, "three, first": BY_HAND,
    "three, second": BY_HAND, "three, third": BY_HAND, "branch": "Data-dependent branching: ",
    "unsupported": "builtin operator `print`", "disabled": "`<function off at 0x>`",
}  # fmt: skip


real = pytest.mark.slow  # torch compiles a dozen functions for the log that these tests read


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the installed torch says of breaking.py."""
    folder = tmp_path_factory.mktemp("breaking")
    done = subprocess.run([sys.executable, PROGRAM], cwd=folder, capture_output=True, text=True,
                          env=compiler_log.log_variables(os.environ), timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


def of_launcher(folder: Path, text: str) -> CompilerFacts:
    (folder / "launcher.log").write_text(text)
    found = graph_breaks.read(folder)
    assert found is not None
    return found


def frame(name: str) -> str:
    lines = PROGRAM.read_text().splitlines()
    return f"breaking.py:{1 + [line.endswith(f'# break {name}') for line in lines].index(True)}"


def of_rank(log: str, rank: int) -> str:
    """The same log as another process would have written it, through torchrun."""
    log = re.sub(r"(?<=\d )\d+(?= \S+:\d+\])", str(70000 + rank), log)
    lines = log.replace("[rank0]:", f"[rank{rank}]:").splitlines()
    return "\n".join(f"[default{rank}]:{line}" for line in lines)


def interleaved(logs: Iterable[str]) -> str:
    rows = zip_longest(*(log.splitlines() for log in logs))
    return "\n".join(line for row in rows for line in row if line is not None)


# The log of the installed torch.


@real
def test_every_break_is_found_once_where_it_is_with_its_reason(log: str, tmp_path: Path) -> None:
    found = {one.frame: one for one in of_launcher(tmp_path, log).breaks}
    for name, said in SAID.items():
        assert said in found.pop(frame(name)).reason, name
    assert sorted(one.function for one in found.values()) == ["forward", "specialised"]


@real
def test_a_break_inside_a_library_is_told_by_the_librarys_line(log: str, tmp_path: Path) -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    lines = Path(spec.origin).with_name("nn").joinpath("modules", "loss.py").read_text()
    call = 1 + ["F.gaussian_nll_loss(" in line for line in lines.splitlines()].index(True)
    frames = [one.frame for one in of_launcher(tmp_path, log).breaks if one.function == "forward"]
    assert frames == [f"torch/nn/modules/loss.py:{call}"]


@real
def test_how_often_each_was_logged_is_counted(log: str, tmp_path: Path) -> None:
    found = of_launcher(tmp_path, log)
    counts = {one.frame: one.ranks["0"] for one in found.breaks}
    assert counts[frame("explicit")] == 1
    assert counts[frame("helper")] == 3  # in itself, and in each half of its caller
    # compiled for two shapes, and still three breaks
    assert [counts[frame(f"three, {n}")] for n in ("first", "second", "third")] == [2, 2, 2]


@real
def test_a_recompile_of_a_frame_with_three_breaks_is_one_of_each_of_its_four_parts(
    log: str, tmp_path: Path
) -> None:
    found = of_launcher(tmp_path, log)
    three = [one for one in found.recompiles if "three" in one.function]
    assert len(three) == 4
    assert {one.reason for one in three} == {
        "tensor 'x' size mismatch at index N. expected N, actual N"
    }


@real
def test_a_function_that_is_given_up_is_a_break_and_no_recompile(log: str, tmp_path: Path) -> None:
    found = of_launcher(tmp_path, log)
    given_up = [one for one in found.breaks if one.function == "specialised"]
    assert [one.reason for one in given_up] == [
        "hit config.recompile_limit: the function runs uncompiled from now on"
    ]
    assert [one.reason for one in found.recompiles if one.function == "specialised"] == [
        "word == 'a'"  # three words, of which the limit allows two
    ]
    assert found.recompile_count == 5


@real
def test_graphs_are_counted_as_they_go_to_the_backend(log: str, tmp_path: Path) -> None:
    found = of_launcher(tmp_path, log)
    assert found.graphs == {"0": log.count("calling compiler function eager")}
    assert found.graphs["0"] > len(found.breaks)


@real
@pytest.mark.parametrize("mixed", [False, True])
def test_the_same_break_on_four_ranks_is_one_break(log: str, tmp_path: Path, mixed: bool) -> None:
    logs = [of_rank(log, rank) for rank in range(4)]
    (tmp_path / "one").mkdir()
    one = of_launcher(tmp_path / "one", log)
    four = of_launcher(tmp_path, interleaved(logs) if mixed else "\n".join(logs))
    assert {found.identity for found in four.breaks} == {found.identity for found in one.breaks}
    assert four.graphs == {str(rank): one.graphs["0"] for rank in range(4)}
    assert four.recompile_count == one.recompile_count
    helper = next(found for found in four.breaks if found.frame == frame("helper"))
    assert helper.ranks == {"0": 3, "1": 3, "2": 3, "3": 3}
    assert str(helper).endswith("(ranks 0, 1, 2, 3)")


@real
def test_ranks_with_logs_of_their_own_are_not_counted_again_in_the_launchers(
    log: str, tmp_path: Path
) -> None:
    for rank in (0, 1):
        folder = tmp_path / "ranks" / "none_x" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(log.replace("[rank0]:", f"[rank{rank}]:"))
        (folder / "stdout.log").write_text("hello\n")
    found = of_launcher(tmp_path, "\n".join(of_rank(log, rank) for rank in (0, 1)))
    graphs = log.count("calling compiler function")
    assert found.graphs == {"0": graphs, "1": graphs}


def test_a_log_without_the_compilers_lines_says_nothing(tmp_path: Path) -> None:
    assert graph_breaks.read(tmp_path) is None
    (tmp_path / "launcher.log").write_text("step 1\n[rank0]: no\nGraph break in user code at a:1\n")
    assert graph_breaks.read(tmp_path) is None


# Identities.


def record(text: str, **changed: object) -> compiler_log.LogEntry:
    values = {"pid": "1", "rank": "0", "compile_id": "0/0", "artifact": "graph_breaks", **changed}
    return compiler_log.LogEntry(text=text, **values)  # type: ignore[arg-type]


def only_break(text: str) -> Happening:
    (found,) = graph_breaks.tally([("0", record(text))]).breaks
    return found


def test_a_break_that_skips_its_frame_is_found_by_its_stack() -> None:
    found = only_break(
        "Graph break: torch.compile cannot properly resume from this graph break, which results"
        " in a skip.\ntorch.compile will skip tracing the frame f (a.py line 1) and fall back to"
        " eager.\nThe graph break occurred in the following user code:\n"
        '  File "/x/lib/python3.12/site-packages/lib/a.py", line 3, in f\n    g()\n'
    )
    assert (found.frame, found.function) == ("lib/a.py:3", "f")
    assert found.reason.startswith("torch.compile cannot properly resume")


def test_a_reason_without_an_explanation_is_its_first_line() -> None:
    head = "Graph break in user code at a.py:3\nGraph Break Reason: "
    assert only_break(
        f"{head}call_method UserDefined at 0x7f12\nUser code traceback:\n"
    ).reason == ("call_method UserDefined at 0x")
    assert only_break(f"{head}\nUser code traceback:\n").reason == "no reason given"


@given(
    st.tuples(st.integers(0, 2**48), st.integers(0, 9999)),
    st.tuples(st.integers(0, 2**48), st.integers(0, 9999)),
)
def test_addresses_and_sizes_do_not_make_another_break(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    def reason(address: int, size: int) -> str:
        return graph_breaks.normalised(f"call f at {address:#x} with s{size}, ({size}, {size})")

    assert reason(*one) == reason(*other) == "call f at 0x with N, (N, N)"


@given(st.text(max_size=400))
def test_any_text_is_a_reason_of_one_line(text: str) -> None:
    reason = graph_breaks.normalised(text)
    assert len(reason) <= graph_breaks.REASON_LIMIT
    assert len(reason.splitlines()) <= 1


@given(st.lists(st.text(max_size=60), max_size=20))
def test_whatever_is_in_a_log_reading_it_ends(lines: list[str]) -> None:
    prefix = "[rank0]:V0131 12:00:00.000000 7 torch/_dynamo/x.py:1] [0/0] [__graph_breaks] "
    found = compiler_log.entries([f"{prefix}{line}" for line in [*lines, "Graph break: "]])
    graph_breaks.tally(("0", one) for one in found)


def test_frames_are_the_same_on_every_machine(tmp_path: Path) -> None:
    package = tmp_path / "somewhere" / "trainer" / "models"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    assert relative(str(package / "moe.py")) == "trainer/models/moe.py"
    assert relative(str(tmp_path / "somewhere" / "train.py")) == "train.py"
    assert relative("/v/lib/python3.12/site-packages/torch/x.py") == "torch/x.py"
    assert relative("/usr/lib/python3/dist-packages/torch/x.py") == "torch/x.py"
    assert relative("/usr/lib/python3.12/contextlib.py") == "contextlib.py"
    assert relative("<eval_with_key>") == "<eval_with_key>"


def test_the_users_own_logging_stays_on_in_a_format_that_can_be_read() -> None:
    env = compiler_log.log_variables(
        {"TORCH_LOGS": "dynamic,recompiles", "TORCH_LOGS_FORMAT": "short", "HOME": "/h"}
    )
    assert env == {
        "TORCH_LOGS": "dynamic,recompiles,graph_breaks,torch._dynamo.output_graph",
        "HOME": "/h",
    }
