from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from rich.console import Console

from sweep.checks import Finding, Outcome
from sweep.files import write_json
from sweep.judge import Verdict
from sweep.report import Result, markdown, show
from sweep.report.html import page
from sweep.report.junit import junit
from sweep.report.looks import LOOKS
from sweep.report.runs import RECORDED, Run
from tests.sweep.report.conftest import FOLDER, SERVER, MakeResult

WIDTHS = (60, 80)
PARITY = (
    "step 2: loss is 5.18213 in cp4_ep4, 5.19907 in single (qwen3_moe-single-base): off by 1.7e-02 "
    "(relative 3.3e-03), 2.1e-02 at most; threshold 1.0e-04 (docs/calibration.md)"
)
ARCHS = (
    "llama", "qwen3", "qwen3_5_dense", "qwen3_5_moe", "qwen4_exp", "gpt_oss", "glm4_moe",
    "glm_moe_dsa", "minimax_m2", "nemotron_h", "deepseek_v4",
)  # fmt: skip
# what is to be copied
WHOLE = re.compile(r"^ *(look in|again|curves|summary|page|mlflow|outputs/)")


def shown(results: Sequence[Result], width: int, problem: str | None = None) -> str:
    out = io.StringIO()
    show(FOLDER, results, problem, Console(file=out, width=width))
    return out.getvalue()


def prose(text: str) -> list[str]:
    """The lines that are not one path, command or address."""
    return [line for line in text.splitlines() if not WHOLE.match(line)]


@pytest.fixture
def nightly(make_result: MakeResult) -> list[Result]:
    """33 cases, one of them failed and with the longest of all ids."""
    layouts = ("fsdp4_ep4", "cp4_ep4", "dp2_cp2_ep4")
    results = [make_result(arch, layout) for arch in ARCHS for layout in layouts]
    failed = {"verdict": Verdict.FAILED, "message": PARITY, "run_id": "a1"}
    results[29] = make_result("nemotron_h", "dp2_cp2_ep4", "optim_offload_off", **failed)
    return results


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_of_a_nightly_is_wider_than_the_terminal(nightly: list[Result], width: int) -> None:
    text = shown(nightly, width, "the store is down: " + "it does not answer " * 20)
    assert max(map(len, prose(text))) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_every_case_has_one_line_with_its_verdict(nightly: list[Result], width: int) -> None:
    lines = shown(nightly, width).splitlines()
    for result in nightly:
        word = result.judgement.verdict.value
        named = [line for line in lines if line.startswith(f"{result.case.id} ") and word in line]
        assert len(named) == 1, result.case.id


def test_losses_give_way_where_the_terminal_is_narrow(nightly: list[Result]) -> None:
    assert "2.9000 > 2.5000" in shown(nightly, 80)
    assert "2.9000 > 2.5000" not in shown(nightly, 60)


def test_a_failure_says_step_comparison_amount_and_where_to_look(nightly: list[Result]) -> None:
    text = shown(nightly, 60)
    block = text[text.index("✗ nemotron_h-dp2_cp2_ep4-optim_offload_off: failed") :]
    said = " ".join(block.split())
    assert f"parity: {PARITY}" in said
    assert f"look in {nightly[29].where}\n" in block
    assert f"again   {nightly[29].command}\n" in block
    assert f"summary {FOLDER}/summary.md" in block


def test_a_failing_case_is_shown_over_its_reference_in_the_mlflow_ui(
    make_result: MakeResult,
) -> None:
    failed = make_result(verdict=Verdict.FAILED, message=PARITY, run_id="b2")
    alone = shown([failed], 80)
    assert "curves  http://127.0.0.1:5000/#/experiments/1/runs/b2\n" in alone
    both = shown([make_result(layout="single", run_id="a1"), failed], 80)
    (address,) = re.findall(r"^  curves  (\S+)$", both, re.MULTILINE)
    assert address.startswith("http://127.0.0.1:5000/#/metric?")
    query = parse_qs(address.partition("?")[2])
    assert json.loads(query["runs"][0]) == ["b2", "a1"]
    assert json.loads(query["plot_metric_keys"][0]) == ["train/loss"]
    assert query["x_axis"] == ["step"]


def test_the_end_names_the_summary_the_page_and_the_sweeps_run(
    make_result: MakeResult, tmp_path: Path
) -> None:
    write_json(tmp_path / RECORDED, Run(uri=SERVER, run_id="c3", experiment_id="1").model_dump())
    out = io.StringIO()
    show(tmp_path, [make_result()], None, Console(file=out, width=60))
    assert out.getvalue().splitlines()[-4:] == [
        "1 passed",
        f"summary {tmp_path}/summary.md",
        f"page    {tmp_path}/matrix.html",
        f"mlflow  {SERVER}/#/experiments/1/runs/c3",
    ]


