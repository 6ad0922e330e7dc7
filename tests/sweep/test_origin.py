"""What a case ran is recorded as it ran: the commit of the code, digests, what it was given."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import tiny_models
from sweep import provenance
from sweep.case.machine import Machine
from sweep.checks import known_breaks, thresholds
from sweep.facts import Facts
from sweep.judge import known_failures
from sweep.plan import plan
from sweep.run import origin, warm
from sweep.schema import Settings
from tests.sweep.planning import composed

Make = Callable[..., Facts]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A trainer's repository with one commit."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").touch()
    (folder / ".gitignore").write_text("built\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return folder


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True,
                          check=True)  # fmt: skip
    return done.stdout.strip()


def settings(*overrides: str) -> Settings:
    (one,) = plan([["arch=llama", "layout=single", *overrides]], composed, Machine())
    return one.settings


def test_code_is_that_of_its_commit_until_a_file_of_it_differs_or_is_new(project: Path) -> None:
    sha = git(project, "rev-parse", "HEAD")
    assert provenance.commit(project) == {"git_sha": sha, "git_dirty": "false"}
    (project / "built").touch()
    assert provenance.commit(project)["git_dirty"] == "false", "ignored"
    (project / "part" / "__pycache__").mkdir(parents=True)
    (project / "part" / "__pycache__" / "module.cpython-311.pyc").touch()
    assert provenance.commit(project)["git_dirty"] == "false", "what Python leaves"
    (project / "helper.py").touch()
    assert provenance.commit(project) == {"git_sha": sha, "git_dirty": "true"}, "untracked"
    (project / "helper.py").unlink()
    (project / "train.py").write_text("changed")
    assert provenance.commit(project)["git_dirty"] == "true"


def test_code_that_no_commit_has_is_of_no_commit(project: Path, tmp_path: Path) -> None:
    inside = project / "scratch"
    inside.mkdir()
    (inside / "train.py").touch()
    assert provenance.commit(inside) == {"git_sha": "unknown", "git_dirty": "true"}
    installed = project / "built"
    installed.mkdir()
    (installed / "train.py").touch()
    assert provenance.commit(installed) == provenance.UNKNOWN, "ignored, as a virtual environment"
    assert provenance.commit(tmp_path) == provenance.UNKNOWN


@pytest.mark.parametrize(
    "override",
    ["trainer.project={0}", "trainer.argv=[python,{0}/train.py]", "trainer.argv=[sh,{0}/run.sh]"],
)
def test_the_commit_is_that_of_the_trainers_code_wherever_the_command_was_typed(
    project: Path, override: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (project / "run.sh").touch()
    own = settings("trainer=command", "trainer.argv=[true]", override.format(project))
    assert origin.commit(own) == {"git_sha": git(project, "rev-parse", "HEAD"), "git_dirty": "true"}


def test_a_module_of_this_folder_is_its_code_and_a_program_is_nobodys(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    module = settings("trainer=command", "trainer.argv=[python,-m,train]")
    assert origin.commit(module)["git_sha"] == git(project, "rev-parse", "HEAD")
    for words in ("python,-m,elsewhere", "true"):
        program = settings("trainer=command", f"trainer.argv=[{words}]")
        assert origin.commit(program) == provenance.UNKNOWN


def test_the_built_in_trainers_commit_is_this_projects(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    assert origin.commit(settings())["git_sha"] != git(project, "rev-parse", "HEAD")
    assert settings("trainer=prime_rl").trainer.project is None


def test_what_a_server_forks_is_of_the_commit_that_it_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    imported = {"git_sha": "a" * 40, "git_dirty": "false"}
    monkeypatch.setenv(warm.COMMIT, json.dumps(imported))
    assert origin.commit(settings()) == imported
    for cold in ("launch.mode=cold", "+trainer.env.A=b"):
        assert origin.commit(settings(cold))["git_sha"] != "a" * 40


def test_a_sweeps_servers_hand_on_the_commit_at_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commits = iter([{"git_sha": "first"}, {"git_sha": "second"}])
    monkeypatch.setattr(provenance, "commit", lambda _: next(commits))
    servers = warm.Servers([], {}, Path("log"))
    assert json.loads(servers.addresses()[warm.COMMIT]) == {"git_sha": "first"}


def test_our_own_code_is_told_apart_by_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sweep", "tiny_models"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner" / "file.py").write_text("1")
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    before = provenance.own_code.__wrapped__()
    (tmp_path / "tiny_models" / "inner" / "file.py").write_text("2")
    after = provenance.own_code.__wrapped__()
    assert before["sweep_code"] == after["sweep_code"]
    (moved,) = provenance.moved(before, after)
    assert moved.startswith("tiny_models_code ")


def test_the_rules_are_those_that_judging_reads(tmp_path: Path) -> None:
    assert set(sum(provenance.RULES.values(), ())) == {
        thresholds.FILE,
        thresholds.CALIBRATED,
        known_failures.FILE,
        known_breaks.FILE,
    }
    shipped = provenance.rules(None)
    (tmp_path / known_failures.FILE).write_text("[]")
    own = provenance.rules(str(tmp_path))
    assert own["thresholds"] == shipped["thresholds"]
    assert own["known_failures"] != shipped["known_failures"]


def test_what_the_trainer_says_of_a_launch_is_recorded(tmp_path: Path, make_facts: Make) -> None:
    facts = make_facts()
    assert facts.identity is not None
    facts.identity.data = None
    (tmp_path / "about.json").write_text(
        json.dumps({"code": "c0de", "data": "da7a", "versions": {"torch": "2.99"}})
    )
    origin.note_launch(facts, tmp_path)
    origin.note_launch(facts, tmp_path)
    assert facts.identity.data == "da7a"
    assert facts.environment == {"torch": "2.99", "trainer_code": "c0de"}
    (tmp_path / "about.json").write_text(json.dumps({"code": "other"}))
    origin.note_launch(facts, tmp_path)  # a resume that ran other code
    assert facts.environment["trainer_code"] == "c0de + other"


def test_without_a_word_of_the_trainer_code_and_data_are_unknown(
    tmp_path: Path, make_facts: Make
) -> None:
    facts = make_facts()
    origin.note_launch(facts, tmp_path)
    assert (facts.environment, facts.error) == ({}, None)


@pytest.mark.parametrize("text", ["no json", '{"code": 3}', f'{{"data": "{"x" * 200}"}}'])
def test_an_about_json_that_is_none_is_the_cases_error_in_one_line(
    tmp_path: Path, make_facts: Make, text: str
) -> None:
    facts = make_facts()
    (tmp_path / "about.json").write_text(text)
    origin.note_launch(facts, tmp_path)
    assert facts.error is not None
    assert facts.error.startswith(f"{tmp_path.name}/about.json: ")
    assert "\n" not in facts.error


def test_a_checkpoints_digest_is_that_of_weights_and_configuration(tmp_path: Path) -> None:
    files = {"model.safetensors": "a1", "tokenizer.json": "b1"}
    manifest = tmp_path / "tiny_model.json"

    def digest(config: dict[str, object], **changed: str) -> str | None:
        manifest.write_text(json.dumps({"files": files | changed}))
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tiny_models.content_digest(tmp_path)

    first = digest({"hidden_size": 8, "transformers_version": "5.24"})
    assert first == digest({"hidden_size": 8, "transformers_version": "5.25"})
    assert first == digest({"hidden_size": 8}, **{"tokenizer.json": "b2"})
    assert first != digest({"hidden_size": 9})
    assert first != digest({"hidden_size": 8}, **{"model.safetensors": "a2"})
    manifest.unlink()
    assert tiny_models.content_digest(tmp_path) is None
