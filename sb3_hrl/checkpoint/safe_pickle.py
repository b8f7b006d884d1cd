"""
The part of SB3's ``data`` that is pickled, read without running anybody's code.

Names are looked up in an allow-list. A class that is only named (a policy, an activation, an optimiser) is handed out; called
are nothing but the constructors below, which build values. Everything else needs the user's trust.
"""

import base64
import importlib
import io
import json
import os
import pickle
import re
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, ClassVar

import cloudpickle
import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3.common.buffers import BaseBuffer
from torch import nn

from sb3_hrl.registry import ALGORITHMS, plugins

TRUST_VARIABLE = "SB3_HRL_TRUST"

# Packages whose classes may be named, if they are of one of the kinds below.
_PACKAGES = ("stable_baselines3", "sb3_contrib", "torch.nn", "torch.optim")
_NAMED_KINDS = (nn.Module, th.optim.Optimizer, BaseBuffer)
# NumPy 2 has renamed it; a file may come from the other one.
_NUMPY_CORE = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"
# What builds values and does nothing else.
_CONSTRUCTORS = {
    "builtins": ("set", "frozenset", "slice", "complex", "bytearray", "range", "list", "dict", "tuple", "int", "float", "str"),
    "collections": ("deque", "OrderedDict"),
    "numpy": ("ndarray", "dtype"),
    f"{_NUMPY_CORE}.multiarray": ("_reconstruct", "scalar"),
    f"{_NUMPY_CORE}.numeric": ("_frombuffer",),
    "numpy.random._pickle": ("__generator_ctor", "__bit_generator_ctor", "__randomstate_ctor"),
    "numpy.random.bit_generator": ("__pyx_unpickle_SeedSequence", "SeedSequence"),
    "numpy.random._pcg64": ("PCG64",),
    "numpy.random._mt19937": ("MT19937",),
    "numpy.random._philox": ("Philox",),
    "numpy.random._sfc64": ("SFC64",),
    "torch": ("device",),
    "rl_zoo3.utils": ("SimpleLinearSchedule",),
    "stable_baselines3.common.utils": ("FloatSchedule", "ConstantSchedule", "LinearSchedule"),
    "stable_baselines3.common.running_mean_std": ("RunningMeanStd",),
}
# NumPy's element types, which are named and called by their pickles.
_NUMPY_SCALARS = {
    name for name in dir(np) if isinstance(getattr(np, name), type) and issubclass(getattr(np, name), np.generic)
}


class UntrustedError(ValueError):
    """A file that wants to run code. The message names what it wants."""


def is_trusted(trust: bool | None) -> bool:
    """
    :param trust: what the caller says; None for the environment variable ``SB3_HRL_TRUST``
    :return: whether to unpickle everything
    """
    return os.environ.get(TRUST_VARIABLE, "0") not in ("", "0") if trust is None else trust


def load_data(json_text: str, skip: Iterable[str] = (), *, trust: bool = False, name: str = "the file") -> dict[str, Any]:
    """
    Read the member ``data`` of a zip in SB3's format.

    :param json_text: the member
    :param skip: keys that are replaced anyway
    :param trust: unpickle whatever is there
    :param name: what to call the file in an error
    :return: the model's attributes
    :raises UntrustedError: if it holds anything but ordinary content
    """
    items: Mapping[str, Any] = json.loads(json_text)
    skipped = set(skip)
    data = {}
    for key, item in items.items():
        if key in skipped:
            continue
        if not (isinstance(item, dict) and ":serialized:" in item):
            data[key] = item
            continue
        pickled = base64.b64decode(item[":serialized:"])
        if trust:
            data[key] = cloudpickle.loads(pickled)
            continue
        try:
            data[key] = _SafeUnpickler(io.BytesIO(pickled)).load()
        except UntrustedError as error:
            raise UntrustedError(
                f"{name}: {key!r} holds {error}. Loading it could run code of whoever wrote the file. If you trust it: "
                f"load(..., trust=True), or {TRUST_VARIABLE}=1 in the environment. To do without it: "
                f"custom_objects={{{key!r}: ...}}"
            ) from error
        except Exception as error:  # a pickle can fail in any way
            raise UntrustedError(f"{name}: {key!r} cannot be read: {type(error).__name__}: {error}") from error
    return data


