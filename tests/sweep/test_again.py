"""The command printed under a failed case runs it with what it was compared with."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from sweep.session import again
from tests.sweep.commands import sweep

TRAINER = """
import json, pathlib, sys
folder, steps, cp = sys.argv[1:]
off = 0.5 * (cp != "1")
with pathlib.Path(folder, "metrics.jsonl").open("w") as file:
    for step in range(1, int(steps) + 1):
        figures = {"loss": 3 - step / 10 + off, "grad_norm": 1.0, "lr": 1e-4, "tokens": 10}
        figures |= {"params_moved": 1.0, "global_batch_digest": str(step)}
        print(json.dumps({"step": step} | figures), file=file)
"""
OWN = "python -m sweep arch=llama layout=cp4_ep4 feature=base outputs=o"


ALONE = OWN.replace("cp4_ep4", "single")


def joined(**values: str) -> str:
    """OWN as a multirun, with other values of these keys."""
    words = dict(word.split("=") for word in OWN.split()[3:]) | values
    return " ".join(["python -m sweep -m", *(f"{key}={value}" for key, value in words.items())])


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (OWN, [ALONE], joined(layout="single,cp4_ep4")),
        (OWN, [OWN.replace("base", "none"), ALONE],
         joined(layout="cp4_ep4,single", feature="none,base")),
        (f"{OWN} fault=dead_model:1", [OWN], joined(fault="null,dead_model:1")),
        (f"{OWN} optim.lr=1e-3", [OWN], joined(**{"optim.lr": "1e-3", "references": "true"})),
        (OWN, [f"{OWN} optim.lr=1e-3"], joined(references="true")),
        (f"{OWN} 'trainer.argv=[a, b", [OWN], f"{OWN} 'trainer.argv=[a, b"),
    ],
)  # fmt: skip
def test_one_multirun_has_the_case_and_the_others(
    own: str, others: list[str], expected: str
) -> None:
    assert again._joined(own, others) == expected


def test_the_folder_of_configuration_stays() -> None:
    own = OWN.replace("sweep ", "sweep --config-dir 'my conf' ", 1)
    assert again._joined(own, [own]) == joined().replace("sweep ", "sweep --config-dir 'my conf' ")


@pytest.mark.slow
def test_it_gives_the_same_verdict(tmp_path: Path) -> None:
    """Alone, the case passes: nothing is there to compare with."""
    trainer = tmp_path / "train.py"
    trainer.write_text(TRAINER)
    argv = json.dumps(["{python}", str(trainer), "{output_dir}", "{steps}", "{cp}"])
    words = ["arch=llama", "feature=none", "trainer=command", f"trainer.argv={argv}",
             f"outputs={tmp_path / 'outputs'}"]  # fmt: skip
    first = sweep("-m", "layout=single,cp2_ep1", *words)
    assert first.returncode == 1
    assert "1 passed, 1 failed" in first.stdout
    (command,) = re.findall(r"^ *again +(python .*)$", first.stdout, re.MULTILINE)
    python, module, name, *rest = shlex.split(command)
    assert (python, module, name) == ("python", "-m", "sweep")
    second = sweep(*rest)
    assert second.returncode == 1, second.stdout
    assert "1 passed, 1 failed" in second.stdout
    message = r"parity: step 1: loss is [^;]*"
    assert re.findall(message, second.stdout) == re.findall(message, first.stdout) != []
    assert "again" not in sweep("layout=cp2_ep1", *words).stdout


FAILING = """
import json, pathlib, sys
folder, steps, first, mode = sys.argv[1:5]
mode, off, cpu = pathlib.Path(mode).read_text(), 0.0, 1.0
if mode == "exit":
    raise SystemExit("out of cheese")
if mode == "breaks":
    import torch
    torch._dynamo.config.suppress_errors = False
    torch.compile(lambda x: (torch._dynamo.graph_break(), x + 1)[1], backend="eager")(torch.ones(2))
if mode == "drift":
    off = 0.5
if mode == "cost":
    cpu = 9.0
if mode == "resume" and first != "1":
    off = 0.5
