"""
The checked front of the native module ``sb3_hrl._native``.

The module is compiled against the torch and mujoco wheels, and uses the libraries that these have loaded. So they are
imported first, and their versions are compared before the module is loaded: with another torch, loading it may fail
with a missing symbol, or crash later.
"""

import functools
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from sb3_hrl.errors import NativeError

_REBUILD = "`pip install --no-build-isolation --force-reinstall --no-deps sb3-hrl`"


class Versions(NamedTuple):
    """Versions of the two libraries that the native module uses."""

    torch: str
    mujoco: str


class BuildInfo(NamedTuple):
    """
    How the native module was built, and what it runs with.

    :param compiler: the C++ compiler, for example ``GNU 12.2.0``
    :param cxx_standard: the C++ standard, for example 17
    :param build_type: CMake's build type, for example ``Release``
    :param pybind11: version of pybind11 that it was built with
    :param torch_build: version of torch that it was built against
    :param torch_runtime: version of torch in this process
    :param mujoco_header: version of MuJoCo that it was built against
    :param mujoco_library: version of the MuJoCo library in this process
    :param available_cpus: threads that can run at once here, by CPU affinity and control-group quota
    """

    compiler: str
    cxx_standard: int
    build_type: str
    pybind11: str
    torch_build: str
    torch_runtime: str
    mujoco_header: str
    mujoco_library: str
    available_cpus: int


def check_versions(built: Versions, running: Versions) -> None:
    """
    Refuse a native module that was built for other libraries than those in this process.

    Torch must agree in its minor version, since it keeps its C++ interface within one; MuJoCo must agree exactly.

    :param built: what the module was built against
    :param running: what this process runs with
    """
    torch_agrees = built.torch.split(".")[:2] == running.torch.split(".")[:2]
    for name, agrees in (("torch", torch_agrees), ("mujoco", built.mujoco == running.mujoco)):
        if not agrees:
            built_version, running_version = getattr(built, name), getattr(running, name)
            # The part after "+" names a build that not every package index has.
            matching = f"{name}=={built_version.partition('+')[0]}"
            raise NativeError(
                f"The native module of sb3-hrl was built for {name} {built_version}, but {name} {running_version} is "
                f"installed. Rebuild it with {_REBUILD}, or install {matching}."
            )


def _import_wheel(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise NativeError(
            f"The native module of sb3-hrl needs {name}, which cannot be imported ({error}). Reinstall {name}."
        ) from error


def _built_versions() -> Versions:
    """Read the record that was installed beside the module (in an editable install not beside this file)."""
    spec = importlib.util.find_spec("sb3_hrl._native")
    if spec is None or spec.origin is None:
        raise NativeError(
            f"sb3-hrl has no native module for Python {sys.version_info.major}.{sys.version_info.minor} in "
            f"{Path(__file__).parent}. Build it with {_REBUILD}, and do not import sb3_hrl from a source folder that "
            "is not installed."
        )
    try:
        return Versions(**json.loads(Path(spec.origin).with_name("_native_build.json").read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise NativeError(
            f"The build record of the native module is unreadable ({error}). Rebuild it with {_REBUILD}."
        ) from error


@functools.cache
def load() -> ModuleType:
    """
    Load the native module, after it is known to fit to torch and mujoco.

    :return: ``sb3_hrl._native``
    :raises NativeError: with the reason and its remedy, when it is missing, does not fit or does not load
    """
    torch, mujoco = _import_wheel("torch"), _import_wheel("mujoco")
    check_versions(_built_versions(), Versions(torch.__version__, mujoco.__version__))
    try:
        native = importlib.import_module("sb3_hrl._native")
    except (ImportError, OSError) as error:
        raise NativeError(f"The native module of sb3-hrl does not load ({error}). Rebuild it with {_REBUILD}.") from error
    # Once more with what the compiler saw and what the loaded libraries say: metadata may be wrong.
    info = native.build_info()
    check_versions(Versions(info.torch_header, info.mujoco_header), Versions(info.torch_library, info.mujoco_library))
    return native


def build_info() -> BuildInfo:
    """
    Say how the native module was built and what it runs with.

    :return: the record that a bug report should hold
    """
    native = load()
    info = native.build_info()
    return BuildInfo(
        compiler=info.compiler,
        cxx_standard=info.cxx_standard,
        build_type=info.build_type,
        pybind11=native.pybind11_version,
        torch_build=_built_versions().torch,
        torch_runtime=str(importlib.import_module("torch").__version__),
        mujoco_header=info.mujoco_header,
        mujoco_library=info.mujoco_library,
        available_cpus=native.available_cpus(),
    )
