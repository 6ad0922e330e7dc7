"""A resumed run goes on as the one that was saved; what is lost on the way shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from sft import checkpoint as checkpoints
from sft import loop, model
from sft.config import CheckpointConfig, Config, DataConfig, ModelConfig, OptimConfig
from sft.errors import ConfigError
from sft.loop import Trainer
from sft.ranks import Ranks
from sft.report.metrics import read as records
from sft.warm import launch
from sweep.checks import thresholds

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
    assert checkpoints.read_shared(place)["scheduler"]["base_lrs"] == [1e-4]


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


def test_a_truncated_shard_fails_loudly(
    model_with_dropout: Path, saved: Path, tmp_path: Path
) -> None:
    place = tmp_path / "checkpoints" / "step_5"
    place.mkdir(parents=True)
    for file in checkpoints.folder(str(saved), 5).iterdir():
        content = file.read_bytes()
        keep = len(content) // 2 if file.suffix == ".distcp" else len(content)
        (place / file.name).write_bytes(content[:keep])
    with pytest.raises(ConfigError, match="step_5 cannot be read"):
        Trainer(settings(model_with_dropout, tmp_path, [], place), ALONE)


def test_a_folder_without_a_checkpoint_names_those_there_are(saved: Path) -> None:
    with pytest.raises(ConfigError, match="there are step_3, step_5"):
        checkpoints.read_shared(checkpoints.folder(str(saved), 4))


def test_other_data_than_the_saved_position_counts_in_is_refused(saved: Path) -> None:
    shared = checkpoints.read_shared(checkpoints.folder(str(saved), 5))
    with pytest.raises(ConfigError, match="use 128"):
        checkpoints.check_same_data(shared, DataConfig(seq_len=64, global_batch=2), saved)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_ranks")
@pytest.mark.parametrize("arch", ["qwen3_moe", "glm_moe_dsa"])
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
        limit = thresholds.of("parity", figure, "cpu", "float32").value
        assert ours["global_batch_digest"] == theirs["global_batch_digest"]
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=limit)
        assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=limit)


def choices(record: dict[str, Any]) -> float:
    """Which experts and keys were chosen at a step, over all ranks."""
    return float(sum(record["counters"].get("choices_fingerprint", [])))


def test_what_an_architecture_freezes_is_frozen_after_loading_too(
    checkpoint: Callable[[str], Path],
) -> None:
    loaded = model.load(Config(model=ModelConfig(path=str(checkpoint("laguna")))))
    frozen = [name for name, x in loaded.named_parameters() if not x.requires_grad]
    assert frozen
    assert all(name.endswith("e_score_correction_bias") for name in frozen)
    assert len(loop.untrained(loaded)) == len(frozen)
