"""From a run to a result: ``sb3-hrl train``, ``evaluate`` and ``compare``, on real runs."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest
import yaml
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import unwrap_vec_normalize
from torch import nn

from sb3_hrl.checkpoint import read_normalization
from sb3_hrl.experiments.cli import main
from sb3_hrl.experiments.compare import estimate
from sb3_hrl.experiments.evaluate import Subject, make_env
from sb3_hrl.experiments.metrics import METRICS, SUMMARY, read_metrics
from sb3_hrl.experiments.options import key_value
from sb3_hrl.experiments.runs import find_run
from sb3_hrl.experiments.train import _merge
from tests.conftest import missing
from tests.zoo.conftest import read_video, run_zoo

CARTPOLE = ["--env", "CartPole-v1", "--eval-freq", "-1", "--num-threads", "1"]
QUICK = ["-params", "n_steps:32", "batch_size:32", "n_epochs:1", "n_envs:2"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with two seeds of ppo, one of them timed by seconds of its own, and one run of a2c."""
    before = Path.cwd()
    cwd = tmp_path_factory.mktemp("runs")
    os.chdir(cwd)
    try:
        for seed in ("1", "2"):
            line = [
                "train",
                "--algo",
                "ppo",
                *CARTPOLE,
                "-n",
                "512",
                "--seed",
                seed,
                "--output-dir",
                f"ppo/seed_{seed}",
                *QUICK,
            ]
            assert main(line) == 0
        line = ["train", "--algo", "a2c", *CARTPOLE, "--duration", "2s", "--seed", "1"]
        assert main([*line, "-params", "n_envs:2", "normalize:True"]) == 0
        yield cwd
    finally:
        os.chdir(before)


# --- train


def test_a_timed_run_leaves_everything(runs: Path) -> None:
    run = runs / "logs/a2c/CartPole-v1_1"
    for name in ("CartPole-v1.zip", METRICS, SUMMARY, "config.yaml", "0.monitor.csv", "CartPole-v1/vecnormalize.pkl"):
        assert (run / name).is_file(), name
    assert list(run.glob("tensorboard/A2C_1/events.*"))
    summary = json.loads((run / SUMMARY).read_text())
    assert summary["status"] == "finished"
    assert summary["duration_hours"] * 3600 >= 2
    assert summary["overshoot_seconds"] == pytest.approx(summary["duration_hours"] * 3600 - 2)
    # It ended with an iteration: n_steps (5) of 2 environments.
    assert summary["total_timesteps"] == 10 * summary["total_updates"] > 0
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert (config["algo"], config["env"], config["seed"], config["duration_seconds"]) == ("a2c", "CartPole-v1", 1, 2.0)
    assert config["hyperparams"]["normalize"] is True


def test_the_summary_is_printed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A hundred steps end with the rollout that they are part of.
    line = ["train", "--algo", "ppo", *CARTPOLE, "-n", "100", "--seed", "3", "--output-dir", "printed", *QUICK]
    assert main(line) == 0
    out, err = capsys.readouterr()
    assert "TRAINING SUMMARY" in out
    assert "Total Timesteps: 128\nTotal Updates: 2\n" in out
    assert re.search(r"Initial Reward: [\d.]+ ± [\d.]+\n", out)
    assert re.search(r"Peak Memory: \d+\.\d\d GB", out)  # of this process: other tests have used some
    assert re.search(r"100/100 steps \[.*step 128, update 2, FPS [\d,]+, reward [\d.]+\]", err)  # the bar
    assert PPO.load("printed/CartPole-v1.zip").training_seconds > 0  # type: ignore[attr-defined]


