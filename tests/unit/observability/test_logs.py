"""Log lines: their shape, their trace, and the texts kept out of them."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import structlog

from abridged.observability.facts import RpcStarted
from abridged.observability.logs import IDENTIFIER_CHARS_MAX, LogSettings, configure_logs
from abridged.observability.tracing import SilentTracing

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"
PROSE = "my card number is on the desk"


class Stream(io.StringIO):
    """The lines that were written; `terminal` says whether the stream calls itself one."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@contextmanager
def logging_to(stream: Stream, settings: LogSettings | None = None) -> Iterator[structlog.typing.FilteringBoundLogger]:
    undo = configure_logs(settings or LogSettings(), stream)
    try:
        yield structlog.get_logger()
    finally:
        undo()


def line_of(fields: dict[str, object], settings: LogSettings | None = None) -> dict[str, Any]:
    """The one line that an event with `fields` makes."""
    stream = Stream()
    with logging_to(stream, settings) as log:
        log.info("something_happened", **fields)
    (line,) = stream.lines
    return line


def test_a_line_is_json_with_event_level_time_and_fields() -> None:
    """One event name, numbers and identifiers as they are."""
    line = line_of({"conversation_id": "c-1", "ratio": 0.83, "messages": 14, "forced": False, "host": None})

    assert line.pop("time").endswith("Z")
    assert line == {
        "event": "something_happened",
        "level": "info",
        "conversation_id": "c-1",
        "ratio": 0.83,
        "messages": 14,
        "forced": False,
        "host": None,
    }


def test_a_terminal_gets_the_console_form() -> None:
    """Lines on a terminal are for people; `style` can say otherwise."""
    terminal, forced = Stream(terminal=True), Stream(terminal=True)

    with logging_to(terminal) as log:
        log.info("something_happened")
    with logging_to(forced, LogSettings(style="json")) as log:
        log.info("something_happened")

    assert not terminal.getvalue().startswith("{")
    assert "something_happened" in terminal.getvalue()
    assert forced.lines[0]["event"] == "something_happened"


def test_no_field_steers_a_terminal_or_begins_a_line_of_its_own() -> None:
    """A hint may name a model's server's words, and with content logging a message is anybody's text."""
    forged = "gone\n2026-01-01 [info] sidecar.ready \x1b[2J\x9b\u202e\u2028"

    for content in (False, True):
        stream = Stream(terminal=True)
        with logging_to(stream, LogSettings(content=content)) as log:
            log.warning("model.unavailable", hint=forged, message=forged)
            logging.getLogger("library").warning(forged)
        lines = stream.getvalue().split("\n")
        assert len(lines) == 3
        assert not {"\x1b[2J", "\x9b", "\u202e", "\u2028"} & set(
            re.findall("\x1b\\[2J|\x9b|\u202e|\u2028", stream.getvalue())
        )


def test_a_level_below_the_chosen_one_is_not_written() -> None:
    """level=warning drops info."""
    stream = Stream()

    with logging_to(stream, LogSettings(level="warning")) as log:
        log.info("too_quiet")
        log.warning("loud_enough")

    assert [line["event"] for line in stream.lines] == ["loud_enough"]


def test_a_line_names_the_trace_it_belongs_to() -> None:
    """Inside a span a line carries its ids, outside it carries none."""
    stream = Stream()

    with logging_to(stream) as log:
        with SilentTracing().span(RpcStarted("a/b", f"00-{TRACE_ID}-{SPAN_ID}-01")):
            log.info("inside")
        log.info("outside")

    inside, outside = stream.lines
    assert (inside["trace_id"], inside["span_id"]) == (TRACE_ID, SPAN_ID)
    assert "trace_id" not in outside


@pytest.mark.parametrize(
    "name", ["content", "text", "summary", "prompt", "Summary", "raw_output", "summary_text", "key.points", "error"]
)
def test_a_content_field_is_redacted_even_when_it_is_one_word(name: str) -> None:
    """A field called content never passes, whatever it looks like."""
    assert line_of({name: "secret"})[name] == "[redacted 6 chars]"


@pytest.mark.parametrize("name", ["prompt_name", "prompt_version", "summary_id", "error_class", "request_id"])
def test_identifiers_of_content_pass(name: str) -> None:
    """Ids, names, versions and classes of such things are no content."""
    assert line_of({name: "chain"})[name] == "chain"


def test_numbers_in_content_fields_pass() -> None:
    """Sizes are no text."""
    assert line_of({"summary": 12})["summary"] == 12


def test_prose_is_redacted_under_any_name() -> None:
    """A string with blanks is a sentence, and so is one without end."""
    line = line_of({"note": PROSE, "long": "x" * (IDENTIFIER_CHARS_MAX + 1), "lines": "a\nb"})

    assert line["note"] == f"[redacted {len(PROSE)} chars]"
    assert line["long"].startswith("[redacted")
    assert line["lines"].startswith("[redacted")


