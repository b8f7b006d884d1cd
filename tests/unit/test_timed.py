"""A timed training ends with the first iteration that ends after its time, and its schedules follow the time."""

from pathlib import Path
from typing import Any

import pytest
from sb3_contrib import ARS
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback

from sb3_hrl.experiments.timed import ENDLESS, train_for
from sb3_hrl.hppo import HPPO

SMALL = {"n_steps": 32, "batch_size": 32, "n_epochs": 1}


class Clock(BaseCallback):
    """A second for each iteration's rollout; what it sees is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.rates: list[float] = []
        self.has_ended = False

    def _on_rollout_end(self) -> None:
        self.seconds += 1.0

    def _on_rollout_start(self) -> None:
        self.rates.append(self.logger.name_to_value["train/learning_rate"])

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.has_ended = True


@pytest.mark.parametrize("algorithm", [PPO, HPPO])
def test_it_ends_with_an_iteration(algorithm: type[PPO], tmp_path: Path) -> None:
    clock = Clock()
    model = algorithm("MlpPolicy", "CartPole-v1", learning_rate=lambda left: 0.001 * left, seed=0, **SMALL)  # type: ignore[arg-type]
    train_for(model, 3.5, lambda: clock.seconds)
    model.learn(ENDLESS, callback=clock)
    # Four rollouts are collected and learned from: the fourth one begins at 3 s and ends at 4 s.
    assert model.num_timesteps == 4 * 32
    assert model._n_updates == 4
    assert clock.has_ended
    # By steps the rate would not have moved.
    assert clock.rates[1:] == pytest.approx([0.001 * (1 - seconds / 3.5) for seconds in (1, 2, 3)])
    assert model.lr_schedule(model._current_progress_remaining) == 0.0  # not below

    model.save(tmp_path / "model")
    custom_objects = {"learning_rate": 0.0, "lr_schedule": lambda _: 0.0}  # a lambda would need trust
    loaded = algorithm.load(tmp_path / "model", custom_objects=custom_objects)
    assert type(loaded) is algorithm
    assert loaded.num_timesteps == 4 * 32


@pytest.mark.parametrize(
    ("algorithm", "kwargs", "n_timesteps"),
    [(SAC, {"train_freq": 16, "learning_starts": 4}, 4 * 16), (ARS, {"n_delta": 1}, None)],
)
def test_other_loops(algorithm: type[BaseAlgorithm], kwargs: dict[str, Any], n_timesteps: int | None) -> None:
    clock = Clock()
    policy = "LinearPolicy" if algorithm is ARS else "MlpPolicy"
    model = algorithm(policy, "Pendulum-v1", seed=0, **kwargs)
    train_for(model, 3.5, lambda: clock.seconds)
    try:
        model.learn(ENDLESS, callback=clock)
    except KeyboardInterrupt:
        assert algorithm is ARS  # the zoo takes it for the end of the training
    assert clock.seconds == 4.0
    assert n_timesteps in (None, model.num_timesteps)
