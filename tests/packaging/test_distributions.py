"""The wheel and the source distribution hold all that a user of an installed package needs."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import tiny_models

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("sweep", "sft", "hf_sft", "tiny_models", "oracle", "sweep_taps", "hydra_plugins")
GROUPS = ("arch", "layout", "feature", "trainer", "scale", "suite")


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(source: Path, out: Path) -> Path:
    """Build without isolation: the backend is a development requirement, so nothing is fetched."""
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", *options, out, source, cwd=out.parent)
    (wheel,) = out.glob("*.whl")
    return wheel


def files(wheel: Path) -> set[str]:
    """The files in a wheel, apart from its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("built") / "wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment that has the wheel, and this one's libraries.

    Python follows no .pth file of a folder that a .pth file names, so an editable install of this
    repository is not seen there.
    """
    env = tmp_path_factory.mktemp("installed") / "env"
    run(sys.executable, "-m", "venv", "--without-pip", env, cwd=env.parent)
    python = env / "bin" / "python"
    report = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(run(python, "-c", report, cwd=env).strip())
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=env)
    return python


def test_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    tracked = run("git", "ls-files", "--", *PACKAGES, "conf", cwd=ROOT).split()
    packed = {f"sweep/{name}" if name.startswith("conf/") else name for name in tracked}
    built = files(wheel)
    assert packed <= built
    assert {name.partition("/")[0] for name in built} == set(PACKAGES)


def test_wheel_holds_configuration_and_data_files(wheel: Path) -> None:
    built = files(wheel)
    for group in GROUPS:
        assert any(name.startswith(f"sweep/conf/{group}/") for name in built), group
    for package in ("sft", "tiny_models"):
        data = [name for name in built if name.startswith(f"{package}/") and name[-3:] != ".py"]
        assert data, f"no data file of {package}"


def test_hydra_plugins_stays_a_namespace_that_others_can_add_to(wheel: Path) -> None:
    assert "hydra_plugins/__init__.py" not in files(wheel)


def test_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path, cwd=ROOT)
    (sdist,) = tmp_path.glob("*.tar.gz")
    run("tar", "-xf", sdist, cwd=tmp_path)  # tarfile's safe way came with Python 3.11.4
    source = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert {"Makefile", "constraints.txt", "tests"} <= {path.name for path in source.iterdir()}
    assert files(build_wheel(source, tmp_path / "wheel")) == files(wheel)


@pytest.mark.parametrize("package", ["sweep", "sft", "tiny_models"])
def test_installed_package_is_the_one_from_the_wheel(
    installed: Path, package: str, tmp_path: Path
) -> None:
    found = run(installed, "-c", f"import {package}; print({package}.__file__)", cwd=tmp_path)
    assert Path(found.strip()).is_relative_to(installed.parents[1])


def test_installed_sweep_shows_its_help_in_any_folder(installed: Path, tmp_path: Path) -> None:
    shown = run(installed, "-m", "sweep", "--help", cwd=tmp_path)
    for choice in ("qwen3_moe", "cp4_ep4"):
        assert choice in shown
    assert not list(tmp_path.iterdir()), "asking for help leaves nothing behind"


def test_installed_tiny_models_shows_its_help_in_any_folder(
    installed: Path, tmp_path: Path
) -> None:
    assert "--scale" in run(installed, "-m", "tiny_models", "--help", cwd=tmp_path)


def test_installed_tiny_models_finds_every_published_configuration(
    installed: Path, tmp_path: Path
) -> None:
    code = "import tiny_models as t; print(*(n for n in t.names() if t.get(n).published))"
    assert run(installed, "-c", code, cwd=tmp_path).split() == list(tiny_models.names())
