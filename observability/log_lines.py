"""Writes log lines at once, in order and whole, without ever blocking the code that logs.

Invariant: writing a line neither raises nor waits. A pipe or a socket that nobody reads accepts what fits; more lines
are buffered here, up to WAITING_BYTES_MAX, and are written with the first line logged once there is room. Past that,
and if the disk is full or the reader has gone, lines are lost; the next line that gets through is followed by their
count.
"""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from typing import TextIO

import structlog

WAITING_BYTES_MAX = 1 << 20

END_S = 0.5
"""Seconds that the end of the process waits for a reader to take the buffered lines."""


class LogLines:
    """Writes lines to `stream`, at every level, from any thread."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._unread = _unread(stream)
        self._lost = 0

    def msg(self, line: str) -> None:
        try:
            is_taken = self._taken(f"{line}\n")
        except (OSError, ValueError):  # a closed stream is a ValueError
            is_taken = False
        if not is_taken:
            self._lost += 1
        elif self._lost:
            lost, self._lost = self._lost, 0
            structlog.get_logger().warning("log.lines_lost", lines=lost)

    debug = info = warning = error = critical = msg

    def close(self) -> None:
        """Wait up to END_S for the reader to take the buffered lines; the rest are lost."""
        if self._unread is not None:
            self._unread.end()

    def _taken(self, line: str) -> bool:
        if self._unread is not None:
            return self._unread.take(line.encode(self._stream.encoding, "backslashreplace"))
        self._stream.write(line)
        self._stream.flush()
        return True


class _Unread:
    """A pipe or a socket, written only as far as it accepts bytes without blocking."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._waiting = bytearray()
        # A collection while it is held may end an object that logs.
        self._lock = threading.RLock()

    def take(self, line: bytes) -> bool:
        """Write or buffer the line; False if neither is possible. Raises OSError if the reader has gone."""
        with self._lock:
            self._drain()
            if len(self._waiting) + len(line) > WAITING_BYTES_MAX:
                return False
            self._waiting += line
            self._drain()
        return True

    def end(self) -> None:
        """Write the buffered lines, for at most END_S."""
        until = time.monotonic() + END_S
        with self._lock:
            try:
                while self._waiting and (left_s := until - time.monotonic()) > 0:
                    self._drain(wait_ms=int(left_s * 1_000) + 1)
            except OSError:
                return

    def _drain(self, *, wait_ms: int = 0) -> None:
        while self._waiting and self._poll.poll(wait_ms):
            try:
                # A writable pipe accepts this much without blocking.
                written = os.write(self._descriptor, self._waiting[: select.PIPE_BUF])
            except BlockingIOError:
                return
            except OSError:
                self._waiting.clear()
                raise
            del self._waiting[:written]
            wait_ms = 0


def _unread(stream: TextIO) -> _Unread | None:
    """The stream, if it is a pipe or a socket. Files and terminals are written directly: a terminal may block."""
    try:
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return None
    if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode):
        return None
    stream.flush()
    return _Unread(descriptor)
