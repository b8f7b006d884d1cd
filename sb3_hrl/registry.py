"""
The registry of plug-ins: what the installed distributions announce in four entry-point groups.

Nothing is imported until it is used, so a broken plug-in breaks only its own name. First-party parts are announced in the
same groups as anybody else's. This module knows nothing of rl_zoo3.
"""

import difflib
import importlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

from sb3_hrl.errors import PluginError

ALGORITHMS = "sb3_hrl.algorithms"
ENVS = "sb3_hrl.envs"
VEC_ENVS = "sb3_hrl.vec_envs"
WRAPPERS = "sb3_hrl.wrappers"
GROUPS = (ALGORITHMS, ENVS, VEC_ENVS, WRAPPERS)


@dataclass(frozen=True)
class AlgorithmSpec:
    """
    All that rl-zoo3 has to know about an algorithm.

    :param name: what follows ``--algo``; the same as the entry point's name
    :param algorithm: the algorithm's class, as ``package.module:Class``
    :param hyperparams: its zoo-format YAML, as ``package:file``; it needs a ``default`` entry for other environments
    :param sampler: Optuna sampler ``(trial, n_actions, n_envs, additional_args) -> kwargs``, as ``package.module:function``
    :param converter: turns a finished trial's ``params`` into the same kwargs, as ``package.module:function``
    """

    name: str
    algorithm: str
    hyperparams: str
    sampler: str
    converter: str

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, str) or not value:
                raise ValueError(f"AlgorithmSpec.{field.name}: expected a non-empty string, got {value!r}")
            if field.name != "name" and value.count(":") != 1:
                raise ValueError(f"AlgorithmSpec.{field.name} of {self.name!r}: expected 'package:name', got {value!r}")

    def load(self, field: str) -> Any:
        """
        Import the object behind one of the fields.

        :param field: ``algorithm``, ``sampler`` or ``converter``
        :return: the class or function
        """
        module_name, _, attribute = getattr(self, field).partition(":")
        return getattr(importlib.import_module(module_name), attribute)

    @property
    def hyperparams_path(self) -> Path:
        """Where the YAML lies in this installation."""
        package, _, file_name = self.hyperparams.partition(":")
        return Path(str(files(package) / file_name))


@dataclass(frozen=True)
class Plugin:
    """
    One announced name: where it comes from, and how to get it.

    :param group: the entry-point group
    :param name: the short name
    :param entry_points: what was announced under that name; more than one is a conflict
    """

    group: str
    name: str
    entry_points: tuple[EntryPoint, ...]

    @property
    def distribution(self) -> str:
        """Name and version of the distribution (of each one, if several announce the name)."""
        return " and ".join(f"{entry.dist.name} {entry.dist.version}" if entry.dist else "?" for entry in self.entry_points)

    @property
    def value(self) -> str:
        """The announced ``module:attribute``."""
        return " and ".join(entry.value for entry in self.entry_points)

    def load(self) -> Any:
        """
        Import what the plug-in announces.

        :return: the announced object
        :raises PluginError: if it does not load, or if two distributions announce the name
        """
        what = f"the {self.group} plug-in {self.name!r}"
        if len(self.entry_points) > 1:
            raise PluginError(f"{what} is announced twice, by {self.distribution}: uninstall one of them")
        try:
            loaded = self.entry_points[0].load()
            self._check(loaded)
        except (Exception, SystemExit) as error:  # whatever it is, only this name may suffer
            raise PluginError(
                f"{what} of {self.distribution} does not load from {self.value!r}: {type(error).__name__}: {error}"
            ) from error
        return loaded

    def _check(self, loaded: Any) -> None:
        if self.group == ALGORITHMS:
            if not isinstance(loaded, AlgorithmSpec):
                raise TypeError(f"expected an AlgorithmSpec, got {type(loaded).__name__}")
            if loaded.name != self.name:
                raise ValueError(f"the entry point is named {self.name!r}, its AlgorithmSpec {loaded.name!r}")
        elif self.group != ENVS and not callable(loaded):
            raise TypeError(f"expected something to call, got {type(loaded).__name__}")

    def load_field(self, field: str) -> Any:
        """
        Import the object behind a field of an algorithm's record.

        :param field: ``algorithm``, ``sampler`` or ``converter``
        :return: the class or function
        :raises PluginError: if it does not load
        """
        spec: AlgorithmSpec = self.load()
        try:
            return spec.load(field)
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"the {field} of the {self.group} plug-in {self.name!r} of {self.distribution} does not load from "
                f"{getattr(spec, field)!r}: {type(error).__name__}: {error}"
            ) from error


@cache
def plugins(group: str) -> Mapping[str, Plugin]:
    """
    What is announced in a group, by short name. Imports no plug-in.

    :param group: one of ``GROUPS``
    :return: the plug-ins, in the order of their names
    """
    announced: dict[str, list[EntryPoint]] = {}
    for entry_point in entry_points(group=group):
        announced.setdefault(entry_point.name, []).append(entry_point)
    return {name: Plugin(group, name, tuple(announced[name])) for name in sorted(announced)}


def get_plugin(group: str, name: str) -> Plugin:
    """
    :param group: one of ``GROUPS``
    :param name: a short name
    :return: the plug-in of that name
    :raises ValueError: if there is none; the message has the nearest name
    """
    known = plugins(group)
    if name not in known:
        raise ValueError(f"no {group} plug-in is named {name!r}{suggest(name, known)}")
    return known[name]


def get_spec(name: str) -> AlgorithmSpec:
    """
    :param name: an algorithm's short name
    :return: its record
    """
    spec: AlgorithmSpec = get_plugin(ALGORITHMS, name).load()
    return spec


def resolve(group: str, name: str) -> Any:
    """
    Get an object by short name (through the group) or by dotted path.

    :param group: one of ``GROUPS``
    :param name: ``action_hold``, or ``some.module.SomeWrapper``
    :return: the class or function
    """
    if "." not in name:
        return get_plugin(group, name).load()
    return import_dotted(name)


def import_dotted(path: str) -> Any:
    """
    :param path: ``some.module.Name``
    :return: the object of that name
    :raises ValueError: if the module or the name does not exist; the message says which, with the nearest name
    """
    module_name, _, attribute = path.rpartition(".")
    if not module_name:
        raise ValueError(f"{path!r} is not a dotted path such as 'package.module.Name'")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"{path!r} does not exist: there is no module {error.name!r}") from error
    if not hasattr(module, attribute):
        raise ValueError(f"{path!r} does not exist: {module_name!r} has no {attribute!r}{suggest(attribute, dir(module))}")
    return getattr(module, attribute)


def register_envs() -> None:
    """
    Import the small modules of the ``sb3_hrl.envs`` group, each of which registers ids with gymnasium.

    A module that fails costs only its own ids: a warning names its distribution.
    """
    for plugin in plugins(ENVS).values():
        try:
            plugin.load()
        except PluginError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)


def suggest(name: str, known: Any) -> str:
    """
    :param name: what was written
    :param known: the names that exist
    :return: ``", did you mean 'x'?"``, or an empty string if nothing is near
    """
    nearest = difflib.get_close_matches(name, [str(other) for other in known], n=1, cutoff=0.5)
    return f", did you mean {nearest[0]!r}?" if nearest else ""
