"""
How much a training run can bear: ``python -m benchmarks.reliability [WHAT ...] [--json FILE]``.

Every run is a process of its own, forked from one that has imported the libraries and done nothing else; kills are SIGKILL.
"""

import argparse
import json
import multiprocessing
import os
import pickle
import random
import resource
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch as th
from rich.progress import Progress, track
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.save_util import save_to_zip_file
from stable_baselines3.common.vec_env import VecNormalize

from benchmarks.reliability.hostile import write_zips
from benchmarks.reliability.runs import RUNS, callbacks, digest, find_cuts, make_model, total_timesteps
from sb3_hrl.checkpoint import Checkpointer, CheckpointError, UntrustedError, archive, find, load
from sb3_hrl.hppo import HPPO
from sb3_hrl.vec_env import NativeVecEnv

th.set_num_threads(1)
_fork = multiprocessing.get_context("fork")


def _in_a_process(function: Callable[..., Any], *args: Any, kill_after: float | None = None) -> Any:
    """The result of a function in a process of its own; None if that was killed."""
    receiver, sender = _fork.Pipe(duplex=False)

    def run() -> None:
        sender.send(function(*args))

    process = _fork.Process(target=run)
    process.start()
    sender.close()
    try:
        if kill_after is not None and not receiver.poll(kill_after):
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
        return receiver.recv()
    except EOFError:
        if kill_after is None:
            raise RuntimeError(f"the process ended with {process.exitcode}") from None
        return None
    finally:
        process.join()


class _NoteStep(BaseCallback):
    """Notes the step in memory that outlives the process."""

    is_internal = True

    def __init__(self, step: Any) -> None:
        super().__init__()
        self._step = step

    def _on_step(self) -> bool:
        self._step.value = self.num_timesteps
        return True


def _train(name: str, folder: Path, checkpoint: Path | None, save_freq: int = 1, step: Any = None) -> str:
    """Train to the end, from the beginning or from a checkpoint: digest of the end."""
    run = RUNS[name]
    used = callbacks(run, folder)
    checkpointer = used[-1]
    assert isinstance(checkpointer, Checkpointer)
    checkpointer.save_freq = save_freq
    model = make_model(run) if checkpoint is None else load(checkpoint, env=run.make_normalized())
    total = total_timesteps(run, model.n_envs) - model.num_timesteps
    notes = [] if step is None else [_NoteStep(step)]
    model.learn(total, callback=[*notes, *used], reset_num_timesteps=checkpoint is None)
    return digest(model, used)


def measure_resume(folder: Path, n_cuts: int = 20) -> dict[str, Any]:
    """Random cuts of several kinds of runs, each continued in another process."""
    draw, result = random.Random(0), {}
    for name in ("native", "dummy", "muscles", "actors"):
        straight = _in_a_process(_train, name, folder / name, None)
        cuts = [draw.choice(find_cuts(folder / name)) for _ in range(n_cuts)]
        ends = [_in_a_process(_train, name, folder / f"{name} again", cut) for cut in track(cuts, f"resume, {name}")]
        result[name] = f"{sum(end == straight for end in ends)} of {n_cuts} exact"
    return result


def measure_kills(folder: Path, n_kills: int = 200) -> dict[str, Any]:
    """SIGKILL at random moments of training; each time it goes on from the newest checkpoint. Run follows run."""
    name, draw = "native", random.Random(1)
    straight = _in_a_process(_train, name, folder / "straight", None)
    start = time.perf_counter()
    _in_a_process(_train, name, folder / "timed", None)
    seconds = time.perf_counter() - start
    save_freq = 2 * 24 * 4  # every second iteration
    step = _fork.Value("q", lock=False)
    ends: list[str] = []
    n_lost: list[int] = []
    with Progress() as progress:
        bar = progress.add_task("kills", total=n_kills)
        while len(n_lost) < n_kills:
            run_folder, checkpoint, end = folder / f"run {len(ends)}", None, None
            step.value = 0
            while end is None:
                # Up to twice the time of a run: loading takes its share, and so does whoever else uses the machine.
                kill_after = 2 * draw.random() * seconds if len(n_lost) < n_kills else None
                end = _in_a_process(_train, name, run_folder, checkpoint, save_freq, step, kill_after=kill_after)
                if end is None:
                    checkpoint = find(run_folder) if list(run_folder.glob("*.zip")) else None
                    begun = 0 if checkpoint is None else int(checkpoint.stem.split("_")[2])
                    n_lost.append(step.value - begun)
                    step.value = begun
                    progress.advance(bar)
            ends.append(end)
    n_same = sum(end == straight for end in ends)
    return {
        "kills": len(n_lost),
        "runs that came to their end": f"{len(ends)}, {n_same} with the straight run's digest",
        "kills that cost steps": sum(lost > 0 for lost in n_lost),
        "steps between two checkpoints": save_freq,
        "steps lost, at most": max(n_lost),
        "steps lost, on average": round(statistics.mean(n_lost), 1),
    }


def _write_for_ever(plain: bytes, path: Path) -> None:
    contents = [archive.seal(plain, {"filling": bytes([number]) * 10**6}) for number in range(4)]
    while True:
        for content in contents:
            archive.write(path, content)


