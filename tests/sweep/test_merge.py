"""One report of the shards of a night, and the example for GitHub Actions that makes it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from sweep import merge
from sweep.cli.arguments import run
from sweep.facts import Facts
from sweep.files import write_json
from tests.sweep.recording import named, record, sweep_folder

Make = Callable[..., Facts]
ROOT = Path(__file__).parents[2]
WORKFLOWS = [ROOT / ".github/workflows/nightly.yml", ROOT / "examples/github/pull_request.yml"]


def shard(outputs: Path, number: int, *facts: Facts, of: int = 2, planned: str = "") -> None:
    sweep_id = f"20260102-00000{number}-abcd"
    sweep_folder(outputs, *facts, sweep_id=sweep_id, experiment="nightly", began=number)
    plan = json.loads((outputs / sweep_id / "sweep.json").read_text())
    plan["argv"] = ["-m", "suite=nightly", f"shard={number}/{of}"]
    plan["cases"] += [planned] if planned else []
    write_json(outputs / sweep_id / "sweep.json", plan)


def merged(outputs: Path, into: Path) -> int:
    return run(merge.USAGE, merge.main, [f"outputs={outputs}", f"into={into}"])


def test_shards_become_one_report_with_links_to_the_cases(tmp_path: Path, make_facts: Make) -> None:
    outputs, into = tmp_path / "shards", tmp_path / "merged"
    shard(outputs, 1, named(make_facts(), "a-single-none"))
    shard(outputs, 2, named(make_facts(exit_code=1), "b-single-none"))
    assert merged(outputs, into) == 1
    assert "1 passed" in (into / "summary.md").read_text()
    assert "b-single-none" in (into / "summary.md").read_text()
    junit = ET.parse(into / "junit.xml").getroot()
    assert (junit.get("failures"), junit.get("errors")) == ("1", "0")
    page = (into / "matrix.html").read_text()
    assert 'href="../shards/20260102-000002-abcd/b-single-none/"' in page
    assert not (into / "history.html").exists()


def test_a_shard_or_a_case_without_a_result_is_never_green(
    tmp_path: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    shard(tmp_path / "two", 1, make_facts(), of=3)
    assert merged(tmp_path / "two", tmp_path / "m1") == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "shard 2/3 left no report; shard 3/3 left no report" in said
    shard(tmp_path / "cut", 1, make_facts(), of=1, planned="llama-single-none")
    assert merged(tmp_path / "cut", tmp_path / "m2") == 3
    assert "1 of 2 cases have no result" in capsys.readouterr().out


def test_with_a_store_the_report_says_what_regressed(
    outputs: Path, make_facts: Make, tmp_path: Path
) -> None:
    record(outputs, make_facts(), sweep_id="20260101-000000", experiment="nightly", began=1.0)
    record(
        outputs,
        make_facts(exit_code=1),
        sweep_id="20260102-000000",
        experiment="nightly",
        began=90_000.0,
    )
    assert merged(outputs, tmp_path / "merged") == 1
    said = (tmp_path / "merged" / "summary.md").read_text()
    assert "1 regressed" in said
    assert "last passed in 20260101-000000" in said
    assert "✓" in (tmp_path / "merged" / "history.html").read_text()


def test_no_sweep_is_a_wrong_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert merged(tmp_path, tmp_path / "merged") == 2
    assert "no sweep lies there" in capsys.readouterr().err


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_the_example_for_github_merges_what_its_shards_upload(
    path: Path, tmp_path: Path, make_facts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    shards = jobs["shard"]["strategy"]["matrix"]["shard"]
    sweep = next(
        step["run"] for step in jobs["shard"]["steps"] if "-m sweep " in step.get("run", "")
    )
    assert f"shard=${{{{ matrix.shard }}}}/{len(shards)}" in sweep
    assert jobs["report"]["needs"] == "shard"
    (upload,) = (
        step["with"] for step in jobs["shard"]["steps"] if "upload" in step.get("uses", "")
    )
    (download,) = (
        step["with"] for step in jobs["report"]["steps"] if "download" in step.get("uses", "")
    )
    assert download["merge-multiple"] is True
    # What the patterns upload is enough for the report.
    source = tmp_path / "source"
    for number in shards:
        shard(
            source / "outputs",
            number,
            named(make_facts(), f"a{number}-single-none"),
            of=len(shards),
        )
    for pattern in upload["path"].split():
        for file in source.glob(pattern):
            target = tmp_path / download["path"] / file.relative_to(source / "outputs")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    command = next(
        line.strip()
        for step in jobs["report"]["steps"]
        for line in step.get("run", "").splitlines()
        if "sweep.merge" in line
    )
    words = shlex.split(command)
    assert words[1:3] == ["-m", "sweep.merge"]
    monkeypatch.chdir(tmp_path)
    assert run(merge.USAGE, merge.main, words[3:]) == 0
    comment = next(
        step["run"] for step in jobs["report"]["steps"] if "summary.md" in step.get("run", "")
    )
    assert (tmp_path / "merged" / "summary.md").is_file()
    assert "merged/summary.md" in comment
