"""
The check of a hyperparameter file, before a folder or an environment exists.

What is expected comes from the algorithm's constructor and from rl_zoo3's own keys. Every problem of the chosen section is
one line ``file:line: what is wrong``; they are reported together, in one ``ConfigError``.
"""

import importlib.util
import inspect
import re
import traceback
import types
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.vec_env import VecNormalize

from sb3_hrl.actors import check_shares
from sb3_hrl.checkpoint import Resumable
from sb3_hrl.errors import PluginError
from sb3_hrl.registry import VEC_ENVS, WRAPPERS, import_dotted, resolve, suggest
from sb3_hrl.yaml_lines import LineMapping, LineSequence, Problem, UnreadableError, line_of, load_yaml, show

# The files of this package: one for each algorithm, plug-in or the zoo's own, and `presets`.
HYPERPARAMS = Path(__file__).parents[1] / "hyperparams"
# What the zoo passes to the constructor by itself, and the option that sets it.
_ZOO_ARGUMENTS = {
    "env": "--env",
    "tensorboard_log": "--tensorboard-log",
    "verbose": "--verbose",
    "seed": "--seed",
    "device": "--device",
    "_init_setup_model": None,
}
# The keys that the bridge takes out for checkpoints.
CHECKPOINT_KEYS: dict[str, Any] = {"save_optimizer": bool, "keep_checkpoints": int | None}
# The keys that the zoo takes out before it calls the constructor; `eval_env_kwargs` is taken out by the bridge.
ZOO_KEYS: dict[str, Any] = {
    "n_envs": int,
    "n_timesteps": int,
    "frame_stack": int | None,
    "normalize": bool | dict,
    "monitor_kwargs": dict | None,
    "env_kwargs": dict | None,
    "eval_env_kwargs": dict | None,
    "env_wrapper": Any,
    "vec_env_wrapper": Any,
    "callback": Any,
}
_NOISE_KEYS: dict[str, Any] = {"noise_type": str, "noise_std": float}
# Strings under these keys are Python code to the zoo.
_EVALUATED = {"policy_kwargs", "normalize", "monitor_kwargs", "replay_buffer_class", "replay_buffer_kwargs"}
# The zoo turns these into schedules, and takes nothing but numbers and strings.
_ZOO_SCHEDULES = {"learning_rate", "clip_range", "clip_range_vf", "delta_std"}
_AT_LEAST_ONE = {"keep_checkpoints", "n_envs", "n_timesteps", "frame_stack", "n_steps", "batch_size", "n_epochs", "shard_size"}
_FROM_ZERO_TO_ONE = {"gamma", "gae_lambda"}
_POSITIVE = {"learning_rate", "clip_range"}

_DIGITS = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
# YAML 1.1 wants a dot and a signed exponent in a float, so PyYAML reads these as strings.
_STRING_FLOAT = re.compile(rf"{_DIGITS}[eE][-+]?[0-9]+")
_LINEAR_SCHEDULE = re.compile(rf"lin_{_DIGITS}(?:[eE][-+]?[0-9]+)?")

# The types that YAML can give, and their names in a message.
_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    types.NoneType: "null",
    list: "a list",
    tuple: "a list",
    Sequence: "a list",
    dict: "a mapping",
    Mapping: "a mapping",
    Any: "anything",
    object: "anything",
    inspect.Parameter.empty: "anything",
}


class ConfigError(ValueError):
    """Hyperparameters that cannot be used. ``str()`` is the whole message for the user."""


class _Parameters(NamedTuple):
    """The arguments of a callable: their annotations, those without a default, and whether it takes any others."""

    hints: dict[str, Any]
    required: tuple[str, ...]
    takes_any: bool


