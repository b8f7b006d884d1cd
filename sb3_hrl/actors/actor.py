"""
An actor: it acts in its environments with the newest weights, and hands over one trajectory after the other.

It needs three things only, so that another transport can stand behind them: somebody who builds its environments, a source of
weights, a sink of trajectories.
"""

import random
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch as th
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import (
    VecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
    unwrap_vec_normalize,
)

from sb3_hrl.actors.trajectory import ActorState, read_obs
from sb3_hrl.checkpoint import tree
from sb3_hrl.checkpoint.env_state import begins_anew, get_env_state, set_env_state
from sb3_hrl.rollout.native_forward import native_forward
from sb3_hrl.wrappers import ActionHold

HOLD = "hold"


class Task(NamedTuple):
    """
    What a sink asks for.

    :param arrays: of a trajectory, to be filled: see ``trajectory_fields``
    :param sequence: its number
    :param wants_state: whether the report is to tell where the actor is then
    """

    arrays: dict[str, np.ndarray]
    sequence: int
    wants_state: bool


class Report(NamedTuple):
    """
    What there is to say about a trajectory beside its arrays; see ``Trajectory``.

    :param terminal_obs: last observations of the timeouts, in the order of ``infos``
    """

    version: int
    terminal_obs: list[Any]
    infos: list[tuple[int, int, dict[str, Any]]]
    state: ActorState | None
    collect_seconds: float
    wait_seconds: float


class WeightSource(Protocol):
    """Where an actor finds what the learner has learned."""

    def read(self, arrays: dict[str, np.ndarray], known: int = 0) -> int:
        """
        :param arrays: take the values; untouched if the version is known
        :param known: the version that they have
        :return: the version that they have now
        """


class TrajectorySink(Protocol):
    """Where an actor puts what it has collected."""

    def start(self, obs: Any, state: ActorState) -> None:
        """
        :param obs: of the environments after their first reset
        :param state: where the actor is
        """

    def take(self) -> Task | None:
        """
        :return: what to fill next, as soon as there is room; None at the end
        """

    def put(self, report: Report) -> None:
        """
        :param report: of the task that was taken last; its arrays are filled
        """

    def is_open(self) -> bool:
        """
        :return: whether to go on; it is asked at every step, and so it is a sign of life, too
        """


class ActorSpec(NamedTuple):
    """
    All that an actor is made from.

    :param build: builds the environments of these numbers
    :param wrappers: around them, the innermost first: class and arguments
    :param policy_class: of the behaviour policy
    :param policy_kwargs: its constructor's arguments
    :param n_steps: length of a trajectory
    :param use_sde: whether the policy's noise depends on the state
    :param sde_sample_freq: how often that noise is drawn anew
    """

    build: Callable[[Sequence[int], bool], VecEnv]
    wrappers: list[tuple[type[VecEnvWrapper], dict[str, Any]]]
    policy_class: type[ActorCriticPolicy]
    policy_kwargs: dict[str, Any]
    n_steps: int
    use_sde: bool
    sde_sample_freq: int


def describe_policy(policy: ActorCriticPolicy) -> dict[str, Any]:
    """
    :param policy: the model's policy
    :return: arguments of its class for a policy that acts and does not learn
    """
    kwargs = policy._get_constructor_parameters() | {"optimizer_class": _NoOptimizer, "optimizer_kwargs": {}}
    if not policy.share_features_extractor:  # SB3 forgets it
        kwargs["share_features_extractor"] = False
    return kwargs


class _NoOptimizer:
    """An actor needs none, and the real one would take a second to import what it never uses."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


class Start(NamedTuple):
    """
    Where an actor starts.

    :param actor: its number
    :param envs: the numbers of its environments
    :param seeds: of these environments
    :param options: for their first reset
    :param n_starts: how many actors of this number there were before
    :param noise_seed: of the actions' random numbers
    :param state: where it goes on; None for new episodes
    """

    actor: int
    envs: Sequence[int]
    seeds: list[int | None]
    options: list[dict[str, Any]]
    n_starts: int
    noise_seed: int
    state: ActorState | None


def derive_seed(*numbers: int) -> int:
    """
    :param numbers: any
    :return: a seed that follows from them, below 2**63
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def learned_arrays(policy: ActorCriticPolicy, env: VecEnv) -> dict[str, np.ndarray]:
    """
    What travels from the learner to the actors; in a process that acts, writing into these arrays is enough.

    :param policy: the policy
    :param env: its environments
    :return: weights of the policy, and statistics of a ``VecNormalize``
    """
    arrays = {f"policy.{name}": tensor.detach().cpu().numpy() for name, tensor in policy.state_dict().items()}
    normalize = unwrap_vec_normalize(env)
    if normalize is not None:
        statistics: dict[str, RunningMeanStd] = {"returns": normalize.ret_rms}
        if normalize.norm_obs:
            statistics |= normalize.obs_rms if isinstance(normalize.obs_rms, dict) else {"obs": normalize.obs_rms}
        for name, moments in statistics.items():
            arrays |= {f"{name}.mean": np.asarray(moments.mean), f"{name}.var": np.asarray(moments.var)}
    return arrays


