"""`python -m sft --check`: what the trainer would refuse, said before anything is started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sft import check, config
from sft.errors import ConfigError

EAGER = {"memory": {"compile": True, "compile_backend": "eager", "ac": "selective"}}
FLEX = {"model": {"attention": "flex"}}
FLA = {"model": {"linear_attention": "fla"}}


def asked(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sft", "--check", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True)


def test_each_configuration_has_an_answer_in_its_place() -> None:
    done = asked(
        json.dumps([{}, EAGER, {"layout": {"dp_shard": 2}, "data": {"packed": False}}, {}])
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, wrong, unfit, last = json.loads(done.stdout)
    assert (first, last) == (None, None)
    assert wrong == {
        "reason": "memory.compile_backend=eager keeps nothing for memory.ac=selective; "
        "use aot_eager",
        "unfit": False,
    }
    assert unfit["unfit"]


def test_a_file_is_answered_as_standard_input_is(tmp_path: Path) -> None:
    (tmp_path / "configs.json").write_text("[{}]")
    assert asked("", str(tmp_path / "configs.json")).stdout == "[null]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "/dev/stdin is no JSON list; write [config, ...]"),
        ("[{}", "/dev/stdin is not JSON"),
        ("", "/dev/stdin is not JSON"),
    ],
)
def test_what_is_no_list_is_refused_in_one_line(text: str, said: str) -> None:
    done = asked(text)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"sft: {said}")
    assert done.stderr.count("\n") == 1


def test_training_takes_a_file() -> None:
    done = subprocess.run([sys.executable, "-m", "sft"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "name a JSON file to train as it says" in done.stderr


def test_asking_imports_no_torch_whatever_is_asked() -> None:
    source = (
        "import sys; from sft import check;"
        f"print(check.answers({[{'fault': 'dead_model'}, EAGER, FLEX]!r}, 'x')[0],"
        " {'torch', 'transformers', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout == "None set()\n", done.stderr


@pytest.mark.parametrize(
    ("keys", "assume", "said"),
    [
        (FLEX, {}, None),
        (FLEX, {"device": "cuda", "layers": []}, None),
        (FLEX, {"device": "cpu"}, "FlexAttention has no backward on a CPU"),
        (FLEX, {"layers": ["indexer"], "model": "glm"}, "glm narrows its masks"),
        (FLEX, {"layers": ["compressed"]}, "the model narrows its masks"),
        (FLA, {"device": "cpu", "layers": ["gated_delta"]}, "its kernels need a GPU"),
        (FLA, {"device": "cuda", "layers": []}, "the model has no gated delta net"),
        (FLA, {"device": "cuda", "layers": ["gated_delta"]}, None),
    ],
)
def test_what_is_known_of_the_run_is_held_against_it(
    monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], assume: dict[str, Any], said: str | None
) -> None:
    monkeypatch.setattr(config, "find_spec", lambda name: name)
    [answer] = check.answers([keys | {"assume": assume}], "x")
    assert answer is None if said is None else answer is not None and said in answer["reason"]
    assert answer is None or answer["unfit"]


@pytest.mark.parametrize(
    "item",
    [3, None, {"steps": "many"}, {"no_such": 1}, {"assume": {"devcie": "cpu"}}, {"assume": 3},
     {"fault": "dead_modle"}],
)  # fmt: skip
def test_what_is_no_configuration_is_wrong_everywhere(item: object) -> None:
    [answer] = check.answers([item], "x")
    assert answer is not None
    assert not answer["unfit"]
    assert "\n" not in answer["reason"]


@pytest.mark.parametrize("keys", [EAGER, {"steps": 0}, {"data": {"seq": 1}}])
def test_a_run_refuses_what_the_check_refuses(tmp_path: Path, keys: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(keys))
    [answer] = check.answers([keys], "x")
    assert answer is not None
    with pytest.raises(ConfigError) as refused:
        config.load(tmp_path / "config.json")
    assert str(refused.value).endswith(answer["reason"].removeprefix("configuration"))
