"""The C++ tests of the native core, layer by layer: plain, and under address, undefined-behaviour and thread sanitizers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import missing

ROOT = Path(__file__).parents[2]
# One entry per build: value of -fsanitize, CMake's build type, and what each planted fault must make it say.
VARIANTS = {
    "plain": ("", "Release", {"check": "FAILED check"}),
    "address": (
        "address,undefined",
        "Debug",
        {"address": "AddressSanitizer: heap-buffer-overflow", "undefined": "signed integer overflow"},
    ),
    "thread": ("thread", "Debug", {"thread": "ThreadSanitizer: data race"}),
}


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)


def tool(name: str) -> str | None:
    """Find a build tool, also one that pip has put beside the interpreter."""
    return shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_core(tmp_path, variant):
    sanitize, build_type, faults = VARIANTS[variant]
    cmake, ninja = tool("cmake"), tool("ninja")
    assert cmake, "cmake is missing: `pip install cmake ninja`"
    options = [f"-DCMAKE_BUILD_TYPE={build_type}", f"-DSB3_HRL_SANITIZE={sanitize}"]
    options += [f"-DPython_EXECUTABLE={sys.executable}"]  # whose MuJoCo the engine's tests use
    # A unity build reads the standard library's headers once per target, which takes a third off the time.
    options += ["-DSB3_HRL_BUILD_TESTS=ON", "-DSB3_HRL_BUILD_MODULE=OFF", "-DCMAKE_UNITY_BUILD=ON"]
    options += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    for step in ([cmake, "-S", ROOT, "-B", tmp_path, *options], [cmake, "--build", tmp_path, "--parallel", "2"]):
        result = run(*step)
        assert result.returncode == 0, result.stdout

    for layer in ("base", "sim"):
        command: list[str | Path] = [tmp_path / "native" / "tests" / f"sb3_hrl_{layer}_tests"]
        result = run(*command)
        if "unexpected memory mapping" in result.stdout:
            # The thread sanitizer cannot live with much address randomisation: switch it off for this process.
            command = ["setarch", "-R", *command]
            result = run(*command)
            if "unexpected memory mapping" in result.stdout or "Operation not permitted" in result.stdout:
                missing("a kernel for the thread sanitizer", "set vm.mmap_rnd_bits to 28, or allow `setarch -R`")
        assert result.returncode == 0, result.stdout
        assert result.stdout.endswith(" 0 failed\n")
    for fault, message in faults.items():
        result = run(*command, fault)
        assert result.returncode != 0, f"the planted fault '{fault}' went unseen"
        assert message in result.stdout
