"""`trainer.tree` and `trainer.python`: the same case with other code, or other packages."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep import trainers
from sweep.case.identity import identity_of
from sweep.errors import RequestError
from sweep.provenance import ROOT
from sweep.run import origin
from sweep.schema import LayoutConf, Settings, trainer_confs
from sweep.trainers import tree
from sweep.trainers.sft import SftTrainer
from sweep.trainers.understood import keys, understood
from tests.sweep.planning import planned
from tests.sweep.revisions import git, history

MADE = Path("train") / "main.py"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with a trainer in a folder of its own, and packages below src."""
    top = tmp_path / "repo"
    history(top, [{"README": "a trainer"}])
    for folder in ("train", "src"):
        (top / folder).mkdir()
    (top / MADE).write_text("print('the trainer')\n")
    (top / "src" / "rates.py").write_text("")
    git(top, "add", "--all")
    git(top, "commit", "--quiet", "--message", "the trainer")
    return top


@pytest.fixture
def copy(repo: Path, tmp_path: Path) -> Path:
    """A clone with a commit more."""
    git(tmp_path, "clone", "--quiet", str(repo), "copy")
    git(tmp_path / "copy", "commit", "--quiet", "--allow-empty", "--message", "more")
    return tmp_path / "copy"


def settings(*words: str) -> Settings:
    (case,) = planned(["arch=llama", "layout=single", "feature=none", *words])
    return case.settings


def of(repo: Path, **conf: object) -> Settings:
    made = settings()
    argv = ["{python}", str(repo / MADE), f"--paths={repo}/a:{repo}/b", f"{repo}-other"]
    trainer = replace(made.trainer, argv=argv, env={"DATA": f"{repo}/data"}, **conf)
    return replace(made, trainer=trainer)


def test_paths_lead_into_the_tree_and_modules_are_found_there(repo: Path, copy: Path) -> None:
    moved = tree.moved(of(repo, tree=str(copy))).trainer
    assert moved.argv == [
        "{python}",
        str(copy / MADE),
        f"--paths={copy}/a:{copy}/b",
        f"{repo}-other",
    ]
    assert moved.env["DATA"] == f"{copy}/data"
    assert moved.env["PYTHONPATH"].split(":")[:3] == [
        str(copy / "train"),
        str(copy),
        str(copy / "src"),
    ]
    assert moved.project == str(copy / "train")


