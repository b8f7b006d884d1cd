"""
The state of environments, as plain data: what decides how each one goes on.

A VecEnv with ``get_state`` and ``set_state`` (NativeVecEnv, ProcgenVecEnv) speaks for itself. For gymnasium environments in a
Dummy or SubprocVecEnv every layer of wrappers is asked. One can offer ``get_checkpoint()``, which returns plain data, and
``set_checkpoint(state)``. Of MuJoCo environments the physics is taken, too; of those that offer nothing the attributes that
are plain data. If something of an environment cannot be taken, it is named, and all environments begin new episodes: half of a
state is no state.
"""

import copy
import sys
from collections.abc import Iterator
from functools import cache, partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack, VecMonitor, VecNormalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvWrapper
from stable_baselines3.common.vec_env.stacked_observations import StackedObservations

from sb3_hrl.checkpoint.tree import is_plain

# Whose wrappers and callbacks are known here.
_KNOWN_PACKAGES = {"gymnasium", "stable_baselines3", "sb3_contrib", "rl_zoo3", "sb3_hrl", "sb3_hrl_plugins"}
# What changes in the wrappers that everybody has. Of a stranger's subclass, all is taken.
_WRAPPER_ATTRIBUTES = {
    "TimeLimit": ("_elapsed_steps",),
    "Monitor": ("rewards", "needs_reset", "total_steps"),
    "ActionHold": ("hold_decisions",),
    "OrderEnforcing": (),
    "PassiveEnvChecker": (),
}
# Attributes that belong to the looks of an environment, or were there before it began.
_NOT_STATE = {
    "env",
    "render_mode",
    "screen",
    "surf",
    "clock",
    "isopen",
    "viewer",
    "window",
    "mujoco_renderer",
    "metadata",
    "spec",
}
# With this begin the names of what keeps environments from going on.
_ENVIRONMENTS = "the environments: "


# --- a VecEnv ---------------------------------------------------------------------------------------------------------


def get_env_state(env: VecEnv) -> dict[str, Any]:
    """
    :param env: environments between two steps
    :return: plain data: ``layers`` of wrappers from the outside, the ``base`` with a state for each environment, and the names
        of what is ``missing``
    """
    missing: list[str] = []
    layers = []
    base = env
    while isinstance(base, VecEnvWrapper):
        layers.append({"class": type(base).__name__, "state": _get_layer(base, missing)})
        base = base.venv
    states: list[Any] | None = None
    if _has_own_state(base):
        states = base.get_state()  # type: ignore[attr-defined]
        missing += sorted({name for state in states or () if isinstance(state, dict) for name in state["missing"]})
        if states is None:
            missing.append(f"{_ENVIRONMENTS}{type(base).__name__} does not tell their states")
    elif _is_accessible(base):
        states = _exchange(base)
        parts = sorted({name for state in states for name in state["missing"]})
        if parts:
            states = None
            missing.append(f"{_ENVIRONMENTS}what cannot be taken of them is {', '.join(parts)}")
    else:
        remedy = ": wrap them, in a Monitor for instance" if isinstance(base, SubprocVecEnv) else ""
        missing.append(f"{_ENVIRONMENTS}{type(base).__name__} does not tell their states{remedy}")
    base_state = {"kind": _state_kind(base), "n_envs": base.num_envs, "states": states}
    return {"layers": layers, "base": base_state, "missing": missing}


def set_env_state(env: VecEnv, state: dict[str, Any]) -> list[str]:
    """
    Go on where ``get_env_state`` was called. The environments have been reset before.

    :param env: environments of the same kinds
    :param state: what ``get_env_state`` returned
    :return: the names of what restarts; see ``begins_anew``
    """
    missing = list(state["missing"])
    wrappers = []
    base = env
    while isinstance(base, VecEnvWrapper):
        wrappers.append(base)
        base = base.venv
    kind, states = state["base"]["kind"], state["base"]["states"]
    n_envs = state["base"].get("n_envs", base.num_envs)
    if n_envs != base.num_envs:
        missing.append(f"{_ENVIRONMENTS}there were {n_envs}, and there are {base.num_envs}")
    elif kind != _state_kind(base):
        missing.append(f"{_ENVIRONMENTS}their states are of a {kind}, not of a {_state_kind(base)}")
    elif not (_has_own_state(base) or _is_accessible(base)):
        missing.append(f"{_ENVIRONMENTS}{type(base).__name__} takes no states")
    saved = {layer["class"]: layer["state"] for layer in state["layers"]}
    for wrapper in wrappers:
        name = type(wrapper).__name__
        if name in saved:
            _set_layer(wrapper, saved[name], begins_anew(missing))
        elif isinstance(wrapper, VecNormalize | VecFrameStack | VecMonitor):
            missing.append(f"the {name}, which was not there")
    if begins_anew(missing):
        return missing
    if _has_own_state(base):
        base.set_state(states)  # type: ignore[attr-defined]
    else:
        _exchange(base, states)
    return missing


