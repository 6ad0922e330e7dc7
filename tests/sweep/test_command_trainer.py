"""`trainer=command`: what is started, written and read, and what it says that it cannot do."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from sweep import schema, trainers
from sweep.case.labels import settings_of
from sweep.case.machine import Machine
from sweep.errors import RequestError
from sweep.files import conf_dir, config_dir_of
from sweep.plan import plan_one
from sweep.report import rerun_command
from sweep.schema import MetricsConf, ResumeConf, Settings
from sweep.trainers import template
from sweep.trainers.command import CommandConf
from tests.sweep import planning
from tests.sweep.adapters import case_for, launched

COMMAND = trainers.load("command")
PAGE = (Path(__file__).resolve().parents[2] / "docs/trainers.md").read_text()


def settings(conf: CommandConf, **feature: Any) -> Settings:
    return case_for(conf, 2, arch="llama", **feature)


def test_words_files_and_environment_are_filled_in(tmp_path: Path) -> None:
    conf = CommandConf(
        argv=["train", "--config={output_dir}/a/run.json", "{compile}", ""],
        files={"a/run.json": '{"model": "{model}", "lr": {lr}, "shards": {dp_shard}}'},
        env={"RUN": "{arch}-{layout}"},
        spelling={"compile": {False: "", True: "--compile"}},
    )
    [(command, directory)] = launched(settings(conf), tmp_path)
    assert command.argv == ["train", f"--config={directory}/a/run.json", ""]
    assert command.env == {"RUN": "llama-fsdp2_ep1"}
    written = json.loads((directory / "a/run.json").read_text())
    assert written == {"model": "/model", "lr": 1e-4, "shards": 2}


def test_a_second_launch_gets_what_the_first_saved_and_a_third_what_the_second(
    tmp_path: Path,
) -> None:
    conf = CommandConf(
        argv=["train", "--save-at={save_at}"],
        files={"run.ini": "new", "other.ini": "same"},
        resume=ResumeConf(
            checkpoint="{output_dir}/step{save_at}",
            argv=["--from={resume_from}"],
            files={"run.ini": "from {resume_from}"},
            env={"RESUMED": "1"},
        ),
        spelling={"save_at": {"": 0}},
    )
    first, second, third = launched(settings(conf, resume_at=[3, 5]), tmp_path)
    assert first[0].argv == ["train", "--save-at=3"]
    assert second[0].argv == ["train", "--save-at=5", f"--from={tmp_path}/launches/1_train/step3"]
    assert third[0].argv == ["train", "--save-at=0", f"--from={tmp_path}/launches/2_resume/step5"]
    assert (first[1] / "run.ini").read_text() == "new"
    assert (second[1] / "run.ini").read_text() == f"from {tmp_path}/launches/1_train/step3"
    assert (second[1] / "other.ini").read_text() == "same"
    assert (first[0].env, second[0].env) == ({}, {"RESUMED": "1"})


def test_a_checkpoint_is_built_only_where_it_is_asked_for() -> None:
    assert not COMMAND.needs_checkpoint(settings(CommandConf(argv=["train"])))
    asked = CommandConf(argv=["train"], files={"run.toml": 'path = "{model}"'})
    assert COMMAND.needs_checkpoint(settings(asked))


@pytest.mark.parametrize(
    ("lists", "feature", "reason"),
    [
        ({}, {"compile": True, "ac": schema.ActivationCheckpointing.full}, None),
        ({"archs": ["qwen*"]}, {}, "trainer=command does not run arch llama: only qwen*"),
        ({"layouts": ["single", "cp*"]}, {}, "does not run layout fsdp2_ep1: only single, cp*"),
        ({"layouts": ["fsdp*_ep1"]}, {}, None),
        ({"features": []}, {"compile": True}, "cannot do feature.compile=true (its features: none"),
        (
            {"features": ["ac=selective"]},
            {"ac": schema.ActivationCheckpointing.full},
            "cannot do feature.ac=full (its features: ac=selective)",
        ),
        ({"features": ["compile", "ac=full"]}, {"compile": True}, None),
        ({}, {"resume_at": [5]}, "cannot resume: nothing in trainer.resume uses {resume_from}"),
    ],
)
def test_what_is_on_none_of_its_lists_is_unavailable_with_the_reason(
    lists: dict[str, Any], feature: dict[str, Any], reason: str | None
) -> None:
    found = COMMAND.unavailable(settings(CommandConf(argv=["train"], **lists), **feature))
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"argv": ["{modle}"]}, r"^trainer\.argv: \{modle\} is no placeholder"),
        ({"files": {"run.toml": "{lrate}"}}, r"^trainer\.files\.run\.toml: \{lrate\} is no"),
        ({"env": {"A": "{oops}"}}, r"^trainer\.env\.A: "),
        ({"resume": ResumeConf(checkpoint="{stepp}")}, r"^trainer\.resume\.checkpoint: "),
        ({"files": {"../run.toml": ""}}, "say another name"),
        ({"files": {"launcher.log": ""}}, "say another name"),
        ({"features": ["compiled"]}, r"trainer\.features: compiled: choose from compile"),
        ({"metrics": MetricsConf(path="/tmp/x")}, r"trainer\.metrics\.path"),
        ({"metrics": MetricsConf(pattern="x")}, "is for format=log"),
    ],
)
def test_what_is_wrong_in_the_yaml_is_said_while_planning(conf: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        COMMAND.unavailable(settings(CommandConf(**{"argv": ["train"], **conf})))


def test_the_page_lists_every_placeholder() -> None:
    listed = PAGE.split("    python model output_dir")[1].split("```")[0].split()
    launch = COMMAND.launches(settings(CommandConf(argv=["train"])))[0]
    values = template.values_of(settings(CommandConf()), launch, Path(), None)
    assert {"python", "model", "output_dir", *listed} == set(values)


@pytest.mark.parametrize(
    ("argv", "folder"),
    [
        (["-m", "--config-dir", "mine/conf", "arch=llama"], "mine/conf"),
        (["--config-dir=mine", "arch=llama"], "mine"),
        (["-cd", "mine", "-m"], "mine"),
        (["-m", "arch=llama"], None),
    ],
)
def test_a_case_is_run_again_with_the_folder_of_its_configuration(
    argv: list[str], folder: str | None
) -> None:
    assert config_dir_of(argv)[0] == folder
    again = rerun_command(["arch=llama"], folder)
    assert again == f"python -m sweep {f'--config-dir {folder} ' if folder else ''}arch=llama"


def composed(text: str, folder: Path) -> Settings:
    """The case of a trainer whose YAML is `text`, as Hydra reads it."""
    (folder / "trainer").mkdir()
    (folder / "trainer" / "mine.yaml").write_text(text)
    schema.register()
    search = f"hydra.searchpath=[file://{folder}]"
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        config = compose(
            "config",
            ["trainer=mine", "arch=llama", "layout=fsdp2_ep2", "feature=none", search],
            return_hydra_config=True,
        )
    return settings_of(config, Machine())


def test_the_pages_first_trainer_is_one(tmp_path: Path) -> None:
    block = PAGE.split("```yaml\n")[1].split("```")[0]
    found = composed(textwrap.dedent(block), tmp_path)
    assert (found.trainer.name, COMMAND.unavailable(found)) == ("mine", None)
    assert trainers.of(found) is COMMAND


def test_words_that_yaml_takes_for_booleans_are_spelt(tmp_path: Path) -> None:
    text = """
        defaults: [/schema/trainer@_here_: command, _self_]
        name: mine
        argv: [train, "{compile}", "{dtype}"]
        spelling: {compile: {true: --compile, false: --eager}, dtype: {float32: fp32}}
    """
    [(command, _)] = launched(composed(textwrap.dedent(text), tmp_path), tmp_path)
    assert command.argv == ["train", "--eager", "fp32"]


def test_every_setting_of_a_case_can_be_handed_on() -> None:
    found = settings(CommandConf())
    values = set(template.values_of(found, COMMAND.launches(found)[0], Path(), None))
    names = {
        field.name
        for part in (found.feature, found.optim, found.data, found.layout)
        for field in dataclasses.fields(part)
    }
    named_otherwise = {"name", "resume_at", "min_steps"}  # feature, save_at, steps
    assert names - named_otherwise <= values


@pytest.mark.parametrize("key", ["aux_loss_coef", "router_bias_rate"])
def test_what_no_template_hands_on_is_unavailable(key: str) -> None:
    found = settings(CommandConf(argv=["train"]))
    setattr(found.optim, key, 0.1)
    assert f"is not told of {key}=0.1" in str(COMMAND.unavailable(found))
    found = settings(CommandConf(argv=["train", f"--{key}={{{key}}}"]))
    setattr(found.optim, key, 0.1)
    assert COMMAND.unavailable(found) is None


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("[train,'{fault}']", None),
        ("[train]", "trainer=command is not told of fault=theirs; trainer=sft is"),
    ],
)
def test_a_trainer_that_is_told_of_a_fault_may_be_asked_for_it(argv: str, said: str | None) -> None:
    words = ["arch=llama", "layout=single", "feature=none", "fault=theirs", "trainer=command"]
    words.append(f"trainer.argv={argv}")
    assert plan_one(words, planning.composed(words), Machine()).unavailable == said
