"""What people look at, in headless Chromium: the MLflow UI over a recorded sweep, and our page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweep.facts import Facts, Step
from sweep.files import ConfDirs
from sweep.judge import Verdict
from sweep.report import Result
from sweep.report.result import curves_address
from sweep.report.runs import Run, overlay_address, run_of
from sweep.session import closing
from sweep.store import End, Location, Writer
from tests.sweep.mlflow_ui import MatrixPage, MlflowUi, browser, missing_browser
from tests.sweep.recording import SWEEP, sweep_folder
from tests.sweep.servers import missing, mlflow_server
from tests.sweep.small_sweep import DROPPED, SWEEP_ID, leave

pytestmark = [pytest.mark.slow, pytest.mark.chromium]
PAIR = ("gpt_oss-single-base", DROPPED)


@dataclass
class Recorded:
    """The sweep, and a browser to look at it with."""

    ui: MlflowUi
    page: MatrixPage
    folder: Path
    results: dict[str, Result]
    pictures: Path
    store: Location

    @property
    def sweep(self) -> Run:
        """The sweep's own run."""
        found = run_of(self.folder)
        assert found is not None
        return found

    def losses(self, case_id: str) -> list[float]:
        facts = self.results[case_id].facts
        assert facts is not None
        return [step.loss for step in facts.steps]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Recorded]:
    if absent := missing_browser():
        missing(absent)
    outputs = tmp_path_factory.mktemp("outputs")
    store = tmp_path_factory.mktemp("server")
    (store / "mlflow.db").write_bytes(empty_store.read_bytes())
    pictures = tmp_path_factory.mktemp("pictures")
    left = leave(outputs)
    folder = outputs / SWEEP_ID
    with mlflow_server(f"sqlite:///{store}/mlflow.db", store) as address, browser() as driver:
        writer = Writer(Location(address), folder)
        for result in left:
            writer.record(result)
        judged, problem = closing.close(writer, folder, left, End(), ConfDirs())
        assert problem is None
        results = {result.case.id: result for result in judged}
        ui, page = MlflowUi(driver, address), MatrixPage(driver)
        yield Recorded(ui, page, folder, results, pictures, writer.location)


def names(case_ids: tuple[str, ...]) -> set[str]:
    """What their runs are called: the night comes first."""
    return {f"01-01 02:03 {case_id}" for case_id in case_ids}


def test_only_the_broken_case_fails(seen: Recorded) -> None:
    verdicts = {name: result.judgement.verdict for name, result in seen.results.items()}
    assert verdicts.pop(DROPPED) is Verdict.FAILED
    assert set(verdicts.values()) == {Verdict.PASSED}


def test_runs_are_found_by_filtering_on_the_arch(seen: Recorded) -> None:
    seen.ui.open_runs(seen.sweep.experiment_id)
    found = seen.ui.filter('tags.arch = "gpt_oss"', matching=2)
    seen.ui.save(seen.pictures / "runs.png")
    assert set(found) == names(PAIR)


def test_the_compare_page_of_two_runs_shows_both_loss_curves(seen: Recorded) -> None:
    seen.ui.open_runs(seen.sweep.experiment_id)
    seen.ui.compare(seen.ui.filter('tags.arch = "gpt_oss"', matching=2))
    seen.ui.save(seen.pictures / "compare.png")
    seen.ui.open_metric("train/loss")
    check_curves(seen)


def test_the_address_that_the_terminal_prints_shows_both_loss_curves(seen: Recorded) -> None:
    address = curves_address(seen.results[DROPPED], list(seen.results.values()))
    seen.ui.open(address)
    check_curves(seen)
    seen.ui.save(seen.pictures / "curves.png")


def test_the_compare_view_of_two_cases_shows_losses_first(seen: Recorded) -> None:
    seen.ui.open_runs(seen.sweep.experiment_id)
    seen.ui.compare(seen.ui.filter('tags.arch = "gpt_oss"', matching=2))
    seen.ui.wait_for("train/lr")
    seen.ui.save(seen.pictures / "compare.png")
    metrics = [link.text for link in seen.ui.all("a[href*='#/metric']")]
    assert metrics[0] == "Loss/train"


def check_curves(seen: Recorded) -> None:
    curves = seen.ui.curves(2)
    assert set(curves) == names(PAIR)
    for case_id in PAIR:
        steps, losses = curves[f"01-01 02:03 {case_id}"]
        assert steps == [1, 2, 3, 4, 5]
        assert losses == pytest.approx(seen.losses(case_id))


