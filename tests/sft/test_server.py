"""What must hold where ranks are forked from; of ranks, see tests/sweep/test_warm_ranks.py."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from sft.warm import preload, server


def test_no_rank_is_forked_once_torch_has_initialised_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.cuda_was_touched() is None
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert "torch has initialised CUDA" in str(server.cuda_was_touched())


def test_no_rank_is_forked_once_anybody_has_called_the_cuda_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device = tmp_path / "nvidia-uvm"
    monkeypatch.setattr(server, "CUDA_DEVICE", str(device))
    assert server.cuda_was_touched() is None
    with device.open("w"):
        assert "CUDA driver is in use" in str(server.cuda_was_touched())


def test_who_asks_is_told_why_also_where_the_code_of_their_model_was_what_touched_cuda(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def touching(_config: Path) -> None:  # as flash-linear-attention is when it is imported
        monkeypatch.setattr(server, "cuda_was_touched", lambda: "a test says so")

    monkeypatch.setattr(preload, "model_code", touching)
    ours, theirs = socket.socketpair()
    with socket.socket(socket.AF_UNIX) as listener, ours, (tmp_path / "log").open("w") as log:
        listener.bind(f"\0test-{os.getpid()}")
        one = server.Server(listener)
        one._start(theirs, {"arguments": ["sft", "x"], "environment": {}}, [log.fileno()])
        assert json.loads(ours.recv(1000)) == {"error": "no rank can be forked: a test says so"}


Asked = list[dict[str, Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What a server is asked for, in place of doing it; it writes to the second descriptor."""
    seen: Asked = []

    def start(_: Any, connection: socket.socket, request: dict[str, Any], files: list[int]) -> None:
        seen.append(request)
        os.write(files[1], b"said")
        connection.close()

    monkeypatch.setattr(server.Server, "_start", start)
    return seen


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[server.Server]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        yield server.Server(listener)


def connected(tmp_path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(tmp_path / "socket"))
    return client


def serve(serving: server.Server) -> None:
    """Do what there is to do."""
    while ready := serving._selector.select(timeout=0):
        for key, _ in ready:
            key.data()


def ask(client: socket.socket, log: int, request: dict[str, Any]) -> None:
    socket.send_fds(client, [json.dumps(request).encode() + b"\n"], [log, log])


def test_a_client_that_is_silent_holds_up_nobody(
    serving: server.Server, asked: Asked, tmp_path: Path
) -> None:
    silent, halting = connected(tmp_path), connected(tmp_path)
    halting.sendall(b'{"argum')
    serve(serving)  # which returns
    with (tmp_path / "log").open("w") as log, connected(tmp_path) as client:
        ask(client, log.fileno(), {"arguments": ["x"]})
        serve(serving)
        assert asked == [{"arguments": ["x"]}]
        with silent:
            ask(silent, log.fileno(), {"arguments": ["late"]})
            serve(serving)
        assert asked[1:] == [{"arguments": ["late"]}]
    halting.close()
    serve(serving)
    assert len(serving._selector.get_map()) == 1, "those that went are forgotten"


def test_a_request_may_come_in_pieces_and_brings_its_files(
    serving: server.Server, asked: Asked, tmp_path: Path
) -> None:
    request = {"arguments": ["x" * 100_000], "environment": {}}
    with (tmp_path / "log").open("w") as log, connected(tmp_path) as client:
        data = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(client, [data[:500]], [log.fileno(), log.fileno()])
        before = len(list(Path("/proc/self/fd").iterdir()))
        for start in range(sent, len(data), 30_000):
            serve(serving)
            assert not asked
            client.sendall(data[start : start + 30_000])
        serve(serving)
        assert asked == [request]
        assert len(list(Path("/proc/self/fd").iterdir())) <= before, "no descriptor is kept"
    assert (tmp_path / "log").read_text() == "said"


def test_another_users_request_is_refused(
    serving: server.Server, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    with (tmp_path / "log").open("w") as log, connected(tmp_path) as client:
        ask(client, log.fileno(), {"arguments": ["x"]})
        serve(serving)
        with pytest.raises(ConnectionResetError):  # closed, with what it sent unread
            client.recv(100)
    assert not asked


def test_a_models_code_is_imported_before_its_ranks_are_forked(
    checkpoint: Any, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model": {"path": str(checkpoint("gpt_oss"))}}))
    preload.model_code(config)
    assert "transformers.models.gpt_oss.modeling_gpt_oss" in sys.modules


def test_a_configuration_that_cannot_be_read_is_left_to_the_ranks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    preload.model_code(tmp_path / "none.json")
    assert "FileNotFoundError" in capfd.readouterr().err


def test_records_name_the_function_that_torch_would() -> None:
    def named(how: Callable[[], str]) -> str:
        def by_the_record() -> str:
            return how()

        return by_the_record()

    assert named(server.calling) == named(dynamic_rendezvous.get_method_name) == "named"


def test_logging_is_set_up_again_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    before = server.log_settings()
    monkeypatch.setenv("SWEEP_LAUNCH", "another")
    assert server.log_settings() == before
    monkeypatch.setenv("TORCH_LOGS", "+graph_breaks")
    assert server.log_settings() != before
