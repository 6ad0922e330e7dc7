"""Two sweeps side by side: what is a regression, what is none, and how both are told."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sweep.case.identity import Identity
from sweep.case.labels import Case
from sweep.compare import __main__ as command
from sweep.compare import page
from sweep.compare.page import Page
from sweep.compare.rows import is_good
from sweep.facts import CompilerFacts, Facts, Happening, Step
from sweep.store import CaseRecord, Reader, SweepRecord
from tests.sweep.confs import limits
from tests.sweep.conftest import CASE
from tests.sweep.recording import named, night

Make = Callable[..., Facts]


@pytest.fixture
def case(make_facts: Make) -> Callable[..., CaseRecord]:
    """A case's run; `losses` and what else its steps report, its verdict, its facts' fields."""

    def make(
        verdict: str = "passed", name: str = CASE.id, loss: float = 0.0,
        breaks: list[Happening] | None = None, seconds: float = 1.0, **update: Any,
    ) -> CaseRecord:  # fmt: skip
        steps = [
            Step(
                step=n,
                loss=3.0 - 0.1 * n + loss,
                grad_norm=1.0,
                global_batch_digest=f"b{n}",
                step_seconds=seconds,
                peak_memory_gib=2.0,
            )
            for n in range(1, 6)
        ]
        facts = make_facts(steps, compiler=CompilerFacts(breaks=breaks or []))
        facts = facts.model_copy(
            update={"case": CASE.model_copy(update={"id": name}), "seconds": 10 * seconds, **update}
        )
        tags = {"case_id": name, "verdict": verdict, "check.exit": "pass"}
        if verdict == "failed":
            tags["check.alive"] = "fail"
        ran = None if verdict == "unavailable" else facts
        return CaseRecord("run", 0.0, "FINISHED", tags, {}, {}, ran)

    return make


def sweep(sweep_id: str, **tags: str) -> SweepRecord:
    about = {"torch": "2.13.0", "git_sha": "a" * 40, **tags}
    return SweepRecord(sweep_id, sweep_id, "1", "nightly", 0.0, "FINISHED", about)


def compared(base: list[CaseRecord], head: list[CaseRecord]) -> Page:
    return Page.of(sweep("20260101-000000"), sweep("20260102-000000"), base, head, limits())


def broken(line: int) -> Happening:
    return Happening(frame=f"x.py:{line}", reason="print", ranks={"0": 1})


def test_equal_sweeps_have_no_regression_and_nothing_to_note(case: Make) -> None:
    found = compared([case()], [case()])
    assert (found.regressions, found.notes, found.verdict) == ([], [], "no regression in 1 cases")


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ("passed", "failed", 1), ("known", "crashed", 1), ("passed", "inconclusive", 1),
        ("passed", "unavailable", 1), ("fixed", "failed", 1), ("failed", "crashed", 0),
        ("failed", "passed", 0), ("unavailable", "failed", 0), ("passed", "known", 0),
        ("passed", "fixed", 0),
    ],
)  # fmt: skip
def test_a_case_that_no_longer_passes_is_a_regression(
    case: Make, before: str, after: str, count: int
) -> None:
    found = compared([case(before)], [case(after)])
    assert len(found.regressions) == count
    said = found.regressions or found.notes
    why = " (alive)" if after == "failed" and count else ""
    assert said == [f"{CASE.id}: {before} > {after}{why}"]


def test_a_new_graph_break_is_a_regression_and_one_that_is_gone_is_told(case: Make) -> None:
    found = compared([case(breaks=[broken(1), broken(2)])], [case(breaks=[broken(1), broken(3)])])
    assert found.regressions == [f"{CASE.id}: new graph break: {broken(3)}"]
    assert found.notes == [f"{CASE.id}: graph break gone: {broken(2)}"]


def test_a_loss_that_moved_with_the_same_libraries_is_a_regression(case: Make) -> None:
    found = compared([case()], [case(loss=0.1, environment={"git_sha": "b" * 40})])
    assert len(found.regressions) == 1
    assert (
        f"{CASE.id}: step 1: loss is 3, 2.9 in the base sweep 20260101-000000"
        in (found.regressions[0])
    )
    assert "git_sha none > bbbbbbbbb" in found.regressions[0]


def test_another_library_is_compared_with_and_named(case: Make) -> None:
    found = compared([case()], [case(loss=0.1, environment={"torch": "2.14.0"})])
    assert found.regressions[0].endswith("; moved: torch none > 2.14.0")
    assert found.heads[2] == "moved: torch none > 2.14.0"


@pytest.mark.parametrize("verdict", ["passed", "failed"])
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"optim.lr": 1e-3}, "optim.lr 0.0001 > 0.001"),
        ({"trainer": "hf_trainer", "device": "cuda"},
         "trainer.name command > hf_trainer, device cpu > cuda"),
    ],
)  # fmt: skip
def test_other_settings_are_told_and_are_no_regression(
    case: Make, verdict: str, changed: dict[str, Any], said: str
) -> None:
    head = case(verdict, loss=0.1, seconds=9.0, breaks=[broken(1)])
    labels = {key: value for key, value in changed.items() if key in Case.model_fields}
    head.facts.case = head.facts.case.model_copy(update=labels)
    head.facts.identity = Identity(settings={"optim.lr": changed.get("optim.lr", 1e-4)})
    found = compared([case()], [head])
    assert found.regressions == []
    assert found.notes[-1] == (
        f"{CASE.id}: not comparable with the base sweep 20260101-000000: {said}"
    )
    assert found.rows[0].largest == {}


def test_a_case_that_cannot_run_on_another_device_is_no_regression(case: Make) -> None:
    base, head = case(), case("unavailable")
    base.tags["device"], head.tags["device"] = "cuda", "cpu"
    found = compared([base], [head])
    assert found.regressions == []
    assert found.notes == [
        f"{CASE.id}: passed > unavailable",
        f"{CASE.id}: not comparable: device cuda > cpu",
    ]


def test_of_a_base_of_an_earlier_version_verdicts_alone_are_compared(case: Make) -> None:
    failed = compared([case(identity=None)], [case("failed", loss=0.1, seconds=9.0)])
    assert failed.regressions == [f"{CASE.id}: passed > failed (alive)"]
    passed = compared([case(identity=None)], [case(loss=0.1)])
    assert passed.regressions == []
    assert "was recorded by an earlier version" in passed.notes[0]


def test_another_checkpoint_is_told_and_a_case_that_fails_on_it_is_a_regression(case: Make) -> None:
    other = Identity(settings={"optim.lr": 1e-4}, checkpoint="c2", data="d1")
    found = compared([case()], [case(loss=0.1, identity=other)])
    assert found.regressions == []
    assert "checkpoint c1 > c2, under the same settings" in found.notes[0]
    failed = compared([case()], [case("failed", loss=0.1, identity=other)])
    assert failed.regressions == [f"{CASE.id}: passed > failed (alive)"]


@pytest.mark.parametrize("head", ["passed", "fixed"])
def test_a_known_failure_that_is_fixed_is_a_fix(case: Make, head: str) -> None:
    found = compared([case("known", loss=0.1)], [case(head)])
    assert found.regressions == []
    assert found.notes[0] == f"{CASE.id}: known > {head}, which is a fix"
    assert found.notes[1].startswith(f"{CASE.id}: step 1: loss is 2.9, 3 in the base sweep")


def test_other_batches_of_the_same_data_are_a_regression(case: Make) -> None:
    other = case(loss=0.1)
    other.facts.steps[0].global_batch_digest = "other"
    found = compared([case()], [other])
    assert "not the same data; moved: nothing" in found.regressions[0]
    assert found.rows[0].largest == {}


def test_cases_of_one_sweep_alone_are_told_and_are_none(case: Make) -> None:
    found = compared([case(), case(name="old")], [case(), case("failed", name="new")])
    assert found.regressions == []
    assert found.notes == ["old: in the base alone", "new: in the head alone, failed"]


def test_a_case_that_was_interrupted_has_no_result_to_compare(case: Make) -> None:
    stopped = case()
    del stopped.tags["verdict"]
    found = compared([case(), case(name="other")], [stopped, case(name="other")])
    assert (found.regressions, found.notes) == ([], [f"{CASE.id}: in the base alone"])


def test_a_case_that_the_head_was_to_run_and_did_not_is_a_regression(case: Make) -> None:
    both = [case(), case(name="other"), case("failed", name="bad")]
    planned = [CASE.id, "other", "bad"]
    cut = Page.of(sweep("1"), sweep("2"), both, [case(name="other")], limits(), planned)
    assert cut.regressions == [f"{CASE.id}: passed > no result, of a case that the head was to run"]
    assert cut.notes == ["bad: in the base alone, failed"]


def test_the_table_fits_80_columns_and_shows_what_moved(case: Make) -> None:
    long = "qwen3_moe-fsdp4_ep4-optim_offload_off"
    found = compared([case(name=long)], [case("failed", name=long, loss=0.1, seconds=1.5)])
    file = io.StringIO()
    page.show(found, Console(file=file, width=80))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    table = " ".join(next(line for line in lines if "1.50" in line).split())
    assert "4e-02 0 1.50 1.00 1.50" in table
    assert lines[-1] == "2 regressions in 1 cases"


def test_markdown_has_the_regressions_first_and_escapes_what_steers_it(case: Make) -> None:
    odd = Happening(frame="x.py:1", reason="a | b <c>", ranks={"0": 1})
    text = page.markdown(compared([case()], [case(breaks=[odd], seconds=1.5)]))
    assert text.startswith("# 1 regression in 1 cases\n\n- base 20260101-000000 (nightly)\n")
    assert "a \\| b \\<c\\>" in text
    assert f"| {CASE.id} | passed | 0 | 0 | 1.50 | 1.00 | 1.50 |" in text


def test_versions_that_moved_are_told() -> None:
    moved = Page.of(sweep("1"), sweep("2", torch="2.14.0", git_sha="b" * 40), [], [], limits())
    assert moved.heads[2] == "moved: torch 2.13.0 > 2.14.0, git_sha aaaaaaaaa > bbbbbbbbb"


def test_the_command_gates_by_its_exit_code(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    first = night(outputs, 1, make_facts())
    night(outputs, 2, make_facts())
    third = night(outputs, 3, make_facts(exit_code=1))
    foreign = make_facts()
    foreign.case = CASE.model_copy(update={"id": "other"})
    other = night(outputs, 4, foreign, experiment="adhoc")
    reader = Reader.at(outputs)
    reader.location.client.set_tag(reader.find(first).run_id, "baseline", "pinned")
    where = f"outputs={outputs}"
    cut = named(make_facts(), CASE.id, interrupted=True)
    both = [cut, named(make_facts(), "second")]
    night(outputs, 6, make_facts(), named(make_facts(), "second"), experiment="cut")
    night(outputs, 7, *both, experiment="cut")
    assert command.main(["experiment=cut", where]) == 1
    assert f"{CASE.id}: passed > no result" in " ".join(capsys.readouterr().out.split())
    shard = night(outputs, 8, foreign, experiment="cut")  # another one of a night
    assert command.main(["experiment=cut", where]) == 2
    assert f"{shard} is the first sweep of cut with" in capsys.readouterr().err
    night(outputs, 9, make_facts(), named(make_facts(), "second"), experiment="cut")
    assert command.main(["experiment=cut", where]) == 0
    assert "base 20260107-000000 (cut)" in capsys.readouterr().out
    assert command.main(["head=20260102-000000", where]) == 0
    assert f"base {first} (nightly)" in capsys.readouterr().out
    written = outputs / "moved.md"
    assert command.main([f"head={third}", "base=pinned", f"markdown={written}", where]) == 1
    said = capsys.readouterr().out
    assert "passed > crashed (exit" in said
    assert f"\nlook in {outputs}/{third}/{CASE.id}\n" in said
    assert f"- look in `{outputs}/{third}/{CASE.id}`\n" in written.read_text()
    assert written.read_text().startswith("# 1 regression")
    assert command.main([f"head={third}", f"base={first}", "markdown=-", where]) == 1
    assert capsys.readouterr().out.startswith("# 1 regression")
    for wrong, said in (
        ([f"base={first}", f"head={first}"], f"base and head are both {first}"),
        (["base=gone"], "no sweep gone in"),
        ([f"base={first}", f"head={other}"], "have no case in common"),
        ([f"head={other}"], f"{other} is the first sweep of adhoc with one of its cases; name"),
        ([f"head={other}", "base=pinned"], "no sweep of adhoc is pinned"),
    ):
        assert command.main([*wrong, where]) == 2
        assert said in capsys.readouterr().err


def test_a_name_that_a_trainer_gave_steers_no_markdown(case: Make) -> None:
    hostile = "x\n# Heading\n![image](https://example.org/a.png) <b> | `code`"
    odd = Happening(frame="a.py:1", reason=hostile, ranks={"0": 1})
    text = page.markdown(compared([case()], [case(breaks=[odd])]))
    assert "\n# Heading" not in text
    assert "![image](" not in text
    assert "<b>" not in text
    (line,) = (one for one in text.splitlines() if "Heading" in one)
    assert "\\|" in line


@pytest.mark.parametrize(
    ("verdict", "ran_well"),
    [("passed", True), ("known", True), ("unavailable", False), ("failed", False), ("new", False)],
)
def test_a_case_that_never_ran_did_not_run_well(verdict: str, ran_well: bool) -> None:
    record = CaseRecord("run", 0.0, "FINISHED", {"case_id": "a", "verdict": verdict}, {}, {}, None)
    assert is_good(record) is ran_well
