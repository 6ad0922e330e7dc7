"""The command printed under a failed case runs it with what it was compared with."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

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
