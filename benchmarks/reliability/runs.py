"""Small training runs of every kind, and the digest of all that such a run is made of."""

import hashlib
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch as th
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv, VecFrameStack, VecNormalize, VecTransposeImage

from sb3_hrl.actors import ActorVecEnv
from sb3_hrl.checkpoint import Checkpointer, resumable
from sb3_hrl.checkpoint.env_state import get_env_state
from sb3_hrl.checkpoint.tree import pack
from sb3_hrl.hppo import HPPO
from sb3_hrl.registry import register_envs
from sb3_hrl.vec_env import NativeVecEnv
from sb3_hrl.wrappers import ActionHold
from sb3_hrl_plugins.impala import IMPALA
from sb3_hrl_plugins.procgen.vec_env import ProcgenVecEnv, procgen

register_envs()
HOLD = {"start_seconds": 0.04, "end_seconds": 0.01, "anneal_decisions": 60}
MUSCLES = {"n_pretrain": 300, "pretrain_epochs": 1, "hidden": [16], "reservoir_size": 200, "batch_size": 64}


class Run(NamedTuple):
    """
    :param make_env: its environments, without normalisation
    :param algorithm: its class
    :param kwargs: more arguments of the class
    :param policy: its policy
    """

    make_env: Callable[[], VecEnv]
    algorithm: Any = HPPO
    kwargs: dict[str, Any] = {}  # noqa: RUF012
    policy: str = "MlpPolicy"

    def make_normalized(self, **kwargs: Any) -> VecEnv:
        """Its environments with the statistics of their rewards, and of observations that are no images."""
        has_images = self.policy != "MlpPolicy"
        env = VecNormalize(self.make_env(), norm_obs=not has_images, **kwargs)
        return VecTransposeImage(env) if has_images else env


def _held(vec_env_cls: Any = None) -> VecEnv:
    return make_vec_env("Hopper-v5", 2, wrapper_class=ActionHold, wrapper_kwargs=HOLD, vec_env_cls=vec_env_cls)


def _actors(env_id: str, vec_env_wrapper: Any = None) -> VecEnv:
    vec_env_cls: Any = partial(ActorVecEnv, vec_env_wrapper=vec_env_wrapper)
    return make_vec_env(env_id, 4, vec_env_cls=vec_env_cls)


RUNS: dict[str, Run] = {
    # First, so that the fork server imports what actors need: SubprocVecEnvs use the same one.
    "actors": Run(lambda: _held(ActorVecEnv), kwargs={"n_actors": 2}),
    "actors, frames": Run(lambda: VecFrameStack(_actors("Pendulum-v1"), 3), kwargs={"n_actors": 2}),
    "actors, Procgen": Run(lambda: _actors("procgen-coinrun-v0", procgen), kwargs={"n_actors": 2}, policy="NatureCnnPolicy"),
    "native": Run(lambda: NativeVecEnv("Hopper-v5", 4)),
    "native, hold": Run(lambda: NativeVecEnv("Hopper-v5", 4, hold=HOLD)),
    "native, gSDE": Run(lambda: NativeVecEnv("Hopper-v5", 4), kwargs={"use_sde": True}),
    "native, lock-step": Run(lambda: NativeVecEnv("Ant-v5", 2), kwargs={"rollout": "lockstep"}),
    "muscles": Run(lambda: NativeVecEnv("MuscleArmReach-v0", 4), kwargs={"muscle_kwargs": MUSCLES}),
    "muscles, dummy": Run(lambda: make_vec_env("MuscleArmReach-v0", 2), kwargs={"muscle_kwargs": MUSCLES}),
    "dummy": Run(lambda: make_vec_env("Hopper-v5", 2)),
    "dummy, Ant": Run(lambda: make_vec_env("Ant-v5", 2)),
    "dummy, hold, gSDE": Run(_held, kwargs={"use_sde": True, "sde_sample_freq": 4}),
    "dummy, frames": Run(lambda: VecFrameStack(make_vec_env("CartPole-v1", 2), 3)),
    "subproc": Run(lambda: make_vec_env("Ant-v5", 2, vec_env_cls=SubprocVecEnv)),
    "subproc, hold": Run(lambda: _held(SubprocVecEnv)),
    "PPO": Run(lambda: make_vec_env("Pendulum-v1", 2), PPO),
    "IMPALA": Run(lambda: NativeVecEnv("Hopper-v5", 4), IMPALA),
    "IMPALA, Procgen": Run(lambda: ProcgenVecEnv("procgen-coinrun-v0", 4), IMPALA, policy="NatureCnnPolicy"),
    "A2C": Run(lambda: make_vec_env("CartPole-v1", 2), A2C),
}
N_STEPS, N_ITERATIONS = 24, 7


