"""Arrays in memory that several processes share. It has no name in the system, so that nothing stays when they are gone."""

import ctypes
import time
import zlib
from collections.abc import Mapping
from multiprocessing.sharedctypes import RawArray
from typing import NamedTuple

import numpy as np

_ALIGNMENT = 64


class Field(NamedTuple):
    """
    :param shape: of an array
    :param dtype: its type
    :param dense_axis: the axis whose elements lie side by side in memory; the others keep their order
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    dense_axis: int | None = None

    def view(self, block: np.ndarray, offset: int) -> np.ndarray:
        """
        :param block: bytes
        :param offset: where the array begins in them
        :return: the array
        """
        if self.dense_axis is None:
            return np.ndarray(self.shape, self.dtype, block, offset)
        shape = list(self.shape)
        shape.append(shape.pop(self.dense_axis))
        return np.moveaxis(np.ndarray(shape, self.dtype, block, offset), -1, self.dense_axis)


class SharedArrays:
    """
    Blocks of named arrays, all blocks alike. Whoever holds an array, or this object, holds the memory.

    It can be handed to a process when that is started, and in no other way.

    :param fields: shape and type of the arrays of a block
    :param n_blocks: how many blocks
    """

    def __init__(self, fields: Mapping[str, Field], n_blocks: int = 1) -> None:
        self.fields = dict(fields)
        self.offsets: dict[str, int] = {}
        self.block_size = 0
        for name, field in self.fields.items():
            self.offsets[name] = self.block_size
            n_bytes = int(np.prod(field.shape, dtype=np.int64)) * field.dtype.itemsize
            self.block_size += -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
        self.memory = RawArray(ctypes.c_ubyte, self.block_size * n_blocks)

    def block(self, index: int = 0) -> np.ndarray:
        """
        :param index: which block
        :return: its bytes, uint8
        """
        return np.frombuffer(memoryview(self.memory), np.uint8, self.block_size, index * self.block_size)

    def arrays(self, index: int = 0) -> dict[str, np.ndarray]:
        """
        :param index: which block
        :return: its arrays
        """
        return self.views(self.block(index))

    def views(self, block: np.ndarray) -> dict[str, np.ndarray]:
        """
        :param block: the bytes of a block, or a copy of them
        :return: the arrays in it
        """
        return {name: field.view(block, self.offsets[name]) for name, field in self.fields.items()}


class SharedWeights:
    """
    What the learner has learned, for actors that read it whenever they like: neither waits for the other.

    A reader copies the whole block, and takes the copy only if the block's checksum is right: what was copied while the
    learner wrote is copied again. That needs no lock, which a process that is killed would leave locked.

    :param arrays: what will be written
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        header = {"checksum": Field((1,), np.dtype(np.int64)), "version": Field((1,), np.dtype(np.int64))}
        self._shared = SharedArrays(header | {name: Field(array.shape, array.dtype) for name, array in arrays.items()})

    def write(self, arrays: Mapping[str, np.ndarray], version: int) -> None:
        """
        :param arrays: the values, named and shaped as those of the constructor
        :param version: their number; not 0
        """
        views = self._shared.arrays()
        for name, array in arrays.items():
            np.copyto(views[name], array, casting="no")
        views["version"][0] = version
        views["checksum"][0] = self._checksum(self._shared.block())

    def read(self, arrays: Mapping[str, np.ndarray], known: int = 0) -> int:
        """
        :param arrays: take the values; untouched if the version is known
        :param known: the version that they have
        :return: the version that they have now
        """
        if self._shared.arrays()["version"][0] == known:
            return known
        while True:
            copy = self._shared.block().copy()
            views = self._shared.views(copy)
            if views["checksum"][0] == self._checksum(copy):
                break
            time.sleep(1e-4)
        for name, array in arrays.items():
            np.copyto(array, views[name], casting="no")
        return int(views["version"][0])

    def _checksum(self, block: np.ndarray) -> int:
        return zlib.crc32(block[self._shared.offsets["version"] :].data)
