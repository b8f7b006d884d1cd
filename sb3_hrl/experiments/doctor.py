"""``sb3-hrl doctor``: what works on this machine, and what to do about the rest."""

import argparse
import importlib.util
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sb3_hrl import native
from sb3_hrl.errors import NativeError, UsageError

if TYPE_CHECKING:
    from sb3_hrl.experiments import bench

OK, NOTE, FIX = "ok", "note", "fix"
START_SECONDS = 60
ENOUGH_MEMORY, ENOUGH_DISK = 2e9, 2e9
ENOUGH_FOR_ACTORS = 4
TENSORBOARD_PORT = 6006
LOGS = Path("logs")
# A rollout that takes little longer than the bare physics has nothing left to win.
NEAR_PHYSICS = 0.75


class Line(NamedTuple):
    """
    :param status: ``ok``; ``note`` for what is worth knowing; ``fix`` for what has to be mended
    :param text: what was found; after a dash, the remedy
    """

    status: str
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """
    :param parser: of the command
    """
    parser.add_argument("--no-bench", action="store_true", help="leave out the measurement of rollouts")


def run(args: argparse.Namespace) -> int:
    """
    :param args: what ``add_arguments`` asked for
    :return: 0 if nothing has to be mended, 1 otherwise
    """
    statuses = []
    for name, check in CHECKS.items():
        if name == "rollout" and args.no_bench:
            continue
        try:
            lines = list(check())
        except Exception as error:  # a doctor who faints helps nobody
            lines = [Line(FIX, f"the check itself failed: {type(error).__name__}: {error}")]
        for line in lines:
            statuses.append(line.status)
            print(f"{line.status:<5} {name:<11} {line.text}", flush=True)
    n_fixes = statuses.count(FIX)
    print(f"\n{n_fixes or 'Nothing'} to mend." if n_fixes != 1 else "\n1 thing to mend.")
    return 1 if n_fixes else 0


# --- the installation -------------------------------------------------------------------------------------------------------


def _python() -> Iterator[Line]:
    found = ".".join(map(str, sys.version_info[:3]))
    is_supported = (3, 11) <= sys.version_info[:2] <= (3, 12)
    yield Line(OK, f"{found}, {sys.executable}") if is_supported else Line(FIX, f"{found} - install Python 3.11 or 3.12")


