"""One sweep of an experiment is pinned as the baseline, and shown, and forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sweep import baseline
from sweep.errors import MachineryError
from sweep.facts import Facts
from sweep.store import Location, Reader, SweepRecord
from tests.sweep.recording import named, night

Make = Callable[..., Facts]


@pytest.fixture
def command(outputs: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """The command on the store of the test: its exit code and all that it prints."""

    def run(*argv: str) -> tuple[int, str]:
        code = baseline.main([*argv, f"outputs={outputs}"])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_pinning_takes_the_place_of_the_sweep_pinned_before_in_that_experiment(
    outputs: Path, make_facts: Make, command: Callable[..., tuple[int, str]]
) -> None:
    first, second = night(outputs, 1, make_facts()), night(outputs, 2, make_facts())
    other = night(outputs, 3, make_facts(), experiment="adhoc")
    assert command("show") == (
        0,
        "no sweep is pinned; as in: python -m sweep.baseline pin latest experiment=nightly\n",
    )
    assert command("pin", first)[0] == 0
    assert command("pin", "latest", "experiment=adhoc") == (
        0,
        f"pinned {other} of adhoc (git_sha abc, finished)\n",
    )
    code, said = command("pin", "latest", "experiment=nightly")
    assert (code, said) == (
        0,
        f"pinned {second} of nightly (git_sha abc, finished); no longer {first}\n",
    )
    reader = Reader.at(outputs)
    assert [one.sweep_id for one in reader.pinned_sweeps()] == [other, second]
    assert command("pin", second) == (0, f"pinned {second} of nightly (git_sha abc, finished)\n")
    assert command("unpin", "experiment=nightly")[1].startswith(f"no longer pinned: {second}")
    assert [one.sweep_id for one in reader.pinned_sweeps()] == [other]


def test_the_shards_of_a_night_are_pinned_beside_each_other(
    outputs: Path, make_facts: Make, command: Callable[..., tuple[int, str]]
) -> None:
    halves = [make_facts(), named(make_facts(), "other")]
    first, second = (night(outputs, day, half) for day, half in enumerate(halves, start=1))
    later = night(outputs, 3, *halves)
    assert command("pin", first)[1] == f"pinned {first} of nightly (git_sha abc, finished)\n"
    assert command("pin", second)[1] == f"pinned {second} of nightly (git_sha abc, finished)\n"
    reader = Reader.at(outputs)
    found = reader.pinned(reader.find(later))
    assert {name: facts.sweep_id for name, facts in found.items()} == {
        halves[0].case.id: first,
        "other": second,
    }
    assert command("pin", later)[1].endswith(f"; no longer {second}; no longer {first}\n")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["pinn", "latest"], "pinn latest: not understood; as in: python -m sweep.baseline pin"),
        ([], "a word is missing: not understood"),
        (["pin", "latest", "experment=x"], "did you mean experiment=?"),
        (["pin", "latest"], "nothing is recorded yet"),
        (["show"], "nothing is recorded yet"),
    ],
)
def test_a_wrong_request_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    assert baseline.main([*argv, f"outputs={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_help_shows_each_of_the_three(capsys: pytest.CaptureFixture[str]) -> None:
    assert baseline.main(["--help"]) == 0
    assert capsys.readouterr().out.count("python -m sweep.baseline show") == 2


def test_a_store_that_takes_no_tag_is_named_without_its_password() -> None:
    reader = Reader(Location("http://me:secret@127.0.0.1:9"))
    sweep = SweepRecord("20260101-000000", "run", "1", "nightly", 0.0, "FINISHED", {})
    with pytest.raises(MachineryError, match=r"MLflow \(http://127.0.0.1:9\) cannot unpin") as told:
        baseline.unpin(reader, [sweep])
    assert "secret" not in str(told.value)