def begins_anew(missing: list[str]) -> bool:
    """
    :param missing: what ``set_env_state`` returned
    :return: whether the environments are as their last reset has left them
    """
    return any(name.startswith(_ENVIRONMENTS) for name in missing)


def is_stranger(value: Any) -> bool:
    """
    :param value: a wrapper or a callback
    :return: whether its class comes from a package that is not known here, so that it may have any state
    """
    return type(value).__module__.partition(".")[0] not in _KNOWN_PACKAGES


def _has_own_state(base: VecEnv) -> bool:
    return hasattr(base, "get_state") and hasattr(base, "set_state")


def _state_kind(base: VecEnv) -> str:
    """Whose states fit whom: those of a Dummy fit a SubprocVecEnv, too."""
    if isinstance(base, DummyVecEnv | SubprocVecEnv):
        return "gym"
    return getattr(base, "state_kind", type(base).__name__)


def _get_layer(layer: VecEnvWrapper, missing: list[str]) -> Any:
    if isinstance(layer, VecNormalize):
        return get_normalization(layer)
    if isinstance(layer, VecFrameStack):
        return {key: stack.stacked_obs.copy() for key, stack in _stacks(layer.stacked_obs)}
    if isinstance(layer, VecMonitor):
        return {name: np.copy(getattr(layer, name)) for name in ("episode_returns", "episode_lengths")}
    if not type(layer).__module__.startswith("stable_baselines3."):
        missing.append(type(layer).__name__)
    return None


def _set_layer(layer: VecEnvWrapper, state: Any, begins_anew: bool) -> None:
    if isinstance(layer, VecNormalize):
        set_normalization(layer, {**state, "returns": layer.returns} if begins_anew else state)
    elif begins_anew:
        return
    elif isinstance(layer, VecFrameStack):
        for key, stack in _stacks(layer.stacked_obs):
            if stack.stacked_obs.shape == state[key].shape:
                stack.stacked_obs = state[key]
    elif isinstance(layer, VecMonitor):
        for name, numbers in state.items():
            setattr(layer, name, numbers)


def get_normalization(normalize: VecNormalize) -> dict[str, Any]:
    """
    :param normalize: any
    :return: its statistics and running returns
    """
    obs_rms = normalize.obs_rms if normalize.norm_obs else None
    moments = {key: _get_moments(rms) for key, rms in obs_rms.items()} if isinstance(obs_rms, dict) else None
    if obs_rms is not None and moments is None:
        moments = _get_moments(obs_rms)  # type: ignore[arg-type]
    return {"obs_rms": moments, "ret_rms": _get_moments(normalize.ret_rms), "returns": normalize.returns.copy()}


def set_normalization(normalize: VecNormalize, state: dict[str, Any]) -> None:
    """
    :param normalize: one of the same observations
    :param state: what ``get_normalization`` returned
    """
    if normalize.norm_obs and state["obs_rms"] is not None:
        obs_rms = normalize.obs_rms
        for rms, moments in (
            [(obs_rms[key], state["obs_rms"][key]) for key in obs_rms]
            if isinstance(obs_rms, dict)
            else [(obs_rms, state["obs_rms"])]
        ):
            _set_moments(rms, moments)
    _set_moments(normalize.ret_rms, state["ret_rms"])
    if len(state["returns"]) == normalize.num_envs:
        normalize.returns = state["returns"].copy()


def _stacks(stacked: StackedObservations) -> Iterator[tuple[str, StackedObservations]]:
    parts = getattr(stacked, "sub_stacked_observations", None)
    yield from parts.items() if parts else [("", stacked)]