def test_losses_that_are_no_numbers_leave_the_pages_as_they_are(
    seen: Recorded, tmp_path: Path, make_facts: Callable[..., Facts]
) -> None:
    losses = [1.0, math.nan, math.inf, -math.inf, 2.0]
    wild = [Step(step=n, loss=loss, grad_norm=math.nan) for n, loss in enumerate(losses, start=1)]
    (result,) = sweep_folder(tmp_path, make_facts(wild), experiment="wild")
    writer = Writer(seen.store, tmp_path / SWEEP)
    writer.record(result)
    writer.settle()
    writer.finish([result], End())
    run, other = run_of(result.folder), seen.results[PAIR[0]].in_mlflow
    assert run is not None
    assert other is not None
    seen.ui.open(overlay_address([run, other]))
    steps, drawn = seen.ui.curves(2)[f"01-02 00:00 {result.case.id}"]
    assert (steps, drawn) == ([1, 2, 3, 4, 5], [1.0, None, None, None, 2.0])
    seen.ui.open(run.address)
    seen.ui.wait_for("grad_norm is nan at step 1")


def test_the_sweeps_run_begins_with_the_matrix_and_leads_to_the_cases(seen: Recorded) -> None:
    seen.ui.open(seen.sweep.address)
    seen.ui.wait_for("4 passed, 1 failed")
    seen.ui.unfold_note()
    links = {link.get_attribute("href") for link in seen.ui.all("table a")}
    runs = [result.in_mlflow for result in seen.results.values()]
    assert {run.address for run in runs if run} <= links
    frame = seen.ui.open_artifact(seen.sweep.route, "matrix.html")
    seen.ui.save(seen.pictures / "artifact.png")
    seen.ui.driver.switch_to.frame(frame)
    assert seen.page.case(DROPPED).text.startswith("✗")
    seen.ui.driver.switch_to.default_content()


def test_a_cases_run_holds_its_plot(seen: Recorded) -> None:
    run = seen.results["qwen3_moe-cp2_ep2-resume"].in_mlflow
    assert run is not None
    picture = seen.ui.open_artifact(run.route, "loss.png")
    seen.ui.wait(lambda: picture.get_property("naturalWidth"), "the plot is drawn")
    assert picture.get_property("naturalWidth") == 720


def test_each_cell_of_the_page_says_the_verdict_and_leads_to_the_run(seen: Recorded) -> None:
    seen.page.open(seen.folder / "matrix.html")
    seen.page.save(seen.pictures / "matrix.png")
    assert len(seen.page.all("[data-case]")) == len(seen.results)
    for case_id, result in seen.results.items():
        assert result.judgement.verdict.value in seen.page.case(case_id).text
        run = result.in_mlflow
        assert run is not None
        assert seen.page.link(case_id).get_attribute("href") == run.address
    assert "parity: step 3: loss" in seen.page.case(DROPPED).text
    assert seen.page.colour(DROPPED) != seen.page.colour(PAIR[0])


def test_a_verdict_opens_the_run_in_the_ui(seen: Recorded) -> None:
    seen.page.open(seen.folder / "matrix.html")
    here = seen.page.driver.current_window_handle
    seen.page.link(DROPPED).click()
    (opened,) = set(seen.page.driver.window_handles) - {here}
    seen.page.driver.switch_to.window(opened)
    seen.page.wait_for(f"01-01 02:03 {DROPPED}")
    seen.page.wait_for("loss is")  # the note that heads the run's page
    seen.page.driver.close()
    seen.page.driver.switch_to.window(here)


def test_a_cell_leads_to_its_nights(seen: Recorded) -> None:
    seen.page.open(seen.folder / "matrix.html")
    assert "since 2026-01-01, 1 night" in seen.page.case(DROPPED).text
    seen.page.case(DROPPED).find_element("css selector", "a.past").click()
    seen.page.wait_for("nightly: 1 night, 2026-01-01")
    seen.page.save(seen.pictures / "history.png")
    (section,) = seen.page.all("section:target")
    assert f"{DROPPED}: failed since 2026-01-01" in section.text
    cell = seen.page.all(f"td.nights[data-case='{DROPPED}'] a")[-1]
    assert cell.text == "✗"
    cell.click()
    seen.page.wait_for(f"Sweep {SWEEP_ID}")


def test_the_page_draws_loss_and_gradient_norm_of_a_failed_case(seen: Recorded) -> None:
    seen.page.open(seen.folder / "matrix.html")
    seen.page.case(DROPPED).find_element("css selector", "a.finding").click()
    (section,) = seen.page.all("section:target")
    pictures = section.find_elements("css selector", "figure svg")
    assert len(pictures) == 2
    assert all(picture.size["width"] > 100 for picture in pictures)
    own = pictures[0].find_elements("css selector", "polyline.own")
    assert own[0].get_attribute("points").count(",") == 5
    seen.page.save(seen.pictures / "section.png")


def test_a_finding_leads_to_its_details_on_the_page(seen: Recorded) -> None:
    seen.page.open(seen.folder / "matrix.html")
    seen.page.case(DROPPED).find_element("css selector", "a.finding").click()
    details = seen.page.all("section:target")
    assert DROPPED in details[0].text
    assert seen.results[DROPPED].command in details[0].text
