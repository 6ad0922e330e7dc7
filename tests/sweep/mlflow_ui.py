"""The pages that people look at, as objects: the MLflow UI and our matrix, in headless Chromium."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.sweep import waiting

PATIENCE_SECONDS = 60.0  # a loaded two-core machine takes ten for a page
# No assistant over the page, and the pages of model training rather than those of agents.
PREFERENCES = {
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",
    "mlflow.assistant.panelOpen_v1": "false",
    "mlflow.workflowType_v1": '"machine_learning"',
}

Found = TypeVar("Found")


def missing_browser() -> str | None:
    """What is missing to drive a browser; None where nothing is."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(missing)} (Debian: chromium, chromium-driver)" if missing else None


@contextlib.contextmanager
def browser(width: int = 1280, height: int = 800, dark: bool = False) -> Iterator[Chrome]:
    """A headless Chromium with a profile of its own."""
    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                 "--hide-scrollbars", f"--window-size={width},{height}"]  # fmt: skip
    for argument in [*arguments, *(["--force-dark-mode"] if dark else [])]:
        options.add_argument(argument)
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def until(condition: Callable[[], Found], what: str) -> Found:
    """What `condition` returns once that is true; fails with `what` it was waiting for."""

    def settled() -> Found | None:
        with contextlib.suppress(StaleElementReferenceException):
            return condition()
        return None

    return waiting.until(settled, what, PATIENCE_SECONDS)


@dataclass
class Page:
    """What every page has."""

    driver: Chrome

    def all(self, css: str) -> list[WebElement]:
        """The elements that are there now."""
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    @property
    def text(self) -> str:
        """All text that is shown."""
        return str(self.driver.execute_script("return document.body.innerText"))

    def wait(self, condition: Callable[[], Found], what: str) -> Found:
        """`until`, with the page's text where it is in vain."""
        try:
            return until(condition, what)
        except AssertionError as error:
            raise AssertionError(
                f"{error}; {self.driver.current_url} shows:\n{self.text}"
            ) from None

    def wait_for(self, words: str) -> None:
        """Until the page shows these words."""
        self.wait(lambda: words in self.text, f"the page shows {words!r}")

    def save(self, path: Path) -> None:
        """A screenshot."""
        self.driver.save_screenshot(str(path))


