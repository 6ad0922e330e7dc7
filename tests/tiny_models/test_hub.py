"""Comparing with the hub, and its tokenizers, against a hub on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import tiny_models
from tiny_models import hub, tokenizer
from tiny_models.cli import main

ROOT = Path(__file__).parents[2]
Captured = pytest.CaptureFixture[str]


def as_published(arch: str) -> dict[str, Any]:
    """The file that the hub would have if it agreed."""
    model = tiny_models.get(arch)
    return json.loads(json.dumps(dict(model.published))) | {"model_type": model.model_type}


@pytest.mark.parametrize("arch", tiny_models.names())
def test_an_equal_file_shows_no_difference(arch: str) -> None:
    file = as_published(arch) | {"transformers_version": "4.57.0", "torch_dtype": "bfloat16"}
    assert hub.differences(tiny_models.get(arch), file) == []


@pytest.mark.parametrize("arch", tiny_models.names())
def test_a_different_value_is_named_with_both(arch: str) -> None:
    file = as_published(arch) | {"hidden_size": 96}
    ours = tiny_models.get(arch).published["hidden_size"]
    assert f"hidden_size: {ours} here, 96 on the hub" in hub.differences(
        tiny_models.get(arch), file
    )


def test_a_model_of_text_and_images_is_compared_by_its_text() -> None:
    file = {"model_type": "qwen3_5_moe", "text_config": as_published("qwen3_5_moe")}
    assert hub.differences(tiny_models.get("qwen3_5_moe"), file) == []


def test_an_older_spelling_is_no_difference() -> None:
    file = as_published("qwen3")
    file["rope_theta"] = file.pop("rope_parameters")["rope_theta"]
    assert hub.differences(tiny_models.get("qwen3"), file) == []


def test_another_model_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="model_type is 'llama', not 'qwen3'"):
        hub.differences(tiny_models.get("qwen3"), as_published("llama"))


def compare(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> int:
    def fetch(model: tiny_models.TinyModel) -> dict[str, Any]:
        answer = answers[model.name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(hub, "_fetch", fetch)
    return main(["check-published", *answers])


def test_equal_files_exit_0(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    assert compare(monkeypatch, {"llama": as_published("llama")}) == 0
    assert capsys.readouterr().out == "llama: same as unsloth/Llama-3.2-1B@main\n"


def test_a_difference_exits_1_even_where_another_file_could_not_be_read(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    answers = {
        "llama": as_published("llama") | {"rms_norm_eps": 1e-6},
        "qwen3": hub.UnreadableError("404 not there"),
        "laguna": {"model_type": "laguna", "vocab_size": "many"},
    }
    assert compare(monkeypatch, answers) == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert "DIFFERS" in first
    assert "rms_norm_eps: 1e-05 here, 1e-06 on the hub" in first
    assert second == "qwen3: NOT COMPARED with Qwen/Qwen3-0.6B@main: 404 not there"
    assert third.startswith("laguna: DIFFERS")
    assert "not a configuration that transformers reads" in third


def test_a_hub_out_of_reach_is_said_plainly_and_asked_once(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    asked = []

    def fetch(model: tiny_models.TinyModel) -> dict[str, Any]:
        asked.append(model.name)
        raise hub.UnreachableError("the hub could not be reached")

    monkeypatch.setattr(hub, "_fetch", fetch)
    assert main(["check-published"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert asked == tiny_models.names()[:1]
    assert len(lines) == len(tiny_models.names())
    assert all("NOT COMPARED" in line and "could not be reached" in line for line in lines)


def test_nano_does_not_take_a_published_tokenizer() -> None:
    with pytest.raises(tiny_models.TinyModelError, match="use --scale tiny"):
        hub.published_tokenizer(tiny_models.get("llama"), 2048)


def test_a_tokenizer_that_cannot_be_read_is_one_line() -> None:
    model = tiny_models.get("llama")
    with pytest.raises(
        tiny_models.TinyModelError,
        match=r"cannot read the tokenizer of unsloth/Llama.*: leave out --published-tokenizer",
    ) as caught:
        hub.published_tokenizer(model, model.published["vocab_size"])
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a hub with llama's configuration and tokenizer, and a wrong qwen3."""
    files = tmp_path_factory.mktemp("hub")
    llama = tiny_models.get("llama")
    words = tokenizer.build(llama.chat, llama.published["vocab_size"])
    words.chat_template = "{{ messages }} without marks"
    words.save_pretrained(files / "unsloth/Llama-3.2-1B")
    (files / "Qwen/Qwen3-0.6B").mkdir(parents=True)
    wrong = as_published("qwen3") | {"intermediate_size": 3073}
    for repository, file in (
        ("unsloth/Llama-3.2-1B", as_published("llama")),
        ("Qwen/Qwen3-0.6B", wrong),
    ):
        (files / repository / "config.json").write_text(json.dumps(file))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(files))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def handler_of(files: Path) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> bytes:
            repository, _, name = self.path.lstrip("/").partition("/resolve/main/")
            path = files / repository / name
            found = bool(name) and path.is_file()
            content = path.read_bytes() if found else b""
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", f'"{abs(hash(content)):x}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            if not found:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.end_headers()
            return content

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.wfile.write(self.answer())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    return Handler


def with_hub(address: str, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}
    environment |= {"HF_ENDPOINT": address, "HF_HOME": str(cache)}
    return subprocess.run(
        [sys.executable, "-m", "tiny_models", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_reachable_hub_is_compared_with(loopback: str, tmp_path: Path) -> None:
    done = with_hub(loopback, tmp_path, "check-published", "llama", "qwen3", "gpt_oss")
    first, second, third = done.stdout.splitlines()
    assert first == "llama: same as unsloth/Llama-3.2-1B@main"
    assert second.endswith("intermediate_size: 3072 here, 3073 on the hub")
    assert third.startswith("gpt_oss: NOT COMPARED with openai/gpt-oss-20b@main: ")
    assert done.returncode == 1


@pytest.mark.slow
def test_a_reachable_hubs_tokenizer_is_used_with_our_template(
    loopback: str, tmp_path: Path
) -> None:
    code = (
        "import tiny_models as t; from tiny_models import hub; m = t.get('llama'); "
        "w = hub.published_tokenizer(m, 128256); "
        "print(w.chat_template == m.chat.template(), w.convert_tokens_to_ids('<|eot_id|>'))"
    )
    environment = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}
    environment |= {"HF_ENDPOINT": loopback, "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stdout == "True 128009\n", done.stderr
