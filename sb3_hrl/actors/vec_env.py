"""Environments that live in actor processes, as a VecEnv for the learner."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import gymnasium as gym
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import ResultsWriter
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from sb3_hrl.actors.actor import Start, derive_seed
from sb3_hrl.actors.process import preload
from sb3_hrl.actors.trajectory import ActorState
from sb3_hrl.checkpoint.env_state import get_env_state, set_env_state

if TYPE_CHECKING:
    from sb3_hrl.actors.pool import ActorPool

EnvFns = Sequence[Callable[[], gym.Env]]
# What no checkpoint has.
_QUEUE = "the queue: trajectories that actors had collected and the learner had not learned from are dropped"


class EnvRecipe:
    """
    Builds some of many environments, in whatever process.

    :param env_fns: each builds one
    :param vec_env_wrapper: is put around those that are built together
    """

    def __init__(self, env_fns: EnvFns, vec_env_wrapper: Callable[[VecEnv], VecEnv] | None = None) -> None:
        self.env_fns, self.vec_env_wrapper = list(env_fns), vec_env_wrapper

    def __call__(self, indices: Sequence[int], goes_on: bool = False) -> VecEnv:
        """
        :param indices: which environments
        :param goes_on: whether they were built before: then their monitor files go on
        :return: these environments
        """
        with _going_on(goes_on):
            venv: VecEnv = DummyVecEnv([self.env_fns[index] for index in indices])
            return venv if self.vec_env_wrapper is None else self.vec_env_wrapper(venv)


class ActorVecEnv(VecEnv):
    """
    Environments that are built in actor processes while a model learns with ``n_actors``.

    ``make_vec_env(..., vec_env_cls=ActorVecEnv)`` makes one. Only one environment is built here, to see the spaces; attributes
    are read from it. Without actors it is an ordinary VecEnv, whose environments are built in this process when they are first
    reset. Modules that the environment names in ``metadata["preload"]`` are imported once for all actors, so that those which
    take long, or load much, delay none of them.

    :param env_fns: functions that each build an environment
    :param vec_env_wrapper: is put around the environments of each actor
    """

    def __init__(self, env_fns: EnvFns, vec_env_wrapper: Callable[[VecEnv], VecEnv] | None = None) -> None:
        self.recipe = EnvRecipe(env_fns, vec_env_wrapper)
        # How often each actor has been started on them, by its number.
        self._n_starts: Counter[int] = Counter()
        self._given_seeds: Sequence[int | None] = [None] * len(env_fns)
        # While actors collect.
        self.pool: ActorPool | None = None
        # Where each actor was after its last trajectory that the learner has got; None if it is not known.
        self.actor_states: list[ActorState | None] = []
        # Whether they were ahead of the learner.
        self.has_queue = False
        self._example = self.recipe([0])
        self._example.close()
        super().__init__(len(env_fns), self._example.observation_space, self._example.action_space)
        self.metadata = self._example.metadata
        preload(self.metadata.get("preload", ()))

    @cached_property
    def _local(self) -> VecEnv:
        """All environments, in this process."""
        return self.recipe(range(self.num_envs), goes_on=self._n_starts.total() > 0)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        self._given_seeds = super().seed(seed)
        return self._given_seeds

    def next_start(self, actor: int, envs: Sequence[int], noise_seed: int, state: ActorState | None) -> Start:
        """
        :param actor: number of an actor
        :param envs: its environments
        :param noise_seed: of its actions
        :param state: where it goes on; None for new episodes
        :return: where it starts: with the seeds that were given, and later with others that follow from these
        """
        n_starts = self._n_starts[actor]
        self._n_starts[actor] += 1
        seeds = []
        for index in envs:
            seed, given = self._seeds[index], self._given_seeds[index]
            if seed is None and given is not None:
                seed = derive_seed(given, n_starts) % 2**32
            seeds.append(seed)
        return Start(actor, envs, seeds, [self._options[index] for index in envs], n_starts, noise_seed, state)

    # --- checkpoints ----------------------------------------------------------------------------------------------------

    @property
    def state_kind(self) -> str:
        """Whose states fit: those of as many actors."""
        return f"{type(self).__name__} with {len(self.actor_states)} actors"

    def get_state(self) -> list[dict[str, Any]] | None:
        """
        From now on, actors tell where they are.

        :return: where each actor was after its last trajectory that the learner has got; of environments in this process their
            state. None if it is not known
        """
        if self.pool is not None:
            self.pool.keeps_states = True
        if not self.actor_states:
            return [get_env_state(self._local)] if "_local" in self.__dict__ else None
        queue = [_QUEUE] if self.has_queue else []
        states = [
            state._replace(missing=sorted({*state.missing, *queue}))._asdict()
            for state in self.actor_states
            if state is not None
        ]
        return states if len(states) == len(self.actor_states) else None

    def set_state(self, states: list[dict[str, Any]]) -> None:
        """
        Go on where ``get_state`` was called, with as many actors, before their first trajectory.

        :param states: what ``get_state`` returned
        """
        if not self.actor_states:
            set_env_state(self._local, states[0])
            return
        self.actor_states = [ActorState(**state) for state in states]
        if self.pool is not None:
            self.pool.restart()

    def _stepped_here(self) -> VecEnv:
        if self.pool is not None:
            raise RuntimeError("the environments are in actor processes, which collect whole trajectories")
        return self._local

    def reset(self) -> VecEnvObs:
        if self.pool is not None:
            obs = self.pool.reset()
        else:
            self.actor_states = []  # they are here now
            self._local.unwrapped._seeds, self._local.unwrapped._options = self._seeds, self._options
            obs = self._local.reset()
            self.reset_infos = self._local.reset_infos
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: Any) -> None:
        self._stepped_here().step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        return self._stepped_here().step_wait()

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()
        if "_local" in self.__dict__:
            self._local.close()

    def get_images(self) -> Sequence[Any]:
        return self._stepped_here().get_images()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        if "_local" in self.__dict__ and self.pool is None:
            return self._local.get_attr(attr_name, indices)
        return [self._example.get_attr(attr_name)[0] for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        self._stepped_here().set_attr(attr_name, value, indices)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        return self._stepped_here().env_method(method_name, *method_args, indices=indices, **method_kwargs)

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        return [self._example.env_is_wrapped(wrapper_class)[0] for _ in self._get_indices(indices)]


def actor_env(env: VecEnv | None) -> ActorVecEnv | None:
    """
    :param env: environments, perhaps in wrappers
    :return: the ``ActorVecEnv`` among them, if there is one
    """
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    return env if isinstance(env, ActorVecEnv) else None


def make_actor_env(env: Any, n_actors: int | None, seed: int | None = None) -> Any:
    """
    What a constructor with ``n_actors`` makes of its ``env``.

    :param env: an id or a function, for one environment in each actor; or a VecEnv with an ``ActorVecEnv``
    :param n_actors: number of actors; None or 0 for none
    :param seed: of the environments that are made
    :return: environments for the model; without actors, ``env`` as it is
    :raises ValueError: if these environments cannot be shared out among actors
    """
    check_actors(n_actors)
    if not n_actors or env is None:
        return env
    if isinstance(env, str) or (callable(env) and not isinstance(env, gym.Env | VecEnv)):
        return make_vec_env(env, n_actors, seed=seed, vec_env_cls=ActorVecEnv)  # type: ignore[arg-type]
    if not isinstance(env, VecEnv) or actor_env(env) is None:
        raise ValueError(
            f"n_actors: expected the environment's id, a function that makes one, or what make_vec_env(..., "
            f"vec_env_cls=ActorVecEnv) gives, got a {type(env).__name__}: it exists already, and only in this process"
        )
    check_shares(env.num_envs, n_actors)
    return env


def check_actors(
    n_actors: Any = None, actor_timeout: Any = 30.0, max_restarts: Any = 100, rollout: Any = "auto", **_: Any
) -> None:
    """
    Check those of a constructor's arguments that are about actors.

    :param n_actors: None or a number of processes
    :param actor_timeout: seconds
    :param max_restarts: a number
    :param rollout: how rollouts are collected
    :raises ValueError: that names the argument, what was expected and what came
    """
    if n_actors is not None and (isinstance(n_actors, bool) or not isinstance(n_actors, int) or n_actors < 0):
        raise ValueError(f"n_actors: expected a number of processes >= 1, or 0 for none, got {n_actors!r}")
    if not actor_timeout > 0:
        raise ValueError(f"actor_timeout: expected a number of seconds > 0, got {actor_timeout!r}")
    if max_restarts < 0:
        raise ValueError(f"max_restarts: expected a whole number >= 0, got {max_restarts!r}")
    if n_actors and rollout == "native":
        raise ValueError(f"rollout: 'native' is not possible with n_actors={n_actors}: actors have a loop of their own")


def check_shares(n_envs: int, n_actors: int) -> None:
    """
    :param n_envs: number of all environments
    :param n_actors: among whom they are shared out
    :raises ValueError: unless each gets the same number
    """
    if n_envs % n_actors == 0 and n_envs > 0:
        return
    below = n_envs // n_actors * n_actors
    fitting = " or ".join(str(number) for number in (below, below + n_actors) if number)
    divisors = ", ".join(str(number) for number in range(1, n_envs + 1) if n_envs % number == 0)
    raise ValueError(
        f"n_envs is the total: {n_envs} environments cannot be shared out evenly among {n_actors} actors; "
        f"n_envs: {fitting} would fit, or n_actors: {divisors}"
    )


@contextmanager
def _going_on(goes_on: bool) -> Iterator[None]:
    """Monitor files that are there already go on, instead of being written over."""
    original = ResultsWriter.__init__

    def append(
        self: ResultsWriter, filename: str = "", header: Any = None, extra_keys: Any = (), override_existing: bool = True
    ) -> None:
        original(self, filename, header, extra_keys, override_existing=False)
        if self.file_handler.tell() == 0:
            self.close()
            original(self, filename, header, extra_keys)

    if goes_on:
        ResultsWriter.__init__ = append  # type: ignore[method-assign]
    try:
        yield
    finally:
        ResultsWriter.__init__ = original  # type: ignore[method-assign]
