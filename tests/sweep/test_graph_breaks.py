from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sweep import conf_file, report
from sweep.checks import Context, Finding, Outcome, known_breaks
from sweep.checks import graph_breaks as the_check
from sweep.errors import RequestError
from sweep.facts import CompilerFacts, Facts, Happening, Metrics, Step
from sweep.files import ConfDirs
from sweep.judge import Verdict, judge
from sweep.report import Result
from sweep.run import job
from tests.sweep.confs import instead_of_ours
from tests.sweep.conftest import CASE
from tests.sweep.planning import planned

Make = Callable[..., Facts]
NEW = Happening(reason="Data-dependent branching: no", frame="sft/moe/experts.py:57",
                function="dispatch", ranks={"0": 2, "1": 2})  # fmt: skip
AGAIN = Happening(reason="size mismatch", frame="a.py:1", function="forward",
                  ranks={"0": 2, "1": 3})  # fmt: skip
ENTRY = (
    '- {case: "llama-*", frame: "sft/moe/experts.py:*", reason: "Data-dependent",'
    ' why: sizes, issue: "https://x/1"}'
)


@pytest.fixture
def conf(tmp_path: Path) -> ConfDirs:
    """`conf/` with a list of known breaks of the test's own."""
    (tmp_path / "conf").mkdir()
    return instead_of_ours(tmp_path / "conf", without=known_breaks.FILE)


@pytest.fixture
def known(conf: ConfDirs) -> Callable[[str], None]:
    """Write the list of known breaks."""

    def write(text: str) -> None:
        (conf.shipped / known_breaks.FILE).write_text(text)
        conf_file.entries.cache_clear()

    return write


@pytest.fixture
def compiled_facts(make_facts: Make, known: Callable[[str], None]) -> Make:
    """Facts of a compiled case with these breaks; None is a compiler that wrote nothing."""
    known("[]")

    def make(
        *breaks: Happening, graphs: int | None = 3, recompiles: list[Happening] | None = None,
        **launch: object,
    ) -> Facts:  # fmt: skip
        ranks = {"0": graphs, "1": graphs} if graphs else {}
        seen = CompilerFacts(breaks=list(breaks), recompiles=recompiles or [], graphs=ranks)
        facts = make_facts(compiler=None if graphs is None else seen, **launch)
        return facts.model_copy(update={"asked": {**facts.asked, "compile": True}})

    return make


def finding(facts: Facts, conf: ConfDirs) -> Finding:
    found = the_check.check(facts, Context(conf=conf))
    assert found is not None
    return found


def test_a_case_without_the_compiler_is_not_checked(make_facts: Make) -> None:
    assert the_check.check(make_facts(), Context()) is None


def test_no_break_passes(conf: ConfDirs, compiled_facts: Make) -> None:
    found = finding(compiled_facts(), conf)
    assert (found.outcome, found.message) == (Outcome.PASS, "")
    assert found.metrics == {
        "graph_breaks/total": 0.0,
        "graph_breaks/new": 0.0,
        "compile/recompiles": 0.0,
    }


def test_recompiles_are_counted_and_told(conf: ConfDirs, compiled_facts: Make) -> None:
    found = finding(compiled_facts(recompiles=[AGAIN]), conf)
    assert found.metrics["compile/recompiles"] == 3.0  # of the rank with the most
    assert (found.outcome, found.message) == (
        Outcome.PASS,
        "train: 1 recompile: a.py:1 in forward: size mismatch (ranks 0, 1)",
    )


def counting(*recompiles: object) -> Metrics:
    figures = {"loss": 2.0, "grad_norm": 1.0}
    return Metrics(
        steps=[
            Step(step=n, counters={"recompiles": count}, **figures)
            for n, count in enumerate(recompiles, start=1)
        ]
    )


@pytest.mark.parametrize("counts", [(0, 1, 1, 1), ([0, 0], [0, 1], [1, 1], [2, 0])])
def test_recompiles_at_every_step_fail(
    conf: ConfDirs, compiled_facts: Make, counts: tuple[object, ...]
) -> None:
    found = finding(compiled_facts(recompiles=[AGAIN], metrics=counting(*counts)), conf)
    assert (found.outcome, found.folder) == (Outcome.FAIL, "launches/1_train")
    assert found.message.startswith("train: recompiles step after step; 1 recompile: a.py:1 in")


