"""Action hold: one decision lasts several steps of the environment."""

import math
from dataclasses import dataclass
from typing import Any, SupportsFloat

import gymnasium as gym
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.monitor import Monitor

from sb3_hrl.carried import MUSCLE_SAMPLE, unpack


@dataclass(frozen=True)
class HoldSchedule:
    """
    How long an action is held, in simulated seconds, by the number of decisions that have been taken.

    :param start_seconds: the hold of the first decision
    :param end_seconds: the hold after ``anneal_decisions`` decisions; in between it changes linearly
    :param anneal_decisions: how many decisions the change takes
    """

    start_seconds: float
    end_seconds: float
    anneal_decisions: int

    @classmethod
    def from_arguments(
        cls,
        hold_seconds: float = 0.0,
        start_seconds: float | None = None,
        end_seconds: float | None = None,
        anneal_decisions: int | None = None,
        anneal: bool = True,
    ) -> "HoldSchedule":
        """The schedule that the arguments of ``ActionHold`` describe; they are checked here."""
        annealing = {"start_seconds": start_seconds, "end_seconds": end_seconds, "anneal_decisions": anneal_decisions}
        given = [name for name, value in annealing.items() if value is not None]
        if given and (len(given) < len(annealing) or hold_seconds):
            raise ValueError(
                "ActionHold: give either hold_seconds, or start_seconds, end_seconds and anneal_decisions together; "
                f"got {', '.join(['hold_seconds', *given] if hold_seconds else given)}"
            )
        for name, seconds in {
            "hold_seconds": hold_seconds,
            "start_seconds": start_seconds,
            "end_seconds": end_seconds,
        }.items():
            if seconds is not None:
                _check(name, seconds, math.isfinite(seconds) and seconds >= 0, "seconds >= 0")
        if start_seconds is None or end_seconds is None or anneal_decisions is None:
            return cls(hold_seconds, hold_seconds, 1)
        is_whole = math.isfinite(anneal_decisions) and anneal_decisions == int(anneal_decisions)
        _check("anneal_decisions", anneal_decisions, is_whole and anneal_decisions >= 1, "a whole number >= 1")
        return cls(start_seconds, end_seconds if anneal else start_seconds, int(anneal_decisions))

    @property
    def is_identity(self) -> bool:
        """Whether every decision lasts one step, whatever a step's length."""
        return self.start_seconds == self.end_seconds == 0

    def n_hold(self, decisions: int, dt: float) -> int:
        """
        :param decisions: how many decisions have been taken
        :param dt: simulated seconds of a step
        :return: for how many steps the next action is to be held
        """
        progress = min(decisions / self.anneal_decisions, 1.0)
        seconds = self.start_seconds + progress * (self.end_seconds - self.start_seconds)
        return max(1, round(seconds / dt))

    def adapt_metadata(self, metadata: dict[str, Any], dt: float) -> dict[str, Any]:
        """
        One frame a decision: at this rate a video runs at the speed of the simulation.

        :param metadata: the environment's
        :param dt: simulated seconds of a step
        :return: the same with the frame rate of the schedule's end
        """
        if self.is_identity:
            return metadata
        return {**metadata, "render_fps": max(1, round(1 / (dt * self.n_hold(self.anneal_decisions, dt))))}


