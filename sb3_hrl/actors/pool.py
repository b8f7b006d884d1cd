"""The learner's side of the actors: starts them, gives them weights, gets their trajectories, replaces those that fail."""

import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize

from sb3_hrl.actors.actor import HOLD, ActorSpec, Report, describe_policy, describe_wrappers, learned_arrays
from sb3_hrl.actors.memory import Field, SharedArrays, SharedWeights
from sb3_hrl.actors.process import ERROR, READY, Receiver, start_process
from sb3_hrl.actors.trajectory import ActorState, Trajectory, read_obs, trajectory_fields
from sb3_hrl.actors.vec_env import actor_env, check_shares
from sb3_hrl.cnn import NatureCnnPolicy
from sb3_hrl.wrappers import ActionHold

# How long the learner waits at a time before it looks after the actors, and what share of the time-out one look counts at most
# on the clock of an actor that gives no sign of life: a learner that was away, or stopped, must not blame the actors for it.
_LOOK_SECONDS = 0.25
_MAX_LOOK_SHARE = 1 / 3
# How much of the time-out may pass: what is left is for the looks, which are apart. Starting takes longer than a step.
_PATIENCE, _START_PATIENCE = 0.9, 4.0
_CLOSE_SECONDS = 5.0
# Without it a script would be run again in every process that it starts.
_GUARD = '`if __name__ == "__main__":`'


class PoolTimes(NamedTuple):
    """
    Who waited for whom.

    :param learner_wait: share of the time that the learner waited for trajectories
    :param actor_wait: share of the time that the actors waited for room to put them
    :param bottleneck: ``actors`` or ``learner``, whoever the other waited for
    """

    learner_wait: float
    actor_wait: float
    bottleneck: str


class _Worker:
    """One actor, as the learner sees it; its process may be replaced."""

    process: Any
    receiver: Receiver

    def __init__(self, index: int, envs: range, n_slots: int) -> None:
        self.index, self.envs = index, envs
        self.n_sequences = 0
        # Asked for and not yet there: slot and sequence.
        self.owed: deque[tuple[int, int]] = deque()
        self.free_slots = list(range(index * n_slots, (index + 1) * n_slots))
        self.reset_obs: Any = None
        self.error: str | None = None
        # After the last trajectory that has come; None if it is not known. Whether an actor has been started from there.
        self.state: ActorState | None = None
        self.has_gone_back = False
        self.n_beats, self.quiet_seconds, self.last_look = 0, 0.0, 0.0