def _get_moments(rms: RunningMeanStd) -> dict[str, Any]:
    return {"mean": np.copy(rms.mean), "var": np.copy(rms.var), "count": float(rms.count)}


def _set_moments(rms: RunningMeanStd, state: dict[str, Any]) -> None:
    rms.mean, rms.var, rms.count = state["mean"].copy(), state["var"].copy(), state["count"]


# --- one environment, perhaps in a worker process ---------------------------------------------------------------------


class _Access(type):
    """
    A SubprocVecEnv runs methods of its environments, and nothing else but ``isinstance``: that is the way for a function of
    ours into its workers. Asked whether an environment is of a class of this kind, the environment gets its two methods.
    """

    def __instancecheck__(cls, env: Any) -> bool:
        env.get_checkpoint_state, env.set_checkpoint_state = partial(_get_env, env), partial(_set_env, env)
        return True


class _Accessible(gym.Wrapper, metaclass=_Access):
    pass


def _is_accessible(base: VecEnv) -> bool:
    """Whether ``_exchange`` can do its work. Of a SubprocVecEnv's workers, only those with a wrapper ask ``isinstance``."""
    if isinstance(base, SubprocVecEnv):
        base.env_is_wrapped(_Accessible)
        return base.has_attr("get_checkpoint_state")
    return isinstance(base, DummyVecEnv)


def _exchange(base: VecEnv, states: list[Any] | None = None) -> list[Any]:
    """Get the states of all environments, or set them."""
    if isinstance(base, DummyVecEnv):
        if states is None:
            return [_get_env(env) for env in base.envs]
        for env, state in zip(base.envs, states, strict=True):
            _set_env(env, state)
        return []
    if states is None:
        return base.env_method("get_checkpoint_state")
    return [base.env_method("set_checkpoint_state", state, indices=index)[0] for index, state in enumerate(states)]


def _layers(env: gym.Env) -> Iterator[Any]:
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env
    yield env


def _name(layer: Any) -> str:
    """Its class, or the one in ``_WRAPPER_ATTRIBUTES`` that it derives from: rl_zoo3 brings a TimeLimit of its own."""
    kinds = type(layer).__mro__ if isinstance(layer, gym.Wrapper) else ()
    return next((kind.__name__ for kind in kinds if kind.__name__ in _WRAPPER_ATTRIBUTES), type(layer).__name__)


def _get_env(env: gym.Env) -> dict[str, Any]:
    missing: list[str] = []
    layers = []
    for layer in _layers(env):
        state: dict[str, Any] = {"physics": _get_physics(layer)}
        if hasattr(layer, "get_checkpoint"):
            state["own"] = copy.deepcopy(layer.get_checkpoint())
        elif _name(layer) in _WRAPPER_ATTRIBUTES and not is_stranger(layer):
            names = _WRAPPER_ATTRIBUTES[_name(layer)]
            state["attributes"] = {name: copy.deepcopy(getattr(layer, name)) for name in names}
        elif state["physics"] is None or not type(layer).__module__.startswith("gymnasium."):
            state["attributes"] = _get_attributes(layer, list(_layers(env)), missing)
            state["generators"] = {name: generator.bit_generator.state for name, generator in _generators(layer)}
        if not isinstance(layer, gym.Wrapper):
            state["random"] = get_random(layer)
        state["spaces"] = {name: [get_random(part) for part in _parts(space)] for name, space in _spaces(layer)}
        layers.append({"class": _name(layer), **state})
    return {"layers": layers, "missing": missing}


def _set_env(env: gym.Env, state: dict[str, Any]) -> None:
    found = [_name(layer) for layer in _layers(env)]
    wanted = [layer["class"] for layer in state["layers"]]
    if found != wanted:
        raise ValueError(f"the environments' layers were {' > '.join(wanted)}, and are {' > '.join(found)}")
    for layer, saved in zip(_layers(env), state["layers"], strict=True):
        if saved["physics"] is not None:
            _set_physics(layer, saved["physics"])
        if "own" in saved:
            layer.set_checkpoint(saved["own"])
        for name, value in saved.get("attributes", {}).items():
            setattr(layer, name, value)
        for name, random in saved.get("generators", {}).items():
            getattr(layer, name).bit_generator.state = random
        if "random" in saved:
            set_random(layer, saved["random"])
        spaces = dict(_spaces(layer))
        for name in spaces.keys() & saved["spaces"].keys():
            for part, random in zip(_parts(spaces[name]), saved["spaces"][name], strict=True):
                set_random(part, random)