@dataclass
class MlflowUi(Page):
    """The UI of an MLflow server."""

    address: str

    def __post_init__(self) -> None:
        self.driver.get(self.address)
        for key, value in PREFERENCES.items():
            self.driver.execute_script("localStorage.setItem(...arguments)", key, value)

    def open(self, address: str) -> None:
        """Load a page anew: a change behind the # alone would not."""
        self.driver.get("about:blank")
        self.driver.get(address if "://" in address else f"{self.address}/#/{address}")

    def open_runs(self, experiment_id: str) -> None:
        """The list of an experiment's runs."""
        self.open(f"experiments/{experiment_id}/runs")
        self.wait(self.run_names, "the list has runs")

    def show_tags(self, experiment_id: str, names: Sequence[str]) -> None:
        """Open the list with these tags as its columns, as the button *Columns* would choose them.

        The list was open before: what is chosen is kept with all else that its page remembers.
        """
        key = f'MLflowLocalStorage-1.1-ExperimentPage-["{experiment_id}"]-ReactComponentState'
        kept = json.loads(self.driver.execute_script("return localStorage[arguments[0]]", key))
        kept["selectedColumns"] = [f"tags.`{name}`" for name in names]
        self.driver.execute_script("localStorage.setItem(...arguments)", key, json.dumps(kept))
        self.open_runs(experiment_id)

    def run_names(self) -> list[str]:
        """The runs in the list."""
        return [link.text for link in self.all(".ag-row a[href*='/runs/']") if link.text]

    def filter(self, query: str, matching: int) -> list[str]:
        """Type a query into the search box; the names of the runs that match."""
        (box,) = self.all("[data-testid=search-box]")
        box.send_keys(Keys.CONTROL, "a")
        box.send_keys(query, Keys.ENTER)
        self.wait(lambda: re.search(rf"\b{matching}\s+matching run", self.text), f"{matching} runs")
        return self.wait(self.run_names, "the list has runs")

    def compare(self, names: Sequence[str]) -> None:
        """Tick these runs in the list and press Compare."""
        for name in names:
            row = f"//div[@role='row'][.//a[normalize-space()='{name}']]"
            tick = f"{row}//input[starts-with(@aria-label, 'Press Space to toggle row selection')]"
            self._click(By.XPATH, tick)
        self._click(By.XPATH, "//button[normalize-space()='Compare']")
        self.wait_for(f"Comparing {len(names)} Runs")

    def open_metric(self, name: str) -> None:
        """From the compare page to the curves of one metric."""
        self._click(By.XPATH, f"//a[normalize-space()='{name}']")

    def curves(self, runs: int) -> dict[str, tuple[list[int], list[float]]]:
        """Run name -> steps and values that the chart draws, once it has that many runs."""
        script = """return [...document.querySelectorAll('.js-plotly-plot')].flatMap(
            plot => (plot.data || []).map(
                line => [line.name, Array.from(line.x || []), Array.from(line.y || [])]))"""

        def drawn() -> dict[str, Any]:
            lines = {name: (x, y) for name, x, y in self.driver.execute_script(script)}
            # A chart has its lines before it has their points.
            filled = [name for name, (x, y) in lines.items() if x and y]
            paths = self.all(".scatterlayer .trace path")
            return lines if len(filled) == len(lines) == runs and paths else {}

        return self.wait(drawn, f"the curves of {runs} runs")

    def widen(self, pixels: int) -> None:
        """Make room: a chart keeps the width that it took before its page was laid out."""
        size = self.driver.get_window_size()
        self.driver.set_window_size(size["width"] + pixels, size["height"])

    def unfold_note(self) -> None:
        """Show all of the text that heads a run's page."""
        self._click(By.XPATH, "//*[normalize-space()='Show more']")

    def open_artifact(self, route: str, name: str) -> WebElement:
        """A file of a run, as the UI previews it; an image or a page in a frame."""
        self.open(f"{route.removeprefix('#/')}/artifacts/{name}")
        shown = "iframe.mlflow-html-iframe" if name.endswith(".html") else "img[src^=blob]"
        return self.wait(lambda: self.all(shown), f"{name} is shown")[0]

    def _click(self, by: str, value: str) -> None:
        found = self.wait(lambda: self.driver.find_elements(by, value), f"{value} is there")
        self.driver.execute_script("arguments[0].scrollIntoView(); arguments[0].click()", found[0])


class MatrixPage(Page):
    """Our own page."""

    def open(self, path: Path) -> None:
        """From disk, as somebody would who was sent the file."""
        self.driver.get(path.resolve().as_uri())

    def fit(self) -> None:
        """Make the window as large as the matrix, which else scrolls in it."""
        table, beside = self.driver.execute_script(
            "const box = document.querySelector('.wide'), table = box.querySelector('table');"
            "const edge = 2 * box.getBoundingClientRect().left + 24;"
            "return [{w: table.scrollWidth + edge, h: box.getBoundingClientRect().top +"
            " table.scrollHeight + 60}, outerHeight - innerHeight]"
        )
        self.driver.set_window_size(table["w"], table["h"] + beside)

    def case(self, case_id: str) -> WebElement:
        """The part of a cell that is about this case."""
        (found,) = self.all(f"[data-case='{case_id}']")
        return found

    def link(self, case_id: str) -> WebElement:
        """What leads from the verdict on."""
        return self.case(case_id).find_element(By.CSS_SELECTOR, ".verdict a")

    def colour(self, case_id: str) -> str:
        """The background of the case's cell."""
        return str(self.case(case_id).value_of_css_property("background-color"))
