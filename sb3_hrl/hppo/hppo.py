"""Hierarchical PPO, built on the seams of SB3's PPO."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.preprocessing import get_action_dim
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.common.vec_env import VecEnv

from sb3_hrl.actors import check_actors, make_actor_env
from sb3_hrl.actors.algorithm import ActorAlgorithm
from sb3_hrl.carried import MUSCLE_SAMPLE, Carried
from sb3_hrl.envs.task import Task
from sb3_hrl.hppo.muscle_level import MuscleConfig, MuscleLevel, find_task, is_number, read_body
from sb3_hrl.hppo.policies import CnnPolicy, ImpalaCnnPolicy, MlpPolicy, MultiInputPolicy, NatureCnnPolicy
from sb3_hrl.registry import suggest
from sb3_hrl.rollout.replay import read_actions
from sb3_hrl.rollout.time_aware import TimeAwareRolloutBuffer


class HPPO(ActorAlgorithm, PPO):
    """
    Hierarchical Proximal Policy Optimization.

    On bodies with muscles (actuation ``muscle_hrl``) the policy sets joint targets, and a lower level turns the torques that
    these ask for into muscle activations: a network that learns by regression while the policy trains. The muscles belong to
    the model: they are saved with it, and its actions carry them to whatever environment it acts in.

    Decisions may last several steps of the environment (``ActionHold``): advantages, value targets and the bootstrap of
    truncated episodes use ``gamma ** n_held``. Without muscles, where every decision lasts one step, it is PPO, bit for bit.

    The other parameters are those of ``stable_baselines3.PPO``. ``gamma`` is the discount of one step; the wrapper gets it
    from here. ``num_timesteps`` (and so ``n_timesteps``, ``eval_freq``, ...) counts decisions. ``rollout_buffer_class``, if
    given, must be time-aware: ``TimeAwareRolloutBuffer``, ``TimeAwareDictRolloutBuffer`` or a subclass. The policies
    ``NatureCnnPolicy`` and ``ImpalaCnnPolicy`` bring ``ImageRolloutBuffer``.

    :param rollout: ``native`` runs whole rollouts in the workers of a ``NativeVecEnv``; ``lockstep`` is SB3's loop; ``auto``
        is native where policy and environments allow it
    :param freeze_normalization: let the statistics of a ``VecNormalize`` learn at the end of a rollout instead of at every
        step in lock-step, too; native rollouts always do so
    :param shard_size: environments that a native worker takes through the rollout at a time, with one forward for all of
        them; None for ``default_shard_size``. It changes last bits, the number of threads does not
    :param n_actors: number of processes that collect the rollouts, each with its share of the environments; None or 0 for
        none. ``env`` is then an id, a function that makes an environment, or made with ``vec_env_cls=ActorVecEnv``
    :param actor_timeout: seconds without a sign of life after which an actor is replaced
    :param max_restarts: how many actors may be replaced before training stops with an error
    :param muscle_kwargs: the lower level; see ``MuscleConfig``
    :param log_std: logarithm of the actions' initial standard deviation by group: ``targets`` for the joint targets, a joint's
        name for one of them, ``cascade`` for a cascade's weight (1.0 by default); a number stands for ``targets``. By default
        the policy's ``log_std_init``
    :param log_std_end: what the standard deviation of the joint targets goes to with the training's progress; not learned then
    :param learn_std: whether the standard deviation learns
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy,
        "CnnPolicy": CnnPolicy,
        "MultiInputPolicy": MultiInputPolicy,
        "NatureCnnPolicy": NatureCnnPolicy,
        "ImpalaCnnPolicy": ImpalaCnnPolicy,
    }

    # The body that the muscles are for, and how their networks are built: see ``read_body``. Saved with the model.
    muscle_body: dict[str, Any] | None = None
    # None without muscles. Its networks and optimiser are saved with the model.
    muscle_level: MuscleLevel | None = None

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 3e-4,
        n_steps: int = 2048,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.2,
        clip_range_vf: float | Schedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        rollout_buffer_class: type[RolloutBuffer] | None = None,
        rollout_buffer_kwargs: dict[str, Any] | None = None,
        target_kl: float | None = None,
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
        muscle_kwargs: dict[str, Any] | None = None,
        log_std: float | dict[str, float] | None = None,
        log_std_end: float | None = None,
        learn_std: bool = True,
    ) -> None:
        actors = {"n_actors": n_actors, "actor_timeout": actor_timeout, "max_restarts": max_restarts}
        self.check_arguments(muscle_kwargs, log_std, **actors)
        self.rollout = rollout
        self.freeze_normalization = freeze_normalization
        self.shard_size = shard_size
        self.n_actors, self.actor_timeout, self.max_restarts = n_actors, actor_timeout, max_restarts
        self.muscle_kwargs = muscle_kwargs
        self.log_std, self.log_std_end, self.learn_std = log_std, log_std_end, learn_std
        super().__init__(
            policy,
            make_actor_env(env, n_actors, seed),
            learning_rate=learning_rate,
            n_steps=n_steps,
            batch_size=batch_size,
            n_epochs=n_epochs,
            gamma=gamma,
            gae_lambda=gae_lambda,
            clip_range=clip_range,
            clip_range_vf=clip_range_vf,
            normalize_advantage=normalize_advantage,
            ent_coef=ent_coef,
            vf_coef=vf_coef,
            max_grad_norm=max_grad_norm,
            use_sde=use_sde,
            sde_sample_freq=sde_sample_freq,
            rollout_buffer_class=rollout_buffer_class,
            rollout_buffer_kwargs=rollout_buffer_kwargs,
            target_kl=target_kl,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=_init_setup_model,
        )

    @staticmethod
    def check_arguments(muscle_kwargs: Any = None, log_std: Any = None, **others: Any) -> None:
        """
        Check what can be checked without an environment; a YAML file is checked so before one exists.

        :param muscle_kwargs: the constructor's
        :param log_std: the constructor's
        :param others: the constructor's
        :raises ValueError: that names the argument, what was expected and what came
        """
        MuscleConfig.from_kwargs(muscle_kwargs).check_base()
        check_actors(**others)
        for number in log_std.values() if isinstance(log_std, Mapping) else [log_std]:
            if number is not None and not is_number(number):
                raise ValueError(f"log_std: expected a number, or one for each group, got {log_std!r}")

    def _setup_model(self) -> None:
        super()._setup_model()
        self._meet_muscles()
        if self.log_std is not None or self.log_std_end is not None or not self.learn_std or self._has_cascade:
            self._set_log_std(1.0)

    # --- muscles --------------------------------------------------------------------------------------------------------

    @property
    def _has_cascade(self) -> bool:
        return self.muscle_level is not None and self.muscle_level.has_cascade

    def _meet_muscles(self) -> None:
        """See whether the environments are driven by muscles, and make them; those of a loaded model must be the same."""
        task = None if self.env is None else find_task(self.env)
        if task is not None and self.muscle_body is None:
            self.muscle_body = read_body(task)
        elif task is not None:
            self._check_body(task)
        elif self.env is not None and self.muscle_kwargs and self.verbose >= 1:
            print("muscle_kwargs have no effect: the environment is not driven by a model's muscles")
        if self.muscle_body is None:
            return
        if self.n_actors:
            raise ValueError(
                f"HPPO: n_actors: expected None for a body with muscles, got {self.n_actors}: native rollouts use all cores "
                "there (vec_env_wrapper: native)"
            )
        self.muscle_level = MuscleLevel(
            MuscleConfig.from_kwargs(self.muscle_kwargs),
            self.muscle_body,
            self.n_steps,
            self.n_envs,
            self.seed or 0,
            self.device,
        )
        if self.muscle_level.learner is not None:
            self.muscle_body["levels"] = self.muscle_level.widths

    def _check_body(self, task: Task) -> None:
        body = read_body(task)
        assert self.muscle_body is not None
        for key in ("joints", "muscles", "pattern", "has_cascade"):
            if self.muscle_body[key] != body[key]:
                raise ValueError(
                    f"HPPO: the model's muscles are not those of {task.id}: {key}: the model has "
                    f"{self.muscle_body[key]}, the environment {body[key]}"
                )

    def _hand_over_muscles(self) -> None:
        if self.muscle_level is not None:
            assert self.env is not None
            self.env.env_method("set_muscles", self.muscle_level.muscles)

    def keep_samples(self, infos: Sequence[dict[str, Any]], actions: np.ndarray) -> None:
        """
        Keep one step's tuples for the muscles to learn from.

        :param infos: of the step [E]
        :param actions: that led to it, as the environments took them [E, n_actions]
        """
        if self.muscle_level is not None:
            samples = np.stack([info[MUSCLE_SAMPLE] for info in infos])
            self.muscle_level.buffer.add(samples, self.muscle_level.cascade_weights(actions))

    def train(self) -> None:
        super().train()
        if self.log_std_end is not None:
            self._set_log_std(self._current_progress_remaining)
        if self.muscle_level is None:
            return
        metrics = self.muscle_level.update(self._current_progress_remaining)
        for name, value in ({} if metrics is None else metrics._asdict()).items():
            self.logger.record(f"muscle/{name}", value)
        self._hand_over_muscles()

    def _set_log_std(self, progress_remaining: float) -> None:
        """Set the standard deviations of the actions that do not come from the policy itself."""
        parameter = getattr(self.policy, "log_std", None)
        if not isinstance(parameter, th.nn.Parameter):
            if self.verbose >= 1:
                print("log_std, log_std_end and learn_std have no effect: the policy's actions have no standard deviation")
            return
        names = [] if self.muscle_body is None else list(self.muscle_body["joints"])
        n_actions = parameter.shape[-1]
        given = dict(self.log_std or {}) if isinstance(self.log_std, dict | None) else {"targets": float(self.log_std)}
        for name in given:
            if name not in ("targets", "cascade", *names):
                raise ValueError(f"HPPO: log_std: there is no {name!r}{suggest(name, ['targets', 'cascade', *names])}")
        if n_actions != get_action_dim(self.action_space) and (given.keys() - {"targets"} or self._has_cascade):
            raise ValueError(
                "HPPO: log_std: with full_std: false all actions share their standard deviations: give one number and no "
                "cascade, or leave full_std out"
            )
        start = given.get("targets", self.policy_kwargs.get("log_std_init", 0.0))
        values = np.array([given.get(names[i] if i < len(names) else "targets", start) for i in range(n_actions)])
        if self.log_std_end is not None:
            values = self.log_std_end + progress_remaining * (values - self.log_std_end)
        if self._has_cascade:
            values[-1] = given.get("cascade", 1.0)
        with th.no_grad():
            parameter.copy_(th.as_tensor(values, dtype=parameter.dtype).expand_as(parameter))
        parameter.requires_grad_(self.learn_std and self.log_std_end is None)

    # --- rollouts -------------------------------------------------------------------------------------------------------

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        if self.muscle_level is not None:
            self.muscle_level.buffer.reset()
        return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)

    def _collect_natively(
        self,
        env: VecEnv,
        callback: BaseCallback,
        buffer: TimeAwareRolloutBuffer,
        n_rollout_steps: int,
        samples: np.ndarray | None = None,
    ) -> bool:
        level = self.muscle_level
        samples = None if level is None else level.buffer.samples
        is_going_on = super()._collect_natively(env, callback, buffer, n_rollout_steps, samples)
        if level is not None:
            level.buffer.fill(level.cascade_weights(read_actions(self, buffer)[1]))
        return is_going_on

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, BaseCallback]:
        if self.muscle_level is not None:
            assert self.env is not None
            task = find_task(self.env)
            if task is None:
                raise ValueError("HPPO: the model has muscles, and the environments are not driven by them")
            self._check_body(task)
            self.muscle_level.pretrain(task, progress_bar=self.verbose >= 1)
            self._hand_over_muscles()
        return super()._setup_learn(*args, **kwargs)

    def _carried(self) -> Carried | None:
        if self.muscle_level is None:
            return super()._carried()
        # Evaluation has the same muscles, in whatever environment the action ends up.
        return Carried(self.hold_decisions, self.muscle_level.muscles)

    # --- saving ---------------------------------------------------------------------------------------------------------

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "muscle_level"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        state_dicts, tensors = super()._get_torch_save_params()
        return (state_dicts if self.muscle_level is None else [*state_dicts, "muscle_level"]), tensors
