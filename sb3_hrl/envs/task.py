"""
Tasks as data: a YAML file that says which model is simulated, what is observed and rewarded, when an episode ends and how it
begins. ``docs/tasks.md`` describes the format; ``sb3_hrl/envs/tasks`` holds gymnasium's eleven MuJoCo tasks.

A file is checked completely before anything is simulated. What is wrong in it is one line ``file:line: key: what is wrong``.
"""

import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from sb3_hrl import native
from sb3_hrl.env_ids import MUSCLE_ENVS
from sb3_hrl.envs.myo import PREFIX, compile_myo_model
from sb3_hrl.muscle import MuscleInterface, MuscleSettings, MuscleSpec
from sb3_hrl.registry import suggest
from sb3_hrl.yaml_lines import LineMapping, Problem, UnreadableError, line_of, load_yaml, show

TASKS = Path(__file__).with_name("tasks")
ASSETS = Path(__file__).with_name("assets")
# Arguments of every MuJoCo environment that only concern its pictures: a native task takes them and does nothing with them.
RENDER_OPTIONS = (
    "render_mode",
    "width",
    "height",
    "camera_id",
    "camera_name",
    "default_camera_config",
    "max_geom",
    "visual_options",
)
_KEYS = (
    "id",
    "max_episode_steps",
    "options",
    "extends",
    "model",
    "frame_skip",
    "actions",
    "muscles",
    "memory",
    "observation",
    "observation_size",
    "values",
    "arrays",
    "reward",
    "terminate",
    "reset",
    "info",
    "reset_info",
    "marker",
)
_REQUIRED_KEYS = ("id", "model", "observation", "reward", "values")
_VARIANT_KEYS = ("id", "extends", "max_episode_steps", "options")
_AXES = {"x": 0, "y": 1, "z": 2}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
# How the native core begins a message about a term.
_PLACE = re.compile(r"(observation|values|arrays|reset)\[(\d+)\]: (?:(\w+): )?(.*)", re.DOTALL)


class TaskError(ValueError):
    """A task that cannot be used: its file is wrong, or an option of it is."""


class NoNativeForm(ValueError):
    """Something that gymnasium may well understand, but that has no native form; the message is the reason."""


class Term(NamedTuple):
    """
    One term of a task, in numbers.

    :param term: the name of its function in the native core
    :param arguments: the function's arguments
    """

    term: str
    arguments: dict[str, list[float]]


class Info(NamedTuple):
    """
    One entry of an info.

    :param key: its name
    :param is_array: whether it is one of the task's arrays, or else one of its values
    :param position: which one
    """

    key: str
    is_array: bool
    position: int


class Marker(NamedTuple):
    """
    A green ball in the pictures: where a site is when a joint has an angle of the task's memory. The physics does not know it.

    :param site: the site's id
    :param joint: the joint's id
    :param angle: the angle's place in the memory
    """

    site: int
    joint: int
    angle: int


class TaskSpec(NamedTuple):
    """
    A task in numbers: all that the native core has to know. It can be pickled.

    :param model: the compiled model, as the bytes of an MJB file
    :param frame_skip: physics steps of one step
    :param max_episode_steps: the time limit, zero for none
    :param observation: array terms, one after the other
    :param values: value terms; each may use those before it
    :param arrays: array terms that an info needs
    :param reset: reset terms, applied in order to the initial state
    :param reward: which value is the reward
    :param healthy: which value ends the episode when it is zero, -1 for none
    :param info: what a step tells
    :param reset_info: what a reset tells
    :param norm_order: see ``norm_order``
    :param muscles: how its muscles are driven, and which muscles they are; None where the action is the control
    """

    model: bytes
    frame_skip: int
    max_episode_steps: int
    observation: tuple[Term, ...]
    values: tuple[Term, ...]
    arrays: tuple[Term, ...]
    reset: tuple[Term, ...]
    reward: int
    healthy: int
    info: tuple[Info, ...]
    reset_info: tuple[Info, ...]
    norm_order: int
    muscles: MuscleSpec | None = None

    def to_native(self) -> Any:
        """
        :return: the same as a ``_native.TaskSpec``
        """
        core = native.load()
        terms = {
            name: [core.TermSpec(term.term, term.arguments) for term in getattr(self, name)]
            for name in ("observation", "values", "arrays", "reset")
        }
        infos = {
            name: [core.InfoSpec(info.is_array, info.position) for info in getattr(self, name)]
            for name in ("info", "reset_info")
        }
        return core.TaskSpec(
            model=self.model,
            frame_skip=self.frame_skip,
            max_episode_steps=self.max_episode_steps,
            reward=self.reward,
            healthy=self.healthy,
            norm_order=self.norm_order,
            muscles=self.muscles and core.MuscleSettings(**self.muscles._asdict()),
            **terms,
            **infos,
        )


