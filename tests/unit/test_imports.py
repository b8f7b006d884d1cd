"""Imports go one way, as the architecture says."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "sb3_hrl"

# What each part must not import. Whoever stands higher may use whoever stands lower, never the other way round.
ABOVE_HPPO = ("rl_zoo3", "optuna", "sb3_hrl.zoo", "sb3_hrl.experiments", "sb3_hrl_plugins")
FORBIDDEN = {
    "hppo": ABOVE_HPPO,
    "rollout": (*ABOVE_HPPO, "sb3_hrl.hppo"),
    "checkpoint": (*ABOVE_HPPO, "sb3_hrl.hppo", "sb3_hrl.rollout", "sb3_hrl.vec_env", "sb3_hrl.actors"),
    "actors": (*ABOVE_HPPO, "sb3_hrl.hppo"),
    "wrappers": (*ABOVE_HPPO, "sb3_hrl.hppo"),
    "vec_env": (*ABOVE_HPPO, "sb3_hrl.hppo"),
    "muscle": (*ABOVE_HPPO, "sb3_hrl.hppo", "sb3_hrl.rollout", "sb3_hrl.vec_env", "sb3_hrl.envs"),
    "envs": (*ABOVE_HPPO, "sb3_hrl.hppo", "sb3_hrl.rollout", "sb3_hrl.vec_env", "stable_baselines3"),
    "native.py": (*ABOVE_HPPO, "sb3_hrl.hppo", "sb3_hrl.rollout", "sb3_hrl.vec_env"),
    "registry.py": (*ABOVE_HPPO, "sb3_hrl.hppo", "torch"),
    "carried.py": (*ABOVE_HPPO, "sb3_hrl.hppo"),
    "cnn.py": (*ABOVE_HPPO, "sb3_hrl.hppo", "sb3_hrl.rollout", "sb3_hrl.vec_env"),
    "extras.py": (*ABOVE_HPPO, "sb3_hrl.hppo", "torch"),
    "yaml_lines.py": (*ABOVE_HPPO, "sb3_hrl.hppo"),
}


def imported_modules(source: str) -> Iterator[str]:
    """
    :param source: a module's text
    :return: every module that it imports, at any depth
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def violations(part: str, sources: dict[str, str]) -> list[str]:
    return [
        f"{name} imports {module}"
        for name, source in sources.items()
        for module in imported_modules(source)
        if any(module == forbidden or module.startswith(f"{forbidden}.") for forbidden in FORBIDDEN[part])
    ]


@pytest.mark.parametrize("part", FORBIDDEN)
def test_imports_go_one_way(part: str) -> None:
    path = PACKAGE / part
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert files
    assert violations(part, {str(file.relative_to(PACKAGE)): file.read_text() for file in files}) == []


def test_a_violation_would_be_seen() -> None:
    source = "def f():\n    from rl_zoo3.utils import ALGOS\n"
    assert violations("hppo", {"hppo.py": source}) == ["hppo.py imports rl_zoo3.utils"]


def test_the_core_includes_no_python_header() -> None:
    native = PACKAGE.parent / "native"
    core = [*native.glob("include/**/*.hpp"), *native.glob("src/**/*.cpp")]
    assert core
    for file in core:
        assert "Python.h" not in file.read_text()
        assert "pybind11" not in file.read_text()
    assert any("pybind11" in file.read_text() for file in native.glob("bindings/*.cpp"))
