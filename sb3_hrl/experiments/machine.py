"""The machine that a run or a measurement ran on, and the memory of a run with all its processes."""

import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch as th

from sb3_hrl import native


def describe_machine(n_threads: int | None = None) -> dict[str, Any]:
    """
    :param n_threads: of torch's, where a training has lent them out; None for those that it has now
    :return: date, processor, and the versions of what matters
    """
    packages = ("torch", "mujoco", "stable-baselines3", "gymnasium", "numpy", "sb3-hrl")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor_name(),
        "available_cpus": native.load().available_cpus(),
        "torch_threads": n_threads or th.get_num_threads(),
        "load_average": os.getloadavg()[0],
        "versions": {name: version(name) for name in packages},
    }


def processor_name() -> str:
    """
    :return: the processor's name, or its architecture where the kernel tells no name
    """
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def memory_bytes() -> int:
    """
    :return: memory that this process and all below it use now; pages that several of them share count once
    """
    return sum(_proportional_bytes(pid) for pid in _process_tree(os.getpid()))


def own_peak_bytes() -> int:
    """
    :return: the most that this process alone has used so far, by the kernel's count
    """
    # Not ru_maxrss: a new process begins with that of the one that started it.
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def _process_tree(pid: int) -> Iterator[int]:
    yield pid
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = file.read_text().split()
        except OSError:  # the thread has just ended
            continue
        for child in children:
            yield from _process_tree(int(child))


def _proportional_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    except OSError:  # it has just ended, or belongs to somebody else
        pass
    return 0