@dataclass(frozen=True)
class Task:
    """
    A task with everything resolved. It can be pickled.

    :param id: the environment's id
    :param path: the YAML file that it was read from
    :param options: all options that the file knows, with their values
    :param model_path: the model's file; for one of MyoSim's models its name, ``myo_sim:myoelbow``
    :param frame_skip: physics steps of one step
    :param max_episode_steps: the time limit, None for none
    :param dt: simulated seconds of one step
    :param observation_space: as gymnasium declares it
    :param action_space: as gymnasium declares it; Discrete if the file lists its actions
    :param info_columns: for every key of a step's info its column, or its columns, in ``StepResult.infos``
    :param reset_info_columns: the same for a reset's info
    :param metadata: render modes and frames per second, as gymnasium gives them
    :param model_hash: SHA-256 of the compiled model
    :param task_hash: SHA-256 of everything else that changes a result
    :param spec: the task in numbers
    :param muscles: how its muscles are driven, with every number written out; None where the action is the control
    :param body: ``MuscleInterface.body``; empty without muscles
    :param actions: the actions that the file lists, as controls [n, n_controls], float32; None if it lists none
    :param marker: what pictures show beside the model; None for nothing
    """

    id: str
    path: Path
    options: Mapping[str, Any]
    model_path: Path
    frame_skip: int
    max_episode_steps: int | None
    dt: float
    observation_space: spaces.Box
    action_space: Any  # a spaces.Box or spaces.Discrete
    info_columns: Mapping[str, int | slice]
    reset_info_columns: Mapping[str, int | slice]
    metadata: Mapping[str, Any]
    model_hash: str
    task_hash: str
    spec: TaskSpec = field(repr=False)
    muscles: MuscleSettings | None = None
    body: str = ""
    actions: np.ndarray | None = field(default=None, repr=False, compare=False)
    marker: Marker | None = None

    @property
    def controls(self) -> np.ndarray:
        """The listed actions; else the lowest and the highest action [n, n_controls], float32."""
        return np.stack([self.action_space.low, self.action_space.high]) if self.actions is None else self.actions

    @property
    def info_keys(self) -> tuple[str, ...]:
        """The keys of a step's info, in gymnasium's order."""
        return tuple(self.info_columns)

    @property
    def reset_info_keys(self) -> tuple[str, ...]:
        """The keys of a reset's info, in gymnasium's order."""
        return tuple(self.reset_info_columns)

    def info(self, row: np.ndarray) -> dict[str, Any]:
        """
        :param row: one environment's row of ``StepResult.infos``
        :return: the info as gymnasium has it: numbers, and copies of the arrays
        """
        return _unpack(row[None], self.info_columns)[0]

    def infos(self, rows: np.ndarray) -> list[dict[str, Any]]:
        """
        :param rows: rows of ``StepResult.infos``
        :return: the info of each
        """
        return _unpack(rows, self.info_columns)

    def reset_info(self, row: np.ndarray) -> dict[str, Any]:
        """
        :param row: one environment's row of ``StepResult.reset_infos``
        :return: the info of a reset as gymnasium has it
        """
        return _unpack(row[None], self.reset_info_columns)[0]


def _unpack(rows: np.ndarray, columns: Mapping[str, int | slice]) -> list[dict[str, Any]]:
    numbers = rows.tolist()  # much faster than one element at a time
    if tuple(columns.values()) == tuple(range(rows.shape[1])):
        return [dict(zip(columns, row, strict=True)) for row in numbers]
    return [
        {key: row[at].copy() if isinstance(at, slice) else plain[at] for key, at in columns.items()}
        for row, plain in zip(rows, numbers, strict=True)
    ]


