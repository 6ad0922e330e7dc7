"""A small trainer of somebody's own: PyTorch, FSDP2, a checkpoint, a CSV file. See README.md.

    torchrun --nproc-per-node 2 train.py --model CHECKPOINT --out FOLDER --steps 5

It learns its own source text. Nothing in it knows of the sweep.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, AutoTokenizer

COLUMNS = ("step", "loss", "grad_norm", "lr", "tokens", "moved", "sharded", "batch")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4, help="rows of all ranks together")
    parser.add_argument("--seq-len", type=int, default=512)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-at", type=int, default=0, help="step to save after; 0 is never")
    parser.add_argument("--resume", type=Path, help="what an earlier run saved")
    parser.add_argument("--lose-optimizer", action="store_true", help="a bug to be found")
    return parser.parse_args()


def sharded_model(path: Path) -> nn.Module:
    """The model of a checkpoint; each decoder layer, and the rest, split over all ranks."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    if dist.get_world_size() > 1:
        for layer in model.model.layers:
            fully_shard(layer)
        fully_shard(model)
    return model


def batch(text: Tensor, step: int, args: argparse.Namespace) -> Tensor:
    """[rows, seq_len] of the step: windows of the text at places that the step alone decides."""
    places = torch.Generator().manual_seed(args.seed * 1_000_003 + step)
    starts = torch.randint(len(text) - args.seq_len, (args.batch,), generator=places)
    return torch.stack([text[start : start + args.seq_len] for start in starts.tolist()])


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, rows: Tensor) -> dict:
    """One optimizer step on this rank's rows; figures of all ranks."""
    mine = rows[dist.get_rank() :: dist.get_world_size()]
    loss = model(input_ids=mine, labels=mine, use_cache=False).loss
    loss.backward()
    norm = gradient_norm(model)
    nn.utils.clip_grads_with_norm_(model.parameters(), 1.0, norm)
    before = fingerprints(model)
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    return {
        "loss": mean.item(),
        "grad_norm": norm.item(),
        "moved": (fingerprints(model) != before).float().mean().item(),
        "sharded": sum(p.numel() for p in model.parameters() if isinstance(p, DTensor)),
        "tokens": rows.numel() - len(rows),
        "batch": hashlib.sha256(rows.numpy().tobytes()).hexdigest()[:16],
    }


def gradient_norm(model: nn.Module) -> Tensor:
    """Summed in float64: in float32, one process and several differ by 1e-5."""
    squares = [whole(p.grad.double().square().sum()) for p in model.parameters()]
    return torch.stack(squares).sum().sqrt()


def whole(x: Tensor) -> Tensor:
    """The tensor that is split over the ranks."""
    return x.full_tensor() if isinstance(x, DTensor) else x


@torch.no_grad()
def fingerprints(model: nn.Module) -> Tensor:
    """[parameters] sums, by which a parameter that moved is known."""
    return torch.stack([whole(p.double().sum()) for p in model.parameters()])


def restore(model: nn.Module, optimizer: torch.optim.Optimizer, args: argparse.Namespace) -> int:
    """Load what was saved; returns the step after which it was."""
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": torch.tensor(0)}
    if args.lose_optimizer:
        del state["optimizer"]
    dcp.load(state, checkpoint_id=args.resume)
    if args.lose_optimizer:
        model.load_state_dict(state["model"])
    else:
        set_state_dict(
            model, optimizer, model_state_dict=weights, optim_state_dict=state["optimizer"]
        )
    return int(state["step"])


def save(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, folder: Path) -> None:
    """Model, optimizer and step, each rank its part."""
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": torch.tensor(step)}
    dcp.save(state, checkpoint_id=folder)


def main() -> None:
    """Train."""
    args = arguments()
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    text = tokenizer(Path(__file__).read_text(), return_tensors="pt")
    model = sharded_model(args.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    done = restore(model, optimizer, args) if args.resume else 0
    table = (
        csv.DictWriter((args.out / "metrics.csv").open("w", buffering=1), COLUMNS)
        if (dist.get_rank() == 0)
        else None
    )
    if table:
        table.writeheader()
    for step in range(done + 1, args.steps + 1):
        figures = train_step(model, optimizer, batch(text["input_ids"][0], step, args))
        if table:
            table.writerow({"step": step, "lr": args.lr, **figures})
        if step == args.save_at:
            save(model, optimizer, step, args.out / "checkpoint")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
