"""
Autonomous rollouts: policy and environments run in the native workers, and come back as one finished rollout.

The slow twin is SB3's ``collect_rollouts`` over the same environments; fed with the same random numbers, both give the same.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import (
    CategoricalDistribution,
    DiagGaussianDistribution,
    StateDependentNoiseDistribution,
)
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from torch import nn

from sb3_hrl import native
from sb3_hrl.envs.engine import ObsNormalization
from sb3_hrl.native_images import is_watched
from sb3_hrl.rollout.normalization import update_normalization_natively
from sb3_hrl.rollout.replay import Timeouts, finish_rollout
from sb3_hrl.rollout.time_aware import TimeAwareRolloutBuffer
from sb3_hrl.vec_env.native_vec_env import NativeVecEnv

# Activations that the workers know, each with its one parameter.
_ACTIVATIONS: dict[type[nn.Module], Callable[[Any], float]] = {
    nn.Identity: lambda module: 0.0,
    nn.Tanh: lambda module: 0.0,
    nn.ReLU: lambda module: 0.0,
    nn.SiLU: lambda module: 0.0,
    nn.ELU: lambda module: module.alpha,
    nn.LeakyReLU: lambda module: module.negative_slope,
    nn.GELU: lambda module: float(module.approximate == "tanh"),
}


def default_shard_size(n_envs: int) -> int:
    """
    How many environments a worker takes through the rollout at a time: four shards at least, so that four workers have
    something to do, and no more than eight rows, where the forward pass costs little beside the physics.

    The last bits of the values depend on it (the last bit of a matrix product depends on its number of rows), so it must not
    depend on the number of threads.

    :param n_envs: number of environments
    :return: the size of a shard
    """
    return max(2, min(8, n_envs // 4))


def why_lockstep(policy: BasePolicy, env: VecEnv, buffer: Any) -> str | None:
    """
    :param policy: the policy
    :param env: the environments to train on
    :param buffer: the rollout buffer
    :return: why the workers cannot run a whole rollout of these; None if they can
    """
    inner = env.venv if isinstance(env, VecNormalize) else env
    if type(env) not in (NativeVecEnv, VecNormalize) or type(inner) is not NativeVecEnv:
        return f"the environments are a {_describe(env)}, not a NativeVecEnv, alone or in a VecNormalize"
    if not isinstance(buffer, TimeAwareRolloutBuffer) or buffer.observations.dtype != np.float64:
        return f"the rollout buffer is a {type(buffer).__name__} of its own kind"
    if type(buffer).add is not TimeAwareRolloutBuffer.add:
        return f"the rollout buffer is a {type(buffer).__name__} with an `add` of its own"
    return why_policy_is_not_native(policy)


def _describe(env: VecEnv) -> str:
    names = [type(env).__name__]
    while hasattr(env, "venv"):
        env = env.venv
        names.append(type(env).__name__)
    return " around a ".join(names)


def why_policy_is_not_native(policy: BasePolicy) -> str | None:
    """
    :param policy: the policy
    :return: why it has no native form; None if it has one
    """
    if type(policy) is not ActorCriticPolicy:
        return f"the policy is a {type(policy).__name__}, not SB3's MlpPolicy"
    for part, expected in (
        (policy.features_extractor, (FlattenExtractor,)),
        (policy.mlp_extractor, (MlpExtractor,)),
        (policy.action_dist, (DiagGaussianDistribution, StateDependentNoiseDistribution, CategoricalDistribution)),
    ):
        if type(part) not in expected:
            return f"the policy has a {type(part).__name__}, not a {' or '.join(kind.__name__ for kind in expected)}"
    for layer in (policy.action_net, policy.value_net):
        if type(layer) is not nn.Linear or layer.bias is None:
            return f"the policy's last layer is a {type(layer).__name__}, not a Linear with a bias"
    if any(is_watched(module) for module in policy.modules()):
        return "the policy's networks have hooks, or a forward of their own"
    for network in (policy.mlp_extractor.policy_net, policy.mlp_extractor.value_net):
        for index, module in enumerate(network):
            is_linear = type(module) is nn.Linear and module.bias is not None
            if not is_linear and type(module) not in _ACTIVATIONS:
                return f"the policy's networks have a {type(module).__name__}"
            if not is_linear and (index == 0 or type(network[index - 1]) is not nn.Linear):
                return "the policy's networks have an activation that does not follow a linear layer"
    if any(parameter.dtype != th.float32 for parameter in policy.parameters()):
        return "the policy is not in float32"
    return None


class _Handed(NamedTuple):
    """What the workers have of a policy, and of which layers, with weights in which places."""

    layers: list[Any]
    policy: Any


_handed: WeakKeyDictionary[ActorCriticPolicy, _Handed] = WeakKeyDictionary()


def native_policy(policy: ActorCriticPolicy) -> Any:
    """
    On the CPU the workers look at the policy's own weights, so that only the standard deviations are handed over again.

    :param policy: one that ``why_lockstep`` has nothing against
    :return: its networks as they are now, for the workers
    """
    extractor = policy.mlp_extractor
    actor, critic = [*extractor.policy_net, policy.action_net], [*extractor.value_net, policy.value_net]
    name, scales = _read_distribution(policy)
    modules = (*actor, *critic)
    tensors = [tensor for module in modules if isinstance(module, nn.Linear) for tensor in (module.weight, module.bias)]
    layers: list[Any] = [tensor.data_ptr() for tensor in tensors]
    layers += [(type(module), _ACTIVATIONS[type(module)](module)) for module in modules if type(module) in _ACTIVATIONS]
    is_shared = all(tensor.is_cpu and tensor.is_contiguous() for tensor in tensors)
    handed = _handed.get(policy)
    if handed is not None and handed.layers == layers and is_shared:
        handed.policy.set_scales(scales)
        return handed.policy
    made = native.load().MlpPolicy(_read_layers(actor), _read_layers(critic), name, scales)
    _handed[policy] = _Handed(layers, made)
    return made


def _read_distribution(policy: ActorCriticPolicy) -> tuple[str, np.ndarray]:
    """The native name of the policy's distribution, and the standard deviations of its noise."""
    if isinstance(policy.action_dist, CategoricalDistribution):
        return "categorical", np.empty(0, np.float32)
    log_std = policy.log_std.detach().cpu()
    if isinstance(policy.action_dist, StateDependentNoiseDistribution):
        name = "squashed_state_dependent" if policy.squash_output else "state_dependent"
        return name, policy.action_dist.get_std(log_std).numpy()
    return "gaussian", log_std.exp().numpy()