def native_tasks() -> dict[str, Path]:
    """
    :return: the ids of the tasks that come with the package, and their files
    """
    found = {}
    for path in sorted(TASKS.glob("*.yaml")):
        match = re.search(r"^id: *(\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if match:
            found[match[1]] = path
    return found


def load_task(
    name_or_path: str | os.PathLike[str],
    options: Mapping[str, Any] | None = None,
    max_episode_steps: int | None = None,
) -> Task:
    """
    Read and check a task.

    :param name_or_path: an id such as ``Hopper-v5``, or a YAML file
    :param options: what gymnasium calls the environment's keyword arguments
    :param max_episode_steps: another time limit than the file's; -1 for none, as in ``gymnasium.make``
    :return: the task
    :raises TaskError: if the file or an option is wrong
    :raises NoNativeForm: if there is no such native task, or an option's value has no native form
    :raises MissingExtraError: if it is a model of MyoSim's, and that is not installed
    """
    options = dict(options or {})
    text = os.fspath(name_or_path)
    if text in MUSCLE_ENVS:
        text = os.fspath(options.pop("env_file", MUSCLE_ENVS[text][0]))
        if text.endswith(".xml") or text.startswith(PREFIX):  # a bare model, with the default task
            options["xml_file"] = text if text.startswith(PREFIX) else str(Path(text).expanduser().resolve())
            text = MUSCLE_ENVS["MuscleEnv-v0"][0]
        elif not text.endswith((".yaml", ".yml")):
            raise TaskError(f"env_file: expected a task (.yaml) or a model (.xml, {PREFIX}name), got {text!r}")
    elif not text.endswith((".yaml", ".yml")):
        known = native_tasks()
        if text not in known:
            raise NoNativeForm(f"{text} is not a native task{suggest(text, known) or '.'} There are: {', '.join(known)}.")
        text = str(known[text])
    return _Reader(_find_task(text, Path())).read(options, max_episode_steps)


class _Reader:
    """Reads one file. Problems are collected, and raised together at the end of each stage."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[tuple[int | None, str]] = []
        self.options: dict[str, Any] = {}
        self.memory: list[str] = []
        self.value_names: list[str] = []
        self.values: list[Term] = []
        self.single_values: set[int] = set()
        self.places: dict[str, list[tuple[str, Any]]] = {}
        self.document = self._load()

    def _load(self) -> LineMapping:
        try:
            document, duplicates = load_yaml(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise TaskError(f"{self.path}: the task cannot be read: {error}") from error
        except UnreadableError as error:
            raise TaskError(_located(self.path, error.problem)) from error
        if not isinstance(document, LineMapping):
            raise TaskError(f"{self.path}:1: expected a mapping with the keys {', '.join(_KEYS)}")
        self.problems += [(problem.line, problem.text) for problem in duplicates]
        is_variant = "extends" in document
        known, required = (_VARIANT_KEYS, _VARIANT_KEYS[:2]) if is_variant else (_KEYS, _REQUIRED_KEYS)
        for key in document:
            if key not in known:
                why = " of a task that extends another" if is_variant and key in _KEYS else ""
                self._problem(document, key, f"unknown key{why}{suggest(str(key), known)}")
        missing = [key for key in required if key not in document]
        if missing:
            self.problems.append((None, f"these keys are missing: {', '.join(missing)}"))
        self._raise_problems()
        return document

    # --- problems -------------------------------------------------------------------------------------------------------

    def _problem(self, container: Any, key: Any, text: str, name: str = "") -> None:
        self.problems.append((line_of(container, key), f"{name or key}: {text}"))

    def _raise_problems(self) -> None:
        if self.problems:
            ordered = sorted(self.problems, key=lambda problem: problem[0] or 0)
            raise TaskError("\n".join(_located(self.path, Problem(*problem)) for problem in ordered))

    # --- the stages -----------------------------------------------------------------------------------------------------

    def read(self, given: dict[str, Any], max_episode_steps: int | None, name: str = "") -> Task:
        document = self.document
        if "extends" in document:
            return self._read_variant(given, max_episode_steps, name)
        task_id = name or str(document["id"])
        self.options = _chosen_options(task_id, self._known_options(), given)
        frame_skip = self._whole_number("frame_skip", self._resolve(document, "frame_skip", default=1), 1)
        limit = self._limit(max_episode_steps)
        model_name = self._resolve(document, "model")
        if not isinstance(model_name, str):
            self._problem(document, "model", f"expected the name of a file, got {show(model_name)}")
        self._raise_problems()
        model_path = _find_model(model_name, self.path.parent)
        memory = self._memory()
        self._raise_problems()
        model_bytes, model = _compile_model(model_path, len(memory))
        muscles, interface = self._muscles(model)
        self._raise_problems()

        space = _action_space(model, muscles, interface)
        actions = self._actions(space)
        observation = self._listed_terms("array", "observation", model)
        arrays, array_names = self._named_arrays(model)
        self._read_values(model)
        reward = self._reward(document, "reward")
        healthy = self._healthy()
        reset = self._listed_terms("reset", "reset", model)
        info, reset_info = (self._info(key, array_names) for key in ("info", "reset_info"))
        marker = self._marker(model)
        self._raise_problems()

        spec = TaskSpec(
            model=model_bytes,
            frame_skip=frame_skip,
            max_episode_steps=limit or 0,
            observation=tuple(observation),
            values=tuple(self.values),
            arrays=tuple(arrays),
            reset=tuple(reset),
            reward=reward,
            healthy=healthy,
            info=info,
            reset_info=reset_info,
            norm_order=norm_order(),
            muscles=None if muscles is None or interface is None else muscles.in_numbers(interface),
        )
        core = self._compile(spec)
        self._check_observation_size(task_id, core.n_obs)
        dt = float(model.opt.timestep * frame_skip)
        return Task(
            id=task_id,
            path=self.path,
            options=dict(self.options),
            model_path=model_path,
            frame_skip=frame_skip,
            max_episode_steps=limit,
            dt=dt,
            observation_space=spaces.Box(-np.inf, np.inf, (core.n_obs,), np.float64),
            action_space=space if actions is None else spaces.Discrete(len(actions)),
            info_columns=_columns(info, core.array_sizes),
            reset_info_columns=_columns(reset_info, core.array_sizes),
            metadata={
                "render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"],
                "render_fps": int(np.round(1.0 / dt)),
            },
            model_hash=hashlib.sha256(spec.model).hexdigest(),
            task_hash=_hash(spec, actions),
            spec=spec,
            muscles=muscles,
            body="" if interface is None else interface.body,
            actions=actions,
            marker=marker,
        )

    def _read_variant(self, given: dict[str, Any], max_episode_steps: int | None, name: str) -> Task:
        """The task that this one extends, with other defaults, under another id."""
        written = self.document["extends"]
        if not isinstance(written, str):
            self._problem(self.document, "extends", f"expected the name of a task's file, got {show(written)}")
        self._raise_problems()
        base = _Reader(_find_task(written, self.path.parent))
        defaults, known = self._known_options(), base._known_options()
        for option in defaults:
            if option not in known:
                text = f"{written} has no such option{suggest(option, known)}"
                self._problem(self.document["options"], option, text, f"options.{option}")
        limit = self._limit(max_episode_steps) if max_episode_steps != -1 else -1
        self._raise_problems()
        options = {option: default.default for option, default in defaults.items()} | given
        task = base.read(options, limit, name or str(self.document["id"]))
        return dataclasses.replace(task, path=self.path)

    def _memory(self) -> list[str]:
        """The names of the numbers that an environment keeps from step to step."""
        self.memory = [str(name) for name in self._items("memory")]
        for index, name in enumerate(self.memory):
            if not _IDENTIFIER.fullmatch(name) or name in self.memory[:index]:
                text = f"expected a name made of letters, digits and _, each one once, got {name!r}"
                self._problem(self.document["memory"], index, text, f"memory[{index}]")
        return self.memory

    def _marker(self, model: Any) -> Marker | None:
        if "marker" not in self.document:
            return None
        section, found = self._mapping("marker"), {}
        if set(section) != set(Marker._fields):
            self._problem(self.document, "marker", f"expected the keys {', '.join(Marker._fields)}, got {show(section)}")
            return None
        for key, value in section.items():
            id_ = self._memory_position(value) if key == "angle" else _object_id(key, value, model)
            if (
                key == "joint"
                and not isinstance(id_, str)
                and model.jnt_type[int(id_[0])] < int(_mujoco().mjtJoint.mjJNT_SLIDE)
            ):
                id_ = f"expected a hinge or a slide, got {show(value)}"
            if isinstance(id_, str):
                self._problem(section, key, id_, f"marker.{key}")
            else:
                found[key] = int(id_[0])
        return Marker(**found) if len(found) == len(section) else None

    def _muscles(self, model: Any) -> tuple[MuscleSettings | None, MuscleInterface | None]:
        if "muscles" not in self.document:
            return None, None
        section = self._mapping("muscles")
        known = [setting.name for setting in dataclasses.fields(MuscleSettings)]
        given = {}
        for key in section:
            if key not in known:
                self._problem(section, key, f"unknown key{suggest(str(key), known)}", f"muscles.{key}")
                continue
            given[key] = self._resolve(section, key, name=f"muscles.{key}")
        self._raise_problems()
        try:
            settings = MuscleSettings(**given)
            interface = MuscleInterface(model, settings.joints)
            return settings.resolve(interface), interface
        except ValueError as error:
            key, _, text = str(error).partition(": ")
            if key in known:
                self._problem(section, key, text, f"muscles.{key}")
            else:
                self._problem(self.document, "muscles", str(error))
            return None, None

    def _known_options(self) -> "dict[str, _Option]":
        options = self.document.get("options") or LineMapping()
        if not isinstance(options, LineMapping):
            self._problem(self.document, "options", f"expected a mapping, got {show(options)}")
            self._raise_problems()
        chosen = {}
        for name, default in options.items():
            if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
                self._problem(options, name, "expected a name made of letters, digits and _", f"options.{name}")
                continue
            if isinstance(default, LineMapping) and set(default) == {"default", "or"}:
                chosen[name] = _Option(default["default"], {_type_of(default["default"]), _type_of(default["or"])})
            else:
                chosen[name] = _Option(tuple(default) if isinstance(default, list) else default, {_type_of(default)})
            if None in chosen[name].types:
                wanted = "a number, true, false, text, two numbers, or {default: ..., or: ...} of these"
                self._problem(options, name, f"expected {wanted}, got {show(default)}", f"options.{name}")
        self._raise_problems()
        return chosen

    def _resolve(self, container: Any, key: Any, default: Any = None, name: str = "") -> Any:
        """The value under a key; ``$name`` is the option of that name."""
        value = container.get(key, default) if isinstance(container, Mapping) else container[key]
        if isinstance(value, str) and value.startswith("$"):
            if value[1:] not in self.options:
                self._problem(container, key, f"there is no option {value[1:]!r}{suggest(value[1:], self.options)}", name)
                return None
            return self.options[value[1:]]
        return value

    def _whole_number(self, key: str, value: Any, minimum: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
            self._problem(self.document, key, f"expected a whole number >= {minimum}, got {show(value)}")
            return minimum
        return int(value)

    def _limit(self, given: int | None) -> int | None:
        limit = self._resolve(self.document, "max_episode_steps") if given is None else given
        if limit is None or (given is not None and given == -1):
            return None
        return self._whole_number("max_episode_steps", limit, 1)

    def _actions(self, space: spaces.Box) -> np.ndarray | None:
        """The controls of each discrete action [n, n_controls], float32; None if the file lists none."""
        if "actions" not in self.document:
            return None
        rows = self._items("actions")
        if not rows:
            self._problem(self.document, "actions", "expected at least one list of controls")
        for index, row in enumerate(rows):
            is_right = isinstance(row, list) and len(row) == len(space.low) and all(map(_is_number, row))
            if not is_right or np.float32(row) not in space:
                limits = ", ".join(f"[{low:g}, {high:g}]" for low, high in zip(space.low, space.high, strict=True))
                text = f"expected a list of {len(space.low)} numbers within {limits}, got {show(row)}"
                self._problem(rows, index, text, f"actions[{index}]")
        return None if self.problems else np.array(rows, np.float32)

    # --- terms ----------------------------------------------------------------------------------------------------------

    def _term(
        self, kind: str, container: Any, key: Any, name: str, model: Any, other_keys: tuple[str, ...] = ()
    ) -> Term | None:
        """Read one term; on a problem return None. Keys that are no arguments are somebody else's matter."""
        n_problems = len(self.problems)
        written = container[key]
        if not isinstance(written, LineMapping) or "term" not in written:
            self._problem(container, key, f"expected a mapping with the key 'term', got {show(written)}", name)
            return None
        known = known_terms()[kind]
        if written["term"] not in known:
            near = suggest(str(written["term"]), known)
            self._problem(written, "term", f"there is no {kind} term {show(written['term'])}{near}", f"{name}.term")
            return None
        types = known[written["term"]]
        arguments = {}
        for argument in written:
            if argument in ("term", *other_keys):
                continue
            place = f"{name}.{argument}"
            if argument not in types or types[argument] == "promotion":
                wanted = [other for other, type_ in types.items() if type_ != "promotion"]
                near = suggest(str(argument), wanted) or "."
                text = f"unknown argument of {written['term']}{near} It takes: {', '.join(wanted) or 'none'}"
                self._problem(written, argument, text, place)
                continue
            value = self._resolve(written, argument, name=place)
            numbers = None if value is None else self._numbers(types[argument], value, model)
            if isinstance(numbers, str):
                self._problem(written, argument, f"{numbers}, got {show(value)}", place)
            elif numbers is not None:
                arguments[argument] = numbers
                if argument == "weight" and "is_single" in types:
                    arguments["is_single"] = [float(self._is_single(written, value))]
        return Term(written["term"], arguments) if len(self.problems) == n_problems else None

    def _is_single(self, written: Mapping[str, Any], weight: Any) -> bool:
        """Whether NumPy multiplies this weight and a float32 in single precision: version 2 does, for a Python number."""
        of = written.get("of")
        is_float32 = of in self.value_names and self.value_names.index(of) in self.single_values
        return is_float32 and (np.float32(1) * weight).dtype == np.float32

    def _numbers(self, type_: str, value: Any, model: Any) -> list[float] | str:
        """The numbers that the native core takes for a value, or what was expected instead."""
        if type_ in ("value", "values"):
            return self._value_positions(type_, value)
        if type_ in ("body", "site"):
            return _object_id(type_, value, model)
        if type_ == "keyframes":
            return _each(lambda name: _object_id("key", name, model), value)
        if type_ in ("memory", "memories"):
            return _each(self._memory_position, value if type_ == "memories" else [value])
        if type_ == "axis" and value in _AXES:
            return [_AXES[value]]
        if type_ == "flag":
            return [float(value)] if isinstance(value, bool) else "expected true or false"
        if type_ in ("range", "numbers"):
            wanted = "two numbers" if type_ == "range" else "numbers"
            is_right = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) and all(map(_is_number, value))
            if not is_right or (type_ == "range" and len(value) != 2):
                return f"expected a list of {wanted}"
            return [float(number) for number in value]
        if not _is_number(value):
            return "expected x, y or z" if type_ == "axis" else "expected a number"
        if type_ in ("index", "axis") and value != int(value):
            return "expected a whole number"
        return [float(value)]

    def _memory_position(self, name: Any) -> list[float] | str:
        if name not in self.memory:
            return f"expected a name of the task's memory{suggest(str(name), self.memory)}"
        return [float(self.memory.index(name))]

    def _value_positions(self, type_: str, value: Any) -> list[float] | str:
        names = value if type_ == "values" and isinstance(value, list) else [value]
        for name in names:
            if name not in self.value_names:
                return f"expected the name of a value that stands above{suggest(str(name), self.value_names)}"
        return [float(self.value_names.index(name)) for name in names]

    def _items(self, key: str) -> Sequence[Any]:
        items = self.document.get(key) or []
        if not isinstance(items, list):
            self._problem(self.document, key, f"expected a list, got {show(items)}")
            return []
        return items

    def _is_wanted(self, term: Any, name: str) -> bool:
        """Whether ``when: $flag`` or ``unless: $flag`` lets a term stand."""
        is_wanted = True
        for key in ("when", "unless"):
            if isinstance(term, LineMapping) and key in term:
                flag = self._resolve(term, key, name=f"{name}.{key}")
                if not isinstance(flag, bool):
                    self._problem(term, key, f"expected true, false or an option that is, got {show(flag)}", f"{name}.{key}")
                is_wanted = is_wanted and bool(flag) == (key == "when")
        return is_wanted

    def _listed_terms(self, kind: str, key: str, model: Any) -> list[Term]:
        terms, places = [], []
        items = self._items(key)
        for index, item in enumerate(items):
            name = f"{key}[{index}]"
            if self._is_wanted(item, name):
                term = self._term(kind, items, index, name, model, ("when", "unless"))
                if term:
                    terms.append(term)
                    places.append((name, item))
        self.places[key] = places
        return terms

    def _mapping(self, key: str) -> LineMapping:
        mapping = self.document.get(key) or LineMapping()
        if not isinstance(mapping, LineMapping):
            self._problem(self.document, key, f"expected a mapping, got {show(mapping)}")
            return LineMapping()
        return mapping

    def _named_arrays(self, model: Any) -> tuple[list[Term], list[str]]:
        mapping = self._mapping("arrays")
        terms = {name: self._term("array", mapping, name, f"arrays.{name}", model) for name in mapping}
        found = {name: term for name, term in terms.items() if term}
        self.places["arrays"] = [(f"arrays.{name}", mapping[name]) for name in found]
        return list(found.values()), list(found)

    def _read_values(self, model: Any) -> None:
        mapping = self._mapping("values")
        places = []
        for name in mapping:
            term = self._term("value", mapping, name, f"values.{name}", model)
            if term is None:
                term = Term("constant", {"number": [0.0]})  # later terms may name it
            if term.term == "action_squares":
                self.single_values.add(len(self.values))
            self.value_names.append(name)
            self.values.append(term)
            places.append((f"values.{name}", mapping[name]))
        self.places["values"] = places

    def _reward(self, container: Any, key: Any) -> int:
        """A name, or a list that is added from left to right, inner lists first. Sums become values without a name."""
        written = container[key]
        if isinstance(written, list) and written:
            positions = [self._reward(written, index) for index in range(len(written))]
            if len(positions) == 1:
                return positions[0]
            self.values.append(Term("sum", {"of": [float(position) for position in positions]}))
            return len(self.values) - 1
        positions_or_text = self._value_positions("value", written)
        if isinstance(positions_or_text, str):
            text = positions_or_text.replace("that stands above", "or a list of names")
            self._problem(container, key, f"{text}, got {show(written)}", "reward")
            return 0
        return int(positions_or_text[0])

    def _healthy(self) -> int:
        if "terminate" not in self.document:
            return -1
        terminate = self._mapping("terminate")
        for key in terminate:
            if key not in ("unless", "when"):
                self._problem(terminate, key, f"unknown key{suggest(str(key), ('unless', 'when'))}", f"terminate.{key}")
        positions = self._value_positions("value", terminate.get("unless"))
        if isinstance(positions, str):
            self._problem(terminate, "unless", f"{positions}, got {show(terminate.get('unless'))}", "terminate.unless")
            return -1
        when = LineMapping({"when": line_of(terminate, "when") or 0})
        when["when"] = terminate.get("when", True)
        return int(positions[0]) if self._is_wanted(when, "terminate") else -1

    def _info(self, key: str, array_names: list[str]) -> tuple[Info, ...]:
        names = self._items(key)
        infos: list[Info] = []
        for index, name in enumerate(names):
            if name in names[:index]:
                self._problem(names, index, f"{show(name)} is there twice", f"{key}[{index}]")
            elif name in array_names:
                infos.append(Info(name, True, array_names.index(name)))
            elif name in self.value_names:
                infos.append(Info(name, False, self.value_names.index(name)))
            else:
                known = [*self.value_names, *array_names]
                self._problem(
                    names, index, f"there is no value or array {show(name)}{suggest(str(name), known)}", f"{key}[{index}]"
                )
        return tuple(infos)

    # --- the native core's own checks -----------------------------------------------------------------------------------

    def _compile(self, spec: TaskSpec) -> Any:
        """Let the native core make the task, and find the line of what it refuses."""
        try:
            return native.load().Task(spec.to_native())
        except ValueError as error:
            match = _PLACE.fullmatch(str(error))
            if not match:
                raise TaskError(f"{self.path}: {error}") from error
            kind, index, argument, text = match.groups()
            places = self.places[kind]
            name, written = places[int(index)] if int(index) < len(places) else ("reward", self.document)
            key = argument or "term"
            self._problem(written, key if key in written else "term", text, f"{name}.{key}")
            try:
                self._raise_problems()
            except TaskError as located:
                raise located from error
            raise

    def _check_observation_size(self, task_id: str, n_obs: int) -> None:
        """Some of gymnasium's environments declare a fixed size, whatever the model is."""
        expected = self.document.get("observation_size")
        if expected is not None and n_obs != expected:
            raise NoNativeForm(f"{task_id} declares {expected} observations, but with this model it would have {n_obs}")