def total_timesteps(run: Run, n_envs: int) -> int:
    """
    :param run: one of ``RUNS``
    :param n_envs: how many environments it has
    :return: its length in steps
    """
    return N_STEPS * N_ITERATIONS * n_envs


def make_model(run: Run) -> Any:
    """
    :param run: one of ``RUNS``
    :return: a model that has not learned yet
    """
    kwargs: dict[str, Any] = {"n_steps": N_STEPS, "learning_rate": LinearSchedule(1e-3, 1e-4, 1.0), "seed": 3, "device": "cpu"}
    if run.algorithm is not A2C:
        kwargs |= {"batch_size": 24, "n_epochs": 2}
    if run.policy == "MlpPolicy":
        kwargs["policy_kwargs"] = {"net_arch": [16]}
    return resumable(run.algorithm)(run.policy, run.make_normalized(), **kwargs, **run.kwargs)


def callbacks(run: Run, folder: Path | None = None) -> list[BaseCallback]:
    """
    :param run: one of ``RUNS``
    :param folder: where a checkpoint of every iteration goes; None for no checkpoints
    :return: an evaluation that falls into rollouts, and the checkpoints
    """
    eval_env = run.make_normalized(training=False, norm_reward=False)
    eval_env.seed(5)
    found: list[BaseCallback] = [EvalCallback(eval_env, n_eval_episodes=1, eval_freq=50, deterministic=False, verbose=0)]
    return found if folder is None else [*found, Checkpointer(folder, save_freq=1)]


def find_cuts(folder: Path) -> list[Path]:
    """
    :param folder: of a run's checkpoints
    :return: these by their steps, without that of its end
    """
    return sorted(folder.glob("*.zip"), key=lambda path: int(path.stem.split("_")[2]))[:-1]


def close(model: Any, used: list[BaseCallback]) -> None:
    """
    :param model: whose environments end
    :param used: whose environments end, too
    """
    for env in (model.env, *(item.eval_env for item in used if isinstance(item, EvalCallback))):
        env.close()


def digest(model: Any, used: list[BaseCallback]) -> str:
    """
    :param model: after training
    :param used: its callbacks
    :return: of weights, optimisers, statistics, counters, learning rate, random numbers, episodes, evaluations, environments
    """
    (evaluation,) = (item for item in used if isinstance(item, EvalCallback))
    state = {
        "parameters": _plain(model.get_parameters()),
        "envs": get_env_state(model.env),
        "eval envs": get_env_state(evaluation.eval_env),
        "evaluations": [evaluation.evaluations_timesteps, evaluation.evaluations_results, evaluation.best_mean_reward],
        "counters": [model.num_timesteps, model._n_updates, evaluation.n_calls, getattr(model, "hold_decisions", None)],
        "progress": [model._current_progress_remaining, model.policy.optimizer.param_groups[0]["lr"]],
        "random": [random.getstate(), np.random.get_state(legacy=False), th.get_rng_state().numpy()],
        "episodes": [[float(episode["r"]), int(episode["l"])] for episode in model.ep_info_buffer],
        "last": [model._last_obs, model._last_episode_starts],
    }
    return hashlib.sha256(b"".join(pack(state))).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, th.Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