def check_config(
    config: str,
    env_id: str,
    algorithm: type,
    *,
    is_atari: bool,
    overrides: Mapping[str, Any] | None,
    overrides_source: str = "-params",
) -> None:
    """
    Check the hyperparameters that the zoo would choose for an environment.

    :param config: a ``.yml``, ``.yaml`` or ``.py`` file, or the name of a Python package, as the user gave it
    :param env_id: the environment
    :param algorithm: the algorithm's class
    :param is_atari: whether the zoo takes it for an Atari environment (then ``atari`` is the section to fall back on)
    :param overrides: hyperparameters from the command line, which win over the file's
    :param overrides_source: what to call these in a message
    :raises ConfigError: with every problem that was found
    """
    found: list[tuple[str, Problem]] = []
    try:
        document, duplicates = _load(config)
        found += [(config, problem) for problem in duplicates]
        name = _choose_section(document, env_id, is_atari)
        line = line_of(document, name)
        found += _check_section(document[name], line, algorithm, overrides or {}, (config, overrides_source))
    except UnreadableError as error:
        found.append((config, error.problem))
    if found:
        found.sort(key=lambda item: (item[0] != config, item[1].line or 0))
        raise ConfigError(
            f"error: {len(found)} problem{'s'[: len(found) > 1]} in the hyperparameters of {algorithm.__name__} for {env_id}\n"
            + "\n".join(f"{source}:{line}: {text}" if line else f"{source}: {text}" for source, (line, text) in found)
        )


def read_section(config: str, env_id: str, is_atari: bool) -> Mapping[str, Any]:
    """
    :param config: as ``check_config`` takes it, and has checked it
    :param env_id: the environment
    :param is_atari: whether the zoo takes it for an Atari environment
    :return: the file's own hyperparameters for the environment
    """
    document, _ = _load(config)
    return document[_choose_section(document, env_id, is_atari)]


def check_env_kwargs(env_id: str, key: str, env_kwargs: Mapping[str, Any] | None) -> None:
    """
    Let an environment that knows more about its arguments than their names check them, before one is built.

    :param env_id: the environment; its class may have ``check_arguments``, which raises ``ValueError``
    :param key: what to call the arguments in a message
    :param env_kwargs: the arguments
    :raises ConfigError: with what it says
    """
    spec = gym.spec(env_id)
    if not env_kwargs or not isinstance(spec.entry_point, str):
        return
    for _, text in check_further(gym.envs.registration.load_env_creator(spec.entry_point), {**spec.kwargs, **env_kwargs}):
        raise ConfigError(f"error: {key}: {text}")


def find_config(config: str, presets: Path) -> str:
    """
    :param config: what the user gave: a file, the name of a Python package, or of a preset
    :param presets: the folder of the algorithm's presets
    :return: the preset's file, or what the user gave
    :raises ConfigError: for a name that is none of these
    """
    names = [path.stem for path in sorted(presets.glob("*.yml"))]
    if config in names:
        return str(presets / f"{config}.yml")
    nearest = suggest(config, names)
    if nearest and config.isidentifier() and importlib.util.find_spec(config) is None:
        raise ConfigError(f"error: -conf {config}: no preset and no package has this name{nearest}")
    return config


def normalise(hyperparams: dict[str, Any], algorithm: type) -> dict[str, Any]:
    """
    Turn number-like strings (``1e-3``) into floats, and whole floats into ints where an int is wanted.

    :param hyperparams: as the zoo has read them; left as they are
    :param algorithm: the algorithm's class
    :return: a new dict
    """
    result: dict[str, Any] = _with_floats(hyperparams, {})
    _make_whole(result, {**_constructor(algorithm).hints, **ZOO_KEYS, **CHECKPOINT_KEYS})
    for key, load in _PARTS.items():
        parts = result.get(key)
        for part in parts if isinstance(parts, list) else [parts]:
            if isinstance(part, dict):
                for name, kwargs in part.items():
                    _make_part_whole(load, name, kwargs)
    return result


