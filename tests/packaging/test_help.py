"""`--help` of every command says what it does, with an example, and does nothing else."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_TYPED = {"sft.warm.server", "sweep.revisions.probe", "sweep.run.supervisor",
             "sweep.slurm.nodes", "sweep.store.guard"}  # the sweep starts them  # fmt: skip


def commands() -> list[str]:
    """Modules and files that can be run."""
    packages = ("sweep", "sft", "hf_sft", "tiny_models", "oracle")
    files = [
        path
        for name in (*packages, "benchmarks", "scripts")
        for path in sorted((ROOT / name).rglob("*.py"))
        if 'if __name__ == "__main__":' in path.read_text()
    ]
    names = [path.relative_to(ROOT) for path in files]
    return [
        str(name)
        if name.parts[0] not in packages
        else ".".join(name.with_suffix("").parts).removesuffix(".__main__")
        for name in names
    ]


@pytest.mark.parametrize("command", sorted(set(commands()) - NOT_TYPED))
def test_help_says_what_a_command_does_with_an_example(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", [command, "--help"])
    run = runpy.run_module if not command.endswith(".py") else runpy.run_path
    with pytest.raises(SystemExit) as ended:
        run(command, run_name="__main__")
    assert ended.value.code == 0
    said = capsys.readouterr().out
    name = command.removesuffix(".py").replace("/", "[./]")
    assert re.search(rf"(python|torchrun).* (-m )?{name}(\.py)?(:| |$)", said, re.MULTILINE), said
    assert len(said.splitlines()) > 5
