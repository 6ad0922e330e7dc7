"""Known failures, strict both ways: what is known fails nothing, and what is fixed fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sweep import conf_file, report
from sweep.checks import Context
from sweep.errors import RequestError
from sweep.facts import Facts, Step
from sweep.files import ConfDirs
from sweep.judge import Judgement, Verdict, judge, known_failures, ready
from sweep.report import Result
from tests.sweep.confs import instead_of_ours
from tests.sweep.conftest import CASE

Make = Callable[..., Facts]
ISSUE = "https://example.org/1"
DAY = 86400.0


@pytest.fixture
def conf(tmp_path: Path) -> ConfDirs:
    """`conf/` without known failures, and a folder of the user's."""
    (tmp_path / "conf").mkdir()
    return instead_of_ours(tmp_path / "conf", tmp_path / "mine", without=known_failures.FILE)


@pytest.fixture
def known(conf: ConfDirs) -> Callable[[str], None]:
    """A function that makes `text` the file of known failures."""

    def write(text: str) -> None:
        (conf.shipped / known_failures.FILE).write_text(text)

    return write


def entry(check: str, message: str, case: str = "llama-cp4_*", until: str = "") -> str:
    more = f"  until: {until}\n" if until else ""
    return f'- case: "{case}"\n  check: {check}\n  message: "{message}"\n  issue: {ISSUE}\n{more}'


def with_nan(make_facts: Make) -> Facts:
    """A case that fails check finite at step 3 and nothing else."""
    changed = {3: {"grad_norm": math.inf}}
    values = {"lr": 1e-4, "params_moved": 1.0}
    return make_facts(
        [
            Step.model_validate(
                {"step": n, "loss": 3 - 0.1 * n, "grad_norm": 1.0, **values, **changed.get(n, {})}
            )
            for n in range(1, 6)
        ]
    )


def judged(facts: Facts, conf: ConfDirs) -> Judgement:
    return judge(facts, Context(conf=conf))


def reported(judgement: Judgement) -> Result:
    return Result(judgement, Path("outputs/1/a"), "python -m sweep")


def test_a_failure_that_is_described_is_known_and_fails_no_sweep(
    conf: ConfDirs, make_facts: Make, known: Callable[[str], None]
) -> None:
    known(entry("finite", "grad_norm is inf at step \\\\d"))
    judgement = judged(with_nan(make_facts), conf)
    assert judgement.verdict is Verdict.KNOWN
    result = reported(judgement)
    assert result.message == f"finite: train: grad_norm is inf at step 3 (known: {ISSUE})"
    assert report.exit_code([result], None) == 0
    test = ET.fromstring(report.junit("1", [result])).find("testcase")
    assert test is not None
    assert next(child.tag for child in test) == "skipped"


def test_a_failure_with_another_message_is_a_failure_that_names_the_entry(
    conf: ConfDirs, make_facts: Make, known: Callable[[str], None]
) -> None:
    known("# first line\n" + entry("finite", "loss is nan"))
    judgement = judged(with_nan(make_facts), conf)
    assert judgement.verdict is Verdict.FAILED
    assert judgement.worst is not None
    assert judgement.worst.message == (
        "train: grad_norm is inf at step 3; not the failure of conf/known_failures.yaml line 2"
        " (case: llama-cp4_*, check: finite), which has: loss is nan"
    )


def test_one_failure_that_is_known_does_not_excuse_another(
    conf: ConfDirs, make_facts: Make, known: Callable[[str], None]
) -> None:
    known(entry("finite", "grad_norm"))
    facts = with_nan(make_facts)
    facts.steps[0].params_moved = 0.0
    judgement = judged(facts, conf)
    assert judgement.verdict is Verdict.FAILED
    assert judgement.worst is not None
    assert judgement.worst.check == "alive", "what is known is not what fails it"


def test_an_entry_whose_case_passes_fails_the_sweep_with_the_line_to_delete(
    conf: ConfDirs, make_facts: Make, known: Callable[[str], None]
) -> None:
    known(entry("exit", "no such thing", case="qwen3-*") + entry("finite", "loss is nan"))
    judgement = judged(make_facts(), conf)
    assert (judgement.verdict, judgement.verdict.good) == (Verdict.FIXED, False)
    result = reported(judgement)
    assert result.message == (
        "known_failures: no longer fails; delete conf/known_failures.yaml line 5 (case:"
        f" llama-cp4_*, check: finite): {ISSUE}"
    )
    assert report.exit_code([result], None) == 1
    failure = ET.fromstring(report.junit("1", [result])).find("testcase/failure")
    assert failure is not None
    assert failure.get("type") == "fixed"


def test_one_entry_that_still_holds_does_not_hide_one_that_is_fixed(
    conf: ConfDirs, make_facts: Make, known: Callable[[str], None]
) -> None:
    known(entry("finite", "grad_norm") + entry("alive", "no parameter moved"))
    judgement = judged(with_nan(make_facts), conf)
    assert judgement.verdict is Verdict.FIXED
    assert judgement.worst is not None
    assert "line 5" in judgement.worst.message


