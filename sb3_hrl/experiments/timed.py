"""Trainings that last for a time instead of a number of steps, and that count on where another ended."""

from collections.abc import Callable
from typing import Any

from sb3_contrib import ARS
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import RolloutReturn

# ``learn`` wants a number of steps: one that no training reaches.
ENDLESS = 2**62


def train_for(model: BaseAlgorithm, duration_seconds: float, clock: Callable[[], float]) -> None:
    """
    Let a model's training end with the first iteration that ends after a time, and its schedules follow that time.

    :param model: of any SB3 algorithm, not yet trained
    :param duration_seconds: how long
    :param clock: training time so far, in seconds
    """
    algorithm: Any = type(model)

    class Timed(algorithm):
        def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None:
            self._current_progress_remaining = max(0.0, 1.0 - clock() / duration_seconds)

        def collect_rollouts(self, *args: Any, **kwargs: Any) -> Any:
            if clock() < duration_seconds:
                return super().collect_rollouts(*args, **kwargs)
            # What a rollout returns when a callback ends the training.
            return RolloutReturn(0, 0, False) if isinstance(self, OffPolicyAlgorithm) else False

        def _do_one_update(self, *args: Any, **kwargs: Any) -> None:  # ARS, whose loop no callback ends
            if clock() >= duration_seconds:
                raise KeyboardInterrupt  # which the zoo takes for a training that is to be saved as it is
            super()._do_one_update(*args, **kwargs)

    if not issubclass(algorithm, ARS):
        del Timed._do_one_update
    _become(model, Timed)


def count_on(model: BaseAlgorithm) -> None:
    """
    Let a model that was loaded train up to a number of steps, those included that it has had.

    :param model: of any SB3 algorithm
    """
    algorithm: Any = type(model)

    class CountingOn(algorithm):
        def learn(self, total_timesteps: int, *args: Any, **kwargs: Any) -> Any:
            return super().learn(total_timesteps - self.num_timesteps, *args, **{**kwargs, "reset_num_timesteps": False})

    _become(model, CountingOn)


def _become(model: BaseAlgorithm, subclass: type) -> None:
    """
    Give a model a class that is made here: the seams lie in its class, and attributes of the model itself would be saved with
    it.
    """
    for name in ("__name__", "__qualname__", "__module__"):
        setattr(subclass, name, getattr(type(model), name))
    model.__class__ = subclass
