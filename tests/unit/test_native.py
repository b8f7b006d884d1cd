"""The native module from Python: its front, its version guard, its thread pool and its stub."""

import ast
import gc
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import mujoco
import pytest
import torch as th

from sb3_hrl import native
from sb3_hrl.errors import NativeError
from sb3_hrl.native import Versions, check_versions

THREAD_COUNTS = (0, 1, 2, 5)
BUILT = Versions("2.13.0+cpu", "4.0.0")
REBUILD = "`pip install --no-build-isolation --force-reinstall --no-deps sb3-hrl`"
BUSY = "ThreadPool.run was called while another run of the same pool is under way"


def run_python(code: str, cwd: Path) -> str:
    """Run code in a fresh interpreter, away from the source folder, and return what it prints."""
    result = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def n_os_threads() -> int:
    gc.collect()  # what earlier tests left behind goes now, and not in between
    return len(os.listdir("/proc/self/task"))


# --- loading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["", "import mujoco", "import mujoco; import torch"])
def test_loads_in_a_fresh_process_in_any_import_order(tmp_path, first):
    code = f"{first}\nimport sb3_hrl.native\nprint(sb3_hrl.native.load().__name__)"
    assert run_python(code, tmp_path) == "sb3_hrl._native"


def test_loading_starts_and_sets_no_threads(tmp_path):
    code = """
import os, mujoco, torch
def settings():
    return torch.get_num_threads(), torch.get_num_interop_threads(), len(os.listdir("/proc/self/task"))
before = settings()
from sb3_hrl import native
native.load()
print(settings() == before)
pool = native.load().ThreadPool(1)
print(settings() == before)
torch.set_num_threads(before[0] + 1)
print(settings()[0] == before[0])
"""
    # The last two lines are what would be seen if loading started a thread, or changed torch's setting.
    assert run_python(code, tmp_path).split() == ["True", "False", "False"]


def test_load_is_cached():
    assert native.load() is native.load()


def test_build_info_tells_what_is_installed(monkeypatch):
    info = native.build_info()
    assert info.torch_runtime == importlib.metadata.version("torch") == th.__version__
    # The record that CMake wrote against what the compiler saw in torch's header.
    assert info.torch_build.partition("+")[0] == native.load().build_info().torch_header
    assert info.mujoco_header == info.mujoco_library == importlib.metadata.version("mujoco") == mujoco.mj_versionString()
    assert re.fullmatch(r"3\.1\.\d+", info.pybind11)
    assert re.fullmatch(r"(GNU|Clang) \d+\.\d+\.\d+", info.compiler)
    assert (info.cxx_standard, info.build_type) == (17, "Release")
    # The two versions of torch are two facts, not one written twice.
    monkeypatch.setattr(th, "__version__", "2.13.9")
    assert native.build_info() == info._replace(torch_runtime="2.13.9") != info


def test_available_cpus_follow_the_affinity():
    allowed = os.sched_getaffinity(0)
    assert 1 <= native.build_info().available_cpus <= len(allowed)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert native.build_info().available_cpus == 1
    finally:
        os.sched_setaffinity(0, allowed)


# --- the version guard -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("running", [BUILT, Versions("2.13.0", "4.0.0"), Versions("2.13.4+cu130", "4.0.0")])
def test_same_minor_torch_and_same_mujoco_pass(running):
    check_versions(BUILT, running)


@pytest.mark.parametrize(
    ("running", "problem", "matching"),
    [
        (BUILT._replace(torch="2.12.1"), "torch 2.13.0+cpu, but torch 2.12.1", "torch==2.13.0"),
        (BUILT._replace(torch="2.14.0a0+git12"), "torch 2.13.0+cpu, but torch 2.14.0a0+git12", "torch==2.13.0"),
        (BUILT._replace(torch="3.13.0"), "torch 2.13.0+cpu, but torch 3.13.0", "torch==2.13.0"),
        (BUILT._replace(mujoco="3.9.0"), "mujoco 4.0.0, but mujoco 3.9.0", "mujoco==4.0.0"),
        (BUILT._replace(mujoco="4.0.1"), "mujoco 4.0.0, but mujoco 4.0.1", "mujoco==4.0.0"),
    ],
)
def test_other_versions_are_refused_with_the_remedy(running, problem, matching):
    with pytest.raises(NativeError) as error:
        check_versions(BUILT, running)
    assert str(error.value) == (
        f"The native module of sb3-hrl was built for {problem} is installed. Rebuild it with {REBUILD}, or install {matching}."
    )


