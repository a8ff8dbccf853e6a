"""The figures: each has a unit, a reference of the same run, and a target.

A figure is a list of values, one a round; it is reported as median and spread, since on a shared machine a single value
says little. A ratio is made within each round, so that what slows both of a pair down cancels out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """The limit that a median should reach; with `of_ratio`, that the ratio to the reference should reach."""

    limit: float
    at_least: bool
    of_ratio: bool = False

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:,g}{' x' if self.of_ratio else ''}"

    def is_met(self, value: float) -> bool:
        """Return whether the value reaches the limit."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure. `reference` is the name of another one; empty for those that are references themselves. `package` is
    the name of a library that it measures."""

    name: str
    unit: str
    what: str
    reference: str = ""
    target: Target | None = None
    package: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure's values: the one in the middle, and the smallest and largest."""

    median: float
    low: float
    high: float
    rounds: tuple[float, ...] = field(repr=False)


LIBRARY = "eventsourcing"
"""A library that keeps event logs, to compare with. The library is no dependency."""

_HALF_OF_ECHO = Target(0.5, at_least=True, of_ratio=True)

FIGURES = (
    Figure("disk.fdatasync_p50", "ms", "4 KiB written and flushed"),
    Figure("disk.fdatasync_p99", "ms", "the same"),
    Figure("sqlite.single", "rows/s", "bare SQLite, one durable transaction per row"),
    Figure("sqlite.batch", "rows/s", "bare SQLite, 100 rows per transaction"),
    Figure("sqlite.read", "rows/s", "bare SQLite, rows of a log in pages of 500"),
    Figure("echo.rate", "calls/s", "bare grpc.aio echo, 64 clients"),
    Figure("echo.p50", "ms", "the same"),
    Figure("echo.p99", "ms", "the same"),
    Figure("echo.one_p50", "ms", "bare grpc.aio echo, 1 client"),
    Figure("echo.one_p99", "ms", "the same"),
    Figure("echo.ready", "s", "echo process, start to its first response"),
    Figure("echo.memory", "MiB", "echo process, resident when idle"),
    Figure("append.rate", "messages/s", "durable unary appends, 64 conversations", "echo.rate", _HALF_OF_ECHO),
    Figure("append.p50", "ms", "the same", "echo.p50"),
    Figure("append.p99", "ms", "the same", "echo.p99"),
    Figure(
        "append.hot_rate",
        "messages/s",
        "durable unary appends of 64 clients, 1 conversation",
        "append.rate",
        Target(0.9, at_least=True, of_ratio=True),
    ),
    Figure(
        "append.one_p50",
        "ms",
        "durable unary appends, 1 client",
        "echo.one_p50",
        Target(3, at_least=False, of_ratio=True),
    ),
    Figure("append.one_p99", "ms", "the same", "echo.one_p99"),
    Figure(
        "batch.rate", "messages/s", "appends of 100 messages", "sqlite.batch", Target(0.3, at_least=True, of_ratio=True)
    ),
    Figure("ingest.unary", "messages/s", "unary appends of one message, in turns with the next"),
    Figure("ingest.rate", "messages/s", "IngestMessages, 4 streams of appends of one message", "ingest.unary"),
    Figure(
        "context.recent_p50",
        "ms",
        "GetContext, 200 messages, all in the window",
        "echo.one_p50",
        Target(2, at_least=False, of_ratio=True),
    ),
    Figure("context.recent_p99", "ms", "the same", "echo.one_p99"),
    Figure("context.p50", "ms", "GetContext, 10,000 events, compacted", "echo.one_p50"),
    Figure("context.p99", "ms", "the same", "echo.one_p99", Target(10, at_least=False)),
    Figure("context.whole_p50", "ms", "GetContext, 10,000 messages, all in the window", "echo.one_p50"),
    Figure("context.whole_p99", "ms", "the same", "echo.one_p99"),
    Figure("turn.two_p50", "ms", "a message and its window by AppendMessages and GetContext, 1 client"),
    Figure(
        "turn.one_p50",
        "ms",
        "the same by one AppendMessages with context",
        "turn.two_p50",
        Target(0.9, at_least=False, of_ratio=True),
    ),
    Figure(
        "catchup.rate",
        "events/s",
        "SubscribeEvents from 0 to the head, 30,000 events",
        "sqlite.read",
        Target(100_000, at_least=True),
    ),
    Figure("long.new_p50", "ms", "durable unary appends to a new conversation, 1 client"),
    Figure(
        "long.old_p50",
        "ms",
        "the same to a conversation of 50,000 events",
        "long.new_p50",
        Target(1.1, at_least=False, of_ratio=True),
    ),
    Figure(
        "size.message", "bytes", "file of a stopped log, per message of 400 characters", "", Target(700, at_least=False)
    ),
    Figure("fold.rate", "events/s", "cold fold of 50,000 events", "sqlite.read", Target(50_000, at_least=True)),
    Figure("start.ready", "s", "sidecar process, start to SERVING", "echo.ready", Target(2, at_least=False)),
    Figure("start.memory", "MiB", "sidecar process, resident when idle", "echo.memory", Target(120, at_least=False)),
    Figure("quiet.p50", "ms", "durable unary appends, 4 clients, no pass"),
    Figure("quiet.p99", "ms", "the same"),
    Figure("hang.p50", "ms", "the same during a pass that hangs on a dead Ollama", "quiet.p50"),
    Figure("hang.p99", "ms", "the same", "quiet.p99", Target(1.2, at_least=False, of_ratio=True)),
    Figure("encrypted.clear_rate", "messages/s", "durable unary appends, 64 conversations, in turns with the next"),
    Figure(
        "encrypted.rate",
        "messages/s",
        "the same to an encrypted log",
        "encrypted.clear_rate",
        Target(0.87, at_least=True, of_ratio=True),
    ),
    Figure("encrypted.clear_cpu", "ms", "processor time of the sidecar for each of these appends, in clear"),
    Figure(
        "encrypted.cpu",
        "ms",
        "the same, encrypted",
        "encrypted.clear_cpu",
        Target(1.15, at_least=False, of_ratio=True),
    ),
    Figure("open.warm", "ms", "GetContext of a compacted conversation of 100,000 events, 1 call"),
    Figure(
        "open.cold",
        "ms",
        "the same, the first since the sidecar has started",
        "open.warm",
        Target(20, at_least=False),
    ),
    Figure("unprepared.wait_p50", "ms", "GetContext that waits for a pass, model of 5 s"),
    Figure("unprepared.wait_p99", "ms", "the same"),
    Figure("prepared.wait_p50", "ms", "the same after a preparation", "unprepared.wait_p50"),
    Figure("prepared.wait_p99", "ms", "the same", "unprepared.wait_p99", Target(50, at_least=False)),
    Figure("recall.plain_p50", "ms", "durable unary appends, 1 client, no search index"),
    Figure("recall.plain_p99", "ms", "the same"),
    Figure(
        "recall.indexed_p50",
        "ms",
        "the same with an index of words and vectors",
        "recall.plain_p50",
        Target(1.1, at_least=False, of_ratio=True),
    ),
    Figure("recall.indexed_p99", "ms", "the same", "recall.plain_p99"),
    Figure("recall.text", "MiB", "text of 100,000 messages"),
    Figure("recall.index", "MiB", "the file of an index of their words and vectors", "recall.text"),
    Figure("recall.words_p50", "ms", "SearchHistory by words, 100,000 messages", "echo.one_p50"),
    Figure("recall.words_p95", "ms", "the same", "", Target(20, at_least=False)),
    Figure("recall.meaning_p50", "ms", "the same by meaning", "echo.one_p50"),
    Figure("recall.meaning_p95", "ms", "the same", "", Target(20, at_least=False)),
    Figure("recall.both_p50", "ms", "the same by both", "echo.one_p50"),
    Figure("recall.both_p95", "ms", "the same", "", Target(20, at_least=False)),
    Figure("shared.delivered_p50", "ms", "acknowledged by one sidecar, to a watcher of another on one PostgreSQL"),
    Figure("shared.delivered_p99", "ms", "the same", "", Target(25, at_least=False)),
    Figure(
        "shared.own_p50", "ms", "a message and its window by AppendMessages and GetContext of one sidecar, 1 client"
    ),
    Figure("shared.other_p50", "ms", "the same, the window of the other sidecar", "shared.own_p50"),
    Figure("postgres.bare_unary", "events/s", "bare psycopg, 4 processes, groups of 16 rows under the lock of a row"),
    Figure(
        "postgres.log_unary",
        "events/s",
        "log in PostgreSQL, 4 processes, 16 callers each, single appends",
        "postgres.bare_unary",
        Target(0.7, at_least=True, of_ratio=True),
    ),
    Figure(
        "postgres.sidecars_unary",
        "messages/s",
        "the same by AppendMessages of 4 sidecars",
        "postgres.bare_unary",
        Target(0.7, at_least=True, of_ratio=True),
    ),
    Figure(
        "postgres.library_unary",
        "events/s",
        "the same by the library's PostgreSQL recorder",
        "postgres.bare_unary",
        package=LIBRARY,
    ),
    Figure("postgres.one_log_few", "events/s", "one log in PostgreSQL, 4 processes, 1 caller each, single appends"),
    Figure(
        "postgres.two_logs_few",
        "events/s",
        "the same on two logs in the database, 2 processes each",
        "postgres.one_log_few",
        Target(1.5, at_least=True, of_ratio=True),
    ),
    Figure("postgres.bare_batch", "events/s", "bare psycopg, 4 processes, groups of 400 rows"),
    Figure(
        "postgres.log_batch",
        "events/s",
        "log in PostgreSQL, 4 processes, 4 callers each, batches of 100",
        "postgres.bare_batch",
        Target(0.5, at_least=True, of_ratio=True),
    ),
    Figure(
        "postgres.library_batch",
        "events/s",
        "the same by the library's PostgreSQL recorder",
        "postgres.bare_batch",
        package=LIBRARY,
    ),
    Figure("postgres.bare_scan", "events/s", "bare psycopg, SELECT of pages of 500 from the first position on"),
    Figure(
        "postgres.log_scan",
        "events/s",
        "log in PostgreSQL, scan from the first position on",
        "postgres.bare_scan",
        Target(0.3, at_least=True, of_ratio=True),
    ),
    Figure(
        "postgres.library_scan",
        "events/s",
        "the same by the library's PostgreSQL recorder",
        "postgres.bare_scan",
        package=LIBRARY,
    ),
    Figure("postgres.file_unary", "events/s", "log in an SQLite file, 1 process, 16 callers, single appends"),
    Figure(
        "postgres.library_file_unary",
        "events/s",
        "the same by the library's SQLite recorder",
        "postgres.file_unary",
        package=LIBRARY,
    ),
    Figure("postgres.file_batch", "events/s", "log in an SQLite file, 1 process, 4 callers, batches of 100"),
    Figure(
        "postgres.library_file_batch",
        "events/s",
        "the same by the library's SQLite recorder",
        "postgres.file_batch",
        package=LIBRARY,
    ),
    Figure("postgres.file_scan", "events/s", "log in an SQLite file, scan from the first position on"),
    Figure(
        "postgres.library_file_scan",
        "events/s",
        "the same by the library's SQLite recorder",
        "postgres.file_scan",
        package=LIBRARY,
    ),
)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def spread_of(values: Sequence[float]) -> Spread:
    """Median, smallest and largest."""
    return Spread(median(values), min(values), max(values), tuple(values))


