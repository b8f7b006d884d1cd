"""
Lock-step without the interpreter between a policy's layers: SB3's loop asks the native module.

The slow twin is ``ActorCriticPolicy.forward``. For SB3's MlpPolicy both are equal bit for bit; the features of ``NatureCnn``
are equal up to rounding (``sb3_hrl.native_images``).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from torch.distributions import normal
from torch.optim.optimizer import register_optimizer_step_post_hook

from sb3_hrl.cnn import NatureCnn
from sb3_hrl.native_images import NativeFeatures
from sb3_hrl.rollout.native_rollout import native_policy, why_policy_is_not_native


@contextmanager
def native_forward(policy: BasePolicy) -> Iterator[None]:
    """
    Meanwhile SB3's MlpPolicy with Gaussian actions, and ``NatureCnn``, compute natively on the CPU. Parameters may change;
    after the first question modules and hooks of an MlpPolicy must not.

    :param policy: any policy; one of another kind stays as it is
    """
    extractors = [module for module in policy.modules() if type(module) is NatureCnn]

    def begin_anew(*_: Any) -> None:
        for extractor in extractors:
            extractor.native = NativeFeatures()

    begin_anew()
    after_step = register_optimizer_step_post_hook(begin_anew)  # a callback may learn
    try:
        if _is_native(policy):
            assert isinstance(policy, ActorCriticPolicy)
            policy.forward = _NativeForward(policy)  # type: ignore[method-assign]
        yield
    finally:
        after_step.remove()
        for extractor in extractors:
            extractor.native = None
        vars(policy).pop("forward", None)


def _is_native(policy: BasePolicy) -> bool:
    return (
        why_policy_is_not_native(policy) is None
        and isinstance(policy, ActorCriticPolicy)
        and isinstance(policy.action_dist, DiagGaussianDistribution)
        and policy.device.type == "cpu"
        and policy.log_std.shape == (policy.action_dist.action_dim,)
        and bool((policy.log_std.exp() > 0).all())  # SB3 refuses zero
    )


class _NativeForward:
    """
    ``ActorCriticPolicy.forward``, with the random numbers that it would draw. What would have other bits is left to it, and so
    is the first question, since callbacks had their say before it: its distribution stays with the policy.

    :param policy: whose forward
    """

    def __init__(self, policy: ActorCriticPolicy) -> None:
        self.policy = policy
        self._parameters: list[th.nn.Parameter] = []
        self._state: list[tuple[int, int]] = []
        self._native: Any = None

    @property
    def __func__(self) -> Any:
        # What it stands for, as a bound method has it: it is no forward of the policy's own.
        return ActorCriticPolicy.forward

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of the policy has SB3's own.
        return getattr, (self.policy, "forward")

    def __call__(self, obs: th.Tensor, deterministic: bool = False) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        is_own = deterministic or th.is_grad_enabled() or th.is_autocast_enabled("cpu") or not self._is_handed_over()
        if is_own or self._native is None or obs.shape[1:] != (self.policy.features_dim,):
            return ActorCriticPolicy.forward(self.policy, obs, deterministic)
        numbers = obs.float()
        # The last bits of torch's products depend on the order and on the alignment.
        if not numbers.is_contiguous() or numbers.data_ptr() % 16 != 0:
            return ActorCriticPolicy.forward(self.policy, obs)
        noise = normal._standard_normal((len(obs), self._native.n_actions), th.float32, obs.device)
        actions, values, log_probs = self._native.forward(numbers.numpy(), noise.numpy())
        if np.isnan(actions).any():
            # SB3's own says what is wrong.
            return ActorCriticPolicy.forward(self.policy, obs)
        actions = actions.reshape(-1, *self.policy.action_space.shape)  # type: ignore[misc]
        return th.from_numpy(actions), th.from_numpy(values), th.from_numpy(log_probs)

    def _is_handed_over(self) -> bool:
        """Whether the native module has the parameters as they are. If not, hand them over for the next question."""
        if self._parameters and self._state == [_state(parameter) for parameter in self._parameters]:
            return True
        self._parameters = list(self.policy.parameters())
        self._state = [_state(parameter) for parameter in self._parameters]
        self._native = native_policy(self.policy) if _is_native(self.policy) else None
        return False


def _state(tensor: th.Tensor) -> tuple[int, int]:
    """Another one if another has the tensor's memory, or the same has other numbers."""
    return tensor.data_ptr(), tensor._version
