"""
Plain data as two strings of bytes: JSON for the structure, and one block for arrays. Reading them back runs no code.

Plain are None, booleans, numbers (NumPy's too), text, bytes, arrays of numbers, and lists, tuples and dicts of these. Every
bit comes back: floats as Python prints them, arrays as they lie in memory.
"""

import json
import math
from typing import Any

import numpy as np

# The key that marks what JSON has no form for; a dict that has it as a key of its own is written as a list of pairs.
_MARK = "~"
_ALIGNMENT = 16


def is_plain(value: Any) -> bool:
    """
    :param value: anything
    :return: whether ``pack`` can write it
    """
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(is_plain(item) for item in value)
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biufcSU"
    return value is None or isinstance(value, bool | int | float | str | bytes)


def pack(tree: Any) -> tuple[bytes, bytes]:
    """
    :param tree: plain data
    :return: its structure, and its arrays
    :raises TypeError: if something in it is not plain
    """
    block = bytearray()
    return json.dumps(_encode(tree, block)).encode(), bytes(block)


def unpack(structure: bytes, block: bytes) -> Any:
    """
    :param structure: the first of ``pack``
    :param block: the second
    :return: the same data; arrays are new and writable
    :raises ValueError: if the two are not what ``pack`` gives
    """
    try:
        return _decode(json.loads(structure), block)
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError(f"the structure does not fit the arrays: {error}") from error


def _encode(value: Any, block: bytearray) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind not in "biufcSU":
            raise TypeError(f"expected plain data, got an array of {value.dtype}")
        kind = "array" if isinstance(value, np.ndarray) else "number"
        # The order of the axes in memory: a convolution's last bits depend on it.
        axes = sorted(range(value.ndim), key=lambda axis: -value.strides[axis])
        array = np.ascontiguousarray(np.asarray(value).transpose(axes)).reshape([value.shape[axis] for axis in axes])
        encoded = {_MARK: kind, "dtype": array.dtype.str, "shape": list(array.shape), "at": _append(array.tobytes(), block)}
        return encoded if axes == list(range(value.ndim)) else {**encoded, "axes": axes}
    if isinstance(value, bytes):
        return {_MARK: "bytes", "at": _append(value, block), "size": len(value)}
    if isinstance(value, tuple):
        return {_MARK: "tuple", "items": [_encode(item, block) for item in value]}
    if isinstance(value, list):
        return [_encode(item, block) for item in value]
    if isinstance(value, dict):
        if all(type(key) is str for key in value) and _MARK not in value:
            return {key: _encode(item, block) for key, item in value.items()}
        return {_MARK: "dict", "items": [[_encode(key, block), _encode(item, block)] for key, item in value.items()]}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"expected plain data, got a {type(value).__name__}")


def _append(data: bytes, block: bytearray) -> int:
    block.extend(b"\0" * (-len(block) % _ALIGNMENT))
    at = len(block)
    block.extend(data)
    return at


def _decode(value: Any, block: bytes) -> Any:
    if isinstance(value, list):
        return [_decode(item, block) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_MARK)
    if kind is None:
        return {key: _decode(item, block) for key, item in value.items()}
    if kind == "tuple":
        return tuple(_decode(item, block) for item in value["items"])
    if kind == "dict":
        return {_decode(key, block): _decode(item, block) for key, item in value["items"]}
    if kind == "bytes":
        return _slice(block, value["at"], value["size"])
    if kind not in ("array", "number"):
        raise ValueError(f"unknown kind {kind!r}")
    dtype = np.dtype(value["dtype"])
    if dtype.kind not in "biufcSU":
        raise ValueError(f"arrays of {dtype} are not plain")
    data = _slice(block, value["at"], math.prod(value["shape"]) * dtype.itemsize)
    array = np.frombuffer(data, dtype).reshape(value["shape"]).copy()
    if "axes" in value:
        array = array.transpose(np.argsort(value["axes"]))
    return array if kind == "array" else array[()]


def _slice(block: bytes, at: int, size: int) -> bytes:
    if at < 0 or size < 0 or at + size > len(block):
        raise ValueError(f"{size} bytes at {at} lie outside of a block of {len(block)}")
    return block[at : at + size]
