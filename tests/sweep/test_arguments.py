from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.cli.arguments import EXPERIMENT, OUTPUTS, SWEEP, Argument, Usage, run
from sweep.errors import MachineryError, RequestError
from sweep.files import ConfDirs

JUDGE = Usage("sweep.judge", "Judge.", "python -m sweep.judge sweep=latest",
              (SWEEP, EXPERIMENT, OUTPUTS))  # fmt: skip
COMPARE = Usage("sweep.compare", "Compare.", "python -m sweep.compare base=A head=B",
                (Argument("base", "a sweep"), Argument("head", "a sweep", "latest")))  # fmt: skip
PIN = Usage("sweep.baseline", "Pin.", "python -m sweep.baseline pin SWEEP", (OUTPUTS,),
            ("pin", "SWEEP"))  # fmt: skip


def test_every_command_takes_a_folder_of_ones_own(tmp_path: Path) -> None:
    for argv in (["--config-dir", str(tmp_path), "sweep=x"], ["sweep=x", "-cd", str(tmp_path)]):
        assert run(JUDGE, lambda values, conf: 7 if conf.own == tmp_path else 0, argv) == 7
    assert run(JUDGE, lambda values, conf: 0 if conf == ConfDirs() else 7, []) == 0


def test_what_is_left_out_has_its_default_or_is_not_there() -> None:
    assert JUDGE.parse([]) == {"sweep": "latest", "outputs": "outputs"}
    assert JUDGE.parse(["experiment=a=b", "sweep=x"])["experiment"] == "a=b"
    assert PIN.parse(["pin", "latest"]) == {"sweep": "latest", "outputs": "outputs"}


@pytest.mark.parametrize(
    ("usage", "argv", "line"),
    [
        (COMPARE, [], "base=... is missing; as in: python -m sweep.compare base=A head=B"),
        (JUDGE, ["swep=x"], "swep=x: there is no argument swep; did you mean sweep=?"),
        (JUDGE, ["q=x"], "q=x: there is no argument q; known: sweep, experiment, outputs"),
        (JUDGE, ["sweep="], "sweep=: say a value; as in: python -m sweep.judge sweep=latest"),
        (JUDGE, ["latest"], "latest: not understood; as in: python -m sweep.judge sweep=latest"),
        (PIN, ["unpin", "x"], "unpin x: not understood; as in: python -m sweep.baseline pin SWEEP"),
        (JUDGE, ["--config-dir", "gone"], "--config-dir gone: no such folder"),
        (JUDGE, ["--config-dir"], "--config-dir: name the folder, as in --config-dir FOLDER"),
        (PIN, [], "a word is missing: not understood; as in: python -m sweep.baseline pin SWEEP"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_next_step(
    usage: Usage, argv: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(usage, lambda *_: 0, argv) == 2
    assert capsys.readouterr().err == f"{usage.command}: {line}\n"


def test_what_goes_wrong_ends_in_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(error: BaseException) -> int:
        raise error

    assert run(JUDGE, lambda *_: fail(MachineryError("down")), []) == 3
    assert run(JUDGE, lambda *_: fail(RequestError("wrong")), []) == 2
    assert run(JUDGE, lambda *_: fail(KeyboardInterrupt()), []) == 130
    assert run(JUDGE, lambda *_: 1, []) == 1
    assert capsys.readouterr().err.splitlines() == [
        "sweep.judge: down",
        "sweep.judge: wrong",
        "sweep.judge: interrupted",
    ]


def test_help_has_an_example_and_every_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(JUDGE, lambda *_: 1, ["--help"]) == 0
    said = capsys.readouterr().out
    assert "Example: python -m sweep.judge sweep=latest" in said
    assert all(f"{one.name}=..." in said for one in JUDGE.arguments)


@given(
    st.dictionaries(
        st.sampled_from(["sweep", "experiment", "outputs"]), st.text(min_size=1), min_size=3
    )
)
def test_any_value_comes_through_unchanged(values: dict[str, str]) -> None:
    assert JUDGE.parse([f"{key}={value}" for key, value in values.items()]) == values
