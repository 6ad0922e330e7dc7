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
        (GOOD.replace("[cost]", "[kost]"), "there is no check kost; did you mean cost?"),
        (GOOD.replace("parity", "pairty"), "there is no check pairty; did you mean parity?"),
        (GOOD.replace("parity", "zzz"), "there is no check zzz; known: exit, finite"),
        (GOOD.replace("parity", "cost"), "cost: there is no figure grad_norm; known: step_seconds"),
        (GOOD.replace("parity", "finite"), "finite: there is no figure grad_norm"),
        (GOOD.replace("grad_norm", "los"), "parity: there is no figure los; did you mean loss"),
        (
            GOOD.replace("grad_norm", "grad_norm_roter"),
            "parity: there is no figure grad_norm_roter; did you mean grad_norm_router",
        ),
        (GOOD.replace("cpu", "gpu"), "parity.grad_norm: there is no device gpu; did you mean cpu"),
        (
            GOOD.replace("float32", "fp32"),
            "parity.grad_norm.cpu: there is no dtype fp32; known: flo",
        ),
        (
            GOOD.replace("llama", "lama"),
            "parity.grad_norm.cpu.float32: there is no arch lama; did you mean llama",
        ),
        (
            GOOD.replace("[cost]", "[drift, finite, exit]"),
            "advisory: finite, exit cannot be: a case",
        ),
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


@pytest.mark.parametrize("figure", ["grad_norm_mtp", "grad_norm_router", "aux_loss", "choices"])
def test_a_trainer_may_have_groups_of_its_own(file: Callable[[str], None], figure: str) -> None:
    file(GOOD.replace("grad_norm", figure))
    ready()
    assert thresholds.configured("parity", figure, CASE) is not None


def test_trainers_whose_resumes_are_exact_are_named_with_their_devices(
    file: Callable[[str], None],
) -> None:
    file(f"{GOOD}\nexact: {{own: [cpu]}}\n")
    own = CASE.model_copy(update={"trainer": "own"})
    assert thresholds.is_exact(own)
    assert not thresholds.is_exact(own.model_copy(update={"device": "cuda"}))
    assert not thresholds.is_exact(CASE)
    file(f"{GOOD}\nexact: {{own: [gpu]}}\n")
    with pytest.raises(RequestError, match=r"exact\.own\.0: Input should be 'cpu' or 'cuda'"):
        thresholds.table()


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


def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str) -> Path:
    """The tool's files, one's own file of thresholds, and the folder of that."""
    tools, mine = tmp_path / "conf", tmp_path / "mine"
    for folder, name, text in (
        (tools, thresholds.FILE, GOOD),
        (tools, thresholds.CALIBRATED, "parity: {grad_norm: {cpu: {float32: {value: 4.0}}}}"),
        (mine, thresholds.FILE, own),
    ):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    use_folders(monkeypatch, thresholds, tools, mine)
    thresholds.table.cache_clear()
    return mine


OWN = "parity: {grad_norm: {cpu: {float32: {value: 5.0, source: c}}}}"


@pytest.mark.usefixtures("file")
def test_a_value_of_ones_own_replaces_the_shipped_one_with_its_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = folders(tmp_path, monkeypatch, OWN)
    found = thresholds.of("parity", "grad_norm", "cpu", "float32")
    assert (found.value, found.mean, found.source) == (5.0, None, "c")
    assert found.arch["llama"].value == 2.0, "what is said of one architecture stays"
    (mine / thresholds.CALIBRATED).write_text(
        "parity: {grad_norm: {cpu: {float32: {mean: 0.5, mean_source: d}}}}"
    )
    thresholds.table.cache_clear()
    found = thresholds.of("parity", "grad_norm", "cpu", "float32")
    assert (found.value, found.mean, found.source) == (5.0, 0.5, "c"), "of one folder"
    (mine / thresholds.CALIBRATED).write_text("parity: {grad_norm: {cpu: {float32: {value: -1}}}}")
    thresholds.table.cache_clear()
    with pytest.raises(RequestError, match=r"mine/calibrated.yaml: .*greater than 0"):
        thresholds.table()


@pytest.mark.usefixtures("file")
def test_a_value_of_ones_own_needs_its_own_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders(tmp_path, monkeypatch, OWN.replace(", source: c", ""))
    with pytest.raises(RequestError, match=r"mine/thresholds.yaml: .*source: Field required"):
        thresholds.table()


@pytest.mark.usefixtures("file")
def test_what_ones_own_file_does_not_name_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders(tmp_path, monkeypatch, "parity: {grad_norm: {cpu: {float32: {mean: 0.1}}}}")
    found = thresholds.of("parity", "grad_norm", "cpu", "float32")
    assert (found.value, found.mean, found.source) == (4.0, 0.1, "a")
    assert thresholds.is_advisory("cost")
