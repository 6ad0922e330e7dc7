from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.facts import Metrics, Step
from sweep.report.plots import PLOT, curves_of, draw, draw_all
from sweep.report.result import Result
from tests.sweep.report.conftest import MakeResult


def steps(first: int, last: int, shift: float = 0.0, nan_at: int | None = None) -> Metrics:
    return Metrics(
        steps=[
            Step(step=n, loss=math.nan if n == nan_at else 5 - 0.1 * n + shift, grad_norm=1.0)
            for n in range(first, last + 1)
        ]
    )


def test_a_trainer_without_a_gradient_norm_has_a_plot(
    make_result: MakeResult, tmp_path: Path
) -> None:
    silent = Metrics(steps=[Step(step=n, loss=5.0 - n) for n in (1, 2)])
    result = make_result("llama", "single", metrics=silent)
    draw(result, [result], tmp_path / PLOT)
    assert (tmp_path / PLOT).is_file()


@pytest.fixture
def resumed(make_result: MakeResult) -> Result:
    """A case that trained to step 8 and was resumed at 5, a little off."""
    result = make_result("llama", "cp4_ep1", "resume", metrics=steps(1, 8))
    assert result.facts is not None
    whole = result.facts.launches[0]
    again = whole.model_copy(update={"name": "resume", "metrics": steps(6, 8, 0.25)})
    result.facts.launches.append(again)
    return result


def test_a_case_is_drawn_over_the_other_layouts_of_its_arch_and_its_resumed_launch(
    make_result: MakeResult, resumed: Result
) -> None:
    others = [
        make_result("llama", "single", metrics=steps(1, 5)),
        make_result("llama", "fsdp4_ep1", "selective_ac"),  # another feature: no reference
        make_result("llama", "fsdp4_ep1", "resume", metrics=steps(1, 8, 0.5)),
        make_result("qwen3", "single"),
    ]
    curves = curves_of(resumed, [*others, resumed])
    assert [curve.label for curve in curves] == [
        "single base (equal losses)",
        "fsdp4_ep1 resume (loss off by 5.0e-01 at most)",
        "cp4_ep1 resume: this case",
        "resume (loss off by 2.5e-01 at most)",
    ]
    assert [step.step for step in curves[-1].steps] == [6, 7, 8]


def test_a_case_without_a_step_says_so_beside_the_others(make_result: MakeResult) -> None:
    silent = make_result("llama", "cp4_ep1", steps=[])
    labels = [curve.label for curve in curves_of(silent, [make_result("llama", "single"), silent])]
    assert labels == ["single base", "cp4_ep1 base: this case, no step reported"]


def test_figures_that_are_not_finite_are_told_in_words(make_result: MakeResult) -> None:
    result = make_result(metrics=steps(1, 5, nan_at=3))
    (curve,) = curves_of(result, [result])
    assert curve.label == "cp4_ep1 base: this case; loss nan at step 3"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("broken", [{"steps": []}, {"metrics": steps(2, 2, nan_at=2)}])
def test_whatever_a_trainer_reported_there_is_a_plot(
    make_result: MakeResult, tmp_path: Path, broken: dict[str, object]
) -> None:
    result = make_result("$\\frac{", "single", "{0} % \\", **broken)
    draw(result, [result], tmp_path / PLOT)
    assert (tmp_path / PLOT).read_bytes().startswith(b"\x89PNG")


def test_a_plot_that_cannot_be_drawn_costs_no_other_its_own(
    make_result: MakeResult, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    bad, good, unavailable = make_result("bad"), make_result("good"), make_result("elsewhere")
    (tmp_path / bad.folder / PLOT).mkdir(parents=True)
    (tmp_path / good.folder).mkdir(parents=True)
    said = draw_all([bad, good, unavailable])
    assert said is not None
    assert said.startswith(f"no {PLOT} for bad-cp4_ep1-base: IsADirectoryError")
    assert (tmp_path / good.folder / PLOT).is_file()
    assert not unavailable.folder.exists()


def test_a_report_needs_matplotlib_only_to_draw() -> None:
    code = "import sys, sweep.report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
