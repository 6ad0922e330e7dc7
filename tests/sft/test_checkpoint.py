"""A resumed run goes on as the one that was saved; what is lost on the way shows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from sft import checkpoint as checkpoints
from sft import digests, loop, model
from sft.config import CheckpointConfig, Config, DataConfig, ModelConfig, OptimConfig
from sft.errors import ConfigError
from sft.loop import Trainer
from sft.ranks import Ranks
from sft.report.metrics import read as records
from sft.warm import launch
from tests.nightly import representatives
from tests.sweep.confs import limits

Records = list[dict[str, Any]]
ALONE = Ranks(0, 1, torch.device("cpu"))
COMPARED = (
    "loss", "grad_norm", "lr", "batch_digests", "rng_digests", "buffers_digest", "gradient_digests"
)  # fmt: skip
STEPS = 8


@pytest.fixture(scope="module")
def model_with_dropout(
    checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A small checkpoint whose losses depend on the random stream."""
    source = checkpoint("llama")
    folder = tmp_path_factory.mktemp("dropout")
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.1}))
    return folder


def settings(model: Path, out: Path, save_at: list[int], resume: Path | None = None) -> Config:
    return Config(
        model=ModelConfig(path=str(model)),
        data=DataConfig(seq_len=128, global_batch=2),
        optim=OptimConfig(warmup_steps=10),
        checkpoint=CheckpointConfig(save_at, str(resume) if resume else None),
        steps=STEPS,
        output_dir=str(out),
    )


def compared(steps: Records) -> list[list[Any]]:
    return [[step[key] for key in ("step", *COMPARED)] for step in steps]