def _located(path: Path, problem: Problem) -> str:
    return f"{path}:{problem.line}: {problem.text}" if problem.line else f"{path}: {problem.text}"


@functools.cache
def known_terms() -> dict[str, dict[str, dict[str, str]]]:
    """
    :return: kind -> term -> argument -> type, from the native core
    """
    known: dict[str, dict[str, dict[str, str]]] = {}
    for term in native.load().known_terms():
        known.setdefault(term.kind, {})[term.name] = {argument.name: argument.type for argument in term.arguments}
    return known


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.longdouble)


def _type_of(value: Any) -> str | None:
    """What an option's default, or a value for it, is."""
    if isinstance(value, bool):
        return "true or false"
    if _is_number(value):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple | np.ndarray) and len(value) == 2 and all(map(_is_number, value)):
        return "two numbers"
    return None


class _Option(NamedTuple):
    """An option's default, and what it may be."""

    default: Any
    types: set[str | None]


def _chosen_options(task_id: str, known: dict[str, _Option], given: dict[str, Any]) -> dict[str, Any]:
    """The defaults, replaced by what the user gives."""
    chosen = {name: option.default for name, option in known.items()}
    for name, value in given.items():
        if name in RENDER_OPTIONS:
            continue
        if name not in known:
            names = [*known, *RENDER_OPTIONS]
            raise TaskError(f"{task_id} has no option {name!r}{suggest(name, names) or '.'} It has: {', '.join(names)}.")
        if _type_of(value) not in known[name].types:
            wanted = " or ".join(sorted(type_ for type_ in known[name].types if type_))
            raise NoNativeForm(f"{task_id}: the option {name} has no native form for {value!r}: it takes {wanted}")
        chosen[name] = value
    return chosen


