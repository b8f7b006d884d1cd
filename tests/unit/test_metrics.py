"""What a run writes down about itself."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import load_results

from sb3_hrl.experiments.machine import memory_bytes
from sb3_hrl.experiments.metrics import METRICS, SUMMARY, MetricsWriter, RunRecorder, final_fps, read_metrics, write_config

SETTINGS = {"env": "CartPole-v1", "seed": 0}


def _train(folder: Path, model: BaseAlgorithm, n_timesteps: int, **kwargs: Any) -> dict[str, Any]:
    recorder = RunRecorder(folder, SETTINGS)
    model.learn(n_timesteps, callback=recorder, **kwargs)
    recorder.finish(has_failed=False)
    summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text())
    return summary


def test_the_summary_says_what_the_monitor_files_say(tmp_path: Path) -> None:
    env = make_vec_env("CartPole-v1", 4, seed=1, monitor_dir=str(tmp_path))
    summary = _train(tmp_path, PPO("MlpPolicy", env, n_steps=128, batch_size=128, n_epochs=1, seed=0), 6000)
    env.close()
    episodes = load_results(str(tmp_path)).sort_values("t")  # an oracle that the recorder does not read
    rewards = episodes["r"].tolist()
    assert len(rewards) > 200
    assert summary["num_episodes"] == len(rewards)
    assert summary["best_reward"] == max(rewards)
    assert summary["initial_reward"] == pytest.approx(np.mean(rewards[:100]))
    assert summary["final_reward"] == pytest.approx(np.mean(rewards[-100:]))
    assert summary["initial_reward"] != pytest.approx(np.mean(rewards), rel=0.05)  # the whole training is something else
    assert (summary["algorithm"], summary["mode"], summary["status"]) == ("PPO", "sequential", "finished")
    assert (summary["total_timesteps"], summary["total_updates"], summary["num_envs"]) == (6144, 12, 4)
    assert summary["avg_fps"] == pytest.approx(6144 / (3600 * summary["duration_hours"]))
    assert summary["peak_memory_gb"] > 0.1
    metrics, n_broken = read_metrics(tmp_path / METRICS)
    assert n_broken == 0
    assert [metric.step for metric in metrics] == list(range(512, 6145, 512))
    assert metrics[-1].values["time/total_timesteps"] == 6144
    assert 0 < metrics[0].seconds < metrics[-1].seconds <= 3600 * summary["duration_hours"]


@pytest.mark.parametrize(
    ("algorithm", "env_id", "kwargs", "n_updates"),
    [(A2C, "CartPole-v1", {"n_steps": 20}, 10), (SAC, "Pendulum-v1", {"learning_starts": 10, "train_freq": 20}, 10)],
)
def test_any_algorithm(
    tmp_path: Path, algorithm: type[BaseAlgorithm], env_id: str, kwargs: dict[str, Any], n_updates: int
) -> None:
    model = algorithm("MlpPolicy", env_id, seed=0, **kwargs)
    summary = _train(tmp_path, model, 200, log_interval=1)
    assert (summary["total_timesteps"], summary["total_updates"]) == (200, n_updates)
    assert summary["num_episodes"] >= 1
    assert read_metrics(tmp_path / METRICS)[0]


def test_a_summary_is_there_before_the_first_metrics(tmp_path: Path) -> None:
    class Look(BaseCallback):
        def _on_training_start(self) -> None:
            seen.append((json.loads((tmp_path / SUMMARY).read_text()), (tmp_path / METRICS).read_text()))

        def _on_step(self) -> bool:
            return True

    seen: list[tuple[dict[str, Any], str]] = []
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, n_epochs=1, seed=0)
    model.learn(64, callback=[recorder := RunRecorder(tmp_path, SETTINGS), Look()])
    recorder.finish(has_failed=False)
    ((summary, metrics),) = seen
    assert (summary["status"], summary["total_timesteps"], metrics) == ("running", 0, "")


def test_a_training_that_goes_on_counts_on(tmp_path: Path) -> None:
    first = _train(tmp_path, PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, n_epochs=1, seed=0), 128)
    # What a checkpoint keeps: the model's attributes, through SB3's own zip.
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, n_epochs=1, seed=0)
    model.learn(64, callback=(recorder := RunRecorder(tmp_path, SETTINGS)))
    recorder.finish(has_failed=False)
    model.save(tmp_path / "checkpoint")
    assert recorder.summary("running")["total_timesteps"] < first["total_timesteps"]
    with (tmp_path / METRICS).open("a") as file:  # logged after the checkpoint, then killed in the middle of a line
        file.write('{"step": 128, "seconds": 5.0}\n{"step": 192, "sec')

    resumed = PPO.load(tmp_path / "checkpoint", env=make_vec_env("CartPole-v1"))
    assert resumed.training_seconds > 0  # type: ignore[attr-defined]
    before = resumed.training_record  # type: ignore[attr-defined]
    summary = _train(tmp_path, resumed, 64, reset_num_timesteps=False)
    assert [metric.step for metric in read_metrics(tmp_path / METRICS)[0]] == [64, 128]
    assert (summary["total_timesteps"], summary["total_updates"]) == (128, 2)
    assert summary["num_episodes"] > before["n_episodes"] > 0
    assert 3600 * summary["duration_hours"] > resumed.training_seconds - 1e-6 > 0  # type: ignore[attr-defined]
    # A training that begins anew counts anew, whatever the model remembers.
    again = _train(tmp_path, resumed, 64)
    assert (again["total_timesteps"], again["total_updates"]) == (64, 1)


def test_a_broken_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / METRICS
    file.write_bytes(b'{"step": 1, "seconds": 0.5, "a": 2}\n\xff\xfe\n[1]\n{"step": 3}\n{"step": 4, "seconds": 1.0}\n{"step"')
    metrics, n_broken = read_metrics(file)
    assert [(metric.step, metric.seconds) for metric in metrics] == [(1, 0.5), (4, 1.0)]
    assert n_broken == 4
    assert read_metrics(tmp_path / "nothing.jsonl") == ([], 0)


def test_lines_are_whole_and_plain_json(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path / METRICS, 0, lambda: 1.5, lambda: None)
    values = {"a": np.float32(2), "b": float("nan"), "c": "text", "d": np.int64(3), "e": 1}
    writer.write(values, {**dict.fromkeys(values, ("",)), "e": ("json",)}, step=7)
    line = (tmp_path / METRICS).read_text()  # before anything is closed
    assert json.loads(line) == {"step": 7, "seconds": 1.5, "a": 2.0, "b": None, "c": "text", "d": 3}
    writer.close()


def test_memory_counts_the_children() -> None:
    before = memory_bytes()
    code = "import sys; block = b'x' * 200_000_000; print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        during = memory_bytes()
    assert during - before > 150e6
    assert memory_bytes() - before < 100e6


def test_final_fps() -> None:
    marks = [(100, 1.0), (200, 2.0), (900, 9.0), (1100, 10.0)]
    assert final_fps(marks) == pytest.approx(200)  # the average is 110
    assert final_fps([(1100, 10.0)]) == pytest.approx(110)
    assert final_fps([]) is None


def test_the_config_is_plain_yaml(tmp_path: Path) -> None:
    write_config(tmp_path, {"algo": "ppo", "hyperparams": {"policy_kwargs": {"activation_fn": Path, "net_arch": (64, 64)}}})
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert config["hyperparams"]["policy_kwargs"] == {"activation_fn": str(Path), "net_arch": [64, 64]}
