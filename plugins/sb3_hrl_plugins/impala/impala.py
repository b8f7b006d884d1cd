"""IMPALA (Espeholt et al. 2018), built on the seams of SB3's on-policy algorithms."""

import math
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, PyTorchObs, Schedule
from stable_baselines3.common.utils import FloatSchedule, explained_variance, obs_as_tensor
from torch.nn import functional as F

from sb3_hrl.actors import check_actors, make_actor_env
from sb3_hrl.actors.algorithm import ActorAlgorithm
from sb3_hrl.hppo import HPPO
from sb3_hrl.rollout.time_aware import TimeAwareRolloutBuffer
from sb3_hrl.schedules import read_schedule
from sb3_hrl_plugins.impala.vtrace import vtrace


class Unrolls(NamedTuple):
    """
    Whole trajectories of some environments; those of a minibatch.

    :param obs: of all steps, and after the last one, one row each [(T + 1) * B, ...]
    :param actions: one row each [T * B, ...]
    :param log_probs: of the policy that acted [T, B]
    :param rewards: with the bootstraps of truncated episodes [T, B]
    :param discounts: ``gamma ** n_held``, 0 where an episode ended [T, B]
    """

    obs: PyTorchObs
    actions: th.Tensor
    log_probs: th.Tensor
    rewards: th.Tensor
    discounts: th.Tensor