def _find_task(name: str, folder: Path) -> Path:
    """A file, from the folder; or else one that comes with the package."""
    path = folder / Path(name).expanduser()
    return TASKS / name if not path.exists() and (TASKS / name).exists() else path


def _find_model(name: str, folder: Path) -> Path:
    """As gymnasium finds it; a file beside the task comes first, then one that comes with this package. Or MyoSim's name."""
    if name.startswith(PREFIX):
        return Path(name)
    if name.startswith((".", "/", "~")):
        path = Path(name).expanduser()
    else:
        path = next((place / name for place in (folder, ASSETS) if (place / name).exists()), _gymnasium_assets() / name)
    if not path.exists():
        raise TaskError(f"The model {path} does not exist")
    return path


@functools.cache
def _gymnasium_assets() -> Path:
    spec = importlib.util.find_spec("gymnasium")
    assert spec is not None, "gymnasium is a dependency"
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "envs" / "mujoco" / "assets"


def _mujoco() -> ModuleType:
    native.load()
    return importlib.import_module("mujoco")


def _compile_model(path: Path, n_memory: int) -> tuple[bytes, Any]:
    """The model as the bytes of an MJB file and as an object. MuJoCo's warnings about it are left to gymnasium."""
    is_myo = str(path).startswith(PREFIX)
    try:
        model = (compile_myo_model if is_myo else native.load().compile_model)(str(path), n_memory)
    except ValueError as error:
        who = "MyoSim cannot give the model" if is_myo else "MuJoCo cannot compile the model"
        raise TaskError(f"{who} {path}: {error}") from error
    return model, _mujoco().MjModel.from_binary_path("model.mjb", {"model.mjb": model})


