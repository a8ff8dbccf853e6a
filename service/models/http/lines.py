"""An answer that a server streams: its lines, its text, and the bounds of both."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from abridged.service.models.http.fields import OBJECT_BYTES_MAX, NotAnObject, read_object
from abridged.service.models.model import AnswerLooped, Completion, ModelUnavailable
from abridged.service.text.loops import WINDOW_CHARS, loop_period

ANSWER_BYTES_MAX = 32_000_000
ANSWER_LINES_MAX = 100_000
"""One line per token, of about 150 bytes, or two with server-sent events: more tokens than any answer has."""

ANSWER_CHARS_MAX = 1_000_000
"""The longest answer whose request has no limit."""

TOKEN_CHARS_MAX = 20
"""Characters per token that no answer has on average: an answer with more was not kept to the limit of its request."""


_CUT = re.compile("length|max|limit", re.IGNORECASE)
"""The mark of a limit in the reasons of servers to stop: `length`, `max_tokens`, `MAX_TOKENS`, `model_length`,
`token_limit`."""


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


class StreamedAnswer(ABC):
    """An answer as it arrives from `host`, to a request for at most `tokens_max` tokens.

    One without a limit, 0, may say anything as often as it likes. One with a limit ends where it loops, with
    AnswerLooped, and where its server goes on past the limit, as cut off.

    Attributes:
        done: True if its last line has arrived.
        finished: The server's reason to stop; empty before it.
        model: The name that the server returned.
        chars: Characters so far.
        input_tokens: The server's count of the prompt; None if it reports none.
        output_tokens: The server's count of the answer; 0 if it reports none.
    """

    def __init__(self, host: str, *, tokens_max: int = 0) -> None:
        self.host = host
        self.done = False
        self.finished = ""
        self.model = ""
        self.chars = 0
        self.input_tokens: int | None = None
        self.output_tokens = 0
        self._tokens_max = tokens_max
        self._pieces: list[str] = []
        self._recent = ""
        self._thought = False

    @property
    def text(self) -> str:
        """The content so far."""
        return "".join(self._pieces)

    @property
    def finish_reason(self) -> str:
        """`length` if the answer was cut off, otherwise `stop`."""
        return "length" if _CUT.search(self.finished) else "stop"

    def completion(self, model: str, *, duration_s: float) -> Completion:
        """Return the whole answer as that of `model`, which is named as `provider:model`."""
        return Completion(
            text=self.text,
            model=model,
            finish_reason=self.finish_reason,
            input_tokens=self.input_tokens or 0,
            output_tokens=self.output_tokens,
            duration_s=duration_s,
            response_model=self.model,
        )

    @abstractmethod
    def add(self, line: bytes) -> bool:
        """Add one line, and return whether it says anything: no clock waits for a line that only shows a connection.

        Raises the error that an error line means, ModelUnavailable for an invalid line, or AnswerLooped.
        """

    def _add_content(self, content: object) -> str:
        if not isinstance(content, str):
            raise ModelUnavailable(f"{self.host}: a line of the answer has content that is not text")
        self._pieces.append(content)
        self.chars += len(content)
        if not self._tokens_max and self.chars > ANSWER_CHARS_MAX:
            raise ModelUnavailable(f"{self.host}: the answer has more than {ANSWER_CHARS_MAX} characters")
        if 0 < self._tokens_max * TOKEN_CHARS_MAX < self.chars:
            self.done, self.finished = True, "length"
        return content

    def _watch_for_loops(self, piece: str) -> None:
        if not self._tokens_max or not piece:
            return
        self._recent = (self._recent + piece)[-WINDOW_CHARS:]
        if period := loop_period(self._recent):
            raise AnswerLooped(f"{self.host}: the answer repeats the same {period} characters without end")

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            return read_object(line)
        except NotAnObject as error:
            raise ModelUnavailable(f"{self.host}: a line of the answer {error}") from error