def test_a_hint_is_a_sentence_of_ours_and_passes() -> None:
    """The next step may be said in words."""
    assert line_of({"hint": "run ollama pull qwen2.5:3b"})["hint"] == "run ollama pull qwen2.5:3b"


def test_nested_values_are_guarded_like_flat_ones() -> None:
    """Lists and mappings are walked, keys included, to a named depth and length."""
    line = line_of(
        {
            "stats": {"text": "secret", "count": 3, PROSE: 1},
            "hosts": ["127.0.0.1:11434", PROSE],
            "deep": {"a": {"b": {"c": {"d": {"e": 1}}}}},
            "many": list(range(1_000)),
        }
    )

    assert line["stats"] == {"text": "[redacted 6 chars]", "count": 3, "redacted_key": 1}
    assert line["hosts"] == ["127.0.0.1:11434", f"[redacted {len(PROSE)} chars]"]
    assert line["deep"] == {"a": {"b": {"c": {"d": "<dict>"}}}}
    assert len(line["many"]) == 32


def test_other_objects_are_named_by_their_type() -> None:
    """No `repr` is written: a message's would be its text."""

    @dataclass
    class Message:
        content: str

    class Colour(Enum):
        RED = "red"

    line = line_of(
        {
            "message_id": Message("secret"),
            "data": b"secret",
            "cause": ValueError("secret"),
            "kind": ValueError,
            "colour": Colour.RED,
            "path": Path("/var/lib/abridged"),
        }
    )

    assert "secret" not in json.dumps(line)
    assert (line["data"], line["cause"], line["kind"]) == ("[redacted 6 bytes]", "ValueError", "ValueError")
    assert (line["colour"], line["path"]) == ("red", "/var/lib/abridged")


def test_an_event_that_is_no_name_is_written_without_its_words() -> None:
    """An f-string in place of an event name cannot carry text."""
    stream = Stream()

    with logging_to(stream) as log:
        log.info(f"user said {PROSE}")  # noqa: G004 -- the mistake under test

    assert stream.lines[0]["event"] == "event.unnamed"
    assert PROSE not in stream.getvalue()


def test_an_exception_keeps_its_class_and_place_and_loses_its_message() -> None:
    """Frames and causes are there for the search, values are not."""
    stream = Stream()

    with logging_to(stream) as log:
        try:
            try:
                raise KeyError(PROSE)
            except KeyError as error:
                raise RuntimeError(PROSE) from error
        except RuntimeError:
            log.exception("it_broke")

    (line,) = stream.lines
    assert line["exception_class"] == "RuntimeError"
    assert "caused by KeyError" in line["exception_frames"]
    assert any("test_logs.py" in frame for frame in line["exception_frames"])
    assert PROSE not in stream.getvalue()


def test_a_librarys_line_keeps_its_place_and_its_format_without_the_values() -> None:
    """`logging` goes to the same stream; interpolated text stays out."""
    stream = Stream()

    with logging_to(stream):
        logging.getLogger("library").warning("cannot reach %s", PROSE)
        logging.getLogger("library").error(f"lost: {PROSE}")  # noqa: G004 -- what asyncio does
        logging.getLogger("library").info("quiet")

    with_format, without = stream.lines
    assert (with_format["event"], with_format["logger"]) == ("library.logged", "library")
    assert with_format["template"] == "cannot reach %s"
    assert "test_logs.py" in with_format["at"]
    assert "template" not in without
    assert PROSE not in stream.getvalue()


def test_content_logging_lets_everything_through() -> None:
    """The operator's switch turns the guards off, for strings, messages of exceptions and libraries' lines."""
    stream = Stream()

    with logging_to(stream, LogSettings(content=True)) as log:
        log.info("something_happened", text=PROSE)
        log.info("it_broke", exc_info=ValueError(PROSE))
        logging.getLogger("library").error("lost: %s", PROSE)

    said, broke, library = stream.lines
    assert said["text"] == PROSE
    assert broke["exception_message"] == PROSE
    assert library["message"] == f"lost: {PROSE}"


def test_undoing_gives_logging_back() -> None:
    """Handlers and hooks are as they were, so that a test or a command leaves nothing behind."""
    before = list(logging.getLogger().handlers)

    with logging_to(Stream()):
        assert logging.getLogger().handlers != before

    assert logging.getLogger().handlers == before


def test_an_interrupt_from_the_keyboard_is_no_error() -> None:
    """Ctrl-C at a terminal leaves no alarming line; any other uncaught exception does."""
    stream = Stream()

    with logging_to(stream):
        sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
        sys.excepthook(ValueError, ValueError(PROSE), None)

    assert [line["event"] for line in stream.lines] == ["exception.uncaught"]
