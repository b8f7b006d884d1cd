"""``vec_env_wrapper: native`` in train, eval, enjoy and video."""

from pathlib import Path

import numpy as np
import pytest

from tests.zoo.conftest import read_video, run_zoo

# The environments must be alike for a run's numbers to be alike: no noise at the start.
CONFIG = """\
Hopper-v5:
  n_timesteps: 256
  n_envs: 2
  policy: MlpPolicy
  n_steps: 64
  batch_size: 64
  normalize: true
  env_kwargs: {reset_noise_scale: 0.0, width: 96, height: 64}
  env_wrapper: {action_hold: {hold_seconds: 0.016}}
"""
HOPPER = ["--env", "Hopper-v5", "-conf", "own.yml", "--seed", "0", "--eval-freq", "128", "--eval-episodes", "2"]


def _train(folder: Path, *options: str, vec_env_wrapper: str = "", algo: str = "hppo", more: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "own.yml").write_text(CONFIG + (f"  vec_env_wrapper: {vec_env_wrapper}\n" if vec_env_wrapper else "") + more)
    process = run_zoo("train", "--algo", algo, *HOPPER, *options, cwd=folder)
    assert "is used as it is" not in process.stderr
    return folder / f"logs/{algo}/Hopper-v5_1"


def _monitor_rows(run: Path, rank: int) -> np.ndarray:
    return np.loadtxt(run / f"{rank}.monitor.csv", delimiter=",", skiprows=2, usecols=(0, 1), ndmin=2)


def test_a_native_run_is_the_ordinary_run(tmp_path: Path) -> None:
    """Physics and arithmetic are bit-equal and nothing is drawn at a reset, so the whole run is: episodes and evaluations."""
    ordinary = _train(tmp_path / "ordinary")
    for name, options in {"sb3_hrl.vec_env.native": [], "native": ["--vec-env", "subproc"]}.items():
        fast = _train(tmp_path / name, *options, vec_env_wrapper=name, more="  rollout: lockstep\n")
        for rank in range(2):
            rows = _monitor_rows(fast, rank)
            assert len(rows) > 2
            assert np.array_equal(rows, _monitor_rows(ordinary, rank))
        left, right = (np.load(run / "evaluations.npz") for run in (ordinary, fast))
        assert np.array_equal(left["results"], right["results"])
        assert np.array_equal(left["ep_lengths"], right["ep_lengths"])


def test_autonomous_rollouts(tmp_path: Path) -> None:
    run = _train(tmp_path, vec_env_wrapper="native", more="  rollout: native\n")
    assert sum(len(_monitor_rows(run, rank)) for rank in range(2)) > 4
    assert np.load(run / "evaluations.npz")["timesteps"].tolist() == [128, 256]
    assert (run / "Hopper-v5" / "vecnormalize.pkl").is_file()
    assert (run / "Hopper-v5" / "config.yml").read_text().count("rollout") == 1
    common = ["--algo", "hppo", "--env", "Hopper-v5", "-f", "logs"]
    assert "Mean reward:" in run_zoo("enjoy", *common, "--no-render", "-n", "150", cwd=tmp_path).stdout


@pytest.mark.usefixtures("opengl")
def test_enjoy_and_video(tmp_path: Path) -> None:
    run = _train(tmp_path, vec_env_wrapper="native", algo="ppo")  # a stock algorithm, too
    assert (run / "0.monitor.csv").is_file()
    common = ["--algo", "ppo", "--env", "Hopper-v5", "-f", "logs"]
    assert "Mean reward:" in run_zoo("enjoy", *common, "--no-render", "-n", "150", cwd=tmp_path).stdout
    run_zoo("record_video", *common, "-n", "20", "-o", "videos", cwd=tmp_path)
    (video,) = (tmp_path / "videos").glob("*.mp4")
    frames = read_video(video)
    assert frames.shape[1:] == (64, 96, 3)
    assert np.abs(frames[0].astype(int) - frames[15].astype(int)).max() > 10
