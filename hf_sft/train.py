"""A config -> transformers' `Trainer`, which does all the work; what it did is observed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, TrainingArguments

from hf_sft import experts
from hf_sft.observe import ObservedTrainer
from sft.config import Config as SftConfig
from sft.config import DataConfig, ModelConfig
from sft.data import IGNORED, Row, digest_of_rows
from sft.packing import packed_rows
from sft.report import about

Config = dict[str, Any]
"""`model` {path, dtype}, `sharding` {fsdp_size, ep_size} or null, `cp_size`, `data` {seq_len},
`arguments` of `TrainingArguments`, `resume_from`, `metrics`, `export`, and `export_at`: the step
after which it is written, or null."""


def train(config: Config) -> None:
    """Train to `arguments.max_steps`."""
    packed = rows(config)
    trainer = ObservedTrainer(
        model=load(config),
        args=arguments(config),
        train_dataset=packed,
        data_collator=collate,
        metrics=Path(config["metrics"]),
        export=(config["export_at"], Path(config["export"])),
    )
    if trainer.is_world_process_zero():
        about.write(Path(config["metrics"]).parent, digest_of_rows(packed), ("hf_sft", "sft"))
    trainer.train(resume_from_checkpoint=config["resume_from"])


def load(config: Config) -> PreTrainedModel:
    """The checkpoint's model; with `sharding`, split by transformers itself while it is loaded."""
    more: dict[str, Any] = {}
    if config["sharding"] is not None:
        from transformers.distributed import DistributedConfig

        experts.register()
        more["distributed_config"] = DistributedConfig(**config["sharding"])
    return AutoModelForCausalLM.from_pretrained(
        config["model"]["path"], dtype=getattr(torch, config["model"]["dtype"]), **more
    )


def arguments(config: Config) -> TrainingArguments:
    """`TrainingArguments`, with accelerate's context parallelism where it is asked for."""
    more: dict[str, Any] = {}
    if config["cp_size"] > 1:
        from accelerate import ParallelismConfig

        more["parallelism_config"] = ParallelismConfig(cp_size=config["cp_size"])
    return TrainingArguments(**config["arguments"], **more)


def rows(config: Config) -> list[Row]:
    """Packed rows as `Trainer` wants them: labels beside their tokens, which the model shifts."""
    model = ModelConfig(path=config["model"]["path"])
    data = DataConfig(seq_len=config["data"]["seq_len"])
    packed = packed_rows(SftConfig(model=model, data=data))
    return [
        {key: row[key] for key in ("input_ids", "position_ids")} | {"labels": beside(row["labels"])}
        for row in packed
    ]


def beside(labels: torch.Tensor) -> torch.Tensor:
    """[seq] labels of the next token -> of the token itself."""
    return torch.cat([labels.new_full((1,), IGNORED), labels[:-1]])


def collate(rows: list[Row]) -> Row:
    """Rows of one length, stacked; the default collator knows no `position_ids`."""
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
