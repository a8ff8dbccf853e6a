"""A streamed answer as lines, and how long it may become."""

from __future__ import annotations

from collections.abc import Iterator

from service.models.http.fields import OBJECT_BYTES_MAX
from service.models.model import ModelUnavailable

ANSWER_BYTES_MAX = 32_000_000
ANSWER_LINES_MAX = 100_000
"""One line per token, of about 150 bytes, or two with server-sent events: more tokens than any answer has."""

ANSWER_CHARS_MAX = 1_000_000
"""Far above any allowed answer: cuts off a server that ignores the limit of the request."""


class LineSplitter:
    """Splits a byte stream from `host` into lines, wherever packets end, and bounds the answer's bytes and lines.

    Empty lines count too: they take time like any other.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._rest = bytearray()
        self._bytes = 0
        self._lines = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that `data` completes, without line breaks; skips empty ones. Raises ModelUnavailable."""
        *lines, rest = data.split(b"\n")
        self._bytes += len(data)
        self._lines += len(lines)
        self._limit(self._bytes, ANSWER_BYTES_MAX, "more than {} bytes")
        self._limit(self._lines, ANSWER_LINES_MAX, "more than {} lines")
        for line in lines:
            whole = bytes(self._rest + line).strip()
            self._rest.clear()
            if whole:
                yield whole
        self._rest += rest
        self._limit(len(self._rest), OBJECT_BYTES_MAX, "a line of more than {} bytes")

    def end(self) -> bytes:
        """Return what follows the last line break: a whole answer without one is allowed."""
        rest, self._rest = bytes(self._rest).strip(), bytearray()
        return rest

    def _limit(self, size: int, size_max: int, what: str) -> None:
        if size > size_max:
            raise ModelUnavailable(f"{self._host}: the answer has {what.format(size_max)}")