def test_an_address_shows_no_password(make_result: MakeResult) -> None:
    failed = make_result(verdict=Verdict.FAILED, message=PARITY)
    run = Run(uri="https://me:secret@mlflow.example/base/", run_id="b2", experiment_id="1")
    text = shown([replace(failed, run=run)], 80)
    assert "curves  https://mlflow.example/base/#/experiments/1/runs/b2\n" in text


def test_a_case_outside_a_server_has_no_address(make_result: MakeResult) -> None:
    assert "curves" not in shown([make_result(verdict=Verdict.FAILED, message=PARITY)], 80)


def test_what_fails_alike_is_told_once_and_located_each(make_result: MakeResult) -> None:
    failed = {"verdict": Verdict.CRASHED, "message": "no such file", "log_tail": "Traceback"}
    cases = [make_result(arch, **failed) for arch in ARCHS]
    text = shown(cases, 80)
    assert text.count("no such file") == text.count("Traceback") == 1
    assert "the same in 10 more" in text
    assert all(str(result.where) in text for result in cases)


def test_what_cannot_run_here_is_named_with_its_reason_and_is_no_failure(
    make_result: MakeResult,
) -> None:
    away = [make_result(arch, verdict=Verdict.UNAVAILABLE, message="no GPU") for arch in ARCHS[:3]]
    said = " ".join(shown(away, 60).split())
    assert "○ unavailable, parity: no GPU: llama-cp4_ep1-base, qwen3-cp4_ep1-base, qwen3_5" in said
    assert "look in" not in said


def test_all_that_speaks_against_a_case_is_shown(make_result: MakeResult) -> None:
    failed = make_result(verdict=Verdict.FAILED, message=PARITY)
    breaks = Finding(check="graph_breaks", outcome=Outcome.FAIL, message="2 new graph breaks")
    failed.judgement.findings.append(breaks)
    assert "    graph_breaks: 2 new graph breaks\n" in shown([failed], 80)


@pytest.mark.parametrize("message", ["word " * 20_000, "x" * 100_000])
def test_a_very_long_message_is_cut_and_says_where_the_rest_is(
    make_result: MakeResult, message: str
) -> None:
    text = shown([make_result(verdict=Verdict.FAILED, message=message)], 80)
    assert len(text) < 3000
    assert "findings.json" in text


def test_a_trainers_message_cannot_steer_the_terminal(make_result: MakeResult) -> None:
    hostile = "\x1b[2Jgone\x07 [bold]not markup[/bold] [/nothing]\nnext line"
    tail = {"log_tail": "\x1b[31mred\x1b[0m"}
    text = shown([make_result(verdict=Verdict.FAILED, message=hostile, **tail)], 80)
    assert "\x1b" not in text
    assert "[bold]not markup[/bold] [/nothing] next line" in text


def test_notes_said_of_many_cases_are_said_once(make_result: MakeResult) -> None:
    noted = [make_result(arch) for arch in ARCHS]
    advice = Finding(check="cost", outcome=Outcome.PASS, message="step time 1.02 of the baseline")
    for result in noted:
        result.judgement.findings.append(advice)
    assert "llama-cp4_ep1-base and 10 more: cost: step time" in shown(noted, 80)


def test_every_verdict_has_a_symbol_of_its_own_one_column_wide() -> None:
    symbols = [LOOKS[verdict].symbol for verdict in Verdict]
    assert len(set(symbols)) == len(symbols)
    assert {len(symbol) for symbol in symbols} == {1}


def test_a_store_without_a_server_is_shown_with_the_command_that_serves_it(
    make_result: MakeResult, tmp_path: Path
) -> None:
    run = Run(uri="sqlite:////my outputs/mlflow.db", run_id="a1", experiment_id="1")
    write_json(tmp_path / RECORDED, run.model_dump())
    out = io.StringIO()
    show(tmp_path, [make_result()], None, Console(file=out, width=80))
    said = "mlflow  python -m mlflow ui --backend-store-uri 'sqlite:////my outputs/mlflow.db'"
    assert said in out.getvalue().splitlines()


def lonely(result: Result) -> Result:
    note = Finding(check="parity", outcome=Outcome.INCONCLUSIVE, message="compared with nothing",
                   advisory=True, alone=True)  # fmt: skip
    findings = [*result.judgement.findings, note]
    return replace(result, judgement=result.judgement.model_copy(update={"findings": findings}))


def test_a_pass_without_a_comparison_says_so_in_every_report(make_result: MakeResult) -> None:
    results = [lonely(make_result()), make_result("qwen3")]
    assert results[0].judgement.verdict is Verdict.PASSED
    text = shown(results, 80)
    assert "✓ passed, not compared" in text
    assert "2 passed; 1 of them not compared" in text
    assert "parity: compared with nothing" in text
    assert "| passed, not compared |" in markdown.details("s", results)
    assert ">passed, not compared</a>" in page("s", results)
    assert "parity: compared with nothing" in junit("s", results)
    failed = lonely(make_result(verdict=Verdict.FAILED, message="x"))
    assert "not compared" not in markdown.details("s", [failed])