def test_a_file_of_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stock algorithm has what plug-ins have: numbers such as 1e-3, and arguments of the environment for evaluation."""
    monkeypatch.chdir(tmp_path)
    section = {
        "n_timesteps": "6.4e1",
        "policy": "MlpPolicy",
        "n_steps": 32,
        "learning_rate": "1e-3",
        "eval_env_kwargs": {"g": 5.0},
    }
    (tmp_path / "own.yml").write_text(yaml.safe_dump({"Pendulum-v1": section}).replace("'", ""))
    options = ["-conf", "own.yml", "--seed", "1", "--output-dir", "own", "--eval-freq", "-1"]
    assert main(["train", "--algo", "a2c", "--env", "Pendulum-v1", *options]) == 0
    config = yaml.safe_load((tmp_path / "own/config.yaml").read_text())
    assert (config["n_timesteps"], config["hyperparams"]["learning_rate"]) == (64, 1e-3)
    assert config["eval_env_kwargs"] == {"g": 5.0}


def test_a_stock_run_goes_on(runs: Path) -> None:
    assert main(["train", "--resume", "ppo/seed_1", "-n", "640", "--output-dir", "longer"]) == 0
    summary = json.loads((runs / "longer" / SUMMARY).read_text())
    assert (summary["algorithm"], summary["seed"], summary["total_timesteps"], summary["total_updates"]) == ("PPO", 1, 640, 10)
    # Its curve is that of the run it continues, and what came since.
    steps, before = ([metric.step for metric in read_metrics(Path(run) / METRICS)[0]] for run in ("longer", "ppo/seed_1"))
    assert steps == sorted(set(steps))
    assert steps[: len(before)] == before != steps
    assert steps[-1] == 640


def test_a_run_that_has_finished_is_not_repeated(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (timed,) = (runs / "logs/a2c").glob("CartPole-v1_*")
    before = sorted(runs.rglob("*"))
    for line in (["ppo/seed_1"], [str(timed)], [str(timed), "--duration", "1s"]):
        assert main(["train", "--resume", *line]) == 2
        assert "has finished, so there is nothing left: give more steps (-n) or time (--duration)" in capsys.readouterr().err
    assert sorted(runs.rglob("*")) == before


def test_the_last_of_each_key_counts() -> None:
    line = ["-params", "n_envs:8", "n_steps:32", "--seed", "1", "--hyperparams", "n_steps:64", "-P", "--env-kwargs", "g:1.0"]
    assert _merge(line) == ["--seed", "1", "-P", "-params", "n_envs:8", "n_steps:64", "--env-kwargs", "g:1.0"]


def test_values_may_use_the_zoo_s_names() -> None:
    assert key_value("policy_kwargs:dict(activation_fn=nn.ReLU)") == ("policy_kwargs", {"activation_fn": nn.ReLU})


def test_an_off_policy_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its weights, steps and clock do; a replay buffer if it was kept."""
    monkeypatch.chdir(tmp_path)
    options = ["--seed", "1", "--eval-freq", "-1", "-params", "learning_starts:50", "batch_size:16", "normalize:True"]
    assert main(["train", "--algo", "sac", "--env", "Pendulum-v1", "-n", "300", *options, "--output-dir", "first"]) == 0
    seconds = json.loads((tmp_path / "first" / SUMMARY).read_text())["duration_hours"] * 3600
    assert main(["train", "--resume", "first", "--duration", f"{seconds + 1.5}s", "--output-dir", "timed"]) == 0
    output = capsys.readouterr().out
    assert "Continuing at step 300, not exactly; what begins anew: environments, random numbers, the replay buffer" in output
    summary = json.loads((tmp_path / "timed" / SUMMARY).read_text())
    assert summary["total_timesteps"] > 300
    assert summary["duration_hours"] * 3600 >= seconds + 1.5
    assert main(["train", "--resume", "first", "-n", "400", "--output-dir", "longer", "--save-replay-buffer"]) == 0
    assert json.loads((tmp_path / "longer" / SUMMARY).read_text())["total_timesteps"] == 400
    assert main(["train", "--resume", "longer", "-n", "450", "--output-dir", "longest"]) == 0
    assert "Continuing at step 400, not exactly; what begins anew: environments, random numbers\n" in capsys.readouterr().out
    (tmp_path / "longest/Pendulum-v1/vecnormalize.pkl").unlink()  # as after a kill
    assert main(["train", "--resume", "longest", "-n", "460", "--output-dir", "last"]) == 0
    assert "the statistics of VecNormalize, which a run has when it ends" in capsys.readouterr().out


