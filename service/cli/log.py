"""`abridged log`: what an operator does with a log's file."""

from __future__ import annotations

from pathlib import Path

import click

from eventlog.errors import EventLogError, LogLocked
from service.cli.failures import CommandFailed
from service.cli.options import Invocation, settings_options
from service.cli.sidecar import configuration
from service.cli.terminal import say

__all__ = ["log"]

PROGRESS_EVENTS = 20_000


@click.group(short_help="Check a log's file.")
def log() -> None:
    """Check a log's file, while no sidecar owns it."""


@log.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@settings_options
@click.pass_obj
def verify(invocation: Invocation, file: Path | None) -> None:
    """Say everything that is damaged in FILE, or in the log of these settings; exit code 1 when something is.

    Checked are the file's structure and indexes, positions and versions without gaps, every event against its
    commitment, every stream's hash chain, and the read table against the fold of the events. The file is not written.
    """
    path = file or configuration(invocation).settings.log.path
    # What reads a log is loaded by this command alone.
    from eventlog.sqlite.verification import LogVerification
    from service.conversations.sql_table import SqlConversationTable
    from service.conversations.verification import damages

    found = 0
    try:
        with LogVerification.opened(path) as verification:
            table = SqlConversationTable(lambda _state: b"")
            table.read_through(verification.reader.read)
            events = verification.event_count()
            for where, what in damages(verification, table, walked=_Progress(events)):
                found += 1
                say(f"damaged  {where or 'log'}: {what}")
            summary = (
                f"{events:,} events in {len(verification.streams()):,} conversations, log {verification.log_id[:8]}"
            )
    except FileNotFoundError as error:
        raise CommandFailed(f"there is no log at {path}", hint="name its file, or set log.path") from error
    except LogLocked as error:
        raise CommandFailed(str(error), hint="stop the sidecar, or verify a backup") from error
    except (EventLogError, OSError) as error:
        raise CommandFailed(f"{path} cannot be read: {error}", hint="restore a backup") from error
    if found:
        raise CommandFailed(
            f"{path} is damaged: {found} {'finding' if found == 1 else 'findings'}",
            hint="restore a backup, see docs/operations.md",
        )
    say(f"ok: {summary}")


class _Progress:
    """Tells on standard error how far the walk is, every PROGRESS_EVENTS events."""

    def __init__(self, events: int) -> None:
        self._events = events
        self._next = PROGRESS_EVENTS

    def __call__(self, done: int) -> None:
        if done >= self._next:
            self._next = done + PROGRESS_EVENTS
            say(f"{done:,} of {self._events:,} events", is_error=True)