def describe_wrappers(env: VecEnv) -> list[tuple[type[VecEnvWrapper], dict[str, Any]]]:
    """
    :param env: environments in wrappers
    :return: class and arguments of the wrappers, for ``ActorSpec``; statistics of a ``VecNormalize`` stay as they are there
    :raises ValueError: that names a wrapper which is not known here
    """
    wrappers: list[tuple[type[VecEnvWrapper], dict[str, Any]]] = []
    while isinstance(env, VecEnvWrapper):
        kwargs: dict[str, Any] = {}
        if type(env) is VecNormalize:
            names = ("norm_obs", "norm_reward", "clip_obs", "clip_reward", "gamma", "epsilon", "norm_obs_keys")
            kwargs = {name: getattr(env, name) for name in names} | {"training": False}
        elif type(env) is VecFrameStack:
            parts = getattr(env.stacked_obs, "sub_stacked_observations", None)
            order = _channels_order(env.stacked_obs) if parts is None else {k: _channels_order(v) for k, v in parts.items()}
            kwargs = {"n_stack": env.stacked_obs.n_stack, "channels_order": order}
        elif type(env) is VecTransposeImage:
            kwargs = {"skip": env.skip}
        else:
            raise ValueError(
                f"n_actors: a {type(env).__name__} cannot stand around environments in actor processes, only VecNormalize, "
                "VecFrameStack and VecTransposeImage: give it as vec_env_wrapper, then each actor has one"
            )
        wrappers.insert(0, (type(env), kwargs))
        env = env.venv
    return wrappers


def _channels_order(stacked_obs: Any) -> str:
    return "first" if stacked_obs.channels_first else "last"


class Actor:
    """
    Environments and the policy that acts in them.

    The loop is SB3's own ``collect_rollouts``, with a ``_Recorder`` as its callback and as its buffer.

    :param spec: what it is made from
    :param start: where it starts
    """

    collect_rollouts: Any = OnPolicyAlgorithm.collect_rollouts
    # What that uses beside the attributes that are set below.
    device = th.device("cpu")
    num_timesteps = 0
    gamma = 0.0

    def __init__(self, spec: ActorSpec, start: Start) -> None:
        self._spec, self._actor, self._noise_seed = spec, start.actor, start.noise_seed
        # Some environments draw from the global streams. An actor that takes another's place draws other numbers.
        set_random_seed(derive_seed(start.noise_seed, start.actor, start.n_starts) % 2**32)
        venv = spec.build(start.envs, start.n_starts > 0)
        venv.unwrapped._seeds, venv.unwrapped._options = start.seeds, start.options
        self.reset_obs = venv.reset()
        # The learner's wrappers see this reset, and the actor's see the same one.
        venv.reset = lambda: self.reset_obs  # type: ignore[method-assign]
        self.env = venv
        for wrapper_class, kwargs in spec.wrappers:
            self.env = wrapper_class(self.env, **kwargs)
        self.has_hold = all(venv.env_is_wrapped(ActionHold))
        self.policy = spec.policy_class(**spec.policy_kwargs)
        self.action_space = self.env.action_space
        self.use_sde, self.sde_sample_freq = spec.use_sde, spec.sde_sample_freq
        self._last_obs: Any = None
        self._last_episode_starts = np.ones(venv.num_envs, dtype=bool)
        self.state = self._get_state(0) if start.state is None else start.state
        if start.state is not None:
            self._set_state(start.state)

    def _get_state(self, sequence: int) -> ActorState:
        """Where it is before the trajectory of this number."""
        envs = get_env_state(self.env)
        is_new = self._last_obs is None
        packed = tree.pack((envs, is_new, self.reset_obs if is_new else self._last_obs, self._last_episode_starts))
        return ActorState(self._noise_seed, sequence, envs["missing"], *packed)

    def _set_state(self, state: ActorState) -> None:
        envs, is_new, obs, last_episode_starts = tree.unpack(state.structure, state.arrays)
        missing = set_env_state(self.env, envs)
        unknown = [name for name in missing if name not in state.missing]  # the learner tells of the others
        if unknown:
            warnings.warn(f"actor {self._actor} goes on, but not exactly; what restarts: {'; '.join(unknown)}")
        if begins_anew(missing):
            return
        if is_new:
            self.reset_obs = obs
        else:
            self._last_obs, self._last_episode_starts = obs, last_episode_starts

    def _update_info_buffer(self, infos: list[dict[str, Any]], dones: np.ndarray | None = None) -> None:
        """That is the learner's."""

    def run(self, weights: WeightSource, sink: TrajectorySink) -> None:
        """
        Collect until the sink says that it is enough.

        :param weights: where the weights come from
        :param sink: where the trajectories go to
        """
        sink.start(self.reset_obs, self.state)
        learned = learned_arrays(self.policy, self.env)
        if self.has_hold:
            learned[HOLD] = np.zeros(2)
        version = 0
        waits_since = time.perf_counter()
        while (task := sink.take()) is not None:
            start = time.perf_counter()
            version = weights.read(learned, version)
            if self.has_hold:
                self.env.env_method("configure_hold", float(learned[HOLD][0]), int(learned[HOLD][1]))
            if self._last_obs is None:
                self._last_obs = self.env.reset()
            # The same numbers for the same trajectory, whatever has happened to the actors before.
            seed = derive_seed(self._noise_seed, self._actor, 0, task.sequence)
            random.seed(seed)
            np.random.seed(seed % 2**32)
            th.manual_seed(seed)
            recorder = _Recorder(self.env, task.arrays, sink)
            recorder.write_obs("obs", 0, self._last_obs)
            task.arrays["episode_starts"][0] = self._last_episode_starts
            with native_forward(self.policy):
                is_going_on = self.collect_rollouts(self.env, recorder, recorder, self._spec.n_steps)
            if not is_going_on:
                break
            state = self._get_state(task.sequence + 1) if task.wants_state else None
            seconds = time.perf_counter() - start
            sink.put(Report(version, recorder.terminal_obs, recorder.infos, state, seconds, start - waits_since))
            waits_since = time.perf_counter()
        self.env.close()