def test_seeds_are_runs_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["train", "--algo", "ppo", *CARTPOLE, "-n", "64", *QUICK, "--seeds", "4", "5", "--output-dir", "both"]
    assert main(line) == 0  # each in a process of its own
    summaries = [json.loads((tmp_path / f"both/seed_{seed}" / SUMMARY).read_text()) for seed in (4, 5)]
    assert [summary["seed"] for summary in summaries] == [4, 5]


def test_a_killed_run_has_metrics_and_says_that_it_is_unfinished(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = [
        sys.executable,
        "-m",
        "sb3_hrl.experiments.cli",
        "train",
        "--algo",
        "ppo",
        *CARTPOLE,
        "--duration",
        "1h",
        "--seed",
        "1",
    ]
    worker = subprocess.Popen(
        [*line, "--output-dir", "killed", *QUICK], cwd=runs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not read_metrics(runs / "killed" / METRICS)[0]:
            assert worker.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    metrics, n_broken = read_metrics(runs / "killed" / METRICS)
    assert metrics
    assert n_broken <= 1
    assert main(["compare", "killed", "ppo/seed_1", "--output", "with_killed"]) == 0
    out = capsys.readouterr().out
    assert "killed: unfinished: it is still running, or was killed; compared as far as it goes" in out
    assert "ppo/seed_1: unfinished" not in out


def test_plain_zoo_runs_of_ours_are_recorded(trained: Path) -> None:
    run = trained / "logs/hppo/Hopper-v5_1"
    summary = json.loads((run / SUMMARY).read_text())
    assert (summary["algorithm"], summary["total_timesteps"], summary["status"]) == ("HPPO", 256, "finished")
    assert [
        metric.values["eval/mean_reward"] for metric in read_metrics(run / METRICS)[0] if "eval/mean_reward" in metric.values
    ]
    assert yaml.safe_load((run / "config.yaml").read_text())["n_timesteps"] == 256


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train --algo pppo", "there is no 'pppo', did you mean 'ppo'?"),
        ("train --env CartPol-v1", "no environment is registered as 'CartPol-v1', did you mean 'CartPole-v1'?"),
        ("train --duration soon", "expected hours (0.5) or a time such as 30m, 90s or 2h, got 'soon'"),
        ("train --duration 0", "expected hours"),
        ("train --duration 1 -n 100", "--duration and -n exclude each other"),
        ("train --seeds 1 --seed 2", "--seeds and --seed exclude each other"),
        ("train --seeds one", "expected a whole number >= 0, got 'one'"),
        ("train --duration 1 -optimize", "-optimize goes without --duration"),
        ("train --output-dir ppo", "ppo is not empty"),
        ("train -params n_steps", "got 'n_steps': the colon is missing"),
        ("train -params policy:MlpPolicy", "'MlpPolicy' is no Python value (NameError)"),
        ("train -params n_step:3", "unknown key 'n_step', did you mean 'n_steps'?"),
        ("train --conf-file nothing.yml", "nothing.yml"),
        ("evaluate nowhere", "there is no nowhere; runs lie in the log folder"),
        ("evaluate nowhere.zip", "there is no nowhere.zip"),
        (
            "train --env Pendulum-v1 -params n_actors:2",
            "unknown key 'n_actors'; --algo hppo, which is PPO, and impala have actors",
        ),
        ("evaluate torn_config --n-episodes 1", "torn_config/CartPole-v1/config.yml cannot be read"),
        ("evaluate torn_statistics --n-episodes 1", "torn_statistics/CartPole-v1/vecnormalize.pkl cannot be read"),
        ("evaluate empty", "empty is empty: expected a folder that a training left"),
        ("evaluate no_run", "no_run is no run"),
        ("evaluate no_run/broken.zip --env CartPole-v1", "is no saved model that can be read"),
        ("evaluate ppo/seed_1 --n-episodes 0", "expected a whole number >= 1, got '0'"),
        ("evaluate ppo/seed_1 --env Pendulum-v1", "does not fit Pendulum-v1"),
        ("evaluate ppo/seed_1 --env Cart", "no environment is registered as 'Cart'"),
        ("evaluate ppo/seed_1 --env-kwargs x:1", "cannot be made with {'x': 1}"),
        ("evaluate ppo/seed_1 --load-best", "has no best_model.zip"),
        ("evaluate ppo/seed_1 --video nowhere/film.mp4", "there is no folder"),
        ("evaluate -f empty", "there is no run in empty"),
        ("compare ppo/seed_1", "cannot be compared: name at least two"),
        ("compare ppo/seed_1 nowhere", "there is no nowhere"),
        ("compare ppo/seed_1 empty", "empty is empty"),
        ("compare ppo/seed_1 other", "different environments, CartPole-v1 and Pendulum-v1"),
        ("compare ppo/seed_1 bare", "bare has neither metrics.jsonl nor monitor files"),
        ("compare ppo/seed_1 ppo/seed_2 --output no_run/broken.zip", "is a file; name a folder"),
    ],
)
def test_bad_input_writes_nothing(runs: Path, line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("empty", "no_run"):
        (runs / name).mkdir(exist_ok=True)
    (runs / "no_run/broken.zip").write_bytes(b"PK no zip")
    for name, env_id in (("other", "Pendulum-v1"), ("bare", "CartPole-v1")):
        (runs / name / env_id).mkdir(parents=True, exist_ok=True)
        (runs / name / env_id / "args.yml").write_text(f"algo: ppo\nenv: {env_id}\n")
    for name, file in (("torn_config", "config.yml"), ("torn_statistics", "vecnormalize.pkl")):
        shutil.copytree(runs / "logs/a2c/CartPole-v1_1", runs / name, dirs_exist_ok=True)
        (runs / name / "CartPole-v1" / file).write_text("{")
    before = sorted(runs.rglob("*"))
    try:
        code = main(line.split())
    except SystemExit as error:
        code = error.code  # type: ignore[assignment]
    err = capsys.readouterr().err
    assert code == 2, err
    assert message in err
    assert sorted(runs.rglob("*")) == before


# --- evaluate


def test_the_episodes_are_those_of_enjoy(trained: Path) -> None:
    # With statistics of VecNormalize, a model of ours, and drawn actions.
    options = ["-f", "logs", "--no-render", "-n", "300", "--seed", "7", "--stochastic", "--num-threads", "1"]
    process = run_zoo("enjoy", "--algo", "hppo", "--env", "Hopper-v5", *options, cwd=trained)
    rewards = [float(text) for text in re.findall(r"Episode Reward: ([-\d.]+)", process.stdout)]
    lengths = [int(text) for text in re.findall(r"Episode Length (\d+)", process.stdout)]
    assert len(rewards) > 5
    run = trained / "logs/hppo/Hopper-v5_1"
    for seed in ("7", "8"):
        assert main(["evaluate", str(run), "--n-episodes", str(len(rewards)), "--n-envs", "1", "--seed", seed]) == 0
        report = json.loads((run / "evaluation.json").read_text())
        episodes = report["evaluations"]["evaluation"]
        is_same = np.allclose(episodes["rewards"], rewards, atol=0.0051) and episodes["lengths"] == lengths
        assert is_same == (seed == "7")
    assert report["mean_reward"] == pytest.approx(np.mean(episodes["rewards"]))
    assert report["interval_low"] < report["mean_reward"] < report["interval_high"]
    assert report["std_length"] == pytest.approx(np.std(episodes["lengths"]))


def test_a_lone_zip_is_recognised(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(runs / "ppo/seed_1/CartPole-v1.zip", tmp_path / "model.zip")
    assert main(["evaluate", str(tmp_path / "model.zip"), "--n-episodes", "4"]) == 2
    assert "name it with --env" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path / "model.zip"), "--n-episodes", "4", "--env", "CartPole-v1", "--deterministic"]) == 0
    report = json.loads((tmp_path / "evaluation_model.json").read_text())
    assert (report["algorithm"], report["deterministic"], report["n_episodes"], report["n_envs"]) == ("ppo", True, 4, 4)