def test_a_path_relative_to_where_we_are_is_led_too(
    repo: Path, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = of(repo, tree=str(copy))
    made.trainer.argv[1] = f"repo/{MADE}"
    assert tree.moved(made).trainer.argv[1] == str(copy / MADE)


def test_it_is_moved_once_and_not_at_all_without_a_tree(repo: Path, copy: Path) -> None:
    once = tree.moved(of(repo, tree=str(copy)))
    assert tree.moved(once) == once
    assert tree.moved(of(repo)) == of(repo)


def test_the_identity_is_the_same_and_the_commit_is_the_trees(repo: Path, copy: Path) -> None:
    here, there = of(repo), of(repo, tree=str(copy), python="/other/python")
    assert identity_of(here) == identity_of(there)
    assert origin.commit(there)["git_sha"] == git(copy, "rev-parse", "HEAD")
    assert origin.commit(here)["git_sha"] == git(repo, "rev-parse", "HEAD")


def test_a_tree_of_something_else_is_refused(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match=r"it has no folder train, as .*repo has"):
        tree.moved(of(repo, tree=str(tmp_path / "empty")))
    script = tmp_path / "alone.py"
    script.write_text("")
    alone = of(repo, tree=str(repo))
    alone.trainer.argv[1] = str(script)
    with pytest.raises(RequestError, match=r"in no git repository; trainer\.project=FOLDER"):
        tree.moved(alone)


def built_in(tmp_path: Path, **conf: object) -> Settings:
    (tmp_path / "launch").mkdir(exist_ok=True)
    (case,) = planned(["arch=llama", "layout=single", "feature=none"])
    sft = trainer_confs()["sft"](**conf)
    return replace(case.settings, trainer=sft)


def test_the_built_in_trainer_is_found_in_the_tree(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "sft", copy / "sft", ignore=shutil.ignore_patterns("__pycache__"))
    made = tree.moved(built_in(tmp_path, tree=str(copy)))
    launch = trainers.of(made).launches(made)[0]
    command = trainers.of(made).command(made, launch, tmp_path / "launch", tmp_path)
    assert command.env["PYTHONPATH"].split(":")[0] == str(copy)
    assert command.env["SFT_CACHE"] == str(tmp_path / "launch" / "rows")
    shutil.rmtree(copy / "sft")
    with pytest.raises(RequestError, match="there is no sft/ in it"):
        trainers.of(made).project(made)


def test_another_interpreter_finds_our_modules_and_none_of_our_packages(tmp_path: Path) -> None:
    made = built_in(tmp_path, python="/other/python")
    trainer = trainers.of(made)
    command = trainer.command(made, trainer.launches(made)[0], tmp_path / "launch", tmp_path)
    assert command.argv[0] == "/other/python"
    code = Path(command.env["PYTHONPATH"])
    assert sorted(path.stem for path in code.iterdir()) == ["hf_sft", "sft", "sweep_taps"]
    assert all(path.exists() for path in code.iterdir())
    assert trainer.server(made) is None


def test_several_nodes_have_no_interpreter_of_their_own() -> None:
    from sweep.plan.cases import _not_started

    made = settings()
    made = replace(made, layout=LayoutConf(4, 4, 1, 1, nodes=2))
    made = replace(made, trainer=replace(made.trainer, python=sys.executable))
    assert "on several nodes" in str(_not_started(trainers.of(made), made))


@pytest.mark.parametrize(
    ("named", "ids"),
    [
        (["llama-single-none"], ["llama-single-none"]),
        (["qwen3-single-none", "llama-single-none"], ["llama-single-none", "qwen3-single-none"]),
    ],
)
def test_a_sweep_is_narrowed_to_cases(named: list[str], ids: list[str]) -> None:
    from sweep.plan.request import _named

    cases = planned(
        *[[f"arch={arch}", "layout=single", "feature=none"] for arch in ("llama", "qwen3")]
    )
    assert [case.case.id for case in _named(cases, named)] == ids
    with pytest.raises(RequestError, match="there is no case llama-single-non; did you mean"):
        _named(cases, ["llama-single-non"])


THEN = """
from dataclasses import dataclass, field


@dataclass
class OptimConfig:
    lr: float = 1e-3


@dataclass
class Config:
    optim: OptimConfig = field(default_factory=OptimConfig)
    steps: int = 5
"""


def test_an_earlier_trainer_is_told_what_it_understands(tmp_path: Path) -> None:
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "config.py").write_text(THEN)
    config: dict[str, Any] = {
        "optim": {"lr": 1e-4, "decay": "matrices", "weight_decay": 0.0},
        "checkpoint": {"save_at": [], "export_at": [4], "resume_from": None},
        "choices": {"keep": True},
        "steps": 8,
        "profile_step": 0,
    }
    assert understood(config, tmp_path) == {"optim": {"lr": 1e-4}, "steps": 8}
    made = built_in(tmp_path, tree=str(tmp_path))
    assert trainers.of(made).export(made, tmp_path) is None, "it cannot export yet"
    assert trainers.of(made).export(built_in(tmp_path), tmp_path) is not None


def test_what_an_earlier_trainer_would_do_otherwise_is_still_asked_of_it(tmp_path: Path) -> None:
    (tmp_path / "sft").mkdir()
    (tmp_path / "sft" / "config.py").write_text(THEN)
    config: dict[str, Any] = {
        "optim": {"lr": 1e-4, "decay": "all"},
        "checkpoint": {"save_at": [5], "export_at": []},
        "fault": "dead_model",
        "steps": 8,
    }
    left = understood(config, tmp_path)
    assert left["optim"] == {"lr": 1e-4, "decay": "all"}
    assert left["checkpoint"] == {"save_at": [5]}
    assert left["fault"] == "dead_model"
    assert understood(config, tmp_path / "nothing") == config


def test_todays_trainer_understands_all_that_it_is_told(tmp_path: Path) -> None:
    made = built_in(tmp_path)
    trainer = trainers.of(made)
    assert isinstance(trainer, SftTrainer)
    config = trainer.config(made, trainer.launches(made)[0], tmp_path, tmp_path)
    asked = {
        f"{key}.{name}"
        for key, values in config.items()
        if isinstance(values, dict)
        for name in values
    }
    assert asked <= set(keys(ROOT))
    assert understood(config, ROOT) == config