@pytest.fixture(scope="module")
def saved(model_with_dropout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run, saved at 3 and 5."""
    out = tmp_path_factory.mktemp("saved")
    Trainer(settings(model_with_dropout, out, [3, 5]), ALONE).run()
    return out


def resumed(
    model: Path, saved: Path, out: Path, undo: Callable[[Trainer], None] | None = None
) -> Records:
    """The steps after 5 of a fresh trainer, with a piece of its state undone."""
    config = settings(model, out, [], checkpoints.folder(str(saved), 5))
    trainer = Trainer(config, ALONE)
    if undo:
        undo(trainer)
    trainer.run()
    return records(out)


def test_a_resumed_run_repeats_the_steps_of_the_one_that_went_on(
    model_with_dropout: Path, saved: Path, tmp_path: Path
) -> None:
    assert compared(resumed(model_with_dropout, saved, tmp_path)) == compared(records(saved)[5:])


def test_a_resumed_run_can_be_resumed(
    model_with_dropout: Path, saved: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    start = checkpoints.folder(str(saved), 3)
    Trainer(settings(model_with_dropout, first, [5], start), ALONE).run()
    start = checkpoints.folder(str(first), 5)
    Trainer(settings(model_with_dropout, second, [], start), ALONE).run()
    assert compared(records(second)) == compared(records(saved)[5:])


def test_a_run_in_a_folder_that_has_its_checkpoints_writes_them_again(
    model_with_dropout: Path, tmp_path: Path
) -> None:
    config = settings(model_with_dropout, tmp_path, [1])
    config.steps = 1
    for lr in (1e-3, 1e-4):
        config.optim.lr = lr
        Trainer(config, ALONE).run()
    (place,) = (tmp_path / "checkpoints").iterdir()
    assert place == checkpoints.folder(str(tmp_path), 1)
    assert checkpoints.read_shared(place)["settings"]["optim.lr"] == 1e-4


def test_a_resume_that_has_no_step_left_names_how_many_it_needs(saved: Path) -> None:
    place = checkpoints.folder(str(saved), 5)
    with pytest.raises(ConfigError, match=r"steps=5 .* after step 5; use steps=6 or more"):
        checkpoints.check_steps_are_left(checkpoints.read_shared(place), 5, place)


def test_a_resumed_runs_first_step_counts_what_its_others_do(
    model_with_dropout: Path, saved: Path, tmp_path: Path
) -> None:
    config = settings(model_with_dropout, tmp_path, [], checkpoints.folder(str(saved), 5))
    config.memory.optim_offload = True
    Trainer(config, ALONE).run()
    counted = [step["counters"]["optim_offload_bytes"] for step in records(tmp_path)]
    assert counted[0] == counted[1] != [0]


def lose_moments(trainer: Trainer) -> None:
    trainer.optimizer.state.clear()


def lose_scheduler(trainer: Trainer) -> None:
    trainer.scheduler.last_epoch = 0
    trainer.scheduler.step()


def lose_position(trainer: Trainer) -> None:
    trainer.loader.load_state_dict({"epoch": 0, "rows": 0})


def lose_rng(_: Trainer) -> None:
    torch.manual_seed(99)


@pytest.mark.parametrize(
    ("undo", "shown_by"),
    [
        (lose_moments, "loss"),
        (lose_scheduler, "lr"),
        (lose_position, "batch_digests"),
        (lose_rng, "rng_digests"),
    ],
)
def test_each_piece_of_state_that_is_lost_shows(
    model_with_dropout: Path,
    saved: Path,
    tmp_path: Path,
    undo: Callable[[Trainer], None],
    shown_by: str,
) -> None:
    ours = resumed(model_with_dropout, saved, tmp_path, undo)
    pairs = zip(ours, records(saved)[5:], strict=True)
    assert any(a[shown_by] != b[shown_by] for a, b in pairs)


def test_a_save_cut_off_in_the_middle_is_no_checkpoint(
    model_with_dropout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*args: Any, **kwargs: Any) -> None:
        dcp_save(*args, **kwargs)
        raise KeyboardInterrupt

    dcp_save = dcp.save
    monkeypatch.setattr(dcp, "save", cut_off)
    with pytest.raises(KeyboardInterrupt):
        Trainer(settings(model_with_dropout, tmp_path, [1]), ALONE).run()
    place = checkpoints.folder(str(tmp_path), 1)
    assert place.with_name("step_1.partial").is_dir()
    with pytest.raises(ConfigError, match="step_1 is not a whole checkpoint"):
        checkpoints.read_shared(place)


@pytest.fixture
def copied(saved: Path, tmp_path: Path) -> Path:
    """The checkpoint of step 5, to damage."""
    place = tmp_path / "checkpoints" / "step_5"
    shutil.copytree(checkpoints.folder(str(saved), 5), place)
    return place


def load(model: Path, place: Path) -> Trainer:
    return Trainer(settings(model, place.parent.parent, [], place), ALONE)


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "trainer.json"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_eight_flipped_bytes_are_refused_by_name(
    model_with_dropout: Path, copied: Path, name: str, share: float
) -> None:
    content = bytearray((copied / name).read_bytes())
    start = int(len(content) * share)
    for place in range(start, start + 8):
        content[place] ^= 0xFF
    (copied / name).write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(f"step_5/{name} is not as it was saved")):
        load(model_with_dropout, copied)


def test_files_that_are_lost_cut_off_or_damaged_are_refused_by_name(
    model_with_dropout: Path, copied: Path
) -> None:
    sums = copied / digests.FILE
    sums.write_text(sums.read_text().replace("__0_0", "__0_1"))
    with pytest.raises(ConfigError, match=r"__0_0.distcp is not as it was saved"):
        load(model_with_dropout, copied)
    sums.write_text(sums.read_text().replace("__0_1", "__0_0"))
    shard = copied / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"__0_0.distcp is not as it was saved"):
        load(model_with_dropout, copied)
    shard.unlink()
    with pytest.raises(ConfigError, match=r"step_5 lacks __0_0.distcp"):
        load(model_with_dropout, copied)


def test_digests_are_those_of_sha256sum(copied: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--quiet", digests.FILE], cwd=copied, check=True)
    assert len(digests.read(copied / digests.FILE)) == 3


def test_a_truncated_trainer_json_is_one_line(copied: Path) -> None:
    shared = copied / "trainer.json"
    shared.write_text(shared.read_text()[:100])
    with pytest.raises(ConfigError, match=r"trainer\.json is damaged: .*resume from another step"):
        checkpoints.read_shared(copied)


@pytest.mark.parametrize("last", [".partial", ".old"])
def test_a_save_killed_between_its_two_renames_leaves_what_the_next_load_names(
    copied: Path, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = copied.with_name("step_5.partial")
    if last == ".partial":
        shutil.copytree(copied, partial)
    rename = Path.rename

    def killed(path: Path, target: Path) -> Path:
        if path == partial:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.put_in_place(partial, copied)
    with pytest.raises(
        ConfigError, match=rf"a save was cut off while renaming it; rename step_5\{last} to step_5"
    ):
        checkpoints.read_shared(copied)


def test_a_folder_without_a_checkpoint_names_those_there_are(saved: Path) -> None:
    with pytest.raises(ConfigError, match="there are step_3, step_5"):
        checkpoints.read_shared(checkpoints.folder(str(saved), 4))


CHANGES: list[tuple[str, Any, str]] = [
    ("optim.lr", 1e-3, "optim.lr=0.001 but .* was saved with 0.0001"),
    ("optim.weight_decay", 0.1, "optim.weight_decay=0.1 but .* with 0.0"),
    ("optim.decay", "all", "optim.decay=all but .* with matrices"),
    ("optim.warmup_steps", 3, "optim.warmup_steps=3 but .* with 10"),
    ("optim.max_grad_norm", 2.0, "optim.max_grad_norm=2.0 but"),
    ("seed", 1, "seed=1 but .* with 0"),
    ("data.seed", 1, "data.seed=1 but .* with 0"),
    ("data.seq_len", 64, "data.seq_len=64 but .* with 128"),
    ("model.dtype", "bfloat16", "model.dtype=bfloat16 but .* with float32"),
    ("model.attention_dropout", 0.2, "model.attention_dropout=0.2 but"),
]


def changed(config: Config, name: str, value: Any) -> Config:
    *parts, key = name.split(".")
    section: Any = config
    for part in parts:
        section = getattr(section, part)
    setattr(section, key, value)
    return config


@pytest.mark.parametrize(("name", "value", "message"), CHANGES)
def test_a_resume_with_another_setting_is_refused_by_name_or_allowed(
    model_with_dropout: Path, saved: Path, tmp_path: Path, name: str, value: Any, message: str
) -> None:
    place = checkpoints.folder(str(saved), 5)
    config = changed(settings(model_with_dropout, tmp_path, [], place), name, value)
    with pytest.raises(ConfigError, match=message + r'.*or resume\.allow=\["' + name):
        Trainer(config, ALONE)
    # rows of another length are other rows
    config.resume.allow = [name, "data.path"] if name == "data.seq_len" else [name]
    assert Trainer(config, ALONE).step == 5


def test_what_is_allowed_to_be_another_is_what_the_run_goes_on_with(
    model_with_dropout: Path, saved: Path, tmp_path: Path
) -> None:
    config = settings(model_with_dropout, tmp_path, [], checkpoints.folder(str(saved), 5))
    config.optim = OptimConfig(lr=1e-2, weight_decay=0.1, decay="all", warmup_steps=0)
    names = ("lr", "weight_decay", "decay", "warmup_steps")
    config.resume.allow = [f"optim.{name}" for name in names]
    trainer = Trainer(config, ALONE)
    assert [group["weight_decay"] for group in trainer.optimizer.param_groups] == [0.1]
    trainer.run()
    assert [step["lr"] for step in records(tmp_path)] == [1e-2] * 3


def test_a_setting_that_no_checkpoint_is_held_to_cannot_be_allowed(
    model_with_dropout: Path, saved: Path, tmp_path: Path
) -> None:
    config = settings(model_with_dropout, tmp_path, [], checkpoints.folder(str(saved), 5))
    config.resume.allow = ["optim.lrs"]
    with pytest.raises(ConfigError, match=r"allow=optim.lrs is none of what is compared: optim.lr"):
        Trainer(config, ALONE)


def test_the_same_documents_elsewhere_are_accepted_and_others_in_their_place_refused(
    model_with_dropout: Path, tmp_path: Path
) -> None:
    documents = tmp_path / "chats.jsonl"
    shipped = resources.files("sft") / "documents" / "chats.jsonl"
    documents.write_bytes(shipped.read_bytes())
    config = settings(model_with_dropout, tmp_path, [1])
    config.steps, config.data.path = 1, str(documents)
    Trainer(config, ALONE).run()
    config = settings(model_with_dropout, tmp_path, [], checkpoints.folder(str(tmp_path), 1))
    Trainer(config, ALONE)  # the same, under the package's own path
    config.data.path = str(documents)
    documents.write_bytes(shipped.read_bytes().replace(b"the", b"teh"))
    with pytest.raises(ConfigError, match=r"data.path makes other rows"):
        Trainer(config, ALONE)


def test_a_checkpoint_of_two_layers_does_not_go_into_a_model_of_one(
    model_with_dropout: Path, saved: Path, tmp_path: Path
) -> None:
    smaller = Path(shutil.copytree(model_with_dropout, tmp_path / "smaller"))
    shape = json.loads((smaller / "config.json").read_text())
    assert shape["num_hidden_layers"] == 2
    (smaller / "config.json").write_text(json.dumps(shape | {"num_hidden_layers": 1}))
    with pytest.raises(ConfigError, match=r"model.path has num_hidden_layers=1 but .* with 2"):
        load(smaller, checkpoints.folder(str(saved), 5))


@pytest.mark.slow
@pytest.mark.usefixtures("warm_ranks")
@pytest.mark.parametrize("arch", representatives(["qwen3_moe", "glm_moe_dsa"], "qwen3_moe"))
def test_sharded_state_comes_back_and_can_go_to_another_layout(
    arch: str, checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    def run(name: str, dp: int, cp: int, **keys: Any) -> Records:
        return launch.train(
            tmp_path / name,
            model={"path": str(checkpoint(arch))},
            layout={"dp_shard": dp, "cp": cp, "ep": 4},
            steps=STEPS,
            checkpoint=keys,
        )

    whole = run("whole", 4, 1, save_at=[5])[5:]
    place = str(checkpoints.folder(str(tmp_path / "whole"), 5))
    assert compared(run("same", 4, 1, resume_from=place)) == compared(whole)
    figure = "loss"
    for ours, theirs in zip(run("other", 1, 4, resume_from=place), whole, strict=True):
        if choices(ours) != choices(theirs):  # a tie: training is another from here on
            figure = "loss_after_choice"
        limit = limits().of("parity", figure, "cpu", "float32").value
        assert ours["global_batch_digest"] == theirs["global_batch_digest"]
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=limit)
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=limit)


def choices(record: dict[str, Any]) -> float:
    """Which experts and keys were chosen at a step, over all ranks."""
    return float(sum(record["counters"].get("choices_fingerprint", [])))


def test_indexers_and_biases_are_kept_and_not_trained(checkpoint: Callable[[str], Path]) -> None:
    dsa = model.load(Config(model=ModelConfig(path=str(checkpoint("glm_moe_dsa")))))
    frozen = [name for name, x in dsa.named_parameters() if not x.requires_grad]
    assert frozen
    assert all(".indexer." in name for name in frozen)
    biases = [name for name, _ in dsa.named_buffers() if name.endswith("correction_bias")]
    assert len(loop.untrained(dsa)) == len(frozen) + len(biases)
    laguna = model.load(Config(model=ModelConfig(path=str(checkpoint("laguna")))))
    assert all(x.requires_grad for x in laguna.parameters())
    assert len(loop.untrained(laguna)) == 1