def _object_id(type_: str, value: Any, model: Any) -> list[float] | str:
    """The id of a body, a site, a joint or a keyframe, by its name or number."""
    kinds = _mujoco().mjtObj
    kind, count = {
        "body": (kinds.mjOBJ_BODY, model.nbody),
        "site": (kinds.mjOBJ_SITE, model.nsite),
        "joint": (kinds.mjOBJ_JOINT, model.njnt),
        "key": (kinds.mjOBJ_KEY, model.nkey),
    }[type_]
    mujoco = _mujoco()
    if isinstance(value, str):
        number = mujoco.mj_name2id(model, kind, value)
        if number >= 0:
            return [float(number)]
        names = [name for name in (mujoco.mj_id2name(model, kind, other) for other in range(count)) if name]
        return f"the model has no {type_} of that name{suggest(value, names)}"
    if _is_number(value) and value == int(value) and 0 <= value < count:
        return [float(value)]
    return f"expected the name of a {type_}, or a number from 0 to {count - 1}"


def _each(read: Callable[[Any], list[float] | str], values: Any) -> list[float] | str:
    """The numbers of each of a list's elements, or what was expected instead."""
    numbers = []
    for value in values if isinstance(values, list) else [values]:
        found = read(value)
        if isinstance(found, str):
            return found
        numbers += found
    return numbers


