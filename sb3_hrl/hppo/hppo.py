"""Hierarchical PPO, built on the seams of SB3's PPO."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, Schedule
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from sb3_hrl.carried import MUSCLE_SAMPLE, Carried, carry
from sb3_hrl.envs.task import Task
from sb3_hrl.hppo.muscle_level import MuscleConfig, MuscleLevel, find_task, is_number, read_body
from sb3_hrl.hppo.policies import CnnPolicy, ImpalaCnnPolicy, MlpPolicy, MultiInputPolicy, NatureCnnPolicy
from sb3_hrl.registry import suggest
from sb3_hrl.rollout.images import ImageRolloutBuffer
from sb3_hrl.rollout.native_rollout import collect_native, default_shard_size, read_actions, why_lockstep
from sb3_hrl.rollout.normalization import FrozenNormalization
from sb3_hrl.rollout.time_aware import TimeAwareCallback, TimeAwareDictRolloutBuffer, TimeAwareRolloutBuffer
from sb3_hrl.wrappers import ActionHold

SelfHPPO = TypeVar("SelfHPPO", bound="HPPO")


class HPPO(PPO):
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

    # Decisions that each environment has taken under an ActionHold; None if there is no ActionHold. Saved with the model.
    hold_decisions: int | None = None
    # Steps of all environments since ``learn`` began.
    n_simulated_steps: int = 0
    # Environments that a native worker takes through the rollout at a time; None for ``default_shard_size``.
    shard_size: int | None = None
    # Where native rollouts are in their random numbers: the seed is drawn when the first one begins. Saved with the model.
    noise_seed: int | None = None
    n_noise_decisions: int = 0
    _lockstep_reason: str | None = None
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
        muscle_kwargs: dict[str, Any] | None = None,
        log_std: float | dict[str, float] | None = None,
        log_std_end: float | None = None,
        learn_std: bool = True,
    ) -> None:
        self.check_arguments(muscle_kwargs, log_std)
        if rollout not in ("auto", "native", "lockstep"):
            raise ValueError(f"HPPO: rollout: expected 'auto', 'native' or 'lockstep', got {rollout!r}")
        self.rollout = rollout
        self.freeze_normalization = freeze_normalization
        self.muscle_kwargs = muscle_kwargs
        self.log_std, self.log_std_end, self.learn_std = log_std, log_std_end, learn_std
        super().__init__(
            policy,
            env,
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
    def check_arguments(muscle_kwargs: Any = None, log_std: Any = None, **_: Any) -> None:
        """
        Check what can be checked without an environment; a YAML file is checked so before one exists.

        :param muscle_kwargs: the constructor's
        :param log_std: the constructor's
        :raises ValueError: that names the argument, what was expected and what came
        """
        MuscleConfig.from_kwargs(muscle_kwargs).check_base()
        for number in log_std.values() if isinstance(log_std, Mapping) else [log_std]:
            if number is not None and not is_number(number):
                raise ValueError(f"log_std: expected a number, or one for each group, got {log_std!r}")

    def _setup_model(self) -> None:
        # SB3's own buffers come from a saved PPO.
        if self.rollout_buffer_class in (None, RolloutBuffer, DictRolloutBuffer):
            if isinstance(self.observation_space, spaces.Dict):
                self.rollout_buffer_class = TimeAwareDictRolloutBuffer
            elif issubclass(self.policy_class, NatureCnnPolicy):
                self.rollout_buffer_class = ImageRolloutBuffer
            else:
                self.rollout_buffer_class = TimeAwareRolloutBuffer
        elif not issubclass(self.rollout_buffer_class, TimeAwareRolloutBuffer):
            raise ValueError(
                f"HPPO: rollout_buffer_class: expected a subclass of TimeAwareRolloutBuffer or TimeAwareDictRolloutBuffer, "
                f"got {self.rollout_buffer_class.__name__}"
            )
        # It sets the random seed; a model that was loaded goes on with its random numbers all the same.
        noise = self.noise_seed, self.n_noise_decisions
        super()._setup_model()
        self.noise_seed, self.n_noise_decisions = noise
        if self.env is not None:
            self._meet_hold(self.env)
            self._can_run_natively(self.env)
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
        given = {"targets": self.log_std} if isinstance(self.log_std, int | float) else dict(self.log_std or {})
        for name in given:
            if name not in ("targets", "cascade", *names):
                raise ValueError(f"HPPO: log_std: there is no {name!r}{suggest(name, ['targets', 'cascade', *names])}")
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

    def _can_run_natively(self, env: VecEnv) -> bool:
        """
        :param env: the environments to train on
        :return: whether the next rollout is native
        """
        if self.rollout == "lockstep":
            return False
        reason = why_lockstep(self.policy, env, self.rollout_buffer)
        if reason is not None and self.rollout == "native":
            raise ValueError(f"HPPO: rollout: 'native' is not possible: {reason}")
        if reason not in (None, self._lockstep_reason) and self.verbose >= 1:
            print(f"Rollouts in lock-step, since {reason}")
        self._lockstep_reason = reason
        return reason is None

    def set_random_seed(self, seed: int | None = None) -> None:
        super().set_random_seed(seed)
        if seed is not None:
            self.noise_seed, self.n_noise_decisions = None, 0

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        level = self.muscle_level
        if level is not None:
            level.buffer.reset()
        if self._can_run_natively(env):
            assert isinstance(rollout_buffer, TimeAwareRolloutBuffer)
            if self.noise_seed is None:
                self.noise_seed = int(th.randint(2**62, ()).item())
            noise = self.noise_seed, self.n_noise_decisions
            self.n_noise_decisions += n_rollout_steps
            shard_size = self.shard_size or default_shard_size(env.num_envs)
            samples = None if level is None else level.buffer.samples
            is_going_on = collect_native(
                self, env, callback, rollout_buffer, n_rollout_steps, shard_size, *noise, samples=samples
            )
            if level is not None:
                level.buffer.fill(level.cascade_weights(read_actions(self, rollout_buffer)[1]))
            return is_going_on
        callback.update_locals({"n_held": None})  # no native rollout
        if not (self.freeze_normalization and isinstance(env, VecNormalize)):
            return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)
        frozen = FrozenNormalization(env)
        is_going_on = super().collect_rollouts(frozen, callback, rollout_buffer, n_rollout_steps)
        frozen.update()
        return is_going_on

    def _meet_hold(self, env: VecEnv) -> None:
        """
        See whether the environments hold actions; if so, the position in the annealing is the model's from now on.

        :param env: the environments to train on
        """
        holds = env.env_is_wrapped(ActionHold)
        if any(holds) and not all(holds):
            raise ValueError(
                f"HPPO: either all environments have an ActionHold or none; here {sum(holds)} of {len(holds)} have"
            )
        self.hold_decisions = (self.hold_decisions or 0) if all(holds) else None

    def learn(
        self: SelfHPPO,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str = "HPPO",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfHPPO:
        super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)
        # Whoever uses the environments next finds them in the task's own units.
        self._configure_hold(gamma=1.0)
        return self

    def _configure_hold(self, gamma: float) -> None:
        if self.hold_decisions is not None:
            assert self.env is not None
            self.env.env_method("configure_hold", gamma, self.hold_decisions)

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, BaseCallback]:
        assert self.env is not None
        self.n_simulated_steps = 0
        self._meet_hold(self.env)
        self._configure_hold(self.gamma)
        if self.muscle_level is not None:
            task = find_task(self.env)
            if task is None:
                raise ValueError("HPPO: the model has muscles, and the environments are not driven by them")
            self._check_body(task)
            self.muscle_level.pretrain(task, progress_bar=self.verbose >= 1)
            self._hand_over_muscles()
        return super()._setup_learn(*args, **kwargs)

    def _init_callback(self, callback: MaybeCallback, progress_bar: bool = False) -> BaseCallback:
        if not isinstance(callback, list):
            callback = [callback if isinstance(callback, BaseCallback) else ConvertCallback(callback)]
        return super()._init_callback(TimeAwareCallback(callback), progress_bar)

    def count_decisions(self, n_held: Sequence[int]) -> None:
        """
        Count one decision of every environment.

        :param n_held: how many steps each one lasted [E]
        """
        self.n_simulated_steps += sum(n_held)
        if self.hold_decisions is not None:
            self.hold_decisions += 1

    def dump_logs(self, iteration: int = 0) -> None:
        seconds = max((time.time_ns() - self.start_time) / 1e9, sys.float_info.epsilon)
        self.logger.record("rollout/n_held_mean", float(self.rollout_buffer.n_held.mean()))  # type: ignore[attr-defined]
        self.logger.record("time/simulated_fps", int(self.n_simulated_steps / seconds))
        super().dump_logs(iteration)

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        actions, state = super().predict(observation, state, episode_start, deterministic)
        if self.hold_decisions is None and self.muscle_level is None:
            return actions, state
        # Evaluation holds as training does now, and has the same muscles, in whatever environment the action ends up.
        muscles = None if self.muscle_level is None else self.muscle_level.muscles
        return carry(actions, Carried(self.hold_decisions, muscles)), state

    # --- saving ---------------------------------------------------------------------------------------------------------

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "muscle_level"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        state_dicts, tensors = super()._get_torch_save_params()
        return (state_dicts if self.muscle_level is None else [*state_dicts, "muscle_level"]), tensors