@pytest.mark.parametrize("name", ["a2c", "dqn", "sac", "td3", "tqc", "trpo", "qrdqn", "ppo_lstm", "crossq", "hppo"])
def test_algorithms_are_told_from_their_files(name: str, tmp_path: Path) -> None:
    from rl_zoo3.utils import ALGOS

    from sb3_hrl.experiments.evaluate import _recognise

    algorithm: Any = ALGOS[name]
    policy = "MlpLstmPolicy" if name == "ppo_lstm" else "MlpPolicy"
    env_id = "Pendulum-v1" if name in ("sac", "td3", "tqc", "crossq") else "CartPole-v1"
    algorithm(policy, env_id).save(tmp_path / "model.zip")
    assert _recognise(tmp_path / "model.zip") == name


def test_both_kinds_of_levels_are_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = [
        "-params",
        "n_steps:32",
        "batch_size:32",
        "n_epochs:1",
        "n_envs:1",
        "env_kwargs:{'g': 9.8}",
        "eval_env_kwargs:{'g': 1.6}",
    ]
    line = [
        "train",
        "--algo",
        "hppo",
        "--env",
        "Pendulum-v1",
        "--eval-freq",
        "-1",
        "-n",
        "32",
        "--seed",
        "1",
        "--output-dir",
        "run",
    ]
    assert main([*line, *options]) == 0
    assert main(["evaluate", "run", "--n-episodes", "2"]) == 0
    report = json.loads((tmp_path / "run/evaluation.json").read_text())
    assert {name: result["env_kwargs"] for name, result in report["evaluations"].items()} == {
        "unseen levels": {"g": 1.6},
        "training levels": {"g": 9.8},
    }
    unseen, train = (report["evaluations"][name]["rewards"] for name in ("unseen levels", "training levels"))
    assert unseen != train
    assert report["mean_reward"] == np.mean(unseen)
    assert main(["evaluate", "run", "--n-episodes", "2", "--env-kwargs", "g:9.8"]) == 0
    again = json.loads((tmp_path / "run/evaluation_g=9.8.json").read_text())["evaluations"]
    assert again["evaluation"]["rewards"] == train
    assert json.loads((tmp_path / "run/evaluation.json").read_text()) == report  # what `compare` takes