class IMPALA(ActorAlgorithm):
    """
    Importance Weighted Actor-Learner Architecture: an actor-critic whose targets, V-trace, allow for a policy that acts and is
    not quite the one that learns.

    Losses are means over the minibatch, as everywhere in SB3, where the paper sums: see docs/impala.md for its numbers on this
    scale. Decisions may last several steps of the environment (``ActionHold``), and whole rollouts run in the native workers
    over a ``NativeVecEnv``, as with HPPO. Parameters that are not described here are those of ``stable_baselines3.A2C``.

    :param n_steps: length of an unroll: steps of each environment between two updates
    :param batch_size: largest number of transitions of a gradient step: the rollout is split into so many groups of
        environments, each with its whole unrolls, of nearly equal size. None for one step with all of them
    :param n_epochs: how often each transition is used; more than once is the learner's own off-policyness, which V-trace
        corrects too
    :param gae_lambda: decay of V-trace's traces (remark 2 of the paper); with ratios of one it is GAE's
    :param rho_bar: bound of the importance weights of the temporal differences
    :param c_bar: bound of the importance weights of the traces
    :param rho_bar_pg: bound of the importance weights of the policy gradient
    :param ent_coef: weight of the entropy; a number, a schedule, or ``lin_0.01``, which falls linearly to zero
    :param use_rms_prop: RMSprop instead of Adam (which is fused: one pass over the parameters)
    :param rms_prop_eps: of RMSprop
    :param rollout: ``auto``, ``native`` or ``lockstep``: as for HPPO
    :param freeze_normalization: as for HPPO
    :param shard_size: as for HPPO
    :param n_actors: number of processes that collect while this one learns, with ``n_envs / n_actors`` environments each; None
        for none: then rollouts and updates take turns
    :param actor_timeout: as for HPPO
    :param max_restarts: as for HPPO
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = HPPO.policy_aliases

    n_slots = 2

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-3,
        n_steps: int = 32,
        batch_size: int | None = None,
        n_epochs: int = 1,
        gamma: float = 0.99,
        gae_lambda: float = 1.0,
        rho_bar: float = 1.0,
        c_bar: float = 1.0,
        rho_bar_pg: float = 1.0,
        normalize_advantage: bool = False,
        ent_coef: float | Schedule = 0.01,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        use_rms_prop: bool = False,
        rms_prop_eps: float = 1e-5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        _init_setup_model: bool = True,
        rollout: str = "auto",
        freeze_normalization: bool = False,
        shard_size: int | None = None,
        n_actors: int | None = None,
        actor_timeout: float = 30.0,
        max_restarts: int = 100,
    ) -> None:
        check_actors(n_actors, actor_timeout, max_restarts)
        self.n_actors, self.actor_timeout, self.max_restarts = n_actors, actor_timeout, max_restarts
        super().__init__(
            policy,
            make_actor_env(env, n_actors, seed),
            learning_rate=learning_rate,
            n_steps=n_steps,
            gamma=gamma,
            gae_lambda=gae_lambda,
            ent_coef=ent_coef,  # type: ignore[arg-type]  # SB3 only stores it
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,
            use_sde=use_sde,
            sde_sample_freq=sde_sample_freq,
            rollout_buffer_class=rollout_buffer_class,
            rollout_buffer_kwargs=rollout_buffer_kwargs,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=False,
            supported_action_spaces=(spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary),
        )
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.rho_bar, self.c_bar, self.rho_bar_pg = rho_bar, c_bar, rho_bar_pg
        self.normalize_advantage = normalize_advantage
        self.use_rms_prop, self.rms_prop_eps = use_rms_prop, rms_prop_eps
        self.rollout = rollout
        self.freeze_normalization = freeze_normalization
        self.shard_size = shard_size
        if "optimizer_class" not in self.policy_kwargs:
            self._choose_optimizer()
        if _init_setup_model:
            self._setup_model()

    def _choose_optimizer(self) -> None:
        given = self.policy_kwargs.get("optimizer_kwargs") or {}
        if self.use_rms_prop:
            self.policy_kwargs["optimizer_class"] = th.optim.RMSprop
            defaults: dict[str, Any] = {"alpha": 0.99, "eps": self.rms_prop_eps, "weight_decay": 0}
        else:
            self.policy_kwargs["optimizer_class"] = th.optim.Adam
            defaults = {"eps": 1e-5, "fused": True}  # SB3's eps
        self.policy_kwargs["optimizer_kwargs"] = {**defaults, **given}

    @staticmethod
    def check_arguments(**kwargs: Any) -> None:
        """
        Check what can be checked without an environment; a YAML file is checked so before one exists.

        :param kwargs: some of the constructor's
        :raises ValueError: that names the argument, what was expected and what came
        """
        check_actors(**kwargs)
        for name in ("rho_bar", "c_bar", "rho_bar_pg", "max_grad_norm", "rms_prop_eps"):
            if name in kwargs and not kwargs[name] > 0:
                raise ValueError(f"{name}: expected a number > 0, got {kwargs[name]!r}")
        for name in ("n_epochs", "n_steps"):
            if name in kwargs and kwargs[name] < 1:
                raise ValueError(f"{name}: expected a whole number >= 1, got {kwargs[name]!r}")
        if kwargs.get("batch_size") is not None and kwargs["batch_size"] < kwargs.get("n_steps", 1):
            raise ValueError(
                f"batch_size: expected at least one unroll of n_steps {kwargs.get('n_steps', 1)}, or null for all of them, "
                f"got {kwargs['batch_size']!r}"
            )

    def _setup_model(self) -> None:
        names = ("rho_bar", "c_bar", "rho_bar_pg", "max_grad_norm", "rms_prop_eps", "n_epochs", "n_steps", "batch_size")
        try:
            self.check_arguments(**{name: getattr(self, name) for name in names})
        except ValueError as error:
            raise ValueError(f"IMPALA: {error}") from error
        super()._setup_model()

    # --- learning -------------------------------------------------------------------------------------------------------

    def _minibatches(self) -> Iterator[Unrolls]:
        """The rollout in groups of environments, in their order: there is nothing random about it."""
        buffer = self.rollout_buffer
        assert isinstance(buffer, TimeAwareRolloutBuffer)
        assert self._last_episode_starts is not None
        n_groups = 1 if self.batch_size is None else math.ceil(self.n_envs / (self.batch_size // self.n_steps))
        ends = np.concatenate((buffer.episode_starts[1:], self._last_episode_starts[None]))
        discounts = (np.float64(self.gamma) ** buffer.n_held * (1.0 - ends)).astype(np.float32)
        for group in np.array_split(np.arange(self.n_envs), n_groups):
            envs = slice(group[0], group[-1] + 1)
            actions = th.as_tensor(buffer.actions[:, envs].astype(np.float32), device=self.device).flatten(0, 1)
            yield Unrolls(
                self._read_obs(envs),
                actions.long().flatten() if isinstance(self.action_space, spaces.Discrete) else actions,
                *(th.as_tensor(x[:, envs], device=self.device) for x in (buffer.log_probs, buffer.rewards, discounts)),
            )

    def _read_obs(self, envs: slice) -> PyTorchObs:
        """The observations of some environments, and the ones after the rollout, one row each."""

        def flatten(observations: np.ndarray, last_obs: np.ndarray) -> np.ndarray:
            n_steps, _, *row = observations.shape
            # Like the buffer's own in the order of its axes: images with the channels last stay so.
            rows = np.empty_like(observations, shape=(n_steps + 1, envs.stop - envs.start, *row))
            rows[:-1], rows[-1] = observations[:, envs], last_obs[envs].reshape(-1, *row)
            return rows.reshape(-1, *row)

        observations: Any = self.rollout_buffer.observations
        last_obs: Any = self._last_obs
        if isinstance(observations, dict):
            return obs_as_tensor({key: flatten(x, last_obs[key]) for key, x in observations.items()}, self.device)
        return obs_as_tensor(flatten(observations, last_obs), self.device)

    def train(self) -> None:
        """Learn from the rollout: one gradient step for each minibatch, ``n_epochs`` times."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        ent_coef = FloatSchedule(read_schedule(self.ent_coef))(self._current_progress_remaining)
        metrics: list[dict[str, float]] = []
        for _ in range(self.n_epochs):
            metrics += [self._update(unrolls, ent_coef) for unrolls in self._minibatches()]
        self._n_updates += self.n_epochs
        for name in metrics[0]:
            self.logger.record(f"train/{name}", float(np.mean([row[name] for row in metrics])))
        self.logger.record("train/ent_coef", ent_coef)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        if hasattr(self.policy, "log_std"):
            self.logger.record("train/std", th.exp(self.policy.log_std).mean().item())

    def _update(self, unrolls: Unrolls, ent_coef: float) -> dict[str, float]:
        """
        One gradient step.

        :param unrolls: what to learn from
        :param ent_coef: weight of the entropy
        :return: what to log
        """
        n_steps, n_envs = unrolls.rewards.shape
        # One forward pass for all: the rows after the last step have no action; any will do.
        padded_actions = th.cat((unrolls.actions, unrolls.actions[-n_envs:]))
        all_values, all_log_probs, all_entropy = self.policy.evaluate_actions(unrolls.obs, padded_actions)
        all_values = all_values.view(n_steps + 1, n_envs)
        values, log_probs = all_values[:-1], all_log_probs[:-n_envs].view(n_steps, n_envs)
        log_ratios = log_probs.detach() - unrolls.log_probs
        targets, advantages = vtrace(
            log_ratios,
            unrolls.discounts,
            unrolls.rewards,
            values.detach(),
            all_values[-1].detach(),
            rho_bar=self.rho_bar,
            c_bar=self.c_bar,
            rho_bar_pg=self.rho_bar_pg,
            trace_lambda=self.gae_lambda,
        )
        if self.normalize_advantage:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = -(advantages * log_probs).mean()
        value_loss = F.mse_loss(values, targets)
        # Without an analytical form the entropy is estimated, as SB3 does.
        entropy_loss = log_probs.mean() if all_entropy is None else -all_entropy[:-n_envs].mean()
        loss = policy_loss + ent_coef * entropy_loss + self.vf_coef * value_loss

        self.policy.optimizer.zero_grad()
        loss.backward()
        grad_norm = th.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        self.policy.optimizer.step()
        return {
            "policy_loss": policy_loss.item(),
            "value_loss": value_loss.item(),
            "entropy_loss": entropy_loss.item(),
            "grad_norm": grad_norm.item(),
            "explained_variance": explained_variance(values.detach().cpu().numpy().flatten(), targets.cpu().numpy().flatten()),
            "vtrace_rho_mean": log_ratios.exp().clamp(max=self.rho_bar).mean().item(),
        }
