"""A cluster's time limit: SIGTERM and SIGUSR1 write a checkpoint and end the process, also while C++ runs."""

import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class SavingSignals:
    """
    Python's signal handlers wait until C++ or torch comes back, which may take longer than a cluster waits. The interpreter
    writes the signal's number into a socket at once, and a thread that reads it writes the checkpoint.

    The process ends with the code 128 + the signal's number, as a shell shows a signal. A second signal ends it at once.

    :param save: writes the checkpoint; called by the thread
    """

    def __init__(self, save: Callable[[], Path | None]) -> None:
        self._save = save
        self._handlers: dict[signal.Signals, Any] = {}
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        self._old_fd = -1

    def install(self) -> None:
        """Take over the signals. Nothing happens outside of the main thread, where Python does not allow it."""
        if threading.current_thread() is not threading.main_thread() or self._sockets is not None:
            return
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        self._sockets = reader, writer
        self._old_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._handlers = {number: signal.signal(number, _ignore) for number in SIGNALS}
        threading.Thread(target=self._listen, args=(reader,), daemon=True, name="saving signals").start()

    def remove(self) -> None:
        """Give the signals back."""
        if self._sockets is None or threading.current_thread() is not threading.main_thread():
            return
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._sockets[1].close()  # which ends the thread
        self._sockets = None

    def _listen(self, reader: socket.socket) -> None:
        is_first = True
        with reader:
            while numbers := reader.recv(64):
                for number in numbers:
                    if number not in SIGNALS:
                        continue
                    if not is_first:
                        os._exit(128 + number)
                    is_first = False
                    threading.Thread(target=self._end, args=(signal.Signals(number),), daemon=True).start()

    def _end(self, number: signal.Signals) -> None:
        try:
            path = self._save()
            what = f"the checkpoint is {path}" if path else "there is nothing to save yet"
            print(f"\n{number.name}: {what}", file=sys.stderr, flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(128 + number)


def _ignore(number: int, frame: FrameType | None) -> None:
    """The thread does the work."""
