from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from sweep.run import compile_cache, launch


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path))
    compile_cache.key.cache_clear()


def test_every_launch_keeps_compiled_code_in_the_same_folder(tmp_path: Path) -> None:
    env = launch.launch_variables("cpu", None)
    folder = Path(env["TORCHINDUCTOR_CACHE_DIR"])
    assert folder.parent == tmp_path / "inductor"
    assert launch.launch_variables("cuda", "1")["TORCHINDUCTOR_CACHE_DIR"] == str(folder)
    assert f"torch{metadata.version('torch')}" in folder.name


def test_another_torch_or_another_cpu_is_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    here = compile_cache.key()
    for name, value in (("_cpu", lambda: "avx2 only"), ("version", lambda package: "2.99")):
        with monkeypatch.context() as patch:
            patch.setattr(compile_cache, name, value)
            compile_cache.key.cache_clear()
            assert compile_cache.key() != here


def test_a_cache_of_the_users_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    assert launch.launch_variables("cpu", None)["TORCHINDUCTOR_CACHE_DIR"] == "/mine"


def test_where_nothing_can_be_kept_torch_is_left_to_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "file" / "cache"))
    assert "TORCHINDUCTOR_CACHE_DIR" not in launch.launch_variables("cpu", None)
    monkeypatch.delenv("SWEEP_CACHE")
    monkeypatch.setattr(Path, "home", no_home)
    assert "TORCHINDUCTOR_CACHE_DIR" not in launch.launch_variables("cpu", None)


def no_home() -> Path:
    """As for a user without an entry in /etc/passwd, in a container."""
    raise RuntimeError("Could not determine home directory.")
