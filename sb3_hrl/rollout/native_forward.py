"""
Lock-step without the interpreter between a policy's layers: SB3's loop asks the native module, and gets SB3's own numbers.

The slow twin is ``ActorCriticPolicy.forward``; both are equal bit for bit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from torch.distributions import normal

from sb3_hrl.rollout.native_rollout import native_policy, why_policy_is_not_native


@contextmanager
def native_forward(policy: BasePolicy) -> Iterator[None]:
    """
    Meanwhile SB3's MlpPolicy with Gaussian actions, on the CPU, computes natively. Its weights must not change.

    :param policy: any policy; one of another kind stays as it is
    """
    if not _has_native_forward(policy):
        yield
        return
    assert isinstance(policy, ActorCriticPolicy)
    policy.forward = partial(_forward, policy, native_policy(policy))  # type: ignore[method-assign]
    try:
        yield
    finally:
        del policy.forward


def _has_native_forward(policy: BasePolicy) -> bool:
    return (
        why_policy_is_not_native(policy) is None
        and isinstance(policy.action_dist, DiagGaussianDistribution)
        and policy.device.type == "cpu"
        and isinstance(policy.observation_space, spaces.Box)
        and len(policy.observation_space.shape) == 1
    )


def _forward(
    policy: ActorCriticPolicy, native: Any, obs: th.Tensor, deterministic: bool = False
) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
    """``ActorCriticPolicy.forward``, with the random numbers that it would draw."""
    if deterministic or th.is_grad_enabled():
        return ActorCriticPolicy.forward(policy, obs, deterministic)
    noise = normal._standard_normal((len(obs), native.n_actions), th.float32, obs.device)
    actions, values, log_probs = native.forward(np.ascontiguousarray(obs.numpy(), np.float32), noise.numpy())
    if not np.isfinite(actions).all():
        # SB3's own says what is wrong.
        return ActorCriticPolicy.forward(policy, obs)
    return th.from_numpy(actions), th.from_numpy(values), th.from_numpy(log_probs)
