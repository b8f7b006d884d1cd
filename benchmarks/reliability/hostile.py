"""Files that want to run code, and files that are no good: what a stranger might send."""

import base64
import builtins
import json
import os
import pickle
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.monitor import ResultsWriter
from torch import nn


class _Calls:
    """Pickled, it is a call."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


class _Changes:
    """Pickled, it changes an attribute of a class."""

    def __reduce__(self) -> Any:
        return nn.Tanh, (), (None, {"forward": 1})


def as_data(**items: Any) -> str:
    """
    :param items: pickles, by the attribute that they claim to be
    :return: the member ``data`` of a zip in SB3's format
    """
    return json.dumps({key: {":type:": "", ":serialized:": base64.b64encode(value).decode()} for key, value in items.items()})


def pickles(marker: Path) -> dict[str, bytes]:
    """
    :param marker: a file that most of them would make
    :return: pickles that would leave a trace, one for each way in
    """
    generator = np.random.Generator(np.random.PCG64(0)).__reduce__()[0]
    calls = {
        "system": _Calls(os.system, f"touch {marker}"),
        "popen": _Calls(subprocess.Popen, ["touch", str(marker)]),
        "eval": _Calls(builtins.eval, f"open({str(marker)!r}, 'w')"),
        "getattr": _Calls(getattr, nn.Module, "__init__"),
        "open": _Calls(open, str(marker), "w"),
        "a writer of SB3": _Calls(ResultsWriter, str(marker)),
        "a module of torch": _Calls(nn.Linear, 2, 2),
        "torch.load": _Calls(th.load, str(marker)),
        "through numpy": _Calls(generator, "x", nn.Identity),
        "a class": _Changes(),
        "a space that calls": _Calls(spaces.Dict, {"a": _Calls(os.system, f"touch {marker}")}),
    }
    found = {name: pickle.dumps(value, 2) for name, value in calls.items()}
    command = f"touch {marker}"
    found["an old opcode"] = f"(S'{command}'\nios\nsystem\n.".encode()
    found["a stack global"] = (
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c" + bytes([len(command)]) + command.encode() + b"\x85R."
    )
    return found


def write_zips(folder: Path, members: Mapping[str, bytes], marker: Path) -> list[Path]:
    """
    :param folder: where to
    :param members: of a good zip, without its manifest
    :param marker: a file that they would make
    :return: zips with one member replaced or added each
    """
    replaced: dict[str, dict[str, bytes]] = {
        "weights": {"policy.pth": pickles(marker)["system"]},
        "traversal": {"../../evil.pth": b""},
        "absolute": {"/etc/evil.pth": b""},
        "windows": {"C:\\evil.pth": b""},
    }
    data = json.loads(members["data"])
    for name, pickled in pickles(marker).items():
        item = json.loads(as_data(x=pickled))["x"]
        replaced[f"pickle, {name}"] = {"data": json.dumps({**data, "policy_kwargs": item}).encode()}
    for name, contents in replaced.items():
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as zipped:
            for member, content in {**members, **contents}.items():
                zipped.writestr(member, content)
    return [folder / f"{name}.zip" for name in replaced]
