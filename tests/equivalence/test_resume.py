"""A run that is cut and goes on in another process is the run that was never cut, bit for bit."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch as th
from stable_baselines3.common.vec_env import VecNormalize

from benchmarks.reliability.runs import N_STEPS, RUNS, callbacks, close, digest, find_cuts, make_model, total_timesteps
from sb3_hrl import resume
from sb3_hrl.checkpoint import Checkpointer, archive, load
from sb3_hrl.hppo import HPPO
from sb3_hrl.vec_env import NativeVecEnv

# A process that goes on with many runs: {name: checkpoint} comes in, {name: digest} goes out.
GO_ON = """
import json, sys
import torch as th
from benchmarks.reliability.runs import *
from sb3_hrl.checkpoint import load

th.set_num_threads(1)
digests = {}
for name, path in json.loads(sys.argv[1]).items():
    run = RUNS[name]
    model = load(path, env=run.make_normalized())
    used = callbacks(run)
    model.learn(total_timesteps(run, model.n_envs) - model.num_timesteps, callback=used, reset_num_timesteps=False)
    digests[name] = digest(model, used)
    close(model, used)
print(json.dumps(digests))
"""


def _straight(name: str, folder: Path) -> str:
    run = RUNS[name]
    model, used = make_model(run), callbacks(run, folder)
    model.learn(total_timesteps(run, model.n_envs), callback=used)
    found = digest(model, used)
    close(model, used)
    return found


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Every run with a checkpoint of each of its iterations, and its digest."""
    folder = tmp_path_factory.mktemp("straight")
    return folder, {name: _straight(name, folder / name) for name in RUNS}


