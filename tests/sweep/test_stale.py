"""An entry of known failures or graph breaks that names no case is reported, not kept for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sweep import conf_file
from sweep.case.planned import Planned
from sweep.checks import known_breaks
from sweep.conf_file import read
from sweep.errors import RequestError
from sweep.files import ConfDirs, conf_dir
from sweep.judge import known_failures
from sweep.plan import stale, suite
from sweep.plan.cases import plan, varying_keys
from tests.sweep.confs import instead_of_ours
from tests.sweep.planning import CPU, composed

FAILURE = '- {{case: "{case}", trainer: "{trainer}", check: parity, message: x, issue: docs/x}}'
BREAK = '- {case: "llama-cp9_*", frame: "x.py:*", reason: y, why: z}'


@pytest.fixture
def own(tmp_path: Path) -> ConfDirs:
    """A folder of known failures and breaks, read instead of the shipped ones."""
    folder = tmp_path / "conf"
    folder.mkdir()
    for reader in (known_failures, known_breaks):
        (folder / reader.FILE).write_text("[]")
    return instead_of_ours(folder)


def unmatched(own: ConfDirs, planned: list[Planned] | None = None, **entry: str) -> list[str]:
    text = FAILURE.format(**{"case": "*", "trainer": "*", **entry})
    (own.shipped / known_failures.FILE).write_text(text)
    conf_file.entries.cache_clear()
    return stale.unmatched(planned or [], own)


@pytest.mark.parametrize("entry", [{"case": "llama-cp9_*"}, {"case": "*-fault_no_such_*"},
                                   {"trainer": "mine"}])  # fmt: skip
def test_an_entry_that_matches_no_case_of_any_suite_is_reported(
    own: ConfDirs, entry: dict[str, str]
) -> None:
    (line,) = unmatched(own, **entry)
    case, trainer = entry.get("case", "*"), entry.get("trainer", "*")
    assert line == (
        f"{own.shipped.name}/known_failures.yaml line 1: no case of any suite is {case} with"
        f" trainer {trainer}: correct or delete the entry"
    )


@pytest.mark.parametrize("case", ["*", "llama-cp4_ep1-base", "qwen3_moe-*-fault_ep_grad_scaled_*"])
def test_an_entry_that_matches_one_is_not(own: ConfDirs, case: str) -> None:
    assert unmatched(own, case=case) == []


def test_an_entry_that_matches_a_case_of_this_sweep_is_not(own: ConfDirs) -> None:
    case = "llama-single-base-optim.lr_0.5"
    assert len(unmatched(own, case=case)) == 1
    rows = [["arch=llama", "layout=single", f"optim.lr={lr}"] for lr in (0.5, 0.1)]
    assert unmatched(own, plan(rows, composed, CPU, varying_keys(rows)), case=case) == []


def test_a_known_break_is_reported_likewise(own: ConfDirs) -> None:
    (own.shipped / known_breaks.FILE).write_text(BREAK)
    (line,) = stale.unmatched([], own)
    assert line.startswith(
        f"{own.shipped.name}/known_graph_breaks.yaml line 1: no case of any suite is"
    )


def test_what_is_shipped_matches() -> None:
    assert known_failures.entries(ConfDirs())
    assert known_breaks.entries(ConfDirs())
    assert stale.unmatched([], ConfDirs()) == []


@pytest.mark.parametrize("name", ["smoke", "hf_trainer"])
def test_the_ids_are_those_that_the_suite_is_planned_with(name: str) -> None:
    rows = read(conf_dir() / "suite" / f"{name}.yaml")["rows"]
    combinations = suite.combinations({}, rows)
    planned = plan(combinations, composed, CPU, varying_keys(combinations))
    assert {one.case.id for one in planned} <= set(stale.case_ids(ConfDirs()))


@pytest.mark.parametrize("reader", [known_failures, known_breaks])
def test_an_arch_that_is_misspelt_is_refused_with_the_nearest(
    own: ConfDirs, reader: object
) -> None:
    text = FAILURE.format(case="deepsek_v4-cp4_*", trainer="*")
    if reader is known_breaks:
        text = BREAK.replace("llama", "deepsek_v4")
    (own.shipped / reader.FILE).write_text(text)
    with pytest.raises(
        RequestError, match=r"there is no arch deepsek_v4; did you mean deepseek_v4"
    ):
        reader.entries(own)


def test_a_sweep_says_so_before_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sweep.session.driver import Session

    planned = plan([["arch=llama", "layout=single", f"outputs={tmp_path}"]], composed, CPU)
    own = tmp_path / "mine"
    own.mkdir()
    (own / known_failures.FILE).write_text(FAILURE.format(case="llama-cp9_*", trainer="*"))
    Session.begin([replace(case, config_dir=str(own)) for case in planned], CPU, live=False)
    assert "no case of any suite is llama-cp9_*" in capsys.readouterr().err