def ratio_of(figure: Figure, rounds: Mapping[str, Sequence[float]]) -> Spread | None:
    """The figure to its reference, round by round; None without one."""
    if figure.reference not in rounds:
        return None
    pairs = zip(rounds[figure.name], rounds[figure.reference], strict=True)
    return spread_of([value / reference for value, reference in pairs])


def table_rows(rounds: Mapping[str, Sequence[float]]) -> list[tuple[str, ...]]:
    """Rows of each measured figure: name, subject, median and unit, spread, ratio, reference, target, verdict; the row
    of a library that is not there says so."""
    measured = {_measurement(name) for name in rounds}
    rows: list[tuple[str, ...]] = []
    for figure in FIGURES:
        if figure.name not in rounds:
            if figure.package and _measurement(figure.name) in measured:
                rows.append((figure.name, figure.what, f"{figure.package} is not installed", "", "", "", ""))
            continue
        spread, ratio = spread_of(rounds[figure.name]), ratio_of(figure, rounds)
        rows.append(
            (
                figure.name,
                figure.what,
                f"{_number(spread.median)} {figure.unit}",
                f"{_number(spread.low)} .. {_number(spread.high)}",
                f"{ratio.median:.2f} x {figure.reference}" if ratio else "",
                str(figure.target or ""),
                _verdict(figure, spread, ratio),
            )
        )
    return rows


def as_plain(rounds: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the figures for JSON, with every round."""
    plain: dict[str, Any] = {}
    for figure in FIGURES:
        if figure.name not in rounds:
            continue
        spread, ratio = spread_of(rounds[figure.name]), ratio_of(figure, rounds)
        plain[figure.name] = {
            "unit": figure.unit,
            "median": spread.median,
            "low": spread.low,
            "high": spread.high,
            "rounds": list(spread.rounds),
            "reference": figure.reference,
            "ratio": ratio.median if ratio else None,
            "target": str(figure.target or ""),
            "verdict": _verdict(figure, spread, ratio),
        }
    return plain


def _measurement(name: str) -> str:
    return name.partition(".")[0]


def _verdict(figure: Figure, spread: Spread, ratio: Spread | None) -> str:
    if figure.target is None:
        return ""
    judged = ratio if figure.target.of_ratio else spread
    if judged is None:
        return ""
    return "met" if figure.target.is_met(judged.median) else "missed"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