def _compiler() -> Iterator[Line]:
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if shutil.which(name):
            source = "int main() { if constexpr (sizeof(int) > 1) return 0; }"
            line = [name, "-std=c++17", "-x", "c++", "-fsyntax-only", "-"]
            process = subprocess.run(line, input=source, capture_output=True, text=True, check=False)
            if process.returncode == 0:
                first = subprocess.run([name, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()[0]
                yield Line(OK, first)
                return
    yield Line(NOTE, "no C++17 compiler; it is needed to build the native module - apt-get install g++, or name one in CXX")


def _native() -> Iterator[Line]:
    try:
        info = native.build_info()
    except NativeError as error:
        yield Line(FIX, str(error))
        return
    yield Line(OK, f"{info.build_type} by {info.compiler} for torch {info.torch_build}, MuJoCo {info.mujoco_header}")


def _versions() -> Iterator[Line]:
    from packaging.requirements import Requirement

    fitting = []
    for requirement in map(Requirement, requires("sb3-hrl") or []):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            yield Line(FIX, f"{requirement.name} is missing - pip install '{requirement}'")
            continue
        if requirement.specifier.contains(found, prereleases=True):
            fitting.append(f"{requirement.name} {found}")
        else:
            yield Line(FIX, f"{requirement.name} {found} does not fit - pip install '{requirement}'")
    yield Line(OK, ", ".join(fitting[:8]))


def _hook() -> Iterator[Line]:
    line = [sys.executable, "-c", "from rl_zoo3.utils import ALGOS; print('hppo' in ALGOS)"]
    process = subprocess.run(line, capture_output=True, text=True, check=False)
    if "True" in process.stdout:
        yield Line(OK, "rl_zoo3 knows the plug-ins (python -m rl_zoo3.train --algo hppo)")
    elif os.environ.get("SB3_HRL_NO_ZOO_HOOK", "0") not in ("", "0"):
        yield Line(NOTE, "switched off by SB3_HRL_NO_ZOO_HOOK - unset it, or use python -m sb3_hrl.zoo train ...")
    else:
        reason = (process.stderr.strip().splitlines() or ["SB3_HRL.pth is not read"])[-1]
        yield Line(FIX, f"rl_zoo3 does not know the plug-ins ({reason}) - reinstall sb3-hrl, or use python -m sb3_hrl.zoo")


def _plugins() -> Iterator[Line]:
    from sb3_hrl.experiments.plugins import find_problem
    from sb3_hrl.registry import GROUPS, plugins

    announced = [plugin for group in GROUPS for plugin in plugins(group).values()]
    for plugin in announced:
        problem = find_problem(plugin)
        if problem:
            yield Line(FIX, f"{problem} - repair or uninstall it")
    yield Line(OK, f"{len(announced)} announced: {', '.join(plugin.name for plugin in announced)}")


# --- the machine ------------------------------------------------------------------------------------------------------------


def _processors() -> Iterator[Line]:
    import torch as th

    usable, present, load = native.load().available_cpus(), os.cpu_count() or 1, os.getloadavg()[0]
    yield Line(OK, f"{usable} of {present} can be used (affinity and container limits)")
    if th.cpu._is_avx512_bf16_supported() or th.cpu._is_amx_tile_supported():
        yield Line(OK, "they multiply numbers of 16 bits faster: precision: bfloat16 for policies of images (docs/procgen.md)")
    if load > usable:
        yield Line(NOTE, f"load {load:.1f} on {usable}: others are at work, and every speed will be low - wait, or stop them")


def _threads() -> Iterator[Line]:
    import torch as th

    usable, n_threads = native.load().available_cpus(), th.get_num_threads()
    by = f"OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']}" if "OMP_NUM_THREADS" in os.environ else "its own choice"
    if n_threads > usable:
        yield Line(FIX, f"torch uses {n_threads} threads on {usable} processors ({by}) - train with --num-threads {usable}")
        return
    yield Line(OK, f"torch uses {n_threads} ({by}); for low FPS with small networks try --num-threads 1")


def _memory() -> Iterator[Line]:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available, total = (1024 * int(fields[key].split()[0]) for key in ("MemAvailable", "MemTotal"))
    text = f"{available / 1e9:.1f} of {total / 1e9:.1f} GB free"
    remedy = "close something, or train with a smaller -params n_envs:N or batch_size:N"
    yield Line(OK, text) if available > ENOUGH_MEMORY else Line(FIX, f"{text} - {remedy}")


def _disk() -> Iterator[Line]:
    usage = shutil.disk_usage(".")
    text = f"{usage.free / 1e9:.1f} GB free here ({Path.cwd()})"
    yield Line(OK, text) if usage.free > ENOUGH_DISK else Line(FIX, f"{text} - remove old runs, or write elsewhere: -f FOLDER")


def _processes() -> Iterator[Line]:
    for method in multiprocessing.get_all_start_methods():
        context: Any = multiprocessing.get_context(method)
        process = context.Process(target=_do_nothing)
        process.start()
        process.join(START_SECONDS)
        if process.exitcode != 0:
            process.kill()
            yield Line(
                FIX, f"workers do not start by {method!r} (exit code {process.exitcode}) - look at ulimit -u and /dev/shm"
            )
            return
    shared = shutil.disk_usage("/dev/shm").free
    yield Line(
        OK, f"workers start by {', '.join(multiprocessing.get_all_start_methods())}; /dev/shm has {shared / 1e9:.1f} GB"
    )


def _do_nothing() -> None:
    pass


def _actors() -> Iterator[Line]:
    usable = native.load().available_cpus()
    if usable < ENOUGH_FOR_ACTORS:
        yield Line(OK, f"{usable} processors are busy with one process: n_actors gains little (docs/procgen.md)")
        return
    remedy = "no faster? Fewer of them, or a larger batch_size; sb3-hrl compare shows both (time/bottleneck: who waits)"
    yield Line(OK, f"{usable} processors have room for -params n_actors:{usable // 2}; {remedy}")


def _gpu() -> Iterator[Line]:
    import torch as th

    if th.cuda.is_available():
        name = th.cuda.get_device_name()
        yield Line(NOTE, f"{name}: --device auto takes it; small networks leave it idle and are faster with --device cpu")
    elif shutil.which("nvidia-smi"):
        yield Line(
            NOTE, f"there is one, but torch {th.__version__} cannot use it, so it stays idle - install a CUDA build of 2.13"
        )
    else:
        yield Line(OK, "none, and none is needed: rollouts run on the processors, and networks this small learn there too")


# --- speed ------------------------------------------------------------------------------------------------------------------


def _rollout() -> Iterator[Line]:
    from sb3_hrl.experiments import bench

    setting = bench.Setting("HalfCheetah-v5", 16, 64, (64, 64))
    rates = {name: _rate(bench.ROLLOUTS[name](setting), setting.n_total) for name in ("native_rollout", "physics")}
    fps, share = rates["native_rollout"], rates["native_rollout"] / rates["physics"]
    limit = "the physics limit it" if share >= NEAR_PHYSICS else "policy and hand-over take the rest: try more environments"
    text = f"{fps:,.0f} steps/s in native rollouts of {setting.env_id}, {share:.0%} of MuJoCo's bare physics; {limit}"
    yield Line(OK if fps >= 1000 else NOTE, text)


def _rate(contestant: "bench.Contestant", n_steps: int) -> float:
    try:
        contestant.run()
        begin, n_rounds = time.perf_counter(), 0
        while time.perf_counter() - begin < 0.5:
            contestant.run()
            n_rounds += 1
        return n_rounds * n_steps / (time.perf_counter() - begin)
    finally:
        contestant.close()


# --- what is optional -------------------------------------------------------------------------------------------------------


def _procgen() -> Iterator[Line]:
    if importlib.util.find_spec("procgen") is None:
        yield Line(NOTE, "not installed - pip install 'sb3-hrl[procgen]'")
        return
    code = "from procgen import ProcgenGym3Env as E; e = E(num=1, env_name='coinrun'); e.observe(); print('fine')"
    yield _try(
        code, f"procgen-mirror {version('procgen-mirror')} steps", "reinstall it: pip install --force-reinstall procgen-mirror"
    )


def _rendering() -> Iterator[Line]:
    code = "import gymnasium as g; e = g.make('Hopper-v5', render_mode='rgb_array'); e.reset(); e.render(); print('fine')"
    remedy = "set MUJOCO_GL=egl, and apt-get install libegl1 libgl1 libegl-mesa0"
    yield _try(code, f"pictures without a screen (MUJOCO_GL={os.environ.get('MUJOCO_GL', 'not set')})", remedy)
    yield _try(
        "import imageio_ffmpeg as f; f.get_ffmpeg_exe(); import moviepy; print('fine')",
        "videos",
        "pip install 'setuptools<82'",
    )


def _try(code: str, text: str, remedy: str) -> Line:
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "fine" in process.stdout:
        return Line(OK, text)
    reason = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
    return Line(NOTE, f"no {text}: {reason} - {remedy}")


def _plots() -> Iterator[Line]:
    missing = [name for name in ("rliable", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        yield Line(NOTE, f"{', '.join(missing)} missing; several seeds cannot be compared - pip install 'sb3-hrl[plots]'")
    elif version("pandas").startswith("3"):
        yield Line(NOTE, f"pandas {version('pandas')}: rliable does not import with it - pip install 'sb3-hrl[plots]'")
    else:
        yield Line(OK, f"rliable {version('rliable')}")


def _runs() -> Iterator[Line]:
    from sb3_hrl.experiments.runs import latest_runs

    try:
        runs = latest_runs(LOGS)
        model = runs[0].model_file()
    except UsageError as error:
        yield Line(NOTE, str(error))
        return
    yield Line(
        OK, f"{len(runs)} in {LOGS}; the latest has {model}: sb3-hrl evaluate (slow? Fewer --n-episodes, --num-threads 1)"
    )


def _tensorboard() -> Iterator[Line]:
    with socket.socket() as probe:
        is_taken = probe.connect_ex(("127.0.0.1", TENSORBOARD_PORT)) == 0
    if is_taken:
        yield Line(
            NOTE,
            f"port {TENSORBOARD_PORT} is taken, perhaps by TensorBoard: open it, or tensorboard --logdir logs --port 6007",
        )
    else:
        yield Line(OK, f"{version('tensorboard')}; port {TENSORBOARD_PORT} is free: tensorboard --logdir logs")


CHECKS: dict[str, Callable[[], Iterator[Line]]] = {
    "python": _python,
    "compiler": _compiler,
    "native": _native,
    "versions": _versions,
    "zoo hook": _hook,
    "plug-ins": _plugins,
    "processors": _processors,
    "threads": _threads,
    "rollout": _rollout,
    "memory": _memory,
    "disk": _disk,
    "processes": _processes,
    "actors": _actors,
    "gpu": _gpu,
    "rendering": _rendering,
    "procgen": _procgen,
    "plots": _plots,
    "runs": _runs,
    "tensorboard": _tensorboard,
}
