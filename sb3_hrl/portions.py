"""
A minibatch goes through a network in portions, several at a time.

Threads that share one layer's work wait for each other at its end, many times in a minibatch. Threads that each take a portion
through all layers wait once, and where another process needs a core meanwhile, the others take more of the portions. A portion
is computed by one thread, and the gradients are added in the portions' order, so that the number of threads changes no bit.

Threads of torch's own go on for a while after each of their layers, in a loop, for the next one; with them on all cores,
portions and environments get less than their share. So whoever uses portions a lot leaves torch one thread meanwhile.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache
from threading import Barrier, Lock
from typing import Any

import torch as th
from torch.autograd.function import once_differentiable

Network = Callable[[th.Tensor], th.Tensor]


def apply_in_portions(
    network: Network, parameters: Iterable[th.Tensor], batch: th.Tensor, size: int, n_threads: int | None = None
) -> th.Tensor:
    """
    :param network: treats each row by itself
    :param parameters: that it has, for the gradients of those that want one
    :param batch: its rows are shared out; it gets a gradient if it wants one
    :param size: of a portion; a batch that is no larger goes through as ever
    :param n_threads: how many portions at a time; None for as many as torch has threads
    :return: the network's answer to the batch
    """
    wanted = [parameter for parameter in parameters if parameter.requires_grad and th.is_grad_enabled()]
    # A hook on a parameter is to see its whole gradient, once.
    if len(batch) <= size or batch.device.type != "cpu" or any(parameter._backward_hooks for parameter in wanted):
        return network(batch)
    return _Portions.apply(network, n_threads or th.get_num_threads(), size, batch, *wanted)


class _Whole:
    """The portions' answers in one piece, which begins with the first that comes."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._lock = Lock()
        self.rows: th.Tensor | None = None

    def put(self, begin: int, rows: th.Tensor) -> None:
        """
        :param begin: where they belong
        :param rows: of one portion
        """
        with self._lock:
            if self.rows is None:
                self.rows = rows.new_empty(self._n_rows, *rows.shape[1:])
        self.rows[begin : begin + len(rows)] = rows


class _Portions(th.autograd.Function):
    """The portions' graphs, as one step of the whole graph."""

    @staticmethod
    def forward(ctx: Any, network: Network, n_threads: int, size: int, batch: th.Tensor, *parameters: th.Tensor) -> th.Tensor:
        has_gradient = any(ctx.needs_input_grad)
        wants_own = ctx.needs_input_grad[3]
        is_inference = th.is_inference_mode_enabled()  # of this thread
        whole = _Whole(len(batch))

        def run(begin: int) -> tuple[th.Tensor, th.Tensor] | None:
            with th.inference_mode(is_inference), th.set_grad_enabled(has_gradient):
                portion = batch[begin : begin + size].detach().requires_grad_(wants_own)
                output = network(portion)
                whole.put(begin, output.detach())
            return (portion, output) if has_gradient else None

        ctx.portions = _map(n_threads, run, range(0, len(batch), size))
        ctx.n_threads, ctx.size, ctx.wants_own, ctx.parameters = n_threads, size, wants_own, parameters
        assert whole.rows is not None
        return whole.rows

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: th.Tensor) -> tuple[th.Tensor | None, ...]:
        whole = _Whole(len(gradients[0])) if ctx.wants_own else None
        is_kept = th._C._autograd._get_current_graph_task_keep_graph()  # ``retain_graph``

        def run(begin: int, portion: tuple[th.Tensor, th.Tensor]) -> tuple[th.Tensor, ...]:
            rows, output = portion
            wanted = (rows, *ctx.parameters) if whole else ctx.parameters
            found = th.autograd.grad(output, wanted, gradients[0][begin : begin + ctx.size], retain_graph=is_kept)
            if whole:
                whole.put(begin, found[0])
            return found[1:] if whole else found

        first, *others = _map(ctx.n_threads, run, range(0, len(gradients[0]), ctx.size), ctx.portions)
        if ctx.parameters:
            for other in others:
                th._foreach_add_(list(first), list(other))
        return None, None, None, whole.rows if whole else None, *first


def _map(n_threads: int, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Any]:
    if n_threads == 1:
        return [function(*row) for row in zip(*columns, strict=True)]
    rows = iter(enumerate(zip(*columns, strict=True)))
    answers: list[Any] = [None] * len(columns[0])
    lock = Lock()

    def work() -> None:
        while True:
            with lock:
                index, row = next(rows, (-1, ()))
            if index < 0:
                return
            try:
                answers[index] = function(*row)
            except BaseException:
                with lock:
                    list(rows)  # nobody takes another one
                raise

    # A caller whose layers have no further threads is one of them.
    takes_part = th.get_num_threads() == 1
    futures = [_threads(os.getpid(), n_threads).submit(work) for _ in range(n_threads - takes_part)]
    try:
        if takes_part:
            work()
    finally:
        wait(futures)
    for future in futures:
        future.result()
    return answers


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
