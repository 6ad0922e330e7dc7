"""The pictures of README.md and docs/reading-results.md, from a recorded sweep, in Chromium.

    python -m scripts.screenshots OUTPUTS [SWEEP]

OUTPUTS is an output folder with its default store (mlflow.db), SWEEP a sweep id in it, by default
the last one. Needs chromium and chromium-driver, as the tests of the same pages do.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sweep.case.folder import find
from sweep.files import ConfDirs
from sweep.report import PLOT, Result
from sweep.report.result import reference_of
from sweep.report.runs import Run, overlay_address
from sweep.session.results import load_all
from tests.sweep.mlflow_ui import MatrixPage, MlflowUi, browser, missing_browser
from tests.sweep.servers import mlflow_server

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
TAGS = ("layout", "feature", "verdict", "check.parity", "check.resume")  # beside a run's name
LIMIT = 200_000  # bytes of a picture
COLOURS = 128  # enough for an interface, and a third of the bytes


def main() -> int:
    """Take every picture; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("outputs", type=Path, metavar="OUTPUTS")
    parser.add_argument("sweep", nargs="?", default="latest", metavar="SWEEP")
    parser.add_argument("--case", help="whose curves; else the first that parity shows to be wrong")
    parser.add_argument("--matrix", type=Path, help="folder of another sweep, for the matrix")
    asked = parser.parse_args()
    if missing := missing_browser():
        print(f"screenshots: install {missing}")
        return 2
    outputs = asked.outputs
    folder = find(outputs, asked.sweep)
    results = load_all(sorted(path.parent for path in folder.glob("*/case.json")), ConfDirs())
    failed = next(result for result in results if _is_meant(result, asked.case))
    IMAGES.mkdir(parents=True, exist_ok=True)
    with browser(1100, 640) as driver:
        _matrix(MatrixPage(driver), asked.matrix or folder)
    with (
        tempfile.TemporaryDirectory() as scratch,
        mlflow_server(f"sqlite:///{outputs.resolve()}/mlflow.db", Path(scratch)) as address,
        browser(1280, 660) as driver,
    ):
        _ui(MlflowUi(driver, address), address, failed, results)
    shutil.copy(failed.folder / PLOT, IMAGES / "loss.png")
    return _shrink(sorted(IMAGES.glob("*.png")))


def _matrix(page: MatrixPage, folder: Path) -> None:
    page.open(folder / "matrix.html")
    page.fit()
    page.save(IMAGES / "matrix.png")


def _ui(ui: MlflowUi, address: str, failed: Result, results: Sequence[Result]) -> None:
    """The runs of an architecture, and the curves of a failed case over its reference's."""
    reference = reference_of(failed, results)
    assert reference is not None, f"{failed.case.id} has nothing to be compared with"
    pair = [_served(result, address) for result in (failed, reference)]
    ui.open_runs(pair[0].experiment_id)
    ui.show_tags(pair[0].experiment_id, TAGS)
    same = [result for result in results if result.case.arch == failed.case.arch]
    launches = sum(max(1, len(result.facts.launches)) if result.facts else 1 for result in same)
    ui.filter(f'tags.arch = "{failed.case.arch}"', matching=launches)
    ui.save(IMAGES / "runs.png")
    ui.open(overlay_address(pair))
    ui.curves(2)
    ui.widen(120)
    ui.save(IMAGES / "curves.png")


def _is_meant(result: Result, case_id: str | None) -> bool:
    """Whether it is that case, or without a name one that another case shows to be wrong."""
    if case_id is not None:
        return result.case.id == case_id
    return "parity" in [finding.check for finding in result.against]


def _served(result: Result, address: str) -> Run:
    """The case's run, at the address where it is served now."""
    run = result.in_mlflow
    assert run is not None, f"{result.case.id} is not recorded"
    return run.model_copy(update={"uri": address})


def _shrink(pictures: Sequence[Path]) -> int:
    from PIL import Image  # matplotlib brings it

    for path in pictures:
        Image.open(path).convert("RGB").quantize(COLOURS).save(path, optimize=True)
        print(path, path.stat().st_size)
    return int(any(path.stat().st_size > LIMIT for path in pictures))


if __name__ == "__main__":
    sys.exit(main())
