"""Log lines that cannot go out: a full disk, a reader that has gone, a pipe that nobody reads."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
import structlog

from abridged.observability.log_lines import WAITING_BYTES_MAX
from abridged.observability.logs import LogSettings, configure_logs


class Pipe:
    """A pipe that is full of empty lines, and the bytes read from it."""

    def __init__(self) -> None:
        self._text = b""
        self._read, written = os.pipe()
        os.set_blocking(written, False)
        try:
            while os.write(written, b"\n" * 4_096):
                pass
        except BlockingIOError:
            os.set_blocking(written, True)
        os.set_blocking(self._read, False)
        self.stream: TextIO = os.fdopen(written, "w", encoding="utf-8")

    def read(self) -> list[dict[str, Any]]:
        """The lines that are there now; the beginning of another is kept for the next time."""
        try:
            while piece := os.read(self._read, 65_536):
                self._text += piece
        except BlockingIOError:
            pass
        *lines, self._text = self._text.split(b"\n")
        return [json.loads(line) for line in lines if line]

    def leave(self) -> None:
        """Close the reader's end."""
        os.close(self._read)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.stream.close()


def logger_to(stream: TextIO) -> tuple[structlog.typing.FilteringBoundLogger, Any]:
    undo = configure_logs(LogSettings(), stream)
    return structlog.get_logger(), undo


def test_a_pipe_that_nobody_reads_holds_nobody_up_and_gets_its_lines_later(pipe: Pipe) -> None:
    """Lines that do not fit wait, and follow whole and in order when there is room."""
    log, undo = logger_to(pipe.stream)
    for number in range(100):
        log.info("line_written", number=number, filler="x" * 200)

    assert pipe.read() == []

    log.info("line_written", number=100)
    undo()
    # Another test's event loop may still have something to say, and says it here.
    assert [line["number"] for line in pipe.read() if line["event"] == "line_written"] == list(range(101))
    pipe.leave()


def test_what_waits_for_a_reader_is_bounded_and_what_is_lost_is_counted(pipe: Pipe) -> None:
    """A log costs no memory for a reader that never comes."""
    log, undo = logger_to(pipe.stream)
    count = 2 * WAITING_BYTES_MAX // 5_000
    for number in range(count):
        log.info("line_written", number=number, items=["x" * 200] * 25)
    found: list[dict[str, Any]] = pipe.read()

    while not found or found[-1].get("number") != -1:
        log.info("line_written", number=-1)
        found += pipe.read()
    undo()
    pipe.leave()

    kept = [line["number"] for line in found if line["event"] == "line_written" and line["number"] >= 0]
    (lost,) = [line["lines"] for line in found if line["event"] == "log.lines_lost"]
    assert kept == list(range(len(kept)))
    assert len(kept) + lost == count
    assert 0 < len(kept) * 5_000 < 1.2 * WAITING_BYTES_MAX


def test_a_reader_that_has_gone_costs_lines_alone_and_a_new_one_hears_how_many(tmp_path: Path) -> None:
    """A full disk costs the same."""
    fifo = tmp_path / "lines"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with fifo.open("w", encoding="utf-8") as stream:
        log, undo = logger_to(stream)
        os.close(reader)
        log.info("line_written")
        logging.getLogger("library").error("lost too")

        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        log.info("line_after")
        undo()
    with os.fdopen(reader, encoding="utf-8") as lines:
        heard = [json.loads(line) for line in lines]

    assert [line["event"] for line in heard] == ["line_after", "log.lines_lost"]
    assert heard[1]["lines"] == 2


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), ValueError("closed file")])
def test_a_line_that_cannot_be_written_disturbs_nobody_and_is_counted(error: Exception) -> None:
    """A full disk or a reader that has gone costs lines, never the work that they report."""

    class _Full(io.StringIO):
        is_full = True

        def write(self, text: str) -> int:
            if self.is_full:
                raise error
            return super().write(text)

    stream = _Full()
    log, undo = logger_to(stream)
    log.info("lost_line")
    logging.getLogger("library").error("lost too")
    stream.is_full = False
    log.info("kept_line")
    log.info("next_line")
    undo()

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["kept_line", "log.lines_lost", "next_line"]
    assert lines[1]["lines"] == 2
