"""
A minibatch goes through a network in portions, several at a time.

Threads that share one layer's work wait for each other at its end, many times in a minibatch. Threads that each take a portion
through all layers wait once, and where another process needs a core meanwhile, the others take more of the portions. A portion
is computed by one thread, and the gradients are added in the portions' order, so that the number of threads changes no bit.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Barrier
from typing import Any

import torch as th

Network = Callable[[th.Tensor], th.Tensor]


def apply_in_portions(
    network: Network, parameters: Iterable[th.Tensor], batch: th.Tensor, size: int, n_threads: int | None = None
) -> th.Tensor:
    """
    :param network: treats each row by itself
    :param parameters: that it has, for the gradients of those that want one; the batch gets none
    :param batch: its rows are shared out
    :param size: of a portion; a batch that is no larger goes through as ever
    :param n_threads: how many portions at a time; None for as many as torch has threads
    :return: the network's answer to the batch
    """
    if len(batch) <= size or batch.device.type != "cpu":
        return network(batch)
    n_threads = n_threads or th.get_num_threads()
    if not th.is_grad_enabled():
        return th.cat(_map(n_threads, th.no_grad()(network), batch.split(size)))
    return _Portions.apply(
        network, n_threads, size, batch, *(parameter for parameter in parameters if parameter.requires_grad)
    )


class _Portions(th.autograd.Function):
    """The portions' graphs, as one step of the whole graph."""

    @staticmethod
    def forward(ctx: Any, network: Network, n_threads: int, size: int, batch: th.Tensor, *parameters: th.Tensor) -> th.Tensor:
        has_gradient = any(ctx.needs_input_grad)

        def run(portion: th.Tensor) -> th.Tensor:
            with th.set_grad_enabled(has_gradient):
                return network(portion)

        ctx.outputs = _map(n_threads, run, batch.split(size))
        ctx.n_threads, ctx.size, ctx.parameters = n_threads, size, parameters
        return th.cat([output.detach() for output in ctx.outputs])

    @staticmethod
    def backward(ctx: Any, *gradients: th.Tensor) -> tuple[th.Tensor | None, ...]:
        def run(output: th.Tensor, gradient: th.Tensor) -> tuple[th.Tensor, ...]:
            return th.autograd.grad(output, ctx.parameters, gradient)

        first, *others = _map(ctx.n_threads, run, ctx.outputs, gradients[0].split(ctx.size))
        for other in others:
            th._foreach_add_(list(first), list(other))
        return None, None, None, None, *first


def _map(n_threads: int, function: Callable[..., Any], *columns: Sequence[th.Tensor]) -> list[Any]:
    if n_threads == 1:
        return [function(*row) for row in zip(*columns, strict=True)]
    return list(_threads(os.getpid(), n_threads).map(function, *columns))


@lru_cache(maxsize=1)
def _threads(pid: int, n_threads: int) -> ThreadPoolExecutor:
    """
    Threads whose layers have no further threads. They are kept, until another number is asked for.

    :param pid: of this process; a fork has none of its parent's threads
    :param n_threads: how many
    """
    n_before = th.get_num_threads()
    executor = ThreadPoolExecutor(n_threads, "portion", _take_one_thread)
    list(executor.map(Barrier(n_threads).wait, [None] * n_threads))
    th.set_num_threads(n_before)  # threads of torch's that begin later would have one as well
    return executor


def _take_one_thread() -> None:
    th.get_num_threads()  # a thread's first look takes what the others have, also if it comes after the next line
    th.set_num_threads(1)