@pytest.fixture
def unloaded(monkeypatch):
    """Forget the loaded module for the length of a test, which must not load it again."""
    native.load()
    monkeypatch.delitem(sys.modules, "sb3_hrl._native")
    native.load.cache_clear()
    yield monkeypatch
    assert "sb3_hrl._native" not in sys.modules
    native.load.cache_clear()


@pytest.mark.parametrize(("module", "version"), [(th, "2.12.1"), (th, "2.14.0"), (mujoco, "3.9.0"), (mujoco, "4.1.0")])
def test_load_refuses_before_it_touches_the_library(unloaded, module, version):
    unloaded.setattr(module, "__version__", version)
    with pytest.raises(NativeError, match=f"but {module.__name__} {re.escape(version)} is installed"):
        native.load()


@pytest.mark.parametrize("field", ["torch_library", "mujoco_library"])
def test_load_believes_the_libraries_rather_than_the_metadata(monkeypatch, field):
    real = native.load().build_info()

    class Fake:
        torch_header, torch_library = real.torch_header, real.torch_library
        mujoco_header, mujoco_library = real.mujoco_header, real.mujoco_library

    monkeypatch.setattr(native.load(), "build_info", Fake)
    native.load.cache_clear()
    native.load()
    setattr(Fake, field, "1.2.3")
    native.load.cache_clear()
    with pytest.raises(NativeError, match=f"but {field.partition('_')[0]} 1.2.3 is installed"):
        native.load()


@pytest.mark.parametrize("name", ["torch", "mujoco"])
def test_load_without_a_wheel(unloaded, name):
    unloaded.setitem(sys.modules, name, None)
    with pytest.raises(NativeError, match=rf"needs {name}, which cannot be imported \(.*\). Reinstall {name}.$"):
        native.load()


def test_load_without_a_module(unloaded):
    unloaded.setattr(importlib.util, "find_spec", lambda name: None)
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(NativeError, match=f"has no native module for Python {python} in .*Build it with {REBUILD}"):
        native.load()


@pytest.fixture
def broken_module(unloaded, tmp_path):
    """Put a shared library that cannot be loaded in the module's place; the test fills the folder."""
    library = tmp_path / "_native.so"

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return importlib.util.spec_from_file_location(name, library) if name == "sb3_hrl._native" else None

    unloaded.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    (tmp_path / "_native_build.json").write_text(json.dumps({"torch": th.__version__, "mujoco": mujoco.__version__}))
    return library


def compile_library(target: Path, source: str, *libraries: Path) -> None:
    command: list[str | Path] = ["c++", "-shared", "-fPIC", "-x", "c++", "-", "-x", "none", *libraries, "-o", target]
    subprocess.run(command, input=source, text=True, check=True)


def test_load_with_a_missing_library(broken_module):
    gone = broken_module.with_name("libgone.so")
    compile_library(gone, "int gone() { return 1; }")
    compile_library(broken_module, 'int gone(); extern "C" int PyInit__native() { return gone(); }', gone)
    gone.unlink()
    with pytest.raises(NativeError) as error:
        native.load()
    assert re.fullmatch(
        rf"The native module of sb3-hrl does not load \(.*libgone.so: cannot open .*\). Rebuild it with {REBUILD}.",
        str(error.value),
    )


def test_load_with_a_missing_symbol(broken_module):
    compile_library(broken_module, 'int gone(); extern "C" int PyInit__native() { return gone(); }')
    with pytest.raises(NativeError, match=rf"does not load \(.*undefined symbol: .*gone.*\). Rebuild it with {REBUILD}."):
        native.load()


@pytest.mark.parametrize("record", [None, "", "[]", '{"torch": "2.13.0"}'])
def test_load_without_a_build_record(broken_module, record):
    path = broken_module.with_name("_native_build.json")
    path.unlink() if record is None else path.write_text(record)
    with pytest.raises(NativeError, match=rf"The build record .* is unreadable \(.*\). Rebuild it with {REBUILD}."):
        native.load()