def test_a_checkpoint_is_evaluated_with_its_own_statistics(trained: Path) -> None:
    run = trained / "logs/hppo/Hopper-v5_1"
    counts = []
    for name in ("rl_model_128_steps.zip", "Hopper-v5.zip"):
        env = make_env(Subject(run / name, find_run(run), "hppo", "Hopper-v5"), 1, 0, {})
        normalize: Any = unwrap_vec_normalize(env)
        counts.append(normalize.obs_rms.count)
        assert read_normalization(run / name, normalize)
        assert normalize.obs_rms.count == counts[-1]
        env.close()
    assert counts[0] < counts[1]


@pytest.mark.usefixtures("opengl")
def test_video_and_film(trained: Path, tmp_path: Path) -> None:
    video, film = tmp_path / "film.mp4", tmp_path / "film.png"
    run = trained / "logs/hppo/Hopper-v5_1"
    assert main(["evaluate", str(run), "--n-episodes", "1", "--video", str(video), "--film", str(film)]) == 0
    frames = read_video(video)
    assert frames.std() > 10
    assert np.abs(frames[0].astype(int) - frames[-1].astype(int)).max() > 10  # it moves
    strip = imageio.imread(film)
    assert strip.shape[1] == 8 * frames.shape[2]
    assert strip.std() > 10
    # Alone, it is made of the same pictures, and takes only these.
    alone = tmp_path / "alone.png"
    assert main(["evaluate", str(run), "--n-episodes", "1", "--film", str(alone)]) == 0
    assert np.array_equal(imageio.imread(alone), strip)