def _with_floats(value: Any, copies: dict[int, Any]) -> Any:
    """Copy dicts and lists with their strings replaced. ``copies``, by id, keeps YAML's aliases shared, recursive ones too."""
    if isinstance(value, str):
        return float(value) if _STRING_FLOAT.fullmatch(value) else value
    if id(value) in copies or not isinstance(value, dict | list):
        return copies.get(id(value), value)
    if isinstance(value, dict):
        mapping = copies[id(value)] = LineMapping(value.lines) if isinstance(value, LineMapping) else {}
        mapping.update((key, _with_floats(item, copies)) for key, item in value.items())
        return mapping
    sequence = copies[id(value)] = LineSequence(value.lines) if isinstance(value, LineSequence) else []
    sequence.extend(_with_floats(item, copies) for item in value)
    return sequence


def _make_whole(kwargs: dict[Any, Any], hints: Mapping[str, Any]) -> None:
    for key, value in kwargs.items():
        wanted = _alternatives(hints.get(key))
        if isinstance(value, float) and value.is_integer() and int in wanted and float not in wanted:
            kwargs[key] = int(value)


def _make_part_whole(load: Callable[[Any], Any], name: Any, kwargs: Any) -> None:
    if isinstance(kwargs, dict):
        try:
            _make_whole(kwargs, _parameters(load(name)).hints)
        except ValueError:
            return  # not a wrapper or callback: check_config says so


# --- reading the file -------------------------------------------------------------------------------------------------


def _load(config: str) -> tuple[Any, list[Problem]]:
    """Read the configuration the way ``ExperimentManager.read_hyperparameters`` does."""
    if config.endswith((".yml", ".yaml")):
        return load_yaml(_read_text(config))
    if config.endswith(".py"):
        return _run_python(config, _read_text(config)), []
    try:
        return importlib.import_module(config).hyperparams, []
    except (Exception, SystemExit) as error:
        hint = "; a file must end in .yml, .yaml or .py" if Path(config).exists() else ""
        raise UnreadableError(None, f"not a Python package with 'hyperparams': {_describe_error(error)}{hint}") from error


def _read_text(config: str) -> str:
    path = Path(config)
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        neighbours = [other.name for other in path.parent.glob(f"*{path.suffix}")]
        raise UnreadableError(None, f"the file does not exist{suggest(path.name, neighbours)}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UnreadableError(line, f"the file is not UTF-8 text: byte 0x{error.object[error.start]:02x}") from error
    except (OSError, ValueError) as error:
        raise UnreadableError(None, f"the file cannot be read: {_describe_error(error)}") from error


def _run_python(config: str, source: str) -> Any:
    variables: dict[str, Any] = {}
    try:
        exec(compile(source, config, "exec"), variables)
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == config]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        raise UnreadableError(line, f"running the file failed: {_describe_error(error)}") from error
    if "hyperparams" not in variables:
        raise UnreadableError(None, f"the file does not define 'hyperparams'{suggest('hyperparams', variables)}")
    return variables["hyperparams"]


def _choose_section(document: Any, env_id: str, is_atari: bool) -> str:
    if document is None:
        raise UnreadableError(None, "the file is empty")
    if not isinstance(document, dict):
        raise UnreadableError(None, f"expected sections such as '{env_id}:' at the top level, got {show(document)}")
    fallback = "atari" if is_atari else "default"
    for name in (env_id, fallback):
        if name in document:
            return name
    sections = ", ".join(show(name) for name in document) or "none"
    nearest = suggest(env_id, document)
    raise UnreadableError(None, f"no section {env_id!r} and no {fallback!r}; sections in the file: {sections}{nearest}")


# --- checking a section -----------------------------------------------------------------------------------------------


