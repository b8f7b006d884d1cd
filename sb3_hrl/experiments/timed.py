"""Trainings that last for a time instead of a number of steps."""

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

    The model becomes one of a subclass that is made here: the two seams lie in its class, and attributes of the model itself
    would be saved with it.

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
    for name in ("__name__", "__qualname__", "__module__"):
        setattr(Timed, name, getattr(algorithm, name))
    model.__class__ = Timed