# --- compare


@pytest.fixture(scope="module")
def comparison(runs: Path) -> tuple[Path, str]:
    """The folder of a comparison, and its report."""
    main(["evaluate", "ppo/seed_1", "--n-episodes", "5"])
    assert main(["compare", "ppo", "logs/a2c/CartPole-v1_1", "--output", "comparison"]) == 0
    return runs / "comparison", (runs / "comparison/comparison_report.txt").read_text()


def test_the_report(comparison: tuple[Path, str], runs: Path) -> None:
    folder, report = comparison
    assert sorted(file.name for file in folder.iterdir()) == [
        "comparison.html", "comparison.png", "comparison_report.txt", "learning_curves.png",
    ]  # fmt: skip
    finals = [json.loads((runs / f"ppo/seed_{seed}" / SUMMARY).read_text())["final_reward"] for seed in (1, 2)]
    summary = json.loads((runs / "logs/a2c/CartPole-v1_1" / SUMMARY).read_text())
    assert re.search(r"^Seeds +2 +1$", report, re.MULTILINE)
    (line,) = re.findall(r"^Final Reward +(\S+) \[(\S+), (\S+)\] +(\S+)", report, re.MULTILINE)
    assert [float(text) for text in line] == pytest.approx(
        [np.mean(finals), min(finals), max(finals), summary["final_reward"]], abs=0.01
    )
    assert re.search(rf"^Total Timesteps +512 +{summary['total_timesteps']:,} ", report, re.MULTILINE)
    for name in (
        "Speed-up (against ppo)",
        "Peak Memory (GB)",
        "Timesteps/Hour",
        "Efficiency Gain (against ppo)",
        "Evaluation Reward",
    ):
        assert name in report
    (conclusion,) = [line for line in report.splitlines() if line.startswith("Conclusion: ")]
    assert conclusion.endswith(".")
    assert "algo" in report.split("SETTINGS THAT DIFFER")[1]
    assert "\nseed " not in report.split("SETTINGS THAT DIFFER")[1].split("RUNS")[0]


def test_the_pictures_have_curves_in_colours_that_stay_apart(comparison: tuple[Path, str]) -> None:
    for name in ("comparison.png", "learning_curves.png"):
        picture = imageio.imread(comparison[0] / name)[..., :3].reshape(-1, 3).astype(int)
        for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
            assert (np.abs(picture - colour).max(axis=1) < 8).sum() > 100, (name, colour)