def _go_on(cuts: dict[str, Path]) -> dict[str, str]:
    code = [sys.executable, "-c", GO_ON, json.dumps({name: str(path) for name, path in cuts.items()})]
    process = subprocess.run(code, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def test_it_goes_on_exactly(straight: tuple[Path, dict[str, str]]) -> None:
    folder, digests = straight
    draw = random.Random(0)
    cuts = {name: draw.choice(find_cuts(folder / name)) for name in RUNS}
    assert _go_on(cuts) == digests


def test_the_digest_sees_a_difference(straight: tuple[Path, dict[str, str]]) -> None:
    """Without what SB3's own files lack, the same cut gives another run."""
    folder, digests = straight
    run = RUNS["native"]
    for part in ("random", "envs", "callbacks"):
        path = find_cuts(folder / "native")[2]
        model: Any = load(path, env=make_model(run).env)
        model._rest[part] = {**make_other(part, model)} if part != "callbacks" else []
        used = callbacks(run)
        model.learn(total_timesteps(run, model.n_envs) - model.num_timesteps, callback=used, reset_num_timesteps=False)
        assert digest(model, used) != digests["native"], part
        close(model, used)


@pytest.mark.parametrize("part", ["noise_seed", "sequence", "arrays"])
def test_the_digest_sees_another_state_of_an_actor(straight: tuple[Path, dict[str, str]], part: str) -> None:
    folder, digests = straight
    run = RUNS["actors, frames"]
    model: Any = load(find_cuts(folder / "actors, frames")[2], env=run.make_normalized())
    state = model._rest["envs"]["base"]["states"][1]
    state[part] = state[part][:-1] + bytes([state[part][-1] ^ 1]) if part == "arrays" else state[part] + 1
    used = callbacks(run)
    model.learn(total_timesteps(run, model.n_envs) - model.num_timesteps, callback=used, reset_num_timesteps=False)
    assert digest(model, used) != digests["actors, frames"]
    close(model, used)


def make_other(part: str, model: Any) -> dict[str, Any]:
    """What stood there, with one thing changed."""
    other = dict(model._rest[part])
    if part == "random":
        other["torch"] = th.Generator().manual_seed(1).get_state().numpy()
    else:
        layers = [dict(layer) for layer in other["layers"]]
        layers[0]["state"] = {**layers[0]["state"], "returns": layers[0]["state"]["returns"] + 1}
        other["layers"] = layers
    return other


def test_the_number_of_rollout_threads_changes_nothing(straight: tuple[Path, dict[str, str]]) -> None:
    folder, digests = straight
    path = find_cuts(folder / "native")[1]
    for n_threads in (1, 3):
        model: Any = load(path, env=VecNormalize(NativeVecEnv("Hopper-v5", 4, n_threads=n_threads)))
        used = callbacks(RUNS["native"])
        total = total_timesteps(RUNS["native"], model.n_envs)
        model.learn(total - model.num_timesteps, callback=used, reset_num_timesteps=False)
        assert digest(model, used) == digests["native"]
        close(model, used)


def test_resume_builds_the_environments(straight: tuple[Path, dict[str, str]]) -> None:
    folder, digests = straight
    for name in ("native, hold", "muscles", "dummy, frames", "actors, frames", "actors, Procgen", "PPO"):
        model: Any = resume(find_cuts(folder / name)[-1])
        run = RUNS[name]
        used = callbacks(run)
        assert model.num_timesteps == total_timesteps(run, model.n_envs) - N_STEPS * model.n_envs
        model.learn(total_timesteps(run, model.n_envs) - model.num_timesteps, callback=used, reset_num_timesteps=False)
        assert digest(model, used) == digests[name], name
        close(model, used)


def test_a_plain_save_goes_on_too(tmp_path: Path) -> None:
    """``learn``, ``save``, ``load``, ``learn`` is ``learn``, ``learn``; gSDE has not drawn its matrices then."""
    run = RUNS["dummy, hold, gSDE"]
    digests = []
    for is_cut in (False, True):
        model, used = make_model(run), callbacks(run)
        total = total_timesteps(run, model.n_envs)
        model.learn(total // 7 * 3)
        if is_cut:
            model.save(tmp_path / "model")
            assert archive.read(tmp_path / "model").metadata["kind"] == "resumable"
            model.env.close()
            model = HPPO.load(tmp_path / "model", env=make_model(run).env)
        model.learn(total // 7 * 4, callback=used, reset_num_timesteps=False)
        digests.append(digest(model, used))
        close(model, used)
    assert digests[0] == digests[1]


def test_a_run_that_was_cut_twice_knows_its_ancestors(straight: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    folder, digests = straight
    run = RUNS["native"]
    cuts = find_cuts(folder / "native")
    model: Any = load(cuts[0], env=make_model(run).env)
    used = [*callbacks(run), Checkpointer(tmp_path, save_freq=1)]
    model.learn(total_timesteps(run, model.n_envs) - model.num_timesteps, callback=used, reset_num_timesteps=False)
    close(model, used)
    second = find_cuts(tmp_path)[1]
    model = load(second, env=make_model(run).env)
    used = callbacks(run)
    model.learn(total_timesteps(run, model.n_envs) - model.num_timesteps, callback=used, reset_num_timesteps=False)
    assert digest(model, used) == digests["native"]
    assert [item["path"] for item in model.lineage] == [str(second), str(cuts[0])]
    close(model, used)


def test_other_environments_are_said(straight: tuple[Path, dict[str, str]]) -> None:
    folder, _ = straight
    path = find_cuts(folder / "native")[0]
    model: Any = load(path, env=make_model(RUNS["dummy"]).env)
    with pytest.warns(UserWarning, match=r"not exactly; what restarts: .*there were 4, and there are 2"):
        model.learn(N_STEPS, reset_num_timesteps=False)
    assert model.num_timesteps > N_STEPS
    # A new beginning with its networks wants none of that.
    model = load(path, env=make_model(RUNS["dummy"]).env)
    model.learn(N_STEPS)
    assert model.num_timesteps == N_STEPS * 2


def test_other_spaces_and_muscles_are_refused(straight: tuple[Path, dict[str, str]]) -> None:
    folder, _ = straight
    path = find_cuts(folder / "native")[0]
    with pytest.raises(ValueError, match="Observation spaces do not match"):
        load(path, env=make_model(RUNS["dummy, Ant"]).env)