@pytest.mark.parametrize("counts", [(3, 1, 1, 0), (0, 1, 1), ([0, 0], [1, 1], [0, 0], [1, 1])])
def test_a_few_recompiles_do_not(
    conf: ConfDirs, compiled_facts: Make, counts: tuple[object, ...]
) -> None:
    found = finding(compiled_facts(recompiles=[AGAIN], metrics=counting(*counts)), conf)
    assert found.outcome is Outcome.PASS


def test_a_new_break_fails_and_names_its_line_and_reason(
    conf: ConfDirs, compiled_facts: Make
) -> None:
    found = finding(compiled_facts(NEW), conf)
    assert found.outcome is Outcome.FAIL
    assert found.message == (
        "1 new graph break: sft/moe/experts.py:57 in dispatch: Data-dependent branching: no"
        " (ranks 0, 1)"
    )
    assert (found.metrics["graph_breaks/new"], found.folder) == (1.0, "launches/1_train")


def test_of_many_new_breaks_the_first_are_named(conf: ConfDirs, compiled_facts: Make) -> None:
    many = [NEW.model_copy(update={"frame": f"a.py:{line}"}) for line in range(7)]
    found = finding(compiled_facts(*many), conf)
    assert found.message.startswith("7 new graph breaks: a.py:0 in dispatch: ")
    assert found.message.endswith("; and 4 more")


def test_a_known_break_passes_and_is_told(
    conf: ConfDirs, compiled_facts: Make, known: Callable[[str], None]
) -> None:
    known(ENTRY)
    found = finding(compiled_facts(NEW), conf)
    assert found.outcome is Outcome.PASS
    assert found.message.startswith("1 known graph break: sft/moe/experts.py:57 in dispatch")
    assert (found.metrics["graph_breaks/total"], found.metrics["graph_breaks/new"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    "changed",
    [("llama-", "qwen3-"), ("experts.py:*", "experts.py:56"), ("Data-dependent", "Call to")],
)
def test_an_entry_of_another_case_line_or_reason_does_not_cover_it(
    conf: ConfDirs, compiled_facts: Make, known: Callable[[str], None], changed: tuple[str, str]
) -> None:
    known(ENTRY.replace(*changed))
    assert finding(compiled_facts(NEW), conf).outcome is Outcome.FAIL


def test_an_entry_that_no_longer_occurs_is_to_be_deleted(
    conf: ConfDirs, compiled_facts: Make, known: Callable[[str], None]
) -> None:
    known(ENTRY)
    found = finding(compiled_facts(), conf)
    assert found.outcome is Outcome.PASS
    assert found.message == (
        f"no longer broken, delete {conf.shipped.name}/known_graph_breaks.yaml line 1:"
        " sft/moe/experts.py:*: Data-dependent (https://x/1)"
    )
    assert finding(compiled_facts(exit_code=1), conf).message == ""  # it did not get that far
    assert finding(compiled_facts(timed_out=True), conf).message == ""


@pytest.mark.parametrize(
    ("graphs", "said"),
    [(0, "train: no graph was captured"), (None, "train: the compiler wrote nothing")],
)
def test_zero_breaks_of_zero_graphs_prove_nothing(
    conf: ConfDirs, compiled_facts: Make, graphs: int | None, said: str
) -> None:
    found = finding(compiled_facts(graphs=graphs), conf)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.message.startswith(said)


def test_a_break_that_left_no_graph_still_fails(conf: ConfDirs, compiled_facts: Make) -> None:
    assert finding(compiled_facts(NEW, graphs=0), conf).outcome is Outcome.FAIL


def test_every_launch_has_to_be_compiled(conf: ConfDirs, compiled_facts: Make) -> None:
    facts, second = compiled_facts(), compiled_facts(name="resume", graphs=0).launches[0]
    found = finding(facts.model_copy(update={"launches": [*facts.launches, second]}), conf)
    assert (found.outcome, found.message) == (Outcome.INCONCLUSIVE, "resume: no graph was captured")
    nothing = facts.model_copy(update={"launches": []})
    assert finding(nothing, conf).message == "nothing ran"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "while parsing"),
        ("a: 1", "say a list of entries"),
        (
            '- {case: llama-a, frame: b, reason: "(", why: c}',
            "reason: Value error, not a regular",
        ),
        ("- {case: llama-a, frame: b, reason: c}", "line 1: why: Field required"),
        (
            "- {case: llama-a, frame: b, reason: c, why: d, when: e}",
            "line 1: when: Extra inputs",
        ),
        ("- text", "line 1: say case, trainer, frame, reason, why, issue alone"),
    ],
)
def test_a_bad_list_of_known_breaks_is_one_line_and_no_pass(
    conf: ConfDirs, compiled_facts: Make, known: Callable[[str], None], text: str, said: str
) -> None:
    known(text)
    with pytest.raises(RequestError, match=re.escape(said)) as error:
        known_breaks.of_case(CASE, conf)
    assert "\n" not in str(error.value)
    assert finding(compiled_facts(), conf).outcome is Outcome.INCONCLUSIVE