def test_damaged_runs_are_compared_as_far_as_they_go(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torn, bare = tmp_path / "torn", tmp_path / "bare"
    shutil.copytree(runs / "ppo/seed_1", torn)
    shutil.copytree(runs / "ppo/seed_2", bare)
    (torn / METRICS).write_bytes((torn / METRICS).read_bytes()[:-20])
    (torn / SUMMARY).write_text("{")
    for name in (METRICS, SUMMARY, "config.yaml"):  # what the plain zoo leaves of a stock algorithm
        (bare / name).unlink()
    assert main(["compare", str(torn), str(bare), "--output", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "1 line of metrics.jsonl cannot be read and is left out" in out
    assert "no training_summary.json that can be read" in out
    assert "its curve comes from the monitor files" in out
    assert (tmp_path / "out/comparison.html").is_file()


def test_a_run_and_its_copy_are_one_seed(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "ppo/seed_1", tmp_path / "copy")
    (tmp_path / "copy/evaluation.json").write_text(json.dumps({"env": "MountainCar-v0", "mean_reward": 1e6}))
    names = [tmp_path / "copy", runs / "ppo/seed_1", runs / "ppo/seed_2", runs / "logs/a2c/CartPole-v1_1"]
    assert main(["compare", *map(str, names), "--output", str(tmp_path / "out")]) == 0
    report = (tmp_path / "out/comparison_report.txt").read_text()
    assert re.search(r"^Seeds +2 +1$", report, re.MULTILINE)
    assert f"{names[0]}: {names[1]} has its setting and its seed, and not more steps: it is left out" in report
    assert "its evaluation.json is of MountainCar-v0, and is left out" in report
    assert "1000000" not in report


def test_iqm_and_interval_are_rliable_s() -> None:
    from rliable.metrics import aggregate_iqm

    scores = np.random.default_rng(0).normal(size=9)
    found = estimate(scores.tolist())
    assert found is not None
    assert found.value == pytest.approx(aggregate_iqm(scores[:, None]))
    assert found.value != pytest.approx(scores.mean())
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high
    assert estimate(scores.tolist()) == found  # the same figures tomorrow


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """A real one, without a screen."""
    binary, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if binary is None or driver is None:
        missing("Chromium with its driver", "install it (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = str(binary)
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--window-size=1200,1600",
        "--proxy-server=127.0.0.1:9",
    ):
        options.add_argument(argument)  # no network: whatever the page asked for would not come
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()


def test_the_page_in_a_browser(comparison: tuple[Path, str], browser: webdriver.Chrome) -> None:
    file = comparison[0] / "comparison.html"
    assert not re.search(r"(src|href)=|https?://(?!www\.w3\.org)", file.read_text())
    browser.get(file.as_uri())
    assert browser.get_log("browser") == []
    assert browser.find_element(By.ID, "conclusion").text.startswith("Conclusion: ")
    assert "Final Reward" in browser.find_element(By.ID, "table").text
    plots = browser.find_elements(By.CSS_SELECTOR, "figure")
    assert [plot.find_element(By.TAG_NAME, "figcaption").text for plot in plots] == [
        "Episode reward by steps", "Training speed", "Policy loss", "Steps against wall clock", "Episode reward by wall clock",
    ]  # fmt: skip
    plot = plots[0].find_element(By.CSS_SELECTOR, "svg")
    tip = plots[0].find_element(By.CSS_SELECTOR, ".tip")

    def labels() -> list[str]:
        lines = plots[0].find_elements(By.CSS_SELECTOR, "polyline")
        return [str(line.get_attribute("data-label")) for line in lines]

    def ticks() -> list[str]:
        return [text.text for text in plot.find_elements(By.TAG_NAME, "text")]

    assert labels() == ["ppo", "a2c"]
    assert not tip.is_displayed()
    ActionChains(browser).move_to_element(plot).perform()
    assert tip.is_displayed()
    assert re.search(r"environment steps: \S+\nppo: [\d.]+ \[.*\]\na2c: [\d.]+", tip.text)
    whole = ticks()
    ActionChains(browser).move_to_element_with_offset(plot, -80, 0).click_and_hold().move_by_offset(120, 0).release().perform()
    assert ticks() != whole  # zoomed
    ActionChains(browser).double_click(plot).perform()
    assert ticks() == whole
    browser.find_element(By.CSS_SELECTOR, "#legend button").click()
    assert labels() == ["a2c"]
    browser.find_element(By.CSS_SELECTOR, "#legend button").click()
    assert labels() == ["ppo", "a2c"]
    assert browser.get_log("browser") == []
