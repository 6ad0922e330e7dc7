"""python benchmarks/launch.py: what a one-step launch of four ranks costs, cold and warm.

Cold and warm launches take turns, so that whatever else the machine does falls on both. Seconds
are from the launch to the first step and to the exit; CPU-seconds are those of all its processes.
What a warm launch owes to its server, started once a sweep, has a line of its own.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil
from hydra import compose, initialize_config_dir

import tiny_models
from sweep import schema, trainers
from sweep.case.labels import settings_of
from sweep.case.machine import Machine
from sweep.facts import LaunchFacts
from sweep.files import conf_dir
from sweep.run import launch, warm
from sweep.schema import Settings

PLAIN = ("compile=false", "ac=none", "act_offload=false", "optim_offload=false")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", nargs="+", default=["qwen3_moe", "gpt_oss", "llama"])
    parser.add_argument("--layout", default="fsdp4_ep4")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--base", action="store_true", help="with the features of feature=base")
    asked = parser.parse_args()
    schema.register()
    with tempfile.TemporaryDirectory() as folder:
        show(measure(asked, Path(folder)))


def measure(asked: argparse.Namespace, folder: Path) -> dict[tuple[str, str], list[LaunchFacts]]:
    """Launches by arch and mode."""
    measured = defaultdict(list)
    env = launch.launch_variables("cpu", None)
    started = time.monotonic()
    settings = settings_for(asked, asked.arch[0])
    program = warm.program_of(settings)
    assert program is not None
    server = warm.Server(program, env, folder / "server.log")
    try:
        first = run(settings, folder / "first", server.address)
        print(
            f"server and its first launch: {time.monotonic() - started:.1f} s, CPU-seconds "
            f"{server_seconds(server):.1f} and {first.cpu_seconds:.1f}"
        )
        for arch in asked.arch:
            settings = settings_for(asked, arch)
            for number in range(asked.repeats):
                for mode, address in (("warm", server.address), ("cold", None)):
                    done = run(settings, folder / f"{arch}-{mode}-{number}", address)
                    measured[arch, mode].append(done)
    finally:
        server.stop()
    return measured


def settings_for(asked: argparse.Namespace, arch: str) -> Settings:
    features = [] if asked.base else [f"feature.{word}" for word in PLAIN]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        chosen = [f"arch={arch}", f"layout={asked.layout}", "steps=1", *features]
        return settings_of(compose("config", chosen), Machine())


def run(settings: Settings, directory: Path, server: str | None) -> LaunchFacts:
    """One launch, which must end well."""
    trainer = trainers.of(settings)
    directory.mkdir()
    model = Path(tiny_models.ensure(settings.arch.name, scale="nano"))
    (planned,) = trainer.launches(settings)
    done = launch.run(
        planned,
        trainer.command(settings, planned, directory, model),
        directory,
        launch.launch_variables("cpu", None),
        launch.Watch(lambda: trainer.metrics(settings, directory), 600.0),
        server,
    )
    if done.exit_code != 0:
        raise SystemExit(f"{directory.name} failed:\n{done.rank_tail}\n{done.log_tail}")
    print(
        f"{directory.name}: {done.first_step_seconds:.1f} s to the first step, "
        f"{done.seconds:.1f} s, {done.cpu_seconds:.1f} CPU-seconds",
        flush=True,
    )
    return done


def server_seconds(server: warm.Server) -> float:
    used = psutil.Process(server.pid).cpu_times()
    return used.user + used.system


def show(measured: dict[tuple[str, str], list[LaunchFacts]]) -> None:
    print("| arch | mode | s to step 1 | s to exit | CPU-seconds | less CPU |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (arch, mode), launches in measured.items():
        first, whole, used = (
            statistics.median(values)
            for values in zip(
                *((d.first_step_seconds, d.seconds, d.cpu_seconds) for d in launches), strict=True
            )
        )
        cold = statistics.median(d.cpu_seconds for d in measured[arch, "cold"])
        less = f"{cold / used:.1f}x" if mode == "warm" else ""
        print(f"| {arch} | {mode} | {first:.1f} | {whole:.1f} | {used:.1f} | {less} |")


if __name__ == "__main__":
    main()