with pathlib.Path(folder, "metrics.jsonl").open("w") as file:
    for step in range(int(first), int(steps) + 1):
        figures = {"loss": 3 - step / 10 + off, "grad_norm": 1.0, "lr": 1e-4, "tokens": 10}
        figures |= {"params_moved": 1.0, "global_batch_digest": str(step), "step_cpu_seconds": cpu}
        print(json.dumps({"step": step} | figures), file=file)
"""


class Kind(NamedTuple):
    """A kind of failure: the words of the sweep, and what is said of it."""

    words: list[str]
    said: str
    before: str = ""  # how the trainer was in the sweep before
    suite: bool = False


KINDS = {
    "exit": Kind(["-m", "feature=none"], r"exit: train: exit code 1 before its first step"),
    "resume": Kind(["-m", "feature=none_resume"], r"resume: step 6: loss is [^;]*"),
    "breaks": Kind(["-m", "feature=compile_only"], r"graph_breaks: .*"),
    "drift": Kind(["-m", "seed=0,1"], r"drift: step 1: loss is [^;]*", "good", True),
    "cost": Kind(["-m", "seed=0,1", "feature=none"], r"cost: the work of a step[^;]*", "good"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", KINDS)
def test_each_kind_of_failure_is_seen_again(tmp_path: Path, mode: str) -> None:
    """With the folder of configuration, a suite's earlier runs and the case's environment."""
    kind = KINDS[mode]
    (tmp_path / "train.py").write_text(FAILING)
    conf = tmp_path / "my conf"
    (conf / "suite").mkdir(parents=True)
    (conf / "thresholds.yaml").write_text("advisory: []\n")
    (conf / "suite" / "own.yaml").write_text(
        "name: own\nrows: [{arch: llama, layout: single, feature: none}]\n"
    )
    file = tmp_path / "mode"
    argv = [
        "{python}",
        str(tmp_path / "train.py"),
        "{output_dir}",
        "{steps}",
        "{first_step}",
        str(file),
    ]
    words = [
        "--config-dir",
        str(conf),
        "trainer=command",
        f"trainer.argv={json.dumps(argv)}",
        "trainer.resume.argv=['{resume_from}']",
        "++hydra.job.env_set.WHY='a b'",
        "+trainer.env.HOW=so",
        f"outputs={tmp_path / 'outputs'}",
    ]
    words += ["suite=own"] if kind.suite else ["arch=llama", "layout=single"]
    words += [word for word in kind.words if word not in words]
    if kind.before:
        file.write_text(kind.before)
        assert sweep(*words).returncode == 0
    file.write_text(mode)
    first = sweep(*words)
    assert first.returncode == 1, first.stdout + first.stderr
    messages = re.findall(kind.said, flat(first.stdout))
    assert messages, first.stdout
    for command in re.findall(r"^ *again +(python .*)$", first.stdout, re.MULTILINE):
        second = sweep(*shlex.split(command)[3:])
        assert second.returncode == 1, second.stdout + second.stderr
        seen = re.findall(kind.said, flat(second.stdout))
        assert {without_sweep(one) for one in seen} <= {without_sweep(one) for one in messages}
        assert seen, second.stdout


@pytest.mark.slow
@pytest.mark.nightly
def test_what_the_oracle_says_is_said_again(tmp_path: Path) -> None:
    said = r"oracle: step 1: loss is [^;]*"
    words = ["arch=llama", "layout=single", "feature=none", "fault=logits_scaled"]
    first = sweep("-m", *words, f"outputs={tmp_path / 'outputs'}")
    assert first.returncode == 1, first.stdout + first.stderr
    (command,) = re.findall(r"^ *again +(python .*)$", first.stdout, re.MULTILINE)
    second = sweep(*shlex.split(command)[3:])
    assert second.returncode == 1
    messages = re.findall(said, flat(first.stdout))
    assert messages == re.findall(said, flat(second.stdout)) != []


def flat(text: str) -> str:
    return re.sub(r"\n {4,}", " ", text)


def without_sweep(text: str) -> str:
    """Without the id of the sweep it was compared with, and times."""
    return re.sub(r"\d{8}-\d{6}-\w{4}|[\d.]+", "#", text)
