"""Prints a salvage: what a damaged log has lost, by conversation, and what the new one has."""

from __future__ import annotations

from pathlib import Path

from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.event import StreamId
from abridged.eventlog.salvage import REMNANTS, Lost, Salvaged
from abridged.eventlog.verification import RANGES_MAX, Ranges, listed
from abridged.service.bootstrap.log_salvage import salvaged
from abridged.service.cli.failures import RESTORE, CommandFailed, Misconfigured
from abridged.service.cli.terminal import number_of, say
from abridged.service.config.settings import Settings
from abridged.service.config.sources import environment
from abridged.service.conversations.log_copy import LogLinesRefused, Walked


def salvage_log(settings: Settings, damaged: Path, *, pages: Walked, positions: Walked) -> str:
    """Make the log of `settings`, print what is missing of the `damaged` one, and return the new one's contents in a
    line. Raises CommandFailed if anything is missing, and an EventLogError or OSError if no log can be made."""
    new = settings.log.path
    unread: list[StreamId] = []

    def left_out(stream: StreamId, error: Exception) -> None:
        unread.append(stream)
        say(f"unread  {stream.namespace}/{stream.name}: {error}")

    try:
        done = salvaged(settings, environment(), damaged, unread=left_out, pages=pages, positions=positions)
    except FileExistsError as error:
        raise Misconfigured(f"there is a file at {error}", hint="name another place, or move it away") from error
    except (LogCorrupt, LogLinesRefused) as error:
        raise CommandFailed(str(error), details=("no log was made",), hint=RESTORE) from error
    for lost in done.lost:
        say(f"lost  {_named(lost.stream)}: {_losses(lost, new)}")
    if done.unowned.count:
        say(f"lost  the events at positions {_numbers(done.unowned)}: nothing tells whose they were")
    contents = (
        f"{number_of(done.events, 'event')} in {number_of(done.conversations, 'conversation')}, log {done.log_id[:8]}"
    )
    if done.is_whole and not unread:
        return contents
    raise CommandFailed(
        f"{damaged} cannot be salvaged whole",
        details=(f"{new} has {contents}, and a sidecar starts on it; no byte of {damaged} was changed", *_notes(done)),
        hint="see docs/production.md, and restore a backup that has more",
    )


def _losses(lost: Lost, new: Path) -> str:
    parts = []
    if lost.missing.count:
        at = f" (positions {_numbers(lost.positions)})" if lost.positions.count else ""
        parts.append(f"events {_numbers(lost.missing)}{at}")
    if lost.has_lost_key:
        parts.append("its data key is lost")
    if lost.origin is not None:
        parts.append(f"it begins from {_named(lost.origin)}, which has lost what it begins with")
    if lost.is_erased:
        return "; ".join([*parts, "it was erased, and stays so"])
    kept = f"its first {lost.kept:,} events are kept" if lost.kept else "none of its events is kept"
    behind = f", {lost.remnants:,} others are in {new.name}{REMNANTS}" if lost.remnants else ""
    return f"{'; '.join(parts) or 'its events contradict each other'}; {kept}{behind}"


def _notes(done: Salvaged) -> list[str]:
    notes = []
    if not done.is_same_log:
        notes.append("its id is new: repeated appends are not known to it, and cursors begin anew")
    if not done.has_key:
        notes.append("its secret is new: keys of requests are not known to it, but ids of messages are")
    return notes


def _named(stream: StreamId | int) -> str:
    return f"{stream.namespace}/{stream.name}" if isinstance(stream, StreamId) else f"stream {stream}, without a name"


def _numbers(numbers: Ranges) -> str:
    return listed(numbers.kept[:RANGES_MAX], len(numbers.kept) - RANGES_MAX + numbers.dropped)