def _action_space(model: Any, muscles: MuscleSettings | None, interface: MuscleInterface | None) -> spaces.Box:
    if muscles is None or interface is None:
        low, high = model.actuator_ctrlrange.copy().astype(np.float32).T
    else:
        low, high = muscles.action_bounds(interface)
    return spaces.Box(low=low, high=high, dtype=np.float32)


def _columns(infos: Sequence[Info], array_sizes: Sequence[int]) -> dict[str, int | slice]:
    columns: dict[str, int | slice] = {}
    column = 0
    for info in infos:
        size = array_sizes[info.position] if info.is_array else 1
        columns[info.key] = slice(column, column + size) if info.is_array else column
        column += size
    return columns


def _hash(spec: TaskSpec, actions: np.ndarray | None) -> str:
    """Of what the task is, not of how this machine's NumPy rounds: a state may travel to another machine."""
    terms = {
        kind: [
            (term.term, {name: numbers for name, numbers in sorted(term.arguments.items()) if name != "is_single"})
            for term in getattr(spec, kind)
        ]
        for kind in ("observation", "values", "arrays", "reset")
    }
    rest = (spec.frame_skip, spec.max_episode_steps, spec.reward, spec.healthy, spec.info, spec.reset_info)
    muscles = [spec.muscles] if spec.muscles else []
    listed = [] if actions is None else [actions.tolist()]
    return hashlib.sha256(json.dumps([terms, rest, *muscles, *listed]).encode()).hexdigest()


# How NumPy's dot product may add, by the number that the native core has for it (`NormOrder`).
_NORM_ORDERS: tuple[Callable[[list[float]], float], ...] = (
    lambda xs: functools.reduce(lambda total, x: total + x * x, xs, 0.0),
    lambda xs: functools.reduce(lambda total, x: float(Fraction(x) * Fraction(x) + Fraction(total)), xs, 0.0),
    lambda xs: sum(x * x for x in xs[::2]) + sum(x * x for x in xs[1::2]),
)


@functools.cache
def norm_order() -> int:
    """
    Find out how NumPy's dot product, and so ``numpy.linalg.norm``, adds two and three numbers here.

    It comes from a BLAS library that has a kernel for each processor: some add from left to right, some with fused
    multiply-adds, some in another order.

    :return: the native core's number for the order that always agrees; zero (left to right) if none does
    """
    vectors = [np.random.default_rng(seed).standard_normal(2 + seed % 2) for seed in range(100)]
    for number, total in enumerate(_NORM_ORDERS):
        if all(float(np.dot(vector, vector)) == total(vector.tolist()) for vector in vectors):
            return number
    return 0
