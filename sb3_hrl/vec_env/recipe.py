"""What an ordinary VecEnv was built from, so that a batch can take its place."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from sb3_hrl.envs.task import NoNativeForm, TaskError, load_task, native_tasks

_MONITOR = "stable_baselines3.common.monitor:Monitor"
_ACTION_HOLD = "sb3_hrl.wrappers.action_hold:ActionHold"
# A SubprocVecEnv cannot be asked where its monitor files lie; the zoo bridge, which chose the folder, says so here.
_monitor_folder: ContextVar[str | None] = ContextVar("monitor_folder")


class Recipe(NamedTuple):
    """The arguments of a ``NativeVecEnv`` that does the same."""

    env: str
    n_envs: int
    env_kwargs: dict[str, Any]
    max_episode_steps: int | None
    hold: dict[str, Any] | None
    info_keywords: tuple[str, ...]
    monitor_files: list[str] | None
    render_mode: str | None


@contextmanager
def monitor_folder(folder: str | None) -> Iterator[None]:
    """
    While it lasts, VecEnvs are built with their monitor files in this folder.

    :param folder: the folder, or None for no files
    """
    token = _monitor_folder.set(folder)
    try:
        yield
    finally:
        _monitor_folder.reset(token)


def _native_info_keys(spec: EnvSpec, env_kwargs: dict[str, Any]) -> Collection[str]:
    if spec.id not in native_tasks():
        raise NoNativeForm(f"{spec.id} has no native form")
    try:
        return load_task(spec.id, env_kwargs, spec.max_episode_steps).info_keys
    except TaskError as error:
        raise NoNativeForm(str(error)) from error


def read_recipe(venv: VecEnv, info_keys: Callable[[EnvSpec, dict[str, Any]], Collection[str]] = _native_info_keys) -> Recipe:
    """
    :param venv: a Dummy or Subproc VecEnv
    :param info_keys: takes a spec and its ``env_kwargs``, and gives the keys that the batch has in its infos; raises
        ``NoNativeForm`` if there is no batch of that environment
    :return: what it was built from
    :raises NoNativeForm: if a part of it has no native form; the message says which
    """
    if not isinstance(venv, DummyVecEnv | SubprocVecEnv):
        raise NoNativeForm(f"a {type(venv).__name__} has no native form: it must come right after the environments")
    specs = venv.get_attr("spec")
    if any(spec is None or spec != specs[0] for spec in specs):
        raise NoNativeForm("its environments are not all registered and equal")
    (spec, *_) = specs
    env_kwargs = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    known_keys = info_keys(spec, env_kwargs)
    info_keywords = _read_info_keywords(venv)
    unknown = [key for key in info_keywords if key not in known_keys]
    if unknown:
        raise NoNativeForm(f"the Monitor's info_keywords {unknown} are not among {list(known_keys)}")
    hold, files = _read_hold(spec), _read_monitor_files(venv)
    return Recipe(spec.id, venv.num_envs, env_kwargs, spec.max_episode_steps, hold, info_keywords, files, venv.render_mode)


def _read_hold(spec: EnvSpec) -> dict[str, Any] | None:
    """The arguments of the ``ActionHold``, if there is one. Beside it a ``Monitor``, inside, is all that may be there."""
    wrappers = list(spec.additional_wrappers)
    if wrappers and wrappers[0].entry_point == _MONITOR:
        del wrappers[0]
    hold = wrappers.pop(0) if wrappers and wrappers[0].entry_point == _ACTION_HOLD else None
    if wrappers:
        raise NoNativeForm(f"the wrapper {wrappers[0].name} has no native form")
    return None if hold is None else dict(hold.kwargs or {})


def _read_monitor_files(venv: VecEnv) -> list[str] | None:
    if isinstance(venv, DummyVecEnv):
        writers = [env.get_wrapper_attr("results_writer") for env in venv.envs if env.has_wrapper_attr("results_writer")]
        return [writer.file_handler.name for writer in writers] if writers and all(writers) else None
    try:
        folder = _monitor_folder.get()
    except LookupError:
        raise NoNativeForm("it is not known where a SubprocVecEnv has its monitor files; use a DummyVecEnv") from None
    return None if folder is None else [str(Path(folder) / f"{rank}.{Monitor.EXT}") for rank in range(venv.num_envs)]


def _read_info_keywords(venv: VecEnv) -> tuple[str, ...]:
    if not venv.has_attr("info_keywords"):
        return ()
    if any(venv.get_attr("reset_keywords")) or not all(venv.get_attr("allow_early_resets")):
        raise NoNativeForm("the Monitor's reset_keywords and allow_early_resets have no native form")
    return tuple(venv.get_attr("info_keywords", indices=0)[0])