def test_the_list_that_ships_can_be_read() -> None:
    assert known_breaks.entries(ConfDirs()), "those of transformers' Trainer"
    assert known_breaks.of_case(CASE, ConfDirs()) == [], "which the built-in trainer does not have"


# In the report, and in a launch.


def junit(facts: Facts, conf: ConfDirs) -> dict[str, ET.Element]:
    result = Result(
        judge(facts, Context(conf=conf)), Path("outputs/x") / facts.case.id, "run it", facts
    )
    suite = ET.fromstring(report.junit("x", [result]))
    tests = {test.get("name", "").partition("[")[0]: test for test in suite}
    assert suite.get("tests") == str(len(tests))
    assert suite.get("failures") == str(sum(len(test.findall("failure")) for test in suite))
    return tests


def test_a_new_break_fails_a_test_of_its_own_in_junit(conf: ConfDirs, compiled_facts: Make) -> None:
    facts = compiled_facts(NEW)
    assert judge(facts, Context(conf=conf)).verdict is Verdict.FAILED
    tests = junit(facts, conf)
    assert list(tests) == ["test_command", "test_no_graph_breaks"]
    assert tests["test_command"].find("failure") is None
    failure = tests["test_no_graph_breaks"].find("failure")
    assert failure is not None
    assert "sft/moe/experts.py:57 in dispatch" in (failure.get("message") or "")
    assert "run it" in (failure.text or "")


def test_another_fault_leaves_the_test_of_graph_breaks_alone(
    conf: ConfDirs, compiled_facts: Make
) -> None:
    tests = junit(compiled_facts(exit_code=1), conf)
    assert tests["test_command"].find("failure") is not None
    assert tests["test_no_graph_breaks"].find("failure") is None


def test_known_breaks_are_told_in_junit_and_in_the_summary(
    conf: ConfDirs, compiled_facts: Make, known: Callable[[str], None]
) -> None:
    known(ENTRY)
    facts = compiled_facts(NEW)
    said = junit(facts, conf)["test_no_graph_breaks"].findtext("system-out") or ""
    assert said.startswith("graph_breaks: 1 known graph break: sft/moe/experts.py:57")
    result = Result(
        judge(facts, Context(conf=conf)), Path("outputs/x") / facts.case.id, "run it", facts
    )
    assert "- llama-cp4_ep1-base: graph_breaks: 1 known" in report.details("x", [result])


def test_a_case_without_the_compiler_has_one_test_in_junit(
    conf: ConfDirs, make_facts: Make
) -> None:
    assert list(junit(make_facts(), conf)) == ["test_command"]


@pytest.mark.parametrize("compiling", [False, True])
def test_any_trainers_compiled_case_is_started_with_the_log_on(
    tmp_path: Path, compiling: bool
) -> None:
    said = '"Step 2: calling compiler function eager"'
    line = f"V0131 12:00:00.000000 $$ torch/_dynamo/output_graph.py:1] [0/0] {said[1:-1]}"
    (one,) = planned(["arch=llama", "layout=single", "feature=base",
                      f"feature.compile={compiling}"])  # fmt: skip
    one.settings.trainer.argv = ["sh", "-c", f'echo "logs $TORCH_LOGS"; echo "{line}"']  # type: ignore[attr-defined]  # trainer=command
    one.settings.trainer.env = {"TORCH_LOGS": "dynamic"}
    facts = job.run_case(one.settings, one.case, tmp_path)
    log = (tmp_path / facts.launches[0].directory / "launcher.log").read_text()
    if not compiling:
        assert "logs dynamic\n" in log
        assert facts.launches[0].compiler is None
    else:
        assert "logs dynamic,graph_breaks,recompiles," in log
        assert facts.launches[0].compiler == CompilerFacts(graphs={"0": 1})
