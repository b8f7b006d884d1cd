"""An actor in a process of its own, and the two ends of the connection to it."""

import ctypes
import gc
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import cloudpickle

from sb3_hrl.actors.actor import Actor, Report, Start, Task
from sb3_hrl.actors.memory import SharedArrays, SharedWeights
from sb3_hrl.actors.trajectory import ActorState
from sb3_hrl.registry import register_envs
from sb3_hrl.threads import limit_threads

# Kinds of messages.
READY, REPORT, ERROR = "ready", "report", "error"
# The kernel takes so little at once or not at all. A message that is longer goes in parts, so that an actor that is stopped in
# the middle of one never keeps the learner waiting for the rest.
_PART = 16_000
_LAST, _MORE = b"\0", b"\1"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def preload(modules: Sequence[str] = ()) -> None:
    """
    Let the fork server import what every actor needs, so that an actor, a fork of it, is there at once. A server that runs
    already, for a ``SubprocVecEnv``, stays as it is: actors then have to import it themselves.

    :param modules: what their environments need besides
    """
    # __main__ is run again in every process that is started, under another name: what it has imported is needed, too.
    names = set()
    for value in vars(sys.modules["__main__"]).values():
        is_module = isinstance(value, ModuleType)
        names |= {value.__name__} if is_module else {kind.__module__ for kind in getattr(value, "__mro__", ())}
    # What adapts to a module that is imported (the bridge into rl_zoo3) comes by itself.
    used = sorted(name for name in names if name in sys.modules and not name.startswith(("__main__", "sb3_hrl")))
    get_context("forkserver").set_forkserver_preload([__name__, *used, *modules])


def start_process(
    name: str, spec: bytes, start: Start, weights: SharedWeights, slots: SharedArrays, control: SharedArrays
) -> tuple[Any, Connection]:
    """
    :param name: of the process
    :param spec: a cloudpickled ``ActorSpec``
    :param start: where the actor starts
    :param weights: where it finds the weights
    :param slots: where it puts trajectories
    :param control: the signs of life [n_actors], and whether it is the end
    :return: the process, and the learner's end of the connection
    """
    context = get_context("forkserver")
    ours, theirs = context.Pipe()
    arguments = (spec, start, theirs, weights, slots, control)
    # Daemons, so that they end with an interpreter that ends without closing its pool.
    process = context.Process(target=run_process, name=name, args=arguments, daemon=True)
    process.start()
    theirs.close()
    return process, ours


def run_process(
    spec: bytes, start: Start, connection: Connection, weights: SharedWeights, slots: SharedArrays, control: SharedArrays
) -> None:
    """
    The whole life of an actor's process; the parameters are those of ``start_process``, with its own end of the connection.
    """
    gc.freeze()  # a collection would write to what all actors share with the fork server, and so make each a copy
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the learner
    _end_with_the_learner()
    limit_threads(1)
    register_envs()  # an environment may be named by a plug-in's id
    try:
        Actor(cloudpickle.loads(spec), start).run(weights, _Sink(start.actor, connection, slots, control))
    except _LearnerGone:
        pass
    except BaseException:
        with suppress(OSError):
            send(connection, (ERROR, traceback.format_exc()))
        raise SystemExit(1) from None


def _end_with_the_learner() -> None:
    """
    The fork server ends when nobody is left who could ask it for a process. So actors renounce that, and let the kernel kill
    them when the server has followed the learner: even those that are stopped, or stuck where no Python code runs.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]


class _LearnerGone(Exception):
    """The learner has closed the pool."""


class _Sink:
    """A ``TrajectorySink`` that ends at the learner's side of a connection."""

    def __init__(self, actor: int, connection: Connection, slots: SharedArrays, control: SharedArrays) -> None:
        self._connection, self._slots = connection, slots
        self._beats, self._is_closed = control.arrays()["beats"][actor : actor + 1], control.arrays()["is_closed"]

    def start(self, obs: Any, state: ActorState) -> None:
        self._send((READY, (obs, state)))

    def take(self) -> Task | None:
        try:
            slot, *order = self._connection.recv()
        except (EOFError, ConnectionResetError):
            return None
        self.is_open()
        return Task(self._slots.arrays(slot), *order)

    def put(self, report: Report) -> None:
        self._send((REPORT, report))

    def is_open(self) -> bool:
        self._beats += 1
        return not self._is_closed[0]

    def _send(self, message: Any) -> None:
        try:
            send(self._connection, message)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise _LearnerGone from error


def send(connection: Connection, message: Any) -> None:
    """
    :param connection: to the learner
    :param message: anything that can be pickled
    """
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    parts = [data[start : start + _PART] for start in range(0, len(data), _PART)]
    for part in parts[:-1]:
        connection.send_bytes(_MORE + part)
    connection.send_bytes(_LAST + parts[-1])


class Receiver:
    """
    The learner's end of a connection: messages as they have come, without waiting.

    :param connection: to an actor
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._parts: list[bytes] = []

    def receive(self) -> Any:
        """
        :return: the next message; None if there is none yet
        :raises EOFError: if the actor is gone, after its last message
        """
        while self.connection.poll():
            try:
                part = self.connection.recv_bytes()
            except OSError as error:
                raise EOFError from error
            self._parts.append(part[1:])
            if part[:1] == _LAST:
                data, self._parts = b"".join(self._parts), []
                return pickle.loads(data)
        return None
