"""The lower level of HPPO: what turns wanted joint torques into muscle activations, and learns while the policy trains."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch as th
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.vec_env import VecEnv

from sb3_hrl.envs.task import Task
from sb3_hrl.muscle import (
    MuscleBuffer,
    MuscleInterface,
    MuscleLearner,
    MuscleMetrics,
    MuscleNetwork,
    Muscles,
    pretrain,
    random_tuples,
)
from sb3_hrl.muscle.muscles import LOW_LEVELS
from sb3_hrl.muscle.network import DEFAULT_HIDDEN
from sb3_hrl.muscle.settings import CASCADE_LIMIT
from sb3_hrl.registry import suggest
from sb3_hrl.schedules import read_schedule


@dataclass(frozen=True)
class MuscleConfig:
    """
    ``muscle_kwargs`` of HPPO.

    :param low_level: ``network`` learns; ``qp`` solves for the best activations at every substep, exact and slow; ``torque``
        applies the wanted torques themselves
    :param hidden: widths of the network's hidden layers
    :param torque_scale: what the network's inputs are divided by, Nm; by default the most that the muscles reach
    :param learning_rate: of the network; a number, or a function of the remaining progress
    :param n_epochs: how often each tuple of a rollout is used
    :param batch_size: of a minibatch
    :param max_grad_norm: limit of the gradient's norm, None for none
    :param max_grad_value: limit of each of its numbers, None for none
    :param effort_weight: of the squared activations in the loss
    :param pre_activation_weight: of the squared pre-activations in the loss
    :param loss_scale: what torques are divided by in the loss, Nm; by default a quarter of the scale of the inputs
    :param reservoir_size: how many tuples of earlier rollouts are kept to learn from
    :param n_pretrain: tuples from random poses that the network learns from before the policy begins; zero for none
    :param pretrain_epochs: how often each of them is used
    :param pretrain_learning_rate: at the beginning; it falls to zero
    :param is_frozen: let the network stay as it was before the policy began
    :param base: a saved model of HPPO whose muscle networks stay as they are, under a new level (a cascade)
    """

    low_level: str = "network"
    hidden: tuple[int, ...] = DEFAULT_HIDDEN
    torque_scale: float | None = None
    learning_rate: Any = 3e-4
    n_epochs: int = 4
    batch_size: int = 256
    max_grad_norm: float | None = 0.5
    max_grad_value: float | None = None
    effort_weight: float = 0.05
    pre_activation_weight: float = 0.01
    loss_scale: float | None = None
    reservoir_size: int = 10_000
    n_pretrain: int = 20_000
    pretrain_epochs: int = 20
    pretrain_learning_rate: float = 5e-3
    is_frozen: bool = False
    base: str | None = None

    @classmethod
    def from_kwargs(cls, muscle_kwargs: Mapping[str, Any] | None) -> "MuscleConfig":
        """
        :param muscle_kwargs: as a user writes them
        :return: the same, checked
        :raises ValueError: that names the key, what was expected and what came
        """
        known = {item.name for item in fields(cls)}
        if muscle_kwargs is not None and not isinstance(muscle_kwargs, Mapping):
            raise ValueError(f"muscle_kwargs: expected a mapping, got {muscle_kwargs!r}")
        given = dict(muscle_kwargs or {})
        for key, value in given.items():
            if key not in known:
                raise ValueError(f"muscle_kwargs: there is no {key!r}{suggest(str(key), known)}")
            is_right, expected = _CHECKS[key]
            if not is_right(value):
                hint = suggest(str(value), LOW_LEVELS) if key == "low_level" else ""
                raise ValueError(f"muscle_kwargs: {key}: expected {expected}, got {value!r}{hint}")
        if "hidden" in given:
            given["hidden"] = tuple(given["hidden"])
        config = cls(**given)
        if config.base is not None and config.torque_scale is not None:
            raise ValueError("muscle_kwargs: torque_scale: a cascade has that of its base; leave one of them out")
        return config

    def check_base(self) -> None:
        """
        :raises ValueError: if there is no such file; a model that is loaded no longer needs it
        """
        if self.base is not None and not (Path(self.base).is_file() or Path(f"{self.base}.zip").is_file()):
            raise ValueError(f"muscle_kwargs: base: there is no file {self.base!r}")


def is_number(value: Any, low: float = -np.inf) -> bool:
    """
    :param value: anything
    :param low: what it must be above
    :return: whether it is a finite number
    """
    is_real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_real and bool(low < value < np.inf)


def _is_whole(value: Any, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def _is_rate(value: Any) -> bool:
    try:
        return callable(value) or is_number(float(value.removeprefix("lin_")) if isinstance(value, str) else value, 0)
    except ValueError:
        return False


_POSITIVE = lambda value: is_number(value, 0), "a number > 0"
_POSITIVE_OR_NONE = lambda value: value is None or is_number(value, 0), "a number > 0, or null"
_NOT_NEGATIVE = lambda value: is_number(value) and value >= 0, "a number >= 0"
_FROM_ONE = lambda value: _is_whole(value, 1), "a whole number >= 1"
_FROM_ZERO = lambda value: _is_whole(value, 0), "a whole number >= 0"
# For each key whether a value is right, and what is.
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "low_level": (lambda value: value in LOW_LEVELS, ", ".join(LOW_LEVELS)),
    "hidden": (
        lambda value: isinstance(value, list | tuple) and all(_is_whole(width, 1) for width in value),
        "a list of whole numbers >= 1",
    ),
    "torque_scale": _POSITIVE_OR_NONE,
    "learning_rate": (_is_rate, "a number > 0, or lin_<number>"),
    "n_epochs": _FROM_ONE,
    "batch_size": _FROM_ONE,
    "max_grad_norm": _POSITIVE_OR_NONE,
    "max_grad_value": _POSITIVE_OR_NONE,
    "effort_weight": _NOT_NEGATIVE,
    "pre_activation_weight": _NOT_NEGATIVE,
    "loss_scale": _POSITIVE_OR_NONE,
    "reservoir_size": _FROM_ZERO,
    "n_pretrain": _FROM_ZERO,
    "pretrain_epochs": _FROM_ONE,
    "pretrain_learning_rate": _POSITIVE,
    "is_frozen": (lambda value: isinstance(value, bool), "true or false"),
    "base": (lambda value: value is None or isinstance(value, str), "the file of a saved model, or null"),
}


def find_task(env: VecEnv) -> Task | None:
    """
    :param env: environments
    :return: their task, if a model's muscles drive them
    """
    task = env.get_attr("muscle_task", indices=[0])[0] if env.has_attr("muscle_task") else None
    is_driven = isinstance(task, Task) and task.muscles is not None and task.muscles.actuation == "muscle_hrl"
    return task if is_driven else None


def read_body(task: Task) -> dict[str, Any]:
    """
    :param task: one with muscles
    :return: what a saved model has to know of its body: names and sizes, in types that JSON has
    """
    assert task.muscles is not None
    interface = _interface(task)
    return {
        "joints": list(interface.joint_names),
        "muscles": list(interface.muscle_names),
        "pattern": interface.pattern.tolist(),
        "torque_reach": interface.torque_reach.tolist(),
        "digest": interface.body,
        "has_cascade": task.muscles.has_cascade,
    }


def _interface(task: Task) -> MuscleInterface:
    assert task.muscles is not None
    model = mujoco.MjModel.from_binary_path("model.mjb", {"model.mjb": task.spec.model})
    return MuscleInterface(model, task.muscles.joints)


class MuscleLevel:
    """
    The muscles of a model: network, learner, and the buffer that rollouts fill.

    :param config: what the user chose
    :param body: see ``read_body``; with ``levels``, the widths of a saved model's networks
    :param n_steps: decisions of a rollout
    :param n_envs: environments
    :param seed: of initial weights and minibatches
    :param device: where the network learns
    """

    def __init__(
        self, config: MuscleConfig, body: Mapping[str, Any], n_steps: int, n_envs: int, seed: int, device: th.device
    ) -> None:
        self.config = config
        self.has_cascade = bool(body["has_cascade"])
        self._seed = seed
        pattern, reach = np.array(body["pattern"]), np.array(body["torque_reach"])
        n_packed, n_coords, n_muscles = len(pattern), len(reach), len(body["muscles"])
        scale = np.broadcast_to(reach if config.torque_scale is None else config.torque_scale, n_coords)
        self._qp_scale = 0.5 * float(scale.mean())
        self.buffer = MuscleBuffer(n_steps, n_envs, n_packed, n_coords)
        self.learner: MuscleLearner | None = None
        self._muscles: Muscles | None = None
        self._body = str(body["digest"])
        self.is_pretrained = False
        if config.low_level != "network":
            if self.has_cascade:
                raise ValueError(f"the low level {config.low_level} has no levels: set env_kwargs has_cascade: false")
            return
        widths = body.get("levels")
        if config.base is not None and not widths:
            network = _load_base(config.base, (n_packed, n_coords, n_muscles))
            network.add_level(config.hidden, seed)
        else:
            widths = widths or [list(config.hidden)]
            packed_scale = scale[pattern // n_muscles]
            network = MuscleNetwork(n_packed, n_coords, n_muscles, widths[0], packed_scale, scale, seed)
            for width in widths[1:]:
                network.add_level(width, seed)
        if (len(network.levels) > 1) != self.has_cascade:
            raise ValueError(
                f"a network of {len(network.levels)} level(s) {'needs' if len(network.levels) > 1 else 'has no use for'} an "
                f"action for the weight of the last one: set env_kwargs has_cascade: {str(not self.has_cascade).lower()}"
            )
        self.learner = MuscleLearner(
            network,
            pattern,
            learning_rate=read_schedule(config.learning_rate),
            n_epochs=config.n_epochs,
            batch_size=config.batch_size,
            max_grad_norm=config.max_grad_norm,
            max_grad_value=config.max_grad_value,
            effort_weight=config.effort_weight,
            pre_activation_weight=config.pre_activation_weight,
            loss_scale=config.loss_scale,
            reservoir_size=config.reservoir_size,
            seed=seed,
            device=device,
        )

    @property
    def widths(self) -> list[list[int]]:
        """The widths of the hidden layers of each level; empty without a network."""
        levels: Any = self.learner.network.levels if self.learner else ()
        return [[layer.out_features for layer in level if isinstance(layer, th.nn.Linear)][:-1] for level in levels]

    @property
    def muscles(self) -> Muscles:
        """What the environments get: a copy of the network as it is now."""
        if self._muscles is None:
            if self.learner is not None:
                self._muscles = replace(self.learner.network.to_muscles(), body=self._body)
            else:
                self._muscles = Muscles(self.config.low_level, qp_torque_scale=self._qp_scale, body=self._body)
        return self._muscles

    def cascade_weights(self, actions: np.ndarray) -> np.ndarray | float:
        """
        :param actions: ``[..., n_actions]``
        :return: the weight of a cascade's last level ``[...]``; one without a cascade
        """
        if not self.has_cascade:
            return 1.0
        return 1.0 / (1.0 + np.exp(-np.clip(actions[..., -1], -CASCADE_LIMIT, CASCADE_LIMIT)))

    def pretrain(self, task: Task, progress_bar: bool) -> None:
        """
        Learn from random poses, once.

        :param task: the body
        :param progress_bar: whether to show how far it is
        """
        if self.learner is None or not self.config.n_pretrain or self.is_pretrained:
            return
        assert task.muscles is not None
        self.is_pretrained = True
        tuples = random_tuples(_interface(task), task.muscles, self.config.n_pretrain, self._seed, progress_bar=progress_bar)
        rate = self.config.pretrain_learning_rate
        pretrain(self.learner, tuples, self.config.pretrain_epochs, rate, progress_bar=progress_bar)
        self._muscles = None

    def update(self, progress_remaining: float) -> MuscleMetrics | None:
        """
        Learn from the rollout in the buffer.

        :param progress_remaining: from 1 at the beginning of the training to 0 at its end
        :return: how the network did; None without one, or if nothing in the buffer is finite
        """
        tuples = self.buffer.tuples()
        if self.learner is None or not len(tuples):
            return None
        if self.config.is_frozen:
            return self.learner.evaluate(tuples)
        metrics = self.learner.update(self.buffer, progress_remaining)
        self._muscles = None
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """
        :return: of the learner; empty without one
        """
        return {} if self.learner is None else {**self.learner.state_dict(), "is_pretrained": self.is_pretrained}

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """
        :param state: of a level of the same sizes
        :param strict: as SB3 asks for; it always is
        """
        if self.learner is not None and state:  # else the model was saved without a network, and gets a new one
            self.learner.load_state_dict(state)
            self.is_pretrained = bool(state["is_pretrained"])
            self._muscles = None


def _load_base(path: str, sizes: tuple[int, int, int]) -> MuscleNetwork:
    """The muscle network of a saved model."""
    _, params, _ = load_from_zip_file(path, device="cpu", load_data=False)
    state: Any = params.get("muscle_level", {})
    if "network" not in state:
        raise ValueError(f"muscle_kwargs: base: {path} is no model of HPPO with a muscle network")
    network = MuscleNetwork.from_state_dict(state["network"])
    found = network.n_packed, network.n_coords, network.n_muscles
    if found != sizes:
        names = "packed torques, coordinates and muscles"
        raise ValueError(f"muscle_kwargs: base: the muscles of {path} have {found} {names}, expected {sizes}")
    return network
