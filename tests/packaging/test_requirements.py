"""What the packages import is declared, and what is declared is pinned."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("sweep", "sft", "hf_sft", "tiny_models", "oracle", "sweep_taps", "hydra_plugins")
# Not on PyPI, or an extra; whoever needs one says so where it is asked for and missing.
OPTIONAL = {"deep_ep", "fla", "tensorboard"}
# Never imported here: libraries that transformers and torch use when they are there.
USED_BY_OTHERS = {"accelerate"}


def project() -> dict[str, list[Requirement]]:
    """The requirements of pyproject.toml by the extra that asks for them, "" for the package."""
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": metadata["dependencies"], **metadata["optional-dependencies"]}
    return {extra: [Requirement(line) for line in lines] for extra, lines in groups.items()}


def pins() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in found}


@cache
def imports(package: str) -> dict[str, list[str]]:
    """The top-level modules that a package imports anywhere, and the files that import each."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        for name in modules(ast.parse(path.read_text())):
            found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    return found


def modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def distributions(module: str) -> set[str]:
    return {canonicalize_name(name) for name in installed_modules().get(module, [])}


@cache
def installed_modules() -> Mapping[str, list[str]]:
    return packages_distributions()


def test_every_pin_is_exact_and_names_no_build_of_one_machine() -> None:
    for pin in pins().values():
        (specifier,) = pin.specifier
        assert specifier.operator == "==", pin
        assert pin.url is None, pin
        assert "+" not in specifier.version, f"{pin}: other machines have other builds"


@pytest.mark.parametrize("extra", ["", "dev"])
def test_every_requirement_is_pinned_within_its_bounds(extra: str) -> None:
    pinned = pins()
    for requirement in project()[extra]:
        pin = pinned[canonicalize_name(requirement.name)]
        (specifier,) = pin.specifier
        assert requirement.specifier.contains(specifier.version), f"{pin} breaks {requirement}"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_library_that_is_imported_is_declared(package: str) -> None:
    declared = {canonicalize_name(requirement.name) for requirement in project()[""]}
    for module, files in imports(package).items():
        if module not in {*PACKAGES, *OPTIONAL, *sys.stdlib_module_names}:
            assert distributions(module) & declared, f"{module}, imported by {files}"


def test_every_declared_library_is_used() -> None:
    used = set().union(*(distributions(m) for package in PACKAGES for m in imports(package)))
    declared = {canonicalize_name(requirement.name) for requirement in project()[""]}
    assert declared - used <= USED_BY_OTHERS