def _check_section(
    section: Any, section_line: int | None, algorithm: type, overrides: Mapping[str, Any], sources: tuple[str, str]
) -> Iterator[tuple[str, Problem]]:
    config, overrides_source = sources
    if not isinstance(section, dict):
        yield config, Problem(section_line, f"the section: expected a mapping of hyperparameters, got {show(section)}")
        return
    hyperparams = normalise({**section, **overrides}, algorithm)
    for text in _check_together(hyperparams, algorithm):
        yield config, Problem(section_line, text)
    is_sound = True
    for key in hyperparams:
        for line, text in _check_key(key, hyperparams, algorithm):
            is_sound = False
            if key in overrides:
                yield overrides_source, Problem(None, text)
            else:
                yield config, Problem(line or line_of(section, key), text)
    if is_sound:  # each by itself; now together
        for _, text in check_further(algorithm, hyperparams):
            yield config, Problem(section_line, text)


def _check_together(hyperparams: Mapping[str, Any], algorithm: type) -> Iterator[str]:
    """What the section lacks."""
    constructor = _constructor(algorithm)
    for key in dict.fromkeys(("policy", "n_timesteps", *constructor.required)):
        if key not in hyperparams and key not in _ZOO_ARGUMENTS:
            yield f"the key {key!r} is missing{' (rl_zoo3 needs it even with -n)' if key == 'n_timesteps' else ''}"
    noise = [key for key in _NOISE_KEYS if key in hyperparams]
    if "action_noise" in constructor.hints and len(noise) == 1:
        yield f"'noise_type' and 'noise_std' go together, got only {noise[0]!r}"
    n_envs, n_actors = hyperparams.get("n_envs", 1), hyperparams.get("n_actors", 0)
    if all(isinstance(number, int) and number > 0 for number in (n_envs, n_actors)):
        try:
            check_shares(n_envs, n_actors)
        except ValueError as error:
            yield str(error)


def _check_key(key: Any, hyperparams: Mapping[str, Any], algorithm: type) -> Iterator[Problem]:
    value = hyperparams[key]
    expected = _expected(algorithm)
    if key in _ZOO_ARGUMENTS:
        option = _ZOO_ARGUMENTS[key]
        yield Problem(None, f"{key!r} is passed by rl_zoo3 itself{f', use {option} on the command line' if option else ''}")
    elif key not in expected:
        nearest = suggest(key, expected) if isinstance(key, str) else ""
        if key == "n_actors":
            nearest = "; --algo hppo, which is PPO, and impala have actors"
        yield Problem(None, f"unknown key {show(key)}{nearest}")
    elif key == "policy":
        try:
            _get_policy(value, algorithm)
        except ValueError as error:
            yield Problem(None, f"policy: {error}")
    elif key in _PARTS:
        yield from _check_parts(key, value)
    else:
        problems = list(_check_value(key, value, expected[key], hyperparams, algorithm))
        yield from problems or check_further(algorithm, {key: _with_floats(value, {})})


def check_further(target: Any, kwargs: Mapping[str, Any]) -> Iterator[Problem]:
    """
    A class may know more about its arguments than their types.

    :param target: the class
    :param kwargs: some of its arguments
    :return: what is wrong with them, or together
    """
    try:
        getattr(target, "check_arguments", lambda **_: None)(**kwargs)
    except ValueError as error:
        yield Problem(None, str(error))


def _check_value(key: str, value: Any, hint: Any, hyperparams: Mapping[str, Any], algorithm: type) -> Iterator[Problem]:
    got = show(value)
    if key in _EVALUATED and isinstance(value, str):
        try:
            value = evaluate(value)
        except ValueError as error:
            yield Problem(None, f"{key}: the Python code {got} fails: {error}")
            return
        got = f"{got}, which gives {show(value)}"
        hint = dict if key == "normalize" else hint
    if key in _ZOO_SCHEDULES and (value is None or callable(value)):
        yield Problem(None, f"{key}: expected a number or 'lin_<number>', got {got} (leave the key out for the default)")
    elif not _matches(value, hint):
        yield Problem(None, f"{key}: expected {_describe(hint)}, got {got}{_yaml_hint(key, hint)}")
    elif (wanted := _out_of_range(key, value)) is not None:
        yield Problem(None, f"{key}: expected {wanted}, got {got}")
    elif isinstance(value, Mapping):
        yield from _check_mapping(key, value, hyperparams, algorithm)