class ActorPool:
    """
    Processes that collect trajectories while the learner does what it likes.

    Every actor has ``n_slots`` places for trajectories; when all are full it waits until the learner has released one. So no
    trajectory is dropped, and none is older than the places allow. Each is delivered once and whole, in the order of its
    actor's sequence.

    An actor that dies, or gives no sign of life for ``timeout`` seconds while it has something to do, is killed and replaced;
    the trajectory that it was at is collected anew. It is the learner who looks after them, whenever it asks for a trajectory.

    If states are kept (``keeps_states``), the ``ActorVecEnv`` knows where each actor was after its last trajectory that was
    given out, for those who go on later; and a replacement goes on after the last one that has come.

    Between learner and actors there are only sockets and memory without a name: nothing of that stays when they are gone,
    however they go.

    :param env: the model's environments: an ``ActorVecEnv``, perhaps in wrappers
    :param policy: the model's policy
    :param n_actors: number of processes
    :param n_steps: length of a trajectory
    :param noise_seed: of the actions' random numbers, which depend on it, the actor's number and the sequence only
    :param n_slots: places for trajectories of each actor
    :param use_sde: whether the policy's noise depends on the state
    :param sde_sample_freq: how often that noise is drawn anew
    :param hold: where an ``ActionHold`` is: the discount of one step, and how many decisions were taken; None without one
    :param timeout: seconds without a sign of life after which an actor counts as hung: longer than any step
    :param max_restarts: how many actors may be replaced
    """

    def __init__(
        self,
        env: VecEnv,
        policy: ActorCriticPolicy,
        n_actors: int,
        n_steps: int,
        noise_seed: int,
        n_slots: int = 2,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        hold: Callable[[], tuple[float, int] | None] = lambda: None,
        timeout: float = 30.0,
        max_restarts: int = 100,
    ) -> None:
        venv = actor_env(env)
        if venv is None:
            raise ValueError(f"n_actors: expected environments in an ActorVecEnv, got a {type(env).__name__}")
        check_shares(env.num_envs, n_actors)
        if any(env.env_is_wrapped(ActionHold)) and hold() is None:
            raise ValueError(
                "hold: expected the discount and the number of decisions for environments with an ActionHold, got None"
            )
        self._env, self._venv, self._policy, self._hold = env, venv, policy, hold
        self._timeout, self._max_restarts = timeout, max_restarts
        made_of = venv.recipe, describe_wrappers(env), type(policy), describe_policy(policy)
        self._spec = cloudpickle.dumps(ActorSpec(*made_of, n_steps, use_sde, sde_sample_freq))
        n_envs = env.num_envs // n_actors
        normalize = unwrap_vec_normalize(env)
        raw_space = None if normalize is None else normalize.venv.observation_space
        # As environments give images, and as the buffer of these policies keeps them: nobody has to turn them round.
        channels_last = isinstance(policy, NatureCnnPolicy) and is_image_space(env.observation_space)
        fields = trajectory_fields(n_steps, n_envs, env.observation_space, env.action_space, raw_space, channels_last)
        self._slots = SharedArrays(fields, n_actors * n_slots)
        self._weights = SharedWeights(self._learned())
        self._control = SharedArrays(
            {"beats": Field((n_actors,), np.dtype(np.int64)), "is_closed": Field((1,), np.dtype(np.bool_))}
        )
        self._workers = [_Worker(index, range(index * n_envs, (index + 1) * n_envs), n_slots) for index in range(n_actors)]
        self._finished: deque[Trajectory] = deque()
        self._gathered: list[Trajectory] = []
        self._has_started = False
        self._times_since, self._learner_wait, self._actor_wait, self._actor_work = 0.0, 0.0, 0.0, 0.0
        self.noise_seed, self._n_slots = noise_seed, n_slots
        # Whether actors tell where they are after each trajectory, from the next one that is asked for.
        self.keeps_states = False
        # How often weights were published, which is the version of the newest ones; how many actors were replaced.
        self.version, self.n_restarts = 0, 0

    def _learned(self) -> dict[str, np.ndarray]:
        arrays, hold = learned_arrays(self._policy, self._env), self._hold()
        return arrays if hold is None else arrays | {HOLD: np.array(hold, dtype=np.float64)}

    # --- what the learner does ------------------------------------------------------------------------------------------

    def start(self, goes_on: bool = False) -> None:
        """
        Start the actors.

        :param goes_on: whether they go on where their ``ActorVecEnv`` says that the last ones were; else with new episodes
        """
        self._venv.pool, self._venv.has_queue = self, self._n_slots > 1
        self._has_started = True
        self._times_since = time.perf_counter()
        if not goes_on:
            self._venv.actor_states = [None] * len(self._workers)
        self._start_all()

    def restart(self) -> None:
        """Start the actors again before their first trajectory, since the environments' states have been set."""
        if self.version > 0:
            raise RuntimeError("the environments' states cannot be set any more: the actors have begun")
        for worker in self._workers:
            self._end(worker)
        self._start_all()

    def _start_all(self) -> None:
        for worker, state in zip(self._workers, self._venv.actor_states, strict=True):
            worker.state = state
            if state is not None:
                worker.n_sequences, self.noise_seed, self.keeps_states = state.sequence, state.noise_seed, True
            self._start(worker)

    def __enter__(self) -> "ActorPool":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def reset(self) -> Any:
        """
        :return: the observations with which the environments have started; ``ActorVecEnv.reset`` is for everybody else
        """
        while any(worker.reset_obs is None for worker in self._workers):
            self._look(_LOOK_SECONDS)
        parts = [worker.reset_obs for worker in self._workers]
        if isinstance(parts[0], dict):
            return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        return np.concatenate(parts)

    def publish(self) -> int:
        """
        Let the actors act with what policy and ``VecNormalize`` have learned, from their next trajectory on. They begin when
        this is called for the first time.

        :return: the version of these weights
        """
        self.version += 1
        self._weights.write(self._learned(), self.version)
        if self.version == 1:
            for worker in self._workers:
                self._ask(worker)
        return self.version

    def get(self) -> Trajectory:
        """
        :return: the trajectory that was finished first, of those that were not yet given; waits for it
        :raises RuntimeError: if too many actors had to be replaced, or none has anything to do
        """
        start = time.perf_counter()
        self._look(0.0)
        while not self._finished:
            if not any(worker.owed for worker in self._workers):
                raise RuntimeError("no actor has anything to do: publish() comes first, and release() after each trajectory")
            self._look(_LOOK_SECONDS)
        self._learner_wait += time.perf_counter() - start
        trajectory = self._finished.popleft()
        self._venv.actor_states[trajectory.actor] = trajectory.state
        return trajectory

    def release(self, trajectory: Trajectory) -> None:
        """
        :param trajectory: whose memory is free from now on
        """
        worker = self._workers[trajectory.actor]
        worker.free_slots.append(trajectory.slot)
        self._ask(worker)

    def gather(self) -> list[Trajectory]:
        """
        A whole rollout: publishes, releases the trajectories of the last call, and waits for as many as there are actors.

        :return: the trajectories in the order of the actors; if each has one slot, one of each, all of the newest version
        """
        self.publish()
        for trajectory in self._gathered:
            self.release(trajectory)
        self._gathered = sorted((self.get() for _ in self._workers), key=lambda trajectory: trajectory.actor)
        return self._gathered

    def times(self) -> PoolTimes:
        """
        :return: who waited for whom, since this was last asked
        """
        now = time.perf_counter()
        learner_wait = self._learner_wait / max(now - self._times_since, 1e-9)
        actor_wait = self._actor_wait / max(self._actor_wait + self._actor_work, 1e-9)
        self._times_since, self._learner_wait, self._actor_wait, self._actor_work = now, 0.0, 0.0, 0.0
        return PoolTimes(learner_wait, actor_wait, "actors" if learner_wait > actor_wait else "learner")

    def close(self) -> None:
        """End the actors, those that hang, too. What they have not delivered is lost."""
        if not self._has_started:
            return
        self._has_started = False
        self._venv.pool = None
        self._control.arrays()["is_closed"][0] = True
        workers = [worker for worker in self._workers if hasattr(worker, "process")]
        for worker in workers:
            worker.receiver.connection.close()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for worker in workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            self._end(worker)

    # --- looking after the actors ---------------------------------------------------------------------------------------

    def _start(self, worker: _Worker) -> None:
        start = self._venv.next_start(worker.index, worker.envs, self.noise_seed, worker.state)
        worker.process, connection = start_process(
            f"actor-{worker.index}", self._spec, start, self._weights, self._slots, self._control
        )
        worker.receiver = Receiver(connection)
        worker.reset_obs = worker.error = None
        worker.quiet_seconds, worker.last_look = 0.0, time.monotonic()
        for order in worker.owed:
            self._send(worker, order)

    def _ask(self, worker: _Worker) -> None:
        """Ask an actor for a trajectory into each of its free slots."""
        if self.version == 0:
            return
        while worker.free_slots:
            order = worker.free_slots.pop(0), worker.n_sequences
            worker.n_sequences += 1
            worker.owed.append(order)
            self._send(worker, order)

    def _send(self, worker: _Worker, order: tuple[int, int]) -> None:
        # If it is gone, the next look finds out, and its replacement is asked again.
        with suppress(OSError):
            worker.receiver.connection.send((*order, self.keeps_states))

    def _look(self, seconds: float) -> None:
        """
        Take what the actors have sent, and replace those that have failed.

        :param seconds: how long to wait if there is nothing
        """
        if not self._has_started:
            raise RuntimeError("the pool of actors is closed")
        wait([thing for worker in self._workers for thing in (worker.receiver.connection, worker.process.sentinel)], seconds)
        for worker in self._workers:
            # Asked first: what it has sent before its end is still there.
            is_gone = not worker.process.is_alive()
            try:
                while (message := worker.receiver.receive()) is not None:
                    worker.quiet_seconds = 0.0
                    self._take(worker, *message)
            except EOFError:
                is_gone = True
            if is_gone:
                self._replace(worker)
            elif self._is_hung(worker):
                self._replace(worker, f"gave no sign of life for {worker.quiet_seconds:.0f} seconds")

    def _is_hung(self, worker: _Worker) -> bool:
        now, n_beats = time.monotonic(), int(self._control.arrays()["beats"][worker.index])
        is_busy = worker.reset_obs is None or bool(worker.owed)
        if n_beats != worker.n_beats or not is_busy:
            worker.quiet_seconds = 0.0
        else:
            worker.quiet_seconds += min(now - worker.last_look, _MAX_LOOK_SHARE * self._timeout)
        worker.n_beats, worker.last_look = n_beats, now
        return worker.quiet_seconds > self._timeout * (_START_PATIENCE if worker.reset_obs is None else _PATIENCE)

    def _take(self, worker: _Worker, kind: str, content: Any) -> None:
        if kind == READY:
            worker.reset_obs, state = content
            if worker.n_sequences == len(worker.owed):  # nothing has come yet
                worker.state = self._venv.actor_states[worker.index] = state
        elif kind == ERROR:
            worker.error = content
        else:
            slot, sequence = worker.owed.popleft()
            worker.state, worker.has_gone_back = content.state, False
            self._finished.append(self._read(worker, slot, sequence, content))
            self._actor_wait += content.wait_seconds
            self._actor_work += content.collect_seconds

    def _read(self, worker: _Worker, slot: int, sequence: int, report: Report) -> Trajectory:
        arrays = self._slots.arrays(slot)
        names = {name for name in Trajectory._fields if name in arrays}
        return Trajectory(
            actor=worker.index,
            sequence=sequence,
            version=report.version,
            slot=slot,
            envs=slice(worker.envs.start, worker.envs.stop),
            obs=read_obs(arrays, "obs"),
            raw_obs=read_obs(arrays, "raw_obs"),
            raw_rewards=arrays.get("raw_rewards"),
            terminal_obs=_stack(report.terminal_obs, read_obs(arrays, "obs")),
            infos=report.infos,
            state=report.state,
            collect_seconds=report.collect_seconds,
            wait_seconds=report.wait_seconds,
            **{name: arrays[name] for name in names - {"obs", "raw_obs", "raw_rewards"}},
        )

    def _replace(self, worker: _Worker, reason: str | None = None) -> None:
        had_started = worker.reset_obs is not None
        self._end(worker)
        code = worker.process.exitcode
        if reason is None and worker.error is not None:
            reason = "failed"
        elif reason is None:
            reason = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        what = f"actor {worker.index} (environments {worker.envs.start} to {worker.envs.stop - 1}) {reason}"
        trace = "" if worker.error is None else f"\n{worker.error}"
        if (trace or code >= 0) and not had_started and self.n_restarts == 0:
            hint = trace or f"; what it printed says why, perhaps that the script that starts it has no {_GUARD}"
            raise RuntimeError(f"{what} before its first step{hint}")
        if self.n_restarts >= self._max_restarts:
            raise RuntimeError(f"{what}, and max_restarts={self._max_restarts} actors have been replaced already{trace}")
        self.n_restarts += 1
        warnings.warn(f"{what}: replaced, the {self.n_restarts}. of at most {self._max_restarts}{trace}", RuntimeWarning)
        if worker.error is not None or worker.has_gone_back:
            worker.state = None  # the same would happen again
        worker.has_gone_back = worker.state is not None
        self._start(worker)

    @staticmethod
    def _end(worker: _Worker) -> None:
        """Make sure that nothing of the process writes any more."""
        worker.process.kill()
        worker.process.join()
        worker.receiver.connection.close()


def _stack(rows: Sequence[Any], like: Any) -> Any:
    """
    :param rows: observations of single environments
    :param like: an array of observations [T+1, E, ...], or a dict of arrays
    :return: all rows in one such array [K, ...], or a dict
    """
    if isinstance(like, dict):
        return {key: _stack([row[key] for row in rows], part) for key, part in like.items()}
    return np.array(rows, dtype=like.dtype).reshape(len(rows), *like.shape[2:])