@cache
def _plugin_packages() -> tuple[str, ...]:
    """The packages of the registered algorithms: who installed them trusts them."""
    return tuple(
        {
            entry.value.partition(":")[0].partition(".")[0]
            for item in plugins(ALGORITHMS).values()
            for entry in item.entry_points
        }
    )


def is_known(module: str) -> bool:
    """
    :param module: a module's name
    :return: whether a file may name classes of it
    """
    return _is_within(module, ("stable_baselines3", "sb3_contrib", "gymnasium.wrappers", *_plugin_packages()))


def _is_within(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


# What Python's unpickler does for each opcode.
_ORIGINAL: Mapping[int, Callable[[Any], None]] = pickle._Unpickler.dispatch


class _SafeUnpickler(pickle._Unpickler):
    """
    Python's own unpickler, in Python, with both of its doors watched: what it looks up, and what it calls.

    The fast one cannot tell a class that is named from one that is called.
    """

    dispatch: ClassVar[dict[int, Any]] = dict(_ORIGINAL)
    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        module = re.sub(r"numpy\._?core\b", _NUMPY_CORE, module)
        if name in _CONSTRUCTORS.get(module, ()) or (module == "numpy" and name in _NUMPY_SCALARS):
            return getattr(importlib.import_module(module), name)
        is_plugin = _is_within(module, _plugin_packages()) and not module.endswith("__main__")
        if is_plugin or _is_within(module, (*_PACKAGES, "gymnasium.spaces")):
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
            if isinstance(found, type) and (is_plugin or issubclass(found, (*_NAMED_KINDS, gym.Space))):
                return found
        raise UntrustedError(f"{module}.{name}")

    def _check_call(self, function: Any) -> None:
        is_value = isinstance(function, type) and issubclass(function, gym.Space | np.generic | np.dtype | np.ndarray)
        if not is_value and function not in _allowed_calls():
            name = getattr(function, "__qualname__", repr(function))
            raise UntrustedError(f"a call of {getattr(function, '__module__', None)}.{name}")

    def _load_reduce(self) -> None:
        function, arguments = self.stack[-2:]
        self._check_call(function)
        for argument in arguments:
            if callable(argument):  # it would be called in turn
                self._check_call(argument)
        _ORIGINAL[pickle.REDUCE[0]](self)

    def _check_new(self, kind: Any) -> None:
        # What a plug-in keeps in its attributes is made without its constructor.
        if not _is_within(kind.__module__, _plugin_packages()):
            self._check_call(kind)

    def _load_newobj(self) -> None:
        self._check_new(self.stack[-2])
        _ORIGINAL[pickle.NEWOBJ[0]](self)

    def _load_newobj_ex(self) -> None:
        self._check_new(self.stack[-3])
        _ORIGINAL[pickle.NEWOBJ_EX[0]](self)

    def _load_build(self) -> None:
        if isinstance(self.stack[-2], type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType):
            raise UntrustedError("a change of a class")
        _ORIGINAL[pickle.BUILD[0]](self)

    def _refuse(self) -> None:
        raise UntrustedError("an old kind of pickle that makes instances of any class")

    def persistent_load(self, pid: Any) -> Any:
        raise UntrustedError(f"a reference to an object outside of it ({pid!r})")

    dispatch[pickle.REDUCE[0]] = _load_reduce
    dispatch[pickle.NEWOBJ[0]] = _load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = _load_newobj_ex
    dispatch[pickle.BUILD[0]] = _load_build
    for _opcode in (pickle.INST, pickle.OBJ, pickle.EXT1, pickle.EXT2, pickle.EXT4):
        dispatch[_opcode[0]] = _refuse


@cache
def _allowed_calls() -> frozenset[Any]:
    allowed: set[Any] = set()
    for module, names in _CONSTRUCTORS.items():
        loaded = importlib.import_module(module)
        allowed |= {getattr(loaded, name) for name in names if hasattr(loaded, name)}
    return frozenset(allowed)