def _yaml_hint(key: str, hint: Any) -> str:
    objects = [a for a in _alternatives(hint) if a is not types.NoneType]
    if key in _EVALUATED or any(_origin(a) in _WORDS or _origin(a) is typing.Literal or _is_schedule(a) for a in objects):
        return ""
    return "; it cannot be set from YAML: leave the key out, or use a .py file"


def _out_of_range(key: str, value: Any) -> str | None:
    is_number = isinstance(value, int | float)  # it may also be null, or a schedule
    if key in _AT_LEAST_ONE and is_number and value < 1:
        return "a whole number of at least 1"
    if key in _FROM_ZERO_TO_ONE and is_number and not 0 <= value <= 1:
        return "a number from 0 to 1"
    if key in _POSITIVE and is_number and value <= 0:
        return "a number above 0"
    if key == "noise_type" and isinstance(value, str) and not any(kind in value for kind in ("normal", "ornstein-uhlenbeck")):
        return "'normal' or 'ornstein-uhlenbeck'"
    return None


def _check_mapping(key: str, kwargs: Mapping[Any, Any], hyperparams: Mapping[str, Any], algorithm: type) -> Iterator[Problem]:
    """The keyword arguments whose receiver is known."""
    parameters = _Parameters({}, (), True)
    if key == "normalize":
        parameters = _parameters(VecNormalize, 1)
    elif key == "monitor_kwargs":
        parameters = _parameters(Monitor, 2)  # the zoo passes `env` and `filename`
    elif key == "policy_kwargs":
        try:
            parameters = _parameters(_get_policy(hyperparams.get("policy"), algorithm))
        except ValueError:
            pass  # said under `policy`
        else:  # what has no default comes from the algorithm
            hints = {name: hint for name, hint in parameters.hints.items() if name not in parameters.required}
            parameters = _Parameters(hints, (), parameters.takes_any)
    yield from _check_kwargs(key, kwargs, parameters)


def _check_kwargs(what: str, kwargs: Mapping[Any, Any], parameters: _Parameters) -> Iterator[Problem]:
    for name, value in kwargs.items():
        line, hint = line_of(kwargs, name), parameters.hints.get(name, Any)
        if not isinstance(name, str):
            yield Problem(line, f"{what}: expected a name as key, got {show(name)}")
        elif name not in parameters.hints and not parameters.takes_any:
            yield Problem(line, f"{what}: unknown key {show(name)}{suggest(name, parameters.hints)}")
        elif not _matches(value, hint):
            yield Problem(line, f"{what}: {name}: expected {_describe(hint)}, got {show(value)}")
    missing = [name for name in parameters.required if name not in kwargs]
    if missing and (parameters.takes_any or parameters.hints.keys() >= kwargs.keys()):  # else it is misspelled
        yield Problem(None, f"{what}: missing {', '.join(map(repr, missing))}")


# --- wrappers and callbacks -------------------------------------------------------------------------------------------


