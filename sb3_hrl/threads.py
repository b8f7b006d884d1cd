"""How many threads environments take when nobody says it."""

import torch as th

from sb3_hrl import native

_most: int | None = None


def available_threads() -> int:
    """
    :return: threads that this process may have at work: by CPU affinity and control-group quota, and ``limit_threads``
    """
    n_cpus: int = native.load().available_cpus()
    return n_cpus if _most is None else min(_most, n_cpus)


def limit_threads(n_threads: int) -> None:
    """
    Share the processors with other processes: torch has no more threads from now on, nor have environments that are built.

    :param n_threads: of this process
    """
    global _most
    _most = n_threads
    th.set_num_threads(n_threads)