def _spaces(layer: Any) -> list[tuple[str, gym.Space]]:
    return [(name, value) for name, value in vars(layer).items() if isinstance(value, gym.Space)]


def _generators(layer: Any) -> list[tuple[str, np.random.Generator]]:
    return [(name, value) for name, value in vars(layer).items() if isinstance(value, np.random.Generator)]


def _parts(space: gym.Space) -> Iterator[gym.Space]:
    """A space and those in it; each draws by itself."""
    yield space
    spaces = getattr(space, "spaces", ())
    for part in spaces.values() if isinstance(spaces, dict) else spaces:
        yield from _parts(part)


def _get_attributes(layer: Any, layers: list[Any], missing: list[str]) -> dict[str, Any]:
    """Those that are plain data; others are named, unless they are known to be no state, or one of the layers."""
    attributes = {}
    known = {*_NOT_STATE, "_np_random", "get_checkpoint_state", "set_checkpoint_state"}
    if isinstance(layer, Monitor):
        known |= {"t_start", "results_writer"}
    for name, value in vars(layer).items():
        if name in known or any(value is other for other in layers):
            continue
        if is_plain(value):
            attributes[name] = copy.deepcopy(value)
        elif not (_is_fixed(value) or _is_physics(value)):
            missing.append(f"{name} of {type(layer).__name__}, a {type(value).__name__}")
    return attributes


def _is_fixed(value: Any) -> bool:
    kinds = EnvSpec | type | FunctionType | BuiltinFunctionType | MethodType | partial
    return isinstance(value, kinds | gym.Space | np.random.Generator)  # the last two are taken by themselves


def _is_physics(value: Any) -> bool:
    mujoco = sys.modules.get("mujoco")
    return mujoco is not None and isinstance(value, mujoco.MjData | mujoco.MjModel)


def _get_physics(env: Any) -> dict[str, Any] | None:
    """MuJoCo's integration state, and the derived arrays: some tasks read these before their first substep."""
    model, data = vars(env).get("model"), vars(env).get("data")
    if not (_is_physics(model) and _is_physics(data)):
        return None
    mujoco = sys.modules["mujoco"]
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    integration = np.empty(mujoco.mj_stateSize(model, kind))
    mujoco.mj_getState(model, data, integration, kind)
    # In one block: there are a hundred of them.
    derived = [getattr(data, name).tobytes() for name in _derived_names()]
    return {"integration": integration, "derived": b"".join(derived), "sizes": np.array([len(array) for array in derived])}


def _set_physics(env: Any, state: dict[str, Any]) -> None:
    mujoco = sys.modules["mujoco"]
    mujoco.mj_resetData(env.model, env.data)
    start = 0
    for name, size in zip(_derived_names(), state["sizes"].tolist(), strict=True):
        array = getattr(env.data, name)
        if array.nbytes == size:
            array[...] = np.frombuffer(state["derived"], array.dtype, array.size, start).reshape(array.shape)
        start += size
    mujoco.mj_setState(env.model, env.data, state["integration"], mujoco.mjtState.mjSTATE_INTEGRATION)


@cache
def _derived_names() -> list[str]:
    """The arrays of MuJoCo's data without those of the solver, which it makes anew in every step."""
    mujoco = sys.modules["mujoco"]
    data = mujoco.MjData(mujoco.MjModel.from_xml_string("<mujoco/>"))
    names = [name for name in dir(data) if not name.startswith("_") and "efc" not in name and "island" not in name]
    return [name for name in names if isinstance(getattr(data, name), np.ndarray)]


# --- random numbers ---------------------------------------------------------------------------------------------------


def get_random(owner: Any) -> dict[str, Any] | None:
    """
    :param owner: an environment or a space of gymnasium's
    :return: the state of its random numbers; None if it has drawn none yet
    """
    generator = vars(owner).get("_np_random")
    return None if generator is None else generator.bit_generator.state


def set_random(owner: Any, state: dict[str, Any] | None) -> None:
    """
    :param owner: an environment or a space of gymnasium's
    :param state: what ``get_random`` returned
    """
    if state is None:
        owner._np_random = None
    else:
        owner.np_random.bit_generator.state = state