def _import(load: Callable[[str], Any], name: str) -> Any:
    try:
        return load(name)
    except (ValueError, PluginError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    except (Exception, SystemExit) as error:
        raise ValueError(f"importing {name!r} failed: {_describe_error(error)}") from error


def _get_policy(value: Any, algorithm: type) -> Any:
    aliases: Mapping[str, Any] = getattr(algorithm, "policy_aliases", {})
    # Not a class, even from a .py file: the zoo looks for a dot in it.
    if isinstance(value, str) and value in aliases:
        return aliases[value]
    if not isinstance(value, str) or "." not in value:
        nearest = suggest(value, aliases) if isinstance(value, str) else ""
        if value in ("NatureCnnPolicy", "ImpalaCnnPolicy"):
            nearest = f"; hppo and impala know that name, others sb3_hrl.cnn.{value}"
        raise ValueError(f"expected one of {', '.join(aliases)}, or a dotted path, got {show(value)}{nearest}")
    policy = _import(import_dotted, value)
    if not isinstance(policy, type):
        raise ValueError(f"expected a class, but {value!r} is {show(policy)}")
    return policy


def _get_wrapper(group: str) -> Callable[[Any], Any]:
    def load(name: Any) -> Any:
        if isinstance(name, type):
            return name
        if not isinstance(name, str):
            raise ValueError(f"expected a name or a list of names, got {show(name)}")
        wrapper = _import(lambda path: resolve(group, path), name)
        if not callable(wrapper):
            raise ValueError(f"expected a wrapper, but {name!r} is {show(wrapper)}")
        return wrapper

    return load


def _get_callback(name: Any) -> Any:
    if isinstance(name, BaseCallback):
        return name
    if not isinstance(name, str):
        raise ValueError(f"expected a dotted path or a list of these, got {show(name)}")
    callback = _import(import_dotted, name)
    if not (isinstance(callback, type) and issubclass(callback, BaseCallback)):
        raise ValueError(f"expected a callback class, but {name!r} is {show(callback)}")
    return callback


# The keys that name wrappers or callbacks, and how to get one.
_PARTS: dict[str, Callable[[Any], Any]] = {
    "env_wrapper": _get_wrapper(WRAPPERS),
    "vec_env_wrapper": _get_wrapper(VEC_ENVS),
    "callback": _get_callback,
}


def _check_parts(key: str, value: Any) -> Iterator[Problem]:
    if value is None:
        return
    for index, part in enumerate(value) if isinstance(value, list) else [(None, value)]:
        for line, text in _check_part(key, part):
            yield Problem(line or line_of(value, index), f"{key}: {text}")


def _check_part(key: str, part: Any) -> Iterator[Problem]:
    """A name, or a mapping from one name to its arguments."""
    name, line = part, None
    kwargs: Any = {}
    if isinstance(part, dict):
        if len(part) != 1:
            names = ", ".join(show(name) for name in part) or "none"
            yield Problem(None, f"expected one name with its arguments indented below it, got {len(part)} keys: {names}")
            return
        name, kwargs = next(iter(part.items()))
        line = line_of(part, name)
    try:
        target = _PARTS[key](name)
    except ValueError as error:
        yield Problem(line, str(error))
        return
    if kwargs is None:
        yield Problem(line, f"nothing follows '{name}:': remove the colon, or indent its arguments below it")
    elif not isinstance(kwargs, dict):
        yield Problem(line, f"{name}: expected a mapping of arguments, got {show(kwargs)}")
    elif not isinstance(target, BaseCallback):
        parameters = _parameters(target, 0 if key == "callback" else 1)
        problems = list(_check_kwargs(str(name), kwargs, parameters)) or list(check_further(target, kwargs))
        for inner_line, text in problems:
            yield Problem(inner_line or line, text)


# --- signatures and types ---------------------------------------------------------------------------------------------


def _parameters(target: Any, n_given: int = 0) -> _Parameters:
    """
    :param target: a class or function
    :param n_given: how many of its first arguments are passed by the caller
    :return: its other arguments
    """
    try:
        parameters = list(inspect.signature(target).parameters.values())[n_given:]
    except (TypeError, ValueError):
        return _Parameters({}, (), True)
    function = inspect.unwrap(getattr(target, "__init__") if isinstance(target, type) else target)  # noqa: B009
    names = getattr(function, "__globals__", {})
    by_name = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return _Parameters(
        {p.name: _hint(p.annotation, names) for p in by_name},
        tuple(p.name for p in by_name if p.default is p.empty),
        any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def _hint(annotation: Any, names: dict[str, Any]) -> Any:
    # Not typing.get_type_hints: it fails as a whole when one name is imported for type checkers only (SB3's VecEnv).
    try:
        hint = eval(annotation, dict(names)) if isinstance(annotation, str) else annotation
        hash(hint)
    except Exception:  # not a type at all
        return Any
    return hint


@cache
def _constructor(algorithm: type) -> _Parameters:
    """The arguments of an algorithm; with ``**kwargs`` in its constructor, those of the parent's too."""
    hints: dict[str, Any] = {}
    required: tuple[str, ...] = ()
    for cls in algorithm.__mro__:
        if "__init__" in vars(cls):
            parameters = _parameters(cls)
            required += tuple(name for name in parameters.required if name not in hints)
            hints = {**parameters.hints, **hints}
            if not parameters.takes_any:
                break
    return _Parameters(hints, required, False)


def _expected(algorithm: type) -> dict[str, Any]:
    hints = _constructor(algorithm).hints
    noise = _NOISE_KEYS if "action_noise" in hints else {}
    checkpoints = CHECKPOINT_KEYS if issubclass(algorithm, Resumable) else {}
    return {**{key: hint for key, hint in hints.items() if key not in _ZOO_ARGUMENTS}, **ZOO_KEYS, **checkpoints, **noise}


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(inner for part in typing.get_args(hint) for inner in _alternatives(part))
    return (types.NoneType if hint is None else hint,)


def _origin(hint: Any) -> Any:
    return typing.get_origin(hint) or hint


def _is_schedule(hint: Any) -> bool:
    """Whether it is SB3's ``Schedule``, or a bare ``Callable`` (as in sb3-contrib's TQC)."""
    return _origin(hint) is Callable and typing.get_args(hint) in ((), typing.get_args(Schedule))


def _matches(value: Any, hint: Any) -> bool:
    return any(_matches_one(value, alternative) for alternative in _alternatives(hint))


def _matches_one(value: Any, hint: Any) -> bool:
    origin, arguments = _origin(hint), typing.get_args(hint)
    if hint in (Any, inspect.Parameter.empty):
        return True
    if origin in (int, float):
        is_number = isinstance(value, Real) and not isinstance(value, bool) and value == value
        return is_number and (origin is float or isinstance(value, Integral) or float(value).is_integer())
    if _is_schedule(hint):
        return callable(value) or (isinstance(value, str) and _LINEAR_SCHEDULE.fullmatch(value) is not None)
    if origin is typing.Literal:
        return value in arguments
    if origin in (list, tuple, Sequence):
        return isinstance(value, list | tuple) and _items_match(value, origin, arguments)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping)
    if isinstance(origin, type):
        try:
            return isinstance(value, origin)
        except TypeError:  # a protocol
            return True
    return True


def _items_match(values: Sequence[Any], origin: Any, arguments: tuple[Any, ...]) -> bool:
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return len(values) == len(arguments) and all(map(_matches, values, arguments))
    return not arguments or all(_matches(value, arguments[0]) for value in values)


def _describe(hint: Any) -> str:
    return " or ".join(dict.fromkeys(_describe_one(alternative) for alternative in _alternatives(hint)))


def _describe_one(hint: Any) -> str:
    origin = _origin(hint)
    if origin in _WORDS:
        return _WORDS[origin]
    if _is_schedule(hint):
        return "'lin_<number>'"
    if origin is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    return "a class" if origin is type else f"a {getattr(origin, '__name__', origin)} object"


# --- values and errors in words ---------------------------------------------------------------------------------------


def _describe_error(error: BaseException) -> str:
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {' '.join(message.split())}"


def evaluate(code: str) -> Any:
    """
    Evaluate Python code from a hyperparameter file as the zoo does.

    :param code: an expression such as ``dict(activation_fn=nn.ReLU)``
    :return: its value
    :raises ValueError: if it fails; the message says why
    """
    import rl_zoo3.exp_manager  # not at the top: the start-up hook acts on this import

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return eval(code, dict(vars(rl_zoo3.exp_manager)))
    except NameError as error:
        nearest = suggest(error.name, vars(rl_zoo3.exp_manager)) if error.name else ""
        raise ValueError(f"{_describe_error(error)}{nearest}") from error
    except (Exception, SystemExit) as error:
        raise ValueError(_describe_error(error)) from error