class _Recorder:
    """
    The callback, and the buffer, of SB3's ``collect_rollouts``: writes what it sees into a trajectory's arrays.

    :param env: the environments, with their wrappers
    :param arrays: of the trajectory
    :param sink: says whether to go on
    """

    def __init__(self, env: VecEnv, arrays: dict[str, np.ndarray], sink: TrajectorySink) -> None:
        self._normalize = unwrap_vec_normalize(env)
        self._arrays, self._sink = arrays, sink
        self.terminal_obs: list[Any] = []
        self.infos: list[tuple[int, int, dict[str, Any]]] = []
        arrays["n_held"].fill(1)
        arrays["timeouts"].fill(False)

    def write_obs(self, name: str, step: int, obs: Any) -> None:
        """Write the observations of a step, of all environments."""
        target = read_obs(self._arrays, name)
        if isinstance(target, dict):
            for key, array in target.items():
                array[step] = obs[key]
        else:
            target[step] = obs

    def update_locals(self, locals_: dict[str, Any]) -> None:
        """As of a callback."""
        self._locals = locals_

    def on_rollout_start(self) -> None:
        """As of a callback."""

    def on_rollout_end(self) -> None:
        """As of a callback."""

    def on_step(self) -> bool:
        """As of a callback: after the environments' step."""
        seen, arrays = self._locals, self._arrays
        step, infos = seen["n_steps"], seen["infos"]
        self.write_obs("obs", step + 1, seen["new_obs"])
        arrays["actions"][step] = seen["actions"]
        arrays["log_probs"][step] = seen["log_probs"].numpy()
        arrays["values"][step] = seen["values"].flatten().numpy()
        arrays["rewards"][step] = seen["rewards"]
        arrays["episode_starts"][step + 1] = seen["dones"]
        if self._normalize is not None:
            self.write_obs("raw_obs", step, self._normalize.old_obs)
            arrays["raw_rewards"][step] = self._normalize.old_reward
        if "n_held" in infos[0]:
            arrays["n_held"][step] = [info["n_held"] for info in infos]
        for index in np.flatnonzero(seen["dones"]).tolist():
            self._end_episode(step, index, infos[index])
        return self._sink.is_open()

    def _end_episode(self, step: int, index: int, info: dict[str, Any]) -> None:
        ended = dict(info)
        terminal_obs = ended.pop("terminal_observation", None)
        if "hold_episode" in ended:
            ended["episode"] = ended["hold_episode"]  # in the task's units, wherever a Monitor lies
        if terminal_obs is not None and info.get("TimeLimit.truncated", False):
            self._arrays["timeouts"][step, index] = True
            self.terminal_obs.append(terminal_obs)
            info["TimeLimit.truncated"] = False  # the bootstrap is the learner's
        self.infos.append((step, index, ended))

    def reset(self) -> None:
        """As of a buffer."""

    def add(self, *args: Any) -> None:
        """As of a buffer."""

    def compute_returns_and_advantage(self, last_values: th.Tensor, dones: np.ndarray) -> None:
        """As of a buffer: after the last step."""
        self._arrays["last_values"][:] = last_values.flatten().numpy()