def measure_writing(folder: Path, n_kills: int = 200) -> dict[str, Any]:
    """SIGKILL while a checkpoint is written over another one, again and again."""
    save_to_zip_file(folder / "plain.zip", data={})
    plain, path, draw = (folder / "plain.zip").read_bytes(), folder / "written" / "checkpoint.zip", random.Random(2)
    archive.write(path, archive.seal(plain, {}))
    n_unreadable = n_torn = 0
    for _ in track(range(n_kills), "kills while writing"):
        _in_a_process(_write_for_ever, plain, path, kill_after=0.05 + 0.1 * draw.random())
        n_torn += len(list(path.parent.glob(".*")))
        try:
            archive.read(path)
        except CheckpointError:
            n_unreadable += 1
        archive.remove_torn(path.parent)
    n_left = len(list(path.parent.glob(".*")))
    return {"kills": n_kills, "unreadable": n_unreadable, "torn files": n_torn, "of these left after the next start": n_left}


def measure_damage(folder: Path, n_flips: int = 1000, n_cuts: int = 200) -> dict[str, Any]:
    """Flipped bits and truncations of a checkpoint."""
    _in_a_process(_train, "dummy", folder / "damage", None)
    content, draw, path = find(folder / "damage").read_bytes(), random.Random(3), folder / "damaged.zip"
    silent = {"flips": 0, "truncations": 0}
    damages: list[tuple[str, bytes]] = []
    for _ in range(n_flips):
        place, damaged = draw.randrange(8 * len(content)), bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        damages.append(("flips", bytes(damaged)))
    damages += [("truncations", content[: draw.randrange(len(content))]) for _ in range(n_cuts)]
    for kind, damaged_content in track(damages, "damage"):
        path.write_bytes(damaged_content)
        try:
            HPPO.load(path)
            silent[kind] += 1
        except CheckpointError:
            pass
    return {"flips": n_flips, "truncations": n_cuts, "silent loads": silent}


def measure_hostile(folder: Path) -> dict[str, Any]:
    """Zips that want to run code, to write elsewhere, or to be something else than they are."""
    _in_a_process(_train, "dummy", folder / "run", None)
    members = {
        name: content for name, content in archive.read(find(folder / "run")).members.items() if name != archive.MANIFEST
    }
    marker, n_loaded = folder / "executed", 0
    paths = write_zips(folder, members, marker)
    for path in paths:
        try:
            HPPO.load(path)
            n_loaded += 1
        except (CheckpointError, UntrustedError, pickle.UnpicklingError):
            pass
    return {"zips": len(paths), "loaded": n_loaded, "executions": int(marker.exists())}


def _fill(old: Path, n_bytes: int) -> str:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    content = old.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, resource.RLIM_INFINITY))
    try:
        archive.write(old, content + b" ")
    except OSError:
        return "refused"
    return "written"


def measure_disk(folder: Path, n_limits: int = 50) -> dict[str, Any]:
    """Writes that find the disk full, at every fraction of the file."""
    _in_a_process(_train, "dummy", folder / "disk", None)
    old = find(folder / "disk")
    content = old.read_bytes()
    outcomes = []
    for index in track(range(n_limits), "full disk"):
        outcome = _in_a_process(_fill, old, len(content) * index // n_limits)
        outcomes.append(outcome == "refused" and old.read_bytes() == content and not list(old.parent.glob(".*.tmp-*")))
    return {"writes on a full disk": n_limits, "the old file whole, nothing left over": sum(outcomes)}


def _cost(folder: Path) -> dict[str, Any]:
    env = VecNormalize(NativeVecEnv("MuscleWalkerWalk-v0", 16))
    model = HPPO("MlpPolicy", env, n_steps=128, batch_size=512, n_epochs=10, seed=0, policy_kwargs={"net_arch": [256, 256]})
    starts: list[float] = []

    class Clock(Checkpointer):
        def _take(self, has_begun: bool) -> None:
            start = time.perf_counter()
            super()._take(has_begun)
            starts.append(time.perf_counter() - start)

    checkpointer = Clock(folder)
    begin = time.perf_counter()
    model.learn(20 * 2048, callback=checkpointer)
    iteration = (time.perf_counter() - begin) / 20
    writes = []
    for _ in range(10):
        start = time.perf_counter()
        path = checkpointer.save()
        writes.append(time.perf_counter() - start)
    assert path is not None
    taken = statistics.median(starts)
    return {
        "copy in memory, ms": round(1e3 * taken, 1),
        "share of an iteration": round(taken / iteration, 3),
        "writing, ms": round(1e3 * statistics.median(writes), 1),
        "size, KiB": path.stat().st_size // 1024,
    }


def measure_cost(folder: Path) -> dict[str, Any]:
    """What a checkpoint costs: MuscleWalkerWalk, 16 environments."""
    return _in_a_process(_cost, folder / "cost")


MEASUREMENTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "resume": measure_resume,
    "kills": measure_kills,
    "writing": measure_writing,
    "damage": measure_damage,
    "hostile": measure_hostile,
    "disk": measure_disk,
    "cost": measure_cost,
}


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability", description=__doc__)
    parser.add_argument("what", nargs="*", choices=[[], *MEASUREMENTS], help="all by default")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="write the figures to FILE")
    args = parser.parse_args()
    results = {}
    for name in args.what or MEASUREMENTS:
        with tempfile.TemporaryDirectory() as folder:
            results[name] = MEASUREMENTS[name](Path(folder))
        print(name, json.dumps(results[name], indent=2), flush=True)
    if args.json is not None:
        args.json.write_text(
            json.dumps({"date": time.strftime("%Y-%m-%d"), "n_cpus": os.cpu_count(), **results}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
