"""The folders of sweeps: made, found, and damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweep import facts as facts_file
from sweep.case import file as case_file
from sweep.case import folder as sweep_folder
from sweep.errors import RequestError
from sweep.judge import findings


def test_outputs_may_be_a_link_but_not_into_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    with pytest.raises(RequestError, match=r"a link to .*/disk, which is not there: make that"):
        sweep_folder.claim(tmp_path / "link")
    (tmp_path / "disk").mkdir()
    assert sweep_folder.claim(tmp_path / "link").resolve().parent == tmp_path / "disk"


def test_two_sweeps_of_one_second_have_two_folders(outputs: Path) -> None:
    folders = {sweep_folder.claim(outputs) for _ in range(3)}
    assert len(folders) == 3


def test_the_latest_sweep_is_the_one_that_began_last(outputs: Path) -> None:
    for name, started in (("b", 1.0), ("a", 2.0), ("c", 1.5)):
        (outputs / name).mkdir()
        (outputs / name / "sweep.json").write_text(json.dumps({"started": started}))
    assert sweep_folder.find(outputs, "latest").name == "a"
    assert sweep_folder.find(outputs, "b").name == "b"
    with pytest.raises(RequestError, match="the last ones: b, c, a"):
        sweep_folder.find(outputs, "d")


@pytest.mark.parametrize(
    ("name", "step"),
    [("sweep.json", "move the sweep's folder away"), ("facts.json", "move it away, and the case"),
     ("findings.json", "move the case's folder away"),
     ("case.json", "move the case's folder away")],
)  # fmt: skip
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\0", b"null"])
def test_a_damaged_file_is_named_with_what_to_do(
    tmp_path: Path, name: str, step: str, content: bytes
) -> None:
    readers = {"sweep.json": sweep_folder.read_plan, "facts.json": facts_file.load,
               "findings.json": findings.load, "case.json": case_file.read}  # fmt: skip
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=f"{name}: .*{step}"):
        readers[name](tmp_path)
