"""Log lines: one event name with fields, JSON on a pipe and colours on a terminal.

Invariant: with content logging off, a line contains names, numbers and identifiers. Anything that looks like prose, has
a field name for prose, or comes from an exception's message is replaced by its length, whether logged by us, by a
library, or by an uncaught exception. No field's value can control a terminal or begin a line on it.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from abridged.observability.log_lines import LogLines
from abridged.observability.tracing import current_trace

IDENTIFIER_CHARS_MAX = 256
ITEMS_MAX = 32
DEPTH_MAX = 4
FRAMES_MAX = 24
CAUSES_MAX = 4

CONTENT_FIELDS = frozenset(
    {
        "answer",
        "arguments",
        "body",
        "completion",
        "content",
        "detail",
        "details",
        "error",
        "exception",
        "input",
        "message",
        "messages",
        "output",
        "payload",
        "points",
        "prompt",
        "query",
        "raw",
        "reply",
        "request",
        "response",
        "summary",
        "text",
        "title",
        "transcript",
    }
)
"""Words that mark a field as content, anywhere in its name: `text`, `summary_text`, `raw_output`."""

_IDENTIFIER_SUFFIXES = ("_id", "_ids", "_class", "_type", "_name", "_version", "_model", "_hash", "_code")
_PROSE_FIELDS = frozenset({"cause", "hint", "template"})
"""Fields for sentences from source code: why a pass failed, what to do next, and a library's uninterpolated format."""

_EVENT_NAME = re.compile(r"[a-z][a-z0-9_.]{0,79}", re.ASCII)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,79}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The form of log lines, and whether they may contain conversation text.

    Attributes:
        level: The lowest level that is written.
        style: `console` has colours; `auto` is `console` on a terminal and `json` elsewhere.
        content: True if lines may contain conversation text.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    style: Literal["auto", "json", "console"] = "auto"
    content: bool = False


def configure_logs(settings: LogSettings, stream: TextIO) -> Callable[[], None]:
    """Send every log line of this process to `stream`; returns a function that undoes it.

    The function is the only place that sets process-wide state: structlog's configuration, the handlers of `logging`
    (which libraries use, from level warning up), and the three hooks for uncaught exceptions.
    """
    console = settings.style == "console" or (settings.style == "auto" and stream.isatty())
    chain = _chain(content=settings.content, console=console)
    lines = LogLines(stream)
    structlog.configure(
        processors=chain,
        wrapper_class=structlog.make_filtering_bound_logger(settings.level),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=False,
    )
    restore_logging = _adopt_logging(_LibraryRecords(chain, lines, content=settings.content))
    restore_hooks = _adopt_hooks()

    def undo() -> None:
        restore_hooks()
        restore_logging()
        structlog.reset_defaults()
        lines.close()

    return undo


def _chain(*, content: bool, console: bool) -> list[Processor]:
    guards: list[Processor] = [] if content else [_only_identifiers]
    renderer: Processor = (
        # Python literals: unprintable characters are escaped.
        structlog.dev.ConsoleRenderer(timestamp_key="time", repr_native_str=True)
        if console
        else structlog.processors.JSONRenderer()
    )
    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        _exception_fields,
        *guards,
        _add_trace,
        renderer,
    ]


def _add_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    trace = current_trace()
    if trace is not None:
        event["trace_id"] = trace.trace_id
        event["span_id"] = trace.span_id
    return event