# --- the thread pool ---------------------------------------------------------------------------------------------------


def pool_of(n_threads: int):
    return native.load().ThreadPool(n_threads)


@pytest.mark.parametrize("n_threads", THREAD_COUNTS)
@pytest.mark.parametrize("n_tasks", [0, 1, 2, 100])
def test_pool_runs_every_task_once(n_threads, n_tasks):
    pool = pool_of(n_threads)
    assert pool.n_threads == n_threads
    for _ in range(3):
        seen: list[int] = []
        pool.run(n_tasks, seen.append)
        assert sorted(seen) == list(range(n_tasks))


def test_pool_runs_long_tasks_side_by_side():
    met = threading.Barrier(3, timeout=20)
    pool_of(3).run(3, lambda _: met.wait() and None)
    # With fewer threads than tasks that wait for each other, they cannot meet.
    met = threading.Barrier(3, timeout=0.2)
    with pytest.raises(threading.BrokenBarrierError):
        pool_of(2).run(3, lambda _: met.wait() and None)


@pytest.mark.parametrize("n_threads", THREAD_COUNTS)
def test_pool_raises_the_error_of_the_lowest_task(n_threads):
    ended: list[int] = []

    def task(index: int) -> None:
        time.sleep(0.01 * (5 - index))  # the lower the index, the later the error
        ended.append(index)
        if index >= 1:
            raise KeyError(index)

    pool = pool_of(n_threads)
    for _ in range(3):
        ended.clear()
        with pytest.raises(KeyError) as error:
            pool.run(5, task)
        assert error.value.args == (1,)
        assert sorted(ended) == [0, 1, 2, 3, 4]
    if n_threads == 5:  # the first error in time was another one
        assert ended[0] != 1
    pool.run(1, task)  # and the pool has forgotten it


@pytest.mark.parametrize("n_threads", THREAD_COUNTS)
def test_pool_refuses_a_run_within_a_run(n_threads):
    pool = pool_of(n_threads)
    with pytest.raises(NativeError, match=f"^{BUSY}$"):
        pool.run(1, lambda _: pool.run(1, lambda _: None))
    other = pool_of(n_threads)
    pool.run(1, lambda _: other.run(1, lambda _: None))


@pytest.mark.parametrize("n_threads", THREAD_COUNTS)
def test_pool_refuses_a_second_caller(n_threads):
    pool, begun, release = pool_of(n_threads), threading.Event(), threading.Event()

    def task(_: int) -> None:
        begun.set()
        release.wait(20)

    first = threading.Thread(target=pool.run, args=(1, task))
    first.start()
    assert begun.wait(20)
    with pytest.raises(NativeError, match=f"^{BUSY}$"):
        pool.run(1, task)
    release.set()
    first.join()
    pool.run(1, task)


def test_pool_refuses_a_negative_count():
    with pytest.raises(ValueError, match=r"^n_threads must be zero or more, not -1$"):
        pool_of(-1)


def test_pool_joins_its_threads():
    before = n_os_threads()
    pool = pool_of(3)
    assert n_os_threads() == before + 3
    del pool
    assert n_os_threads() == before


# --- the stub ----------------------------------------------------------------------------------------------------------


def declarations(stub: str) -> list[str]:
    return sorted(ast.dump(statement) for statement in ast.parse(stub).body)


def test_stub_is_that_of_the_module(tmp_path):
    # The front imports torch first; without it the generator could not load the module.
    code = (
        "from sb3_hrl import native; native.load(); from mypy.stubgenc import generate_stub_for_c_module;"
        "generate_stub_for_c_module('sb3_hrl._native', 'generated.pyi', known_modules=['sb3_hrl._native'])"
    )
    run_python(code, tmp_path)
    # The stub has the name that numpy 1 knows, too: Procgen's extra brings that one.
    generated = declarations((tmp_path / "generated.pyi").read_text().replace("numpy.bool]", "numpy.bool_]"))
    stub = Path(native.__file__).with_name("_native.pyi").read_text()
    assert declarations(stub) == generated
    for here, there in (("n_tasks: ", "tasks: "), ("-> BuildInfo", "-> str"), ("def available_cpus() -> int: ...", "")):
        assert here in stub
        assert declarations(stub.replace(here, there)) != generated
