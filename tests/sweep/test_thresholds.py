"""Thresholds by check, figure, device, dtype, arch and trainer; a bad file is one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweep.checks import thresholds
from sweep.errors import RequestError
from sweep.judge import ready
from tests.sweep.confs import use_folders
from tests.sweep.conftest import CASE

GOOD = """
advisory: [cost]
parity:
  grad_norm:
    cpu:
      float32: {value: 1.0e-5, mean: 1.0e-6, source: a, arch: {llama: {value: 2.0, source: b}}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A function that makes `text` the file of thresholds."""

    def write(text: str) -> None:
        (tmp_path / thresholds.FILE).write_text(text)
        thresholds.table.cache_clear()

    use_folders(monkeypatch, thresholds, tmp_path)
    yield write
    thresholds.table.cache_clear()


def test_an_architecture_may_have_its_own_and_others_have_the_common_one(
    file: Callable[[str], None],
) -> None:
    file(GOOD)
    other = CASE.model_copy(update={"arch": "qwen3"})
    found = thresholds.of_case("parity", ("grad_norm",), other)
    assert (found.value, found.mean, found.source) == (1e-5, 1e-6, "a")
    own = thresholds.of_case("parity", ("grad_norm_head", "grad_norm"), CASE)
    assert (own.value, own.mean, own.source) == (2.0, None, "b")


def test_a_trainer_may_have_its_own_whatever_the_architecture(
    file: Callable[[str], None],
) -> None:
    file(GOOD.replace("source: a,", "source: a, trainer: {theirs: {value: 3.0, source: c}},"))
    theirs = CASE.model_copy(update={"trainer": "theirs"})
    for found in (
        thresholds.of_case("parity", ("grad_norm",), theirs),
        thresholds.configured("parity", "grad_norm", theirs),
    ):
        assert found is not None
        assert (found.value, found.source) == (3.0, "c")
    assert thresholds.of_case("parity", ("grad_norm",), CASE).value == 2.0


def test_a_figure_without_a_line_of_its_own_has_the_next(file: Callable[[str], None]) -> None:
    file(GOOD)
    assert thresholds.configured("parity", "grad_norm_head", CASE) is None
    with pytest.raises(
        RequestError, match=r"no parity\.loss\.cpu\.float32; add it.*float32: {value"
    ):
        thresholds.of_case("parity", ("loss_head", "loss"), CASE)


def test_checks_are_advisory_as_the_file_says(file: Callable[[str], None]) -> None:
    file(GOOD)
    assert thresholds.is_advisory("cost")
    assert not thresholds.is_advisory("drift")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("parity: [", "thresholds.yaml: while parsing"),
        ("", "thresholds: Input should be a valid dictionary"),
        (GOOD.replace("1.0e-5", "-1"), "float32.value: Input should be greater than 0"),
        (GOOD.replace("1.0e-5", ".nan"), "float32.value: Input should be"),
        (GOOD.replace("source: a,", ""), "float32.source: Field required"),
        (GOOD.replace("mean", "meen"), "float32.meen: Extra inputs are not permitted"),
        (GOOD.replace("[cost]", "[kost]"), "there is no kost; known: exit, finite"),
        (GOOD.replace("parity", "pairty"), "there is no pairty; known: exit, finite"),
        (GOOD.replace("parity", "cost"), "there is no cost.grad_norm; known: exit"),
        (GOOD.replace("[cost]", "cost"), "advisory: Input should be a valid list"),
    ],
)
def test_a_bad_file_is_one_line_before_anything_runs(
    file: Callable[[str], None], text: str, said: str
) -> None:
    file(text)
    with pytest.raises(RequestError) as raised:
        ready()
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_file_of_the_repository_can_be_read() -> None:
    ready()


def test_a_file_that_is_no_text_is_one_line(file: Callable[[str], None], tmp_path: Path) -> None:
    file(GOOD)
    (tmp_path / thresholds.FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match=r"thresholds\.yaml: 'utf-8' codec can't decode"):
        thresholds.table()


def test_an_empty_file_of_calibrated_values_says_nothing(
    file: Callable[[str], None], tmp_path: Path
) -> None:
    file(GOOD)
    (tmp_path / thresholds.CALIBRATED).write_text("# none yet\n")
    assert thresholds.of("parity", "grad_norm", "cpu", "float32").value == 1e-5


def test_a_folder_of_ones_own_goes_before_what_the_tool_says_and_leaves_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, own = tmp_path / "conf", tmp_path / "mine"
    for folder, name, text in (
        (tools, thresholds.FILE, GOOD),
        (tools, thresholds.CALIBRATED, "parity: {grad_norm: {cpu: {float32: {value: 4.0}}}}"),
        (own, thresholds.FILE, "parity: {grad_norm: {cpu: {float32: {value: 5.0, source: c}}}}"),
    ):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    use_folders(monkeypatch, thresholds, tools, own)
    thresholds.table.cache_clear()
    found = thresholds.of("parity", "grad_norm", "cpu", "float32")
    assert (found.value, found.mean, found.source) == (5.0, 1e-6, "c")
    assert found.mean_source == "a"  # whose the mean still is
    (own / thresholds.CALIBRATED).write_text("parity: {grad_norm: {cpu: {float32: {value: -1}}}}")
    thresholds.table.cache_clear()
    with pytest.raises(RequestError, match=r"mine/calibrated.yaml: .*greater than 0"):
        thresholds.table()
    thresholds.table.cache_clear()
