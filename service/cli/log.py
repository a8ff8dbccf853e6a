"""`abridged log`: checks a log file, copies it as lines, replays those, or rebuilds its read table or search index."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

import click

from abridged.eventlog.errors import EventLogError, LogCorrupt, LogForeign, LogFull, LogGone, LogLocked, LogUnsafe
from abridged.eventlog.event import StreamId
from abridged.eventlog.snapshots import SET_ASIDE
from abridged.service.cli.failures import CommandFailed, Misconfigured
from abridged.service.cli.options import Invocation, settings_options
from abridged.service.cli.prerequisites import check_prerequisites
from abridged.service.cli.sidecar import configuration
from abridged.service.cli.terminal import say
from abridged.service.config.settings import LogSettings, Settings
from abridged.service.config.sources import environment
from abridged.service.recall.errors import RecallError

if TYPE_CHECKING:
    from abridged.service.conversations.rebuild import Rebuilt

PROGRESS_EVENTS = 20_000
LINES_MAX = 100
"""Findings about conversations that are printed without `--all`."""

SEE_OPERATIONS = "see docs/production.md"

_file = click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))


@click.group(short_help="Check, export or import a log, or rebuild its read table or search index.")
def log() -> None:
    """Work on a log file that no sidecar is using."""


@log.command()
@_file
@settings_options
@click.option("--all", "is_all", is_flag=True, help=f"Print every finding, also more than {LINES_MAX}.")
@click.pass_obj
def verify(invocation: Invocation, file: Path | None, is_all: bool) -> None:
    """Report everything that is damaged in FILE, or in the configured log.

    Checks the file's structure and indexes, that positions and versions have no gaps, every event against its
    commitment, every stream's hash chain, and the read table and the snapshots against the events, unless another
    version of the program made them. The file is not changed.

    Exits with 1 if something is damaged, or if the file is not a log or cannot be checked; with 2 if it does not exist.
    """
    path = file or configuration(invocation).settings.log.path
    # This command alone loads the readers of a log.
    from abridged.service.cli.log_verification import verified

    def unreadable(error: Exception) -> CommandFailed:
        refusal = "no sidecar starts on this file; no file was changed"
        details = (refusal,) if isinstance(error, LogCorrupt) else ()
        return CommandFailed(f"{path} cannot be read: {error}", details=details, hint="restore a backup")

    with _explained(unreadable, if_locked="stop the sidecar, or verify a backup"):
        try:
            summary = verified(LogSettings(path=path), sys.maxsize if is_all else LINES_MAX, _Progress())
        except FileNotFoundError as error:
            raise Misconfigured(f"there is no log at {path}", hint="name its file, or set log.path") from error
    say(f"ok: {summary}")


@log.command()
@_file
@settings_options
@click.pass_obj
def rebuild(invocation: Invocation, file: Path | None) -> None:
    """Rebuild the read table of FILE, or of the configured log, from its events, which replace its snapshots.

    The sidecar does this at start if an older version made the table. Run it for a table that a newer version made, and
    for a damaged one. The log is copied into a new file, which replaces the old one when it is complete, so the volume
    needs that much room. Exits with 1 if a conversation cannot be read: it gets no row, its events are copied as they
    are, and its snapshot is kept, set aside.
    """
    settings = configuration(invocation).settings
    path = _existing(file or settings.log.path)
    # This command alone opens a log as a sidecar does.
    from abridged.service.bootstrap.rebuild import rebuilt_anew
    from abridged.service.conversations.rebuild import RebuildReport

    def left_out(stream: StreamId, error: Exception) -> None:
        say(f"left out  {stream.namespace}/{stream.name}: {error}")

    def kept(stream: StreamId, version: int) -> None:
        say(f"kept      {stream.namespace}/{stream.name}: its snapshot at event {version}, in {SET_ASIDE}")

    with _as_served(settings, path) as of_file:
        done = asyncio.run(rebuilt_anew(of_file, environment(), RebuildReport(_Progress(), left_out, kept)))
    if done.left_out:
        raise CommandFailed(
            f"{done.left_out} of {done.left_out + done.conversations} conversations cannot be read",
            hint="`abridged log verify` says what is damaged",
        )
    say(f"ok: {done.conversations:,} conversations from {done.events:,} events")


@log.command()
@_file
@settings_options
@click.pass_obj
def reindex(invocation: Invocation, file: Path | None) -> None:
    """Rebuild the search index of FILE, or of the configured log, from its events.

    A start does so by itself if the index is of another log or version. Run this after a change of `recall.embedder` or
    `recall.dimension`, after the model behind that name has changed, or if the index is damaged.
    """
    found = configuration(invocation)
    settings = found.settings
    path = _existing(file or settings.log.path)
    if settings.recall.index == "off":
        raise Misconfigured("recall.index is off", hint="set recall.index to words or both")
    check_prerequisites(found)
    # This command alone opens a log as a sidecar does.
    from abridged.service.bootstrap.recall import reindexed

    with _as_served(settings, path) as of_file:
        done = asyncio.run(
            reindexed(of_file, environment(), lambda at, head: say(f"{at.words:,} of {head:,} events", is_error=True))
        )
    say(f"ok: {done.words:,} events")


@log.command("export")
@_file
@settings_options
@click.pass_obj
def export(invocation: Invocation, file: Path | None) -> None:
    """Write every event of FILE, or of the configured log, to standard output, as a line of JSON each.

    The lines have all messages of all namespaces in clear. `abridged log import` makes the same log of them. The file
    is not changed. Exits with 1 if an event is damaged; the lines before it are no log then.
    """
    settings = configuration(invocation).settings
    export_log(settings, _existing(file or settings.log.path), sys.stdout.buffer)


def export_log(settings: Settings, path: Path, out: IO[bytes]) -> None:
    """Write every event of the log at `path` to `out`. Raises CommandFailed."""
    # Whoever writes no lines does not load what does.
    from abridged.service.bootstrap.backends import stored_backend
    from abridged.service.conversations.log_copy import lines_of_log
    from abridged.service.conversations.row import READ_TABLE

    with _as_served(settings, path) as of_file:
        backend = stored_backend(of_file.log)
        with backend.verification(backend.rows(READ_TABLE)) as verification:
            out.writelines(line.encode() for line in lines_of_log(verification, _Progress()))
    out.flush()


@log.command("import")
@click.argument("lines", type=click.File("rb"))
@_file
@settings_options
@click.pass_obj
def import_(invocation: Invocation, lines: BinaryIO, file: Path | None) -> None:
    """Make FILE, or the configured log, of the LINES that `abridged log export` wrote, or `-`, whole or not at all.

    It is the same log, with its id, positions and event ids: serve only one of both. Exits with 1 if there is a log in
    that place, or at the first line that is not one of a whole log; no file is there then.
    """
    settings = configuration(invocation).settings
    done = imported_log(settings, file or settings.log.path, lines)
    say(f"ok: {done.conversations:,} conversations from {done.events:,} events")


@log.command("replay")
@click.argument("files", nargs=-1, required=True, type=click.File("rb"))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="SETTINGS",
    help="Append the chats once more under these settings: a file such as presets/s0.toml, or `default`; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="JSON lines: one conversation each, or one policy each.")
@settings_options
@click.pass_obj
def replay_(
    invocation: Invocation, *, files: Sequence[BufferedReader], policies: Sequence[Path], as_json: bool
) -> None:
    """Fold the logs in FILES, which `abridged log export` wrote, and print their conversations.

    No sidecar runs, and no model is asked. With --policy the messages are appended once more instead, of logs and of
    chats as `abridged append --file` takes them, by the sidecar's own parts under those settings: PASSES and their
    CALLS and tokens of the SUMMARIZER; the TOKENS of all PROMPTS, the share that is STABLE under a prompt cache, the
    COST of both in tokens at full price, of which one from the cache counts 0.1 and one written to it 1.25; and the
    prompts OVER their budget. A script stands in for the model, and its records hold the messages' own sentences.

    Exits with 1 at the first line that is not one of a whole log, or of a chat.
    """
    # This command alone folds lines.
    from abridged.service.cli.log_replay import print_folds, print_policies

    if policies:
        print_policies(invocation, files, policies, _Progress, as_json=as_json)
    else:
        print_folds(invocation, files, _Progress(), as_json=as_json)


def imported_log(settings: Settings, path: Path, lines: BinaryIO) -> Rebuilt:
    """Make the log at `path` of the lines of an export, whole or not at all. Raises CommandFailed."""
    # Few commands read lines.
    from abridged.service.bootstrap.log_import import imported
    from abridged.service.conversations.log_copy import LogLinesRefused

    with _as_served(settings, path) as of_file:
        try:
            return imported(of_file, environment(), lines, _Progress())
        except FileExistsError as error:
            raise CommandFailed(f"there is a log at {path}", hint="name another file, or move it away") from error
        except LogLinesRefused as error:
            raise CommandFailed(f"{lines.name}: {error}", details=("no log was made",)) from error


def _existing(path: Path) -> Path:
    if not path.exists():
        raise CommandFailed(f"there is no log at {path}", hint="name its file, or set log.path")
    return path


@contextmanager
def _as_served(settings: Settings, path: Path) -> Iterator[Settings]:
    """Log as the settings say and yield them with the log at `path`; explain the errors of the work on it."""
    from abridged.service.bootstrap import logging_as_set

    def damaged(error: Exception) -> CommandFailed:
        return CommandFailed(f"{path}: {error}", hint="`abridged log verify` says what is damaged")

    log = settings.log.model_copy(update={"path": path, "backend": "sqlite"})
    undo_logs = logging_as_set(settings.telemetry)
    try:
        with _explained(damaged, if_locked="stop the sidecar, then run this again"):
            yield settings.model_copy(update={"log": log})
    finally:
        undo_logs()


@contextmanager
def _explained(otherwise: Callable[[Exception], CommandFailed], *, if_locked: str) -> Iterator[None]:
    """Turn the errors of work on a log into CommandFailed; `otherwise` makes it where no line here knows better."""
    try:
        yield
    except LogLocked as error:
        raise CommandFailed(str(error), hint=if_locked) from error
    except LogForeign as error:
        raise CommandFailed(str(error), hint="check the name of the file, or log.path") from error
    except (LogUnsafe, LogGone, LogFull) as error:
        raise CommandFailed(str(error), hint=SEE_OPERATIONS) from error
    except (EventLogError, RecallError, OSError) as error:
        raise otherwise(error) from error


class _Progress:
    """Reports progress on standard error, every PROGRESS_EVENTS events, or other things of that `noun`."""

    def __init__(self, noun: str = "events") -> None:
        self._noun = noun
        self._next = PROGRESS_EVENTS

    def __call__(self, done: int, total: int) -> None:
        if done >= self._next:
            self._next = done + PROGRESS_EVENTS
            say(f"{done:,} of {total:,} {self._noun}", is_error=True)