def test_a_known_crash_covers_what_follows_from_it(
    conf: ConfDirs, make_facts: Make, known: Callable[[str], None]
) -> None:
    known(entry("exit", "exit code 1 ") + entry("alive", "no parameter moved"))
    judgement = judged(make_facts([], exit_code=1), conf)
    assert judgement.verdict is Verdict.KNOWN
    assert judged(make_facts([], exit_code=2), conf).verdict is Verdict.CRASHED
    assert judged(make_facts([], timed_out=True, exit_code=-9), conf).verdict is Verdict.TIMED_OUT


@pytest.mark.parametrize(
    ("message", "verdict"),
    [("does not report params_moved", Verdict.KNOWN), ("no such", Verdict.INCONCLUSIVE)],
)
def test_what_cannot_be_seen_can_be_known_as_well(
    conf: ConfDirs, make_facts: Make, known: Callable[[str], None], message: str, verdict: Verdict
) -> None:
    known(entry("alive", message))
    unseen = [Step(step=n, loss=3 - 0.1 * n, grad_norm=1.0) for n in range(1, 6)]
    assert judged(make_facts(unseen), conf).verdict is verdict


@pytest.mark.parametrize(("day", "verdict"), [(9, Verdict.KNOWN), (10, Verdict.FAILED)])
def test_an_entry_holds_through_its_date_by_the_night_it_judges(
    conf: ConfDirs, make_facts: Make, known: Callable[[str], None], day: int, verdict: Verdict
) -> None:
    known(entry("finite", "grad_norm", until="1970-01-10"))
    judgement = judged(with_nan(make_facts).model_copy(update={"started": day * DAY + 1}), conf)
    assert judgement.verdict is verdict
    if verdict is Verdict.FAILED:
        assert judgement.worst is not None
        assert "; known until 1970-01-10 only, by conf/known_failures.yaml line 1" in (
            judgement.worst.message
        )


def test_an_entry_says_nothing_of_a_check_that_does_not_apply(
    conf: ConfDirs, make_facts: Make, known: Callable[[str], None]
) -> None:
    known(entry("parity", "loss is") + entry("resume", "loss is"))
    assert judged(make_facts(), conf).verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- case: [", "line 1"),
        ("case: a", "say a list of entries"),
        ("", "say a list of entries"),
        ("- just text", "line 1: say case, trainer"),
        (
            entry("finite", "x") + entry("finit", "x"),
            "line 5: check: Value error, there is no check",
        ),
        (entry("finite", "("), "line 1: message: Value error, not a regular expression"),
        (entry("finite", "x").replace("issue", "isue"), "line 1: issue: Field required"),
        (entry("finite", "x").replace(ISSUE, "later"), "line 1: issue: String should match"),
        (entry("finite", "x", until="someday"), "line 1: until:"),
        (entry("finite", "x") + "  place: there\n", "line 1: say case, trainer"),
    ],
)
def test_a_malformed_file_is_one_line_before_anything_runs(
    conf: ConfDirs, known: Callable[[str], None], text: str, said: str
) -> None:
    known(text)
    with pytest.raises(RequestError) as raised:
        ready(conf)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.usefixtures("known")
def test_a_file_that_is_gone_is_said(conf: ConfDirs) -> None:
    with pytest.raises(RequestError, match="No such file"):
        ready(conf)


def test_the_list_in_the_repository_can_be_read_and_says_nothing_of_the_trainer_here() -> None:
    assert known_failures.of_case(CASE, ConfDirs()) == []
    assert known_failures.entries(ConfDirs())


def test_trainers_share_the_ids_of_cases_and_not_what_is_known_of_them(
    conf: ConfDirs, make_facts: Make, known: Callable[[str], None]
) -> None:
    known(entry("finite", "grad_norm is inf") + "  trainer: theirs\n")
    facts = with_nan(make_facts)
    assert judged(facts, conf).verdict is Verdict.FAILED
    facts.case = facts.case.model_copy(update={"trainer": "theirs"})
    assert judged(facts, conf).verdict is Verdict.KNOWN


def test_a_folder_of_ones_own_adds_to_what_is_known(
    conf: ConfDirs, make_facts: Make, known: Callable[[str], None], tmp_path: Path
) -> None:
    known("[]")
    own = tmp_path / "mine" / known_failures.FILE
    own.parent.mkdir()
    own.write_text(entry("finite", "loss is nan"))
    (found,) = [one for one in judged(with_nan(make_facts), conf).findings if one.check == "finite"]
    assert "not the failure of mine/known_failures.yaml line 1" in found.message
    own.write_text(entry("finite", "grad_norm is inf"))
    conf_file.entries.cache_clear()
    assert judged(with_nan(make_facts), conf).verdict is Verdict.KNOWN
