"""One sweep of trainers that go wrong in every way, through Hydra and submitit.

Each arch stands for a behaviour of dummy.py; two slots; one process of ours that drives them.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sweep.plan import quoted
from tests.sweep.commands import DUMMY_TRAINER, TRAINER, processes_of, sweep

ODD = "a, b = c/d %e @f [g] {h} 'j' \"k\" \\ " * 9  # more than 300 characters

# arch -> behaviour, verdict, part of the message
EXPECTED = {
    "llama": ("ok", "passed", ""),
    "qwen3": ("exit_42", "crashed", "exit code 42 after step 3"),
    "qwen3_moe": ("killed", "crashed", "killed by SIGKILL after step 3"),
    "gpt_oss": ("hang", "timed_out", "still running at the limit of 6 s, after step 3"),
    "glm4_moe": ("job_killed", "crashed", "the job died without leaving a result"),
    "laguna": ("controller_killed", "crashed", "the job died without leaving a result"),
    "minimax_m2": ("short", "failed", "expected 5 losses at steps 1 to 5, got 3 (missing: 4, 5)"),
    "nemotron_h": ("garbage", "failed", "unreadable metrics, line 4"),
    "qwen3_5_dense": ("nan", "failed", "loss is nan at step 4"),
    "qwen3_5_moe": ("infinite", "failed", "grad_norm is inf at step 4"),
    "deepseek_v4": ("dead", "failed", "no parameter moved at step 1"),
    "qwen4_exp": ("twice", "failed", "more than once: 3"),
    "glm_moe_dsa": ("leftover", "passed", ""),
}


@dataclass
class Sweep:
    code: int
    out: str
    folder: Path
    left: list[str]

    def case(self, arch: str) -> Path:
        return next(self.folder.glob(f"{arch}-*"))


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Sweep:
    outputs = tmp_path_factory.mktemp("wrong")
    (outputs / "mlflow.db").write_bytes(empty_store.read_bytes())
    behaviours = {arch: behaviour for arch, (behaviour, _, _) in EXPECTED.items()}
    done = sweep(
        "-m", f"arch={','.join(EXPECTED)}", "layout=cp4_ep4", *DUMMY_TRAINER,
        TRAINER.replace("{behaviour}", "{arch}"), "launch.timeout_seconds=6", "launch.slots=2",
        f"outputs={outputs}", f"+trainer.env.ODD={quoted(ODD.replace('{h}', '{{h}}'))}",
        BEHAVIOURS=json.dumps(behaviours),
    )  # fmt: skip
    folder = next(path.parent for path in outputs.glob("*/sweep.json"))
    return Sweep(done.returncode, done.stdout + done.stderr, folder, processes_of(outputs))


@pytest.mark.slow
class TestASweepInWhichNearlyEverythingGoesWrong:
    def test_exits_1_and_leaves_no_process(self, wrong: Sweep) -> None:
        assert wrong.code == 1, wrong.out
        assert wrong.left == []

    @pytest.mark.parametrize("arch", EXPECTED)
    def test_gives_every_case_its_own_verdict_and_reason(self, wrong: Sweep, arch: str) -> None:
        _, verdict, message = EXPECTED[arch]
        findings = json.loads((wrong.case(arch) / "findings.json").read_text())
        assert findings["verdict"] == verdict
        said = [found["message"] for found in findings["findings"] if found["outcome"] != "pass"]
        assert message in " ".join(said)
        assert (wrong.case(arch) / "facts.json").is_file()
        assert message in " ".join(wrong.out.split())

    def test_never_runs_more_cases_at_once_than_there_are_slots(self, wrong: Sweep) -> None:
        spans = []
        for arch in EXPECTED:
            facts = json.loads((wrong.case(arch) / "facts.json").read_text())
            spans += [
                (launch["started"], launch["started"] + launch["seconds"])
                for launch in facts["launches"]
            ]
        together = [sum(start <= begin < end for start, end in spans) for begin, _ in spans]
        assert max(together) <= 2
        changes = [
            line.split()[2] for line in wrong.out.splitlines() if line[2:3] == line[5:6] == ":"
        ]
        starts = [change == "running" for change in changes if change != "running,"]
        running = list(itertools.accumulate(1 if start else -1 for start in starts))
        assert (max(running), running[-1]) == (2, 0)

    def test_shows_the_stacks_of_a_hang_and_the_log_of_a_crash(self, wrong: Sweep) -> None:
        assert "in misbehave" in wrong.out
        assert "out of cheese" in wrong.out
        assert f"look in {wrong.case('qwen3')}/launches/1_train" in wrong.out

    def test_writes_junit_and_a_summary(self, wrong: Sweep) -> None:
        suite = ET.parse(wrong.folder / "junit.xml").getroot()
        bad = sum(verdict != "passed" for _, verdict, _ in EXPECTED.values())
        assert (suite.get("tests"), suite.get("failures")) == (str(len(EXPECTED)), str(bad))
        assert (
            "2 passed, 4 crashed, 1 timed_out, 6 failed"
            in (wrong.folder / "summary.md").read_text()
        )

    def test_records_every_case_in_mlflow_in_a_final_state(self, wrong: Sweep) -> None:
        from mlflow import MlflowClient

        client = MlflowClient(f"sqlite:///{wrong.folder.parent}/mlflow.db")
        experiment = client.get_experiment_by_name("adhoc")
        assert experiment is not None
        runs = client.search_runs(
            [experiment.experiment_id], f"tags.sweep_id='{wrong.folder.name}'"
        )
        cases = {run.data.tags["arch"]: run for run in runs if run.data.tags["kind"] == "case"}
        for arch, (_, verdict, message) in EXPECTED.items():
            assert cases[arch].data.tags["verdict"] == verdict
            assert (cases[arch].info.status == "FINISHED") == (verdict == "passed")
            assert message in cases[arch].data.tags["mlflow.note.content"]
        ended = {run.info.status for run in runs}
        assert ended == {"FINISHED", "FAILED"}
        crashed = {file.path for file in client.list_artifacts(cases["qwen3"].info.run_id)}
        assert {"facts.json", "failure.md", "launches"} <= crashed

    def test_hands_odd_characters_through_unchanged(self, wrong: Sweep) -> None:
        seen = json.loads((wrong.case("llama") / "launches/1_train/environment.json").read_text())
        assert seen["ODD"] == ODD

    def test_keeps_the_environment_out_of_its_files(self, wrong: Sweep) -> None:
        written = [
            path
            for path in wrong.folder.rglob("*")
            if path.is_file() and path.name != "environment.json"
        ]
        assert len(written) > len(EXPECTED)
        assert not any(b"BEHAVIOURS" in path.read_bytes() for path in written)


@pytest.mark.slow
def test_one_case_in_the_foreground_streams_its_log_and_says_how_it_ended(outputs: Path) -> None:
    arguments = ["arch=llama", "layout=cp4_ep4", *DUMMY_TRAINER, f"outputs={outputs}"]
    good = sweep(*arguments, TRAINER.replace("{behaviour}", "ok"))
    assert good.returncode == 0, good.stderr
    assert "training as ok" in good.stdout
    assert "1 passed" in good.stdout
    bad = sweep(*arguments, TRAINER.replace("{behaviour}", "exit_42"))
    assert bad.returncode == 1
    assert "crashed" in bad.stdout
    assert "exit code 42 after step 3" in bad.stdout
    facts = [json.loads(path.read_text()) for path in sorted(outputs.glob("*/*/facts.json"))]
    assert [one["launches"][0]["exit_code"] for one in facts] == [0, 42]
