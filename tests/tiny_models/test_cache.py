"""The cache hands out whole checkpoints only, and builds each once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tiny_models
from tiny_models import cache, manifest
from tiny_models.errors import TinyModelError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tiny_models.ensure("qwen3", cache=tmp_path)


def stamp(folder: Path) -> int:
    return (folder / "model.safetensors").stat().st_mtime_ns


def test_a_second_request_is_given_the_same_files(kept: Path) -> None:
    before = stamp(kept)
    assert tiny_models.ensure("qwen3", cache=kept.parent) == kept
    assert stamp(kept) == before


def test_the_folder_is_named_by_request_and_key(kept: Path) -> None:
    assert kept.name == f"qwen3-nano-seed0-{cache.key('qwen3', 'nano', 0)[:16]}"
    assert manifest.problem(kept) is None


def test_the_cache_is_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_MODELS_CACHE", str(tmp_path / "there"))
    assert tiny_models.ensure("qwen3").parent == tmp_path / "there"
    monkeypatch.delenv("TINY_MODELS_CACHE")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache.default_cache() == Path("/home/somebody/.cache/tiny_models")


def test_the_key_changes_with_all_that_changes_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        cache.key("qwen3", "nano", 0),
        cache.key("llama", "nano", 0),
        cache.key("qwen3", "tiny", 0),
        cache.key("qwen3", "nano", 1),
    }
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "versions", lambda: {"torch": "1.0"})
        keys.add(cache.key("qwen3", "nano", 0))
    monkeypatch.setattr(cache, "package_digest", lambda: "another reduction")
    keys.add(cache.key("qwen3", "nano", 0))
    assert len(keys) == 6


def test_the_key_covers_the_configurations_the_text_and_the_code(tmp_path: Path) -> None:
    names = {name for name, _ in cache._files(Path(tiny_models.__file__).parent, "")}
    assert {"archs/qwen3.py", "corpus.txt", "weights.py", "reduction.py"} <= names
    (tmp_path / "a.py").write_text("1")
    before = cache._files(tmp_path, "")
    (tmp_path / "a.py").write_text("2")
    assert cache._files(tmp_path, "") != before


def truncate(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as stream:
        stream.truncate(1000)


def flip(folder: Path) -> None:
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "model.safetensors").write_bytes(content)


def lose_a_file(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def lose_the_manifest(folder: Path) -> None:
    (folder / manifest.NAME).unlink()


def break_the_manifest(folder: Path) -> None:
    (folder / manifest.NAME).write_text('{"files": ')


@pytest.mark.parametrize(
    "damage", [truncate, flip, lose_a_file, lose_the_manifest, break_the_manifest]
)
def test_damage_is_found_and_repaired(kept: Path, damage: Callable[[Path], None]) -> None:
    whole = manifest.read(kept)
    damage(kept)
    assert manifest.problem(kept) is not None
    assert tiny_models.ensure("qwen3", cache=kept.parent) == kept
    assert manifest.problem(kept) is None
    assert manifest.read(kept) == whole


def test_what_a_killed_build_left_is_cleared_away(tmp_path: Path) -> None:
    name = f"qwen3-nano-seed0-{cache.key('qwen3', 'nano', 0)[:16]}"
    (tmp_path / f".{name}.abc").mkdir()
    (tmp_path / f".{name}.abc" / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".llama-nano-seed0-0.abc").mkdir()  # another's, which may still be at work
    assert manifest.problem(tiny_models.ensure("qwen3", cache=tmp_path)) is None
    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert folders == {name, ".llama-nano-seed0-0.abc"}


def test_a_cache_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(tiny_models.TinyModelError, match=r"cannot use the cache .*TINY_MODELS"):
        tiny_models.ensure("qwen3", cache=tmp_path / "file" / "cache")


def test_a_lock_that_is_never_given_up_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from filelock import FileLock

    monkeypatch.setattr(cache, "LOCK_SECONDS", 0.1)
    name = f"qwen3-nano-seed0-{cache.key('qwen3', 'nano', 0)[:16]}"
    with (
        FileLock(tmp_path / f".{name}.lock"),
        pytest.raises(tiny_models.TinyModelError, match="another process has held"),
    ):
        tiny_models.ensure("qwen3", cache=tmp_path)


def test_bad_requests_are_refused_before_the_cache_is_made(tmp_path: Path) -> None:
    for request in (
        {"arch": "lama"},
        {"arch": "llama", "scale": "x"},
        {"arch": "llama", "seed": -1},
    ):
        with pytest.raises(tiny_models.TinyModelError):
            tiny_models.ensure(**request, cache=tmp_path / "cache")  # type: ignore[arg-type]
    assert not (tmp_path / "cache").exists()


def test_a_warm_cache_is_read_without_importing_torch(kept: Path) -> None:
    code = (
        "import sys, tiny_models; "
        f"print(tiny_models.ensure('qwen3', cache={str(kept.parent)!r})); "
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines() == [str(kept), "[]"], done.stderr


@pytest.mark.slow
def test_several_processes_at_once_get_one_checkpoint(tmp_path: Path) -> None:
    code = (
        "import tiny_models.cache as c\n"
        "write = c.write\n"
        "c.write = lambda *a, **k: (print('built'), write(*a, **k))[1]\n"
        f"print(c.ensure('qwen3', cache={str(tmp_path)!r}))\n"
    )
    command = [sys.executable, "-c", code]
    running = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    lines = [line for process in running for line in process.communicate()[0].splitlines()]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert lines.count("built") == 1
    folders = {line for line in lines if line != "built"}
    assert len(folders) == 1
    assert manifest.problem(Path(folders.pop())) is None


def test_a_cache_that_may_only_be_read_gives_what_is_there(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("filelock.FileLock.acquire", refused)
    assert tiny_models.ensure("qwen3", cache=kept.parent) == kept
    with pytest.raises(TinyModelError, match="set TINY_MODELS_CACHE to another"):
        tiny_models.ensure("qwen3", seed=1, cache=kept.parent)
    (kept / "config.json").write_text("damaged")
    with pytest.raises(TinyModelError, match="set TINY_MODELS_CACHE to another"):
        tiny_models.ensure("qwen3", cache=kept.parent)


def test_a_user_without_a_home_is_told_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TINY_MODELS_CACHE", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(TinyModelError, match="no home folder: set TINY_MODELS_CACHE"):
        tiny_models.ensure("qwen3")
