"""A wrong request is one line that names the next step, and exit code 2."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sweep.cli import app, arguments
from sweep.cli.app import main
from sweep.cli.arguments import Usage
from sweep.files import conf_dir

CASE = ("arch=llama", "layout=single")
COMMAND = ("trainer=command", "trainer.argv=[true]")


def complaint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> str:
    monkeypatch.setattr(sys, "argv", ["sweep", *arguments])
    assert main() == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["arch=lama", "layout=single"],
            "arch=lama: no such arch; did you mean llama? choose",
        ),
        (["arch=x", "layout=single"], "arch=x: no such arch; choose from deepseek_v4, glm4"),
        (["-m", "arch=llama", "layout=cp9"], "layout=cp9: no such layout; choose from cp2_ep2"),
        (["-m", "arch=llama", "layout=cp9"], "single, or say degrees, as fsdp4_ep1"),
        (["-m", "arch=llama", "layout=fsdp4_ep"], "no such layout; did you mean fsdp4_ep4?"),
        (["-m", "arch=llama", "layout=fsdp1_ep1"], "layout=fsdp1_ep1: no such layout"),
        ([*CASE, "feature=ful_offload"], "no such feature; did you mean full_offload?"),
        ([*CASE, "trainer=stf"], "trainer=stf: no such trainer; did you mean sft?"),
        (["-m", "suite=smok"], "suite=smok: no such suite; did you mean smoke? choose from"),
        (
            [*CASE, "layout.shards=4"],
            "there is no setting layout.shards; did you mean layout.dp",
        ),
        ([*CASE, "layout.shards=4"], "layout has world_size, dp_shard, cp, ep, nodes"),
        ([*CASE, "+layout.shards=4"], "there is no setting layout.shards; --cfg job shows all"),
        (
            ["-m", *CASE, "hydra/launcher=slurm", "hydra.launcher.partiton=x"],
            "there is no setting hydra.launcher.partiton; did you mean hydra.launcher.partition?",
        ),
        (
            ["-m", *CASE, "hydra.launcher.partiton=x"],
            "did you mean hydra/launcher=slurm hydra.launcher.partition? hydra.launcher has",
        ),
        (["-m", "arch=llama"], "layout=...: missing; choose from cp2_ep2"),
        (["arch=llama,qwen3", "layout=single"], "several values need -m"),
        ([*CASE, "steps=many"], "Value 'many' of type 'str' could not be converted to Integer"),
        ([*CASE, "stepz=3"], "there is no setting stepz; did you mean steps? python -m sweep"),
        ([*CASE, "optim.rate=3"], "there is no setting optim.rate; optim has lr, weight_decay"),
        ([], "layout=...: missing; choose from cp2_ep2"),
        ([*CASE, "steps=0"], "steps=0: say 1 or more"),
        (["-m", *CASE, "steps=0"], "steps=0: say 1 or more"),
        ([*CASE, "trainer=command"], "/conf/trainer/ says what it is"),
        ([*CASE, "dtype=float8"], "dtype"),
        ([*CASE, "feature=resume", "feature.resume_at=[8]"], "say rising steps before the last, 8"),
        (
            [*CASE, "feature=resume", "feature.resume_at=[5,3]"],
            "say rising steps before the last, 8",
        ),
        ([*CASE, "suite=nightly"], "suite=... is about a sweep: add -m"),
        (["suite=nightly", "plan=true"], "suite=... is about a sweep: add -m"),
        (["-m", "suite=nite"], "suite=nite: no such suite; choose from "),
        (["-m", "suite=smoke", "shard=3/2"], "shard=3/2: say I/N"),
        (["-m", "suite=smoke", "feature=fullgraph"], "nothing in the suite matches"),
        ([*CASE, "+stepz=3"], "there is no setting stepz"),
        ([*CASE, "scale.name=huge"], "scale.name=huge: say auto, nano, tiny"),
        ([*CASE, "sweep_id=mine"], "sweep_id: the sweep itself sets it"),
        (["-m", *CASE, "case_id=mine"], "case_id: the sweep itself sets it"),
        (["-m", "arch=llama,", "layout=single"], "arch=llama,: not understood: mismatched input"),
        (["-m", "suite=smoke", "plan=true,false"], "plan: one value"),
        (["-m", *CASE, "outputs=a,b"], "outputs: one value"),
        (["-m", "suite=smoke", "suite.rows=[]"], "suite=smoke: it has no rows"),
        (["-m", "suite=null"], "Config group override must be a string"),
        ([*CASE, "--foo"], "unrecognized arguments: --foo; python -m sweep --help"),
        ([*CASE, "--config-dir", "/nowhere"], "config directory '/nowhere' not found"),
    ],
)
def test_a_wrong_request_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], said: str,
) -> None:  # fmt: skip
    assert said in complaint(monkeypatch, capsys, *arguments)


def test_another_sweeper_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ["-m", *CASE, "hydra/sweeper=basic", f"outputs={tmp_path}"]
    assert "leave hydra/sweeper out" in complaint(monkeypatch, capsys, *arguments)


def test_an_override_may_follow_an_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = f"outputs={tmp_path}/outputs"
    words = ["arch=llama", "-m", "layout=single", "--config-dir", str(tmp_path), where, "plan=true"]
    monkeypatch.setattr(sys, "argv", ["sweep", *words])
    assert main() == 0
    assert "1 cases" in capsys.readouterr().out


def test_a_fault_of_our_own_is_no_failed_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> int:
        raise KeyError("a slip")

    monkeypatch.setattr(app, "_foreground", broken)
    monkeypatch.setattr(sys, "argv", ["sweep", *CASE])
    assert main() == 3
    said = capsys.readouterr().err
    assert "in broken" in said  # the traceback
    assert said.splitlines()[-1].endswith("please report the lines above: KeyError: 'a slip'")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "world_size: 4\nshards: 4\n",
            "there is no setting layout.shards; did you mean layout.dp_shard? layout has w",
        ),
        ("world_size: four\n", "Value 'four' of type 'str' could not be converted to Integer"),
    ],
)
def test_a_wrong_file_is_named_with_its_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    text: str, said: str,
) -> None:  # fmt: skip
    (tmp_path / "layout").mkdir()
    (tmp_path / "layout" / "mine.yaml").write_text(text)
    line = complaint(
        monkeypatch, capsys, "arch=llama", "layout=mine", "--config-dir", str(tmp_path)
    )
    assert f"sweep: {tmp_path}/layout/mine.yaml: " in line
    assert said in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe\0", "mine.yaml: no UTF-8 text: invalid start byte at byte 0"),
        (b"name: [x\n", "mine.yaml"),
        (b"name: llama\nname: qwen3\n", "found duplicate key name"),
        (b"name: mine\nmoe: false\n", "arch.name=mine: tiny_models has no such arch; choose from"),
    ],
)
def test_a_file_that_cannot_be_read_or_is_about_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    content: bytes, said: str,
) -> None:  # fmt: skip
    (tmp_path / "arch").mkdir()
    (tmp_path / "arch" / "mine.yaml").write_bytes(content)
    words = ("arch=mine", "layout=single", "--config-dir", str(tmp_path), f"outputs={tmp_path}")
    assert said in complaint(monkeypatch, capsys, *words)


def test_a_folder_as_mlflow_store_is_refused_before_any_time_is_spent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(tmp_path / "mlruns"))
    arguments = [*CASE, *COMMAND, f"outputs={tmp_path}/outputs"]
    assert "name a server" in complaint(monkeypatch, capsys, *arguments)
    assert not (tmp_path / "outputs").exists()


def test_another_system_than_linux_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "this is darwin, and Linux is needed" in complaint(monkeypatch, capsys, *CASE)
    assert arguments.run(Usage("sweep.judge", "Judge.", ""), lambda *_: 0, []) == 2
    assert "Linux is needed" in capsys.readouterr().err


def test_help_shows_examples_and_the_choices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "layout").mkdir()
    (tmp_path / "layout" / "of_my_own.yaml").touch()
    monkeypatch.setattr(sys, "argv", ["sweep", "--config-dir", str(tmp_path), "--help"])
    assert main() == 0
    text = capsys.readouterr().out
    assert "python -m sweep -m arch=qwen3_moe,gpt_oss layout=cp4_ep4" in text
    assert "deepseek_v4" in text
    assert ", of_my_own," in text
    assert "Linux only" in text
    assert "'arch=glob(*)'" in text
    lines = [line.strip() for line in text.splitlines()]
    lines.remove(str(conf_dir()))  # as long as it is
    assert max(map(len, lines)) <= 100
