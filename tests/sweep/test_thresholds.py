"""Thresholds by check, figure, device, dtype, arch and trainer; a bad file is one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.checks import thresholds
from sweep.errors import RequestError
from sweep.files import ConfDirs
from sweep.judge import ready
from tests.sweep.confs import instead_of_ours
from tests.sweep.conftest import CASE

GOOD = """
advisory: [cost]
parity:
  grad_norm:
    cpu:
      float32: {value: 1.0e-5, mean: 1.0e-6, source: a, arch: {llama: {value: 2.0, source: b}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], ConfDirs]:
    """A function that makes `text` the file of thresholds, the only one."""

    def write(text: str) -> ConfDirs:
        (tmp_path / thresholds.FILE).write_text(text)
        return instead_of_ours(tmp_path, without=thresholds.CALIBRATED)

    return write


def test_an_architecture_may_have_its_own_and_others_have_the_common_one(
    file: Callable[[str], ConfDirs],
) -> None:
    table = thresholds.table(file(GOOD))
    other = CASE.model_copy(update={"arch": "qwen3"})
    found = table.of_case("parity", ("grad_norm",), other)
    assert (found.value, found.mean, found.source) == (1e-5, 1e-6, "a")
    own = table.of_case("parity", ("grad_norm_head", "grad_norm"), CASE)
    assert (own.value, own.mean, own.source) == (2.0, None, "b")


def test_a_trainer_may_have_its_own_whatever_the_architecture(
    file: Callable[[str], ConfDirs],
) -> None:
    table = thresholds.table(
        file(GOOD.replace("source: a,", "source: a, trainer: {theirs: {value: 3.0, source: c}},"))
    )
    theirs = CASE.model_copy(update={"trainer": "theirs"})
    for found in (
        table.of_case("parity", ("grad_norm",), theirs),
        table.configured("parity", "grad_norm", theirs),
    ):
        assert found is not None
        assert (found.value, found.source) == (3.0, "c")
    assert table.of_case("parity", ("grad_norm",), CASE).value == 2.0


def test_a_figure_without_a_line_of_its_own_has_the_next(file: Callable[[str], ConfDirs]) -> None:
    table = thresholds.table(file(GOOD))
    assert table.configured("parity", "grad_norm_head", CASE) is None
    with pytest.raises(
        RequestError, match=r"no parity\.loss\.cpu\.float32; add it.*float32: {value"
    ):
        table.of_case("parity", ("loss_head", "loss"), CASE)


def test_checks_are_advisory_as_the_file_says(file: Callable[[str], ConfDirs]) -> None:
    table = thresholds.table(file(GOOD))
    assert table.advisory == ["cost"]


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
    file: Callable[[str], ConfDirs], text: str, said: str
) -> None:
    conf = file(text)
    with pytest.raises(RequestError) as raised:
        ready(conf)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("figure", ["grad_norm_mtp", "grad_norm_router", "aux_loss", "choices"])
def test_a_trainer_may_have_groups_of_its_own(file: Callable[[str], ConfDirs], figure: str) -> None:
    conf = file(GOOD.replace("grad_norm", figure))
    ready(conf)
    table = thresholds.table(conf)
    assert table.configured("parity", figure, CASE) is not None


def test_trainers_whose_resumes_are_exact_are_named_with_their_devices(
    file: Callable[[str], ConfDirs],
) -> None:
    table = thresholds.table(file(f"{GOOD}\nexact: {{own: [cpu]}}\n"))
    own = CASE.model_copy(update={"trainer": "own"})
    assert table.is_exact(own)
    assert not table.is_exact(own.model_copy(update={"device": "cuda"}))
    assert not table.is_exact(CASE)
    conf = file(f"{GOOD}\nexact: {{own: [gpu]}}\n")
    with pytest.raises(RequestError, match=r"exact\.own\.0: Input should be 'cpu' or 'cuda'"):
        thresholds.table(conf)


def test_the_file_of_the_repository_can_be_read() -> None:
    ready(ConfDirs())


def test_a_file_that_is_no_text_is_one_line(
    file: Callable[[str], ConfDirs], tmp_path: Path
) -> None:
    conf = file(GOOD)
    (tmp_path / thresholds.FILE).write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match=r"thresholds\.yaml: 'utf-8' codec can't decode"):
        thresholds.table(conf)


def test_an_empty_file_of_calibrated_values_says_nothing(
    file: Callable[[str], ConfDirs], tmp_path: Path
) -> None:
    conf = file(GOOD)
    (tmp_path / thresholds.CALIBRATED).write_text("# none yet\n")
    assert thresholds.table(conf).of("parity", "grad_norm", "cpu", "float32").value == 1e-5


def folders(tmp_path: Path, own: str) -> ConfDirs:
    """The tool's files of thresholds, and one of the user's."""
    tools, mine = tmp_path / "conf", tmp_path / "mine"
    for folder, name, text in (
        (tools, thresholds.FILE, GOOD),
        (tools, thresholds.CALIBRATED, "parity: {grad_norm: {cpu: {float32: {value: 4.0}}}}"),
        (mine, thresholds.FILE, own),
    ):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return instead_of_ours(tools, mine)


OWN = "parity: {grad_norm: {cpu: {float32: {value: 5.0, source: c}}}}"


def test_a_value_of_ones_own_replaces_the_shipped_one_with_its_mean(tmp_path: Path) -> None:
    conf, mine = folders(tmp_path, OWN), tmp_path / "mine"
    found = thresholds.table(conf).of("parity", "grad_norm", "cpu", "float32")
    assert (found.value, found.mean, found.source) == (5.0, None, "c")
    assert found.arch["llama"].value == 2.0, "what is said of one architecture stays"
    (mine / thresholds.CALIBRATED).write_text(
        "parity: {grad_norm: {cpu: {float32: {mean: 0.5, mean_source: d}}}}"
    )
    thresholds.table.cache_clear()
    found = thresholds.table(conf).of("parity", "grad_norm", "cpu", "float32")
    assert (found.value, found.mean, found.source) == (5.0, 0.5, "c"), "of one folder"
    (mine / thresholds.CALIBRATED).write_text("parity: {grad_norm: {cpu: {float32: {value: -1}}}}")
    thresholds.table.cache_clear()
    with pytest.raises(RequestError, match=r"mine/calibrated.yaml: .*greater than 0"):
        thresholds.table(conf)


def test_a_value_of_ones_own_needs_its_own_source(tmp_path: Path) -> None:
    conf = folders(tmp_path, OWN.replace(", source: c", ""))
    with pytest.raises(RequestError, match=r"mine/thresholds.yaml: .*source: Field required"):
        thresholds.table(conf)


def test_what_ones_own_file_does_not_name_stays(tmp_path: Path) -> None:
    table = thresholds.table(
        folders(tmp_path, "parity: {grad_norm: {cpu: {float32: {mean: 0.1}}}}")
    )
    found = table.of("parity", "grad_norm", "cpu", "float32")
    assert (found.value, found.mean, found.source) == (4.0, 0.1, "a")
    assert table.advisory == ["cost"]