class ActionHold(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """
    Hold each action for some simulated time; one ``step`` is then one decision of a semi-Markov process.

    The hold is fixed (``hold_seconds``), or annealed linearly from ``start_seconds`` to ``end_seconds`` over
    ``anneal_decisions`` decisions of this environment. It is rounded to whole steps, lasts one step at least (``0`` is the
    identity) and stops at the end of the episode. The reward of a decision is ``sum(gamma**i * reward_i)`` over its steps;
    ``info["n_held"]`` tells how many there were, so that ``gamma**n_held`` discounts what follows.

    ``gamma`` belongs to the model: ``HPPO`` hands its own over while it trains. Otherwise it is 1, and the sum of rewards is
    the task's own. A ``Monitor`` inside the hold (one is added if there is none) keeps the episode's reward and length in the
    task's units; ``info["hold_episode"]`` has them even if another ``Monitor`` lies outside.

    An action from ``HPPO.predict`` carries the number of decisions that training has reached: it is held for that long,
    and does not count as a decision.

    :param env: the environment
    :param hold_seconds: the fixed hold, in simulated seconds
    :param start_seconds: the hold of the first decision, if it is annealed
    :param end_seconds: the hold after ``anneal_decisions`` decisions
    :param anneal_decisions: how many decisions the change takes
    :param anneal: ``False`` keeps the hold at ``start_seconds``
    :param dt: simulated seconds of one step; by default the environment's own ``dt``
    """

    def __init__(
        self,
        env: gym.Env,
        hold_seconds: float = 0.0,
        start_seconds: float | None = None,
        end_seconds: float | None = None,
        anneal_decisions: int | None = None,
        anneal: bool = True,
        dt: float | None = None,
    ) -> None:
        arguments: dict[str, Any] = {
            "hold_seconds": hold_seconds,
            "start_seconds": start_seconds,
            "end_seconds": end_seconds,
            "anneal_decisions": anneal_decisions,
            "anneal": anneal,
        }
        gym.utils.RecordConstructorArgs.__init__(self, **arguments, dt=dt)
        self.schedule = self.check_arguments(dt, **arguments)
        if is_wrapped(env, ActionHold):
            raise ValueError("ActionHold: the environment has one already")
        super().__init__(env if is_wrapped(env, Monitor) else Monitor(env))
        self.step_seconds = 1.0 if self.schedule.is_identity else self._find_dt(dt)
        self.gamma = 1.0
        self.hold_decisions = 0
        self.metadata = self.schedule.adapt_metadata(self.env.metadata, self.step_seconds)

    @staticmethod
    def check_arguments(dt: float | None = None, **arguments: Any) -> HoldSchedule:
        """
        Check the constructor's arguments without an environment; a YAML file is checked so before one exists.

        :param dt: the constructor's
        :param arguments: its other arguments
        :return: the schedule that they describe
        :raises ValueError: that names the argument, what was expected and what came
        """
        if dt is not None:
            _check("dt", dt, math.isfinite(dt) and dt > 0, "seconds > 0")
        return HoldSchedule.from_arguments(**arguments)

    def _find_dt(self, dt: float | None) -> float:
        if dt is not None:
            return dt
        try:
            return float(self.env.get_wrapper_attr("dt"))
        except AttributeError:
            name = self.env.spec.id if self.env.spec else type(self.env.unwrapped).__name__
            raise ValueError(
                f"ActionHold: {name} has no `dt`, so the length of its step is not known: pass dt=<simulated seconds>"
            ) from None

    def n_hold(self, decisions: int) -> int:
        """
        :param decisions: how many decisions have been taken
        :return: for how many steps the next action is to be held
        """
        return self.schedule.n_hold(decisions, self.step_seconds)

    def configure_hold(self, gamma: float, decisions: int) -> None:
        """
        Take over the model's discount and position in the annealing (it also restores the counter ``hold_decisions``).

        :param gamma: discount of one step, for the rewards inside a hold
        :param decisions: how many decisions have been taken
        """
        self.gamma = gamma
        self.hold_decisions = decisions

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        plain, carried = unpack(action)
        if carried is None or carried.muscles is None:
            action = plain  # nobody inside wants the record
        if carried is None or carried.hold_decisions is None:
            n_hold = self.n_hold(self.hold_decisions)
            self.hold_decisions += 1
        else:
            n_hold = self.n_hold(carried.hold_decisions)
        reward = 0.0
        sample: dict[str, Any] = {}
        for n_held in range(1, n_hold + 1):
            obs, step_reward, terminated, truncated, info = self.env.step(action)
            if n_held == 1 and MUSCLE_SAMPLE in info:
                sample = {MUSCLE_SAMPLE: info[MUSCLE_SAMPLE]}
            reward += self.gamma ** (n_held - 1) * float(step_reward)
            if terminated or truncated:
                break
        info["n_held"] = n_held
        info |= sample
        if "episode" in info:
            # A Monitor outside the hold would put its own there, of decisions.
            info["hold_episode"] = info["episode"]
        return obs, reward, terminated, truncated, info


def _check(name: str, value: Any, is_right: bool, expected: str) -> None:
    if not is_right:
        raise ValueError(f"ActionHold: {name}: expected {expected}, got {value!r}")