def _only_identifiers(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    name = event.pop("event", "")
    named = isinstance(name, str) and _EVENT_NAME.fullmatch(name)
    frames = event.pop("exception_frames", None)
    safe = {_safe_key(key): _safe(str(key), value, depth=0) for key, value in event.items()}
    safe["event"] = name if named else "event.unnamed"
    if frames is not None:
        safe["exception_frames"] = frames
    return safe


def _safe_key(key: object) -> str:
    return key if isinstance(key, str) and _KEY.fullmatch(key) else "redacted_key"


def _safe(name: str, value: object, *, depth: int) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case Enum():
            return _safe(name, value.value, depth=depth)
        case str():
            return value if _is_identifier(name, value) else f"[redacted {len(value)} chars]"
        case bytes():
            return f"[redacted {len(value)} bytes]"
        case BaseException() | type():
            return _class_name(value if isinstance(value, type) else type(value))
        case PurePath():
            return _safe(name, str(value), depth=depth)
        case Mapping() if depth < DEPTH_MAX:
            items = list(value.items())[:ITEMS_MAX]
            return {_safe_key(key): _safe(f"{name}_{key}", item, depth=depth + 1) for key, item in items}
        case Sequence() if depth < DEPTH_MAX:
            return [_safe(name, item, depth=depth + 1) for item in value[:ITEMS_MAX]]
        case _:
            return f"<{type(value).__qualname__}>"


def _is_identifier(name: str, value: str) -> bool:
    if name in _PROSE_FIELDS:
        return True
    if not name.endswith(_IDENTIFIER_SUFFIXES) and not CONTENT_FIELDS.isdisjoint(re.split(r"[^a-z]+", name.lower())):
        return False
    return len(value) <= IDENTIFIER_CHARS_MAX and value.isprintable() and " " not in value


def _exception_fields(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    error = _raised(event.pop("exc_info", None))
    if error is not None:
        event["exception_class"] = _class_name(type(error))
        event["exception_message"] = str(error)
        event["exception_frames"] = _frames(error)
    return event


def _raised(exc_info: object) -> BaseException | None:
    match exc_info:
        case BaseException():
            return exc_info
        case (_, BaseException() as error, _):
            return error
        case True:
            return sys.exc_info()[1]
        case _:
            return None


def _frames(error: BaseException) -> list[str]:
    """The frames in which the error was raised, innermost last, and the classes of its causes: names from code, no
    values."""
    lines: list[str] = []
    link: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if link is None:
            break
        if link is not error:
            lines.append(f"caused by {_class_name(type(link))}")
        frames = traceback.extract_tb(link.__traceback__, limit=-FRAMES_MAX)
        lines.extend(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return lines


def _class_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class _LibraryRecords(logging.Handler):
    """Writes what libraries log through `logging` as lines of the same form.

    Messages of libraries may quote anything (asyncio prints the exception of a lost task), so without content logging a
    line keeps only the place and, if there is one, the uninterpolated format.
    """

    def __init__(self, chain: Sequence[Processor], lines: LogLines, *, content: bool) -> None:
        super().__init__(logging.WARNING)
        self._chain = chain
        self._lines = lines
        self._content = content

    def emit(self, record: logging.LogRecord) -> None:
        fields: MutableMapping[str, Any] = {
            "event": "library.logged",
            "logger": record.name,
            "at": f"{record.pathname}:{record.lineno}",
            "exc_info": record.exc_info,
        }
        if self._content:
            fields["message"] = record.getMessage()
        elif record.args and isinstance(record.msg, str):
            fields["template"] = record.msg
        line: Any = fields
        for processor in self._chain:
            line = processor(None, record.levelname.lower(), line)
        self._lines.msg(line)


def _adopt_logging(handler: logging.Handler) -> Callable[[], None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)

    def restore() -> None:
        root.handlers[:] = before
        root.setLevel(level)

    return restore


def _adopt_hooks() -> Callable[[], None]:
    before = (sys.excepthook, threading.excepthook, sys.unraisablehook)
    log = structlog.get_logger()

    def uncaught(kind: type[BaseException], error: BaseException, _at: object) -> None:
        if issubclass(kind, KeyboardInterrupt):
            return
        log.critical("exception.uncaught", exc_info=error)

    def uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
        log.critical("exception.uncaught", thread_name=args.thread.name if args.thread else "", exc_info=args.exc_value)

    def unraisable(args: sys.UnraisableHookArgs) -> None:
        log.error("exception.unraisable", exc_info=args.exc_value)

    sys.excepthook, threading.excepthook, sys.unraisablehook = uncaught, uncaught_in_thread, unraisable

    def restore() -> None:
        sys.excepthook, threading.excepthook, sys.unraisablehook = before

    return restore