def _read_layers(modules: list[nn.Module]) -> list[tuple[np.ndarray, np.ndarray, str, float]]:
    """Weight, bias, activation and its parameter for each layer."""
    layers: list[tuple[np.ndarray, np.ndarray, str, float]] = []
    for module in modules:
        if isinstance(module, nn.Linear):
            layers.append((_numpy(module.weight), _numpy(module.bias), "identity", 0.0))
            continue
        parameter = _ACTIVATIONS[type(module)](module)
        layers[-1] = (*layers[-1][:2], type(module).__name__.lower(), parameter)
    return layers


def _numpy(tensor: th.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def collect_native(
    model: OnPolicyAlgorithm,
    env: VecEnv,
    callback: BaseCallback,
    buffer: TimeAwareRolloutBuffer,
    n_steps: int,
    shard_size: int,
    noise_seed: int,
    first_decision: int,
    samples: np.ndarray | None = None,
) -> bool:
    """
    What ``OnPolicyAlgorithm.collect_rollouts`` does, with all its steps in the native workers.

    The statistics of a ``VecNormalize`` stay as they are until the end. Then every step is replayed for the callbacks; to
    those that ask the environments, these are at the rollout's end already.

    :param model: whose policy, counters and logger
    :param env: a ``NativeVecEnv``, or a ``VecNormalize`` of one
    :param callback: sees every step
    :param buffer: is filled
    :param n_steps: decisions of each environment
    :param shard_size: environments of one worker at a time
    :param noise_seed: of the actions' random numbers
    :param first_decision: how many decisions were drawn with this seed before
    :param samples: ``[T, E, P + D]`` float32, output for the muscles' learner; None without muscles
    :return: False if a callback stopped the training
    """
    assert isinstance(model.policy, ActorCriticPolicy)
    normalize = env if isinstance(env, VecNormalize) else None
    venv = env if normalize is None else normalize.venv
    assert isinstance(venv, NativeVecEnv)
    model.policy.set_training_mode(False)
    buffer.reset()
    if model.use_sde:
        model.policy.reset_noise(env.num_envs)  # as SB3 does; the workers draw matrices of their own
    callback.on_rollout_start()

    start = time.perf_counter()
    policy = native_policy(model.policy)
    model.logger.record("time/handover_ms", 1e3 * (time.perf_counter() - start))
    buffer.observations[0] = model._last_obs
    actions = np.empty((n_steps, env.num_envs, policy.n_actions), np.float32)
    result = venv.collect_rollout(
        policy,
        n_steps,
        _read_normalization(normalize),
        shard_size=shard_size,
        noise_seed=noise_seed,
        first_decision=first_decision,
        noise_sample_freq=max(model.sde_sample_freq, 0),
        observations=buffer.observations,
        actions=actions,
        rewards=buffer.rewards,
        log_probs=buffer.log_probs,
        values=buffer.values,
        n_held=buffer.n_held,
        samples=samples,
    )
    buffer.actions[:] = actions
    dones = result.terminated | result.truncated
    buffer.episode_starts[0] = model._last_episode_starts
    buffer.episode_starts[1:] = dones[:-1]
    obs_type = np.float64 if result.raw_obs is None else np.float32
    model._last_obs = result.last_obs.astype(obs_type)
    if result.ends.is_unstable.any():
        model.logger.record("rollout/n_unstable", int(result.ends.is_unstable.sum()))

    raw_rewards, terminal_obs = buffer.rewards.copy(), result.ends.terminal_obs
    if normalize is not None:
        normalize.old_obs = result.last_obs if result.raw_obs is None else result.raw_obs[-1]
        normalize.old_reward = raw_rewards[-1]
        buffer.rewards[:] = normalize.normalize_reward(raw_rewards)
        terminal_obs = normalize.normalize_obs(terminal_obs)  # type: ignore[assignment]
    ends = result.ends
    is_timeout = ~result.terminated[ends.step, ends.env_index]
    is_going_on = finish_rollout(
        model,
        env,
        callback,
        buffer,
        dones,
        Timeouts(ends.step[is_timeout], ends.env_index[is_timeout], terminal_obs[is_timeout]),
        venv.replay(result, buffer.n_held, terminal_obs),
    )
    if normalize is not None:
        update_normalization_natively(normalize, venv._engine, result.raw_obs, raw_rewards, dones)
    return is_going_on


def _read_normalization(normalize: VecNormalize | None) -> ObsNormalization | None:
    if normalize is None or not normalize.norm_obs:
        return None
    assert isinstance(normalize.obs_rms, RunningMeanStd)
    scales = np.sqrt(normalize.obs_rms.var + normalize.epsilon)
    return ObsNormalization(np.ascontiguousarray(normalize.obs_rms.mean), scales, float(normalize.clip_obs))
