"""`sweep.locate` finds planted faults in real launches of three kinds of trainers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sweep.locate.look import look
from sweep.locate.place import WHOLE, Place
from tests.sweep.commands import sweep
from tests.sweep.locating import sweep_of

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plain_pytorch"


def located(outputs: Path, case_id: str, against: str | None = None) -> Place | None:
    return look(outputs / "planned", case_id, against).place


@pytest.mark.parametrize(
    ("layout", "fault", "stage", "module"),
    [
        ("fsdp2_ep2", "grad_reduce_skipped:1", "reduction", "model.layers.1"),
        ("cp2_ep2", "expert_scores_swapped:1", "forward", "model.layers.0.mlp.experts"),
    ],
)
def test_a_fault_of_a_layout_is_found_beside_one_process(
    tmp_path: Path, layout: str, fault: str, stage: str, module: str
) -> None:
    common = "arch=qwen3_moe feature=none steps=1"
    cases = sweep_of(tmp_path, f"{common} layout=single", f"{common} layout={layout} fault={fault}")
    place = located(tmp_path, cases[1].case.id)
    assert place is not None
    assert (place.step, place.stage, place.module) == (1, stage, module)
    assert place.rank in (0, 1)


@pytest.mark.parametrize("layout", ["fsdp2_ep2", "cp2_ep2"])
def test_a_right_layout_parts_nowhere(tmp_path: Path, layout: str) -> None:
    common = "arch=qwen3_moe feature=none steps=2"
    cases = sweep_of(tmp_path, f"{common} layout=single", f"{common} layout={layout}")
    assert located(tmp_path, cases[1].case.id) is None


def test_a_fault_that_all_layouts_have_is_found_beside_the_oracle(tmp_path: Path) -> None:
    fault = "attention_scale_wrong:4.0e-5"
    (case,) = sweep_of(tmp_path, f"arch=llama layout=single feature=none steps=1 fault={fault}")
    place = located(tmp_path, case.case.id, "oracle")
    assert place is not None
    assert (place.stage, place.module) == ("forward", "model.layers.0.self_attn")
    assert place.heads


def test_a_resume_is_held_against_the_uninterrupted_run(tmp_path: Path) -> None:
    fault = "fault=resume_without_moments:1"
    (case,) = sweep_of(tmp_path, f"arch=llama layout=single feature=none_resume {fault}")
    place = located(tmp_path, case.case.id, "uninterrupted")
    assert place is not None
    assert (place.stage, place.module) == ("state", WHOLE)
    assert place.what == "exp_avg restored"


def test_what_differs_uncompiled_too_is_not_the_compilers(tmp_path: Path) -> None:
    common = "arch=llama layout=single steps=1"
    cases = sweep_of(
        tmp_path,
        f"{common} feature=none",
        f"{common} feature=compile_only fault=attention_scale_wrong:0.1",
    )
    found = look(tmp_path / "planned", cases[1].case.id)
    assert found.place is not None
    assert found.place.module == "model.layers.0.self_attn"
    assert found.notes == ["it was run uncompiled, and differs there too"]


def test_a_sweep_says_under_a_failure_where_it_is(outputs: Path) -> None:
    words = ("arch=llama", "layout=single", "feature=none", "fault=null,attention_scale_wrong:0.1")
    done = sweep("-m", *words, "locate=true", f"outputs={outputs}", COLUMNS="200")
    assert done.returncode == 1, done.stdout + done.stderr
    line = "parts at: step 1, forward, model.layers.0.self_attn"
    assert line in done.stdout
    summary = next(outputs.glob("*/summary.md")).read_text()
    assert line in summary.replace("\\", "")


def test_transformers_trainer_is_looked_into(tmp_path: Path) -> None:
    common = "arch=llama trainer=hf_trainer feature=none steps=1"
    cases = sweep_of(tmp_path, f"{common} layout=single", f"{common} layout=single optim.lr=2.0e-4")
    place = located(tmp_path, cases[1].case.id, cases[0].case.id)
    assert place is not None
    assert (place.step, place.stage, place.module) == (1, "optimizer", WHOLE)
    assert place.what == "lr is 0.0002, in the reference 0.0001"


def test_a_trainer_of_ones_own_is_looked_into_by_one_import(tmp_path: Path) -> None:
    """Its feed-forward network is a little off in two shards."""
    program = tmp_path / "train.py"
    text = (EXAMPLE / "train.py").read_text()
    bug = (
        "        model.model.layers[1].mlp.down_proj.register_forward_hook(\n"
        "            lambda module, inputs, out: out * 1.001)\n"
    )
    text = text.replace("import torch\n", "import sweep_taps\nimport torch\n", 1)
    before = "        for layer in model.model.layers:\n"
    assert text.count(before) == 1
    program.write_text(text.replace(before, bug + before))
    conf = tmp_path / "conf"
    shutil.copytree(EXAMPLE / "conf", conf)
    description = conf / "trainer" / "plain_pytorch.yaml"
    description.write_text(
        description.read_text().replace("examples/plain_pytorch/train.py", str(program))
    )
    common = "arch=llama trainer=plain_pytorch feature=none steps=1"
    cases = sweep_of(tmp_path, f"{common} layout=single", f"{common} layout=fsdp2_ep1", conf=conf)
    place = located(tmp_path, cases[1].case.id)
    assert place is not None
    assert (place.step, place.stage) == (1, "forward")
    assert place.module == "model.layers.1.mlp.down_proj"
