"""What pages lead to is there: other pages, files, modules, and the choices that commands name."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from sweep.case.labels import layout_named
from sweep.files import conf_dir

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
GROUPS = ("arch", "layout", "feature", "suite", "trainer", "scale")
OF_AN_EXAMPLE = {"NAME", "mine", "fsdp4_ep2", "compile_ac"} | {
    path.stem for path in (ROOT / "examples").glob("*/conf/*/*.yaml")
}
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """What a heading is called in a link, as GitHub makes it."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def commands(page: Path) -> list[str]:
    text = page.read_text().replace("\\\n", " ")
    return re.findall(r"python -m (?:sweep|sft|hf_sft|tiny_models|scripts)\b[^`#\n]*", text)


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{target}: no such file"
        assert not anchor or anchor in anchors(path), f"{target}: no such heading"


@every_page
def test_every_command_names_a_module_and_choices_that_there_are(page: Path) -> None:
    for command in commands(page):
        module = command.split()[2]
        assert find_spec(module.rstrip(".,:;)")) is not None, command
        for group, values in re.findall(rf"(?<=\s)({'|'.join(GROUPS)})=([\w,]+)", command):
            known = {path.stem for path in (conf_dir() / group).glob("*.yaml")} | OF_AN_EXAMPLE
            unknown = set(values.split(",")) - known
            assert not {
                name for name in unknown if group != "layout" or layout_named(name) is None
            }, command


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"({name}" not in index} == set()


@pytest.mark.parametrize("page", ["README.md", "docs/README.md"])
def test_figures_that_are_quoted_are_those_of_the_pages_they_come_from(page: str) -> None:
    measured = " ".join((ROOT / "docs" / "detection.md").read_text().split())
    found = re.search(r"(\d+) of (\d+) planted faults caught.*?; (\d+) of \2 would", measured)
    assert found, "docs/detection.md begins otherwise"
    caught, planted, control = found.groups()
    said = " ".join((ROOT / page).read_text().split())
    assert re.search(rf"\b{planted} planted faults\b", said)
    assert re.search(rf"\b{caught}\b[^.|]*\bshow {control}\b", said)
    findings = len(list((ROOT / "docs" / "upstream").glob("*/README.md")))
    assert re.search(rf"\b{findings} (faults|findings)\b", said)
