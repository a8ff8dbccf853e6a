"""Backs up the file of a log and restores it from there, each with a check of the whole copy before it has its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from abridged.eventlog.backend import StoredBackend
from abridged.eventlog.errors import LogLocked
from abridged.service.bootstrap.backends import file_backend, readable
from abridged.service.bootstrap.recall import forget_index
from abridged.service.cli.failures import RESTORE_OR_SALVAGE, CommandFailed
from abridged.service.cli.log_verification import verified
from abridged.service.config.settings import Settings

FINDINGS_MAX = 20
"""Findings about conversations that are printed: `abridged log verify` prints the others."""

NICE = 19
"""The lowest priority: with any other, calls of a sidecar take twice as long while a backup is checked beside it."""

Progress = Callable[[str], Callable[[int, int], None]]
"""Makes the report of how many things of a kind are done."""


def backed_up(settings: Settings, to: Path, progress: Progress) -> str:
    """Make `to` as a copy of the file of the log of `settings`; return its contents in a line.

    A thread of low priority does it, so that whoever serves the log goes first. An interrupt ends it. Raises
    CommandFailed, and an EventLogError or OSError.
    """
    interrupted = Event()

    def unless_interrupted(noun: str) -> Callable[[int, int], None]:
        report = progress(noun)

        def walked(done: int, total: int) -> None:
            if interrupted.is_set():
                raise _Interrupted
            report(done, total)

        return walked

    with ThreadPoolExecutor(1, initializer=os.nice, initargs=(NICE,)) as aside:
        try:
            return aside.submit(_backed_up, settings, to, unless_interrupted).result()
        except KeyboardInterrupt:
            interrupted.set()
            raise


class _Interrupted(Exception):
    """The user has ended the command."""


def _backed_up(settings: Settings, to: Path, progress: Progress) -> str:
    log = file_backend(settings.log.path)
    summaries: list[str] = []

    def check(copy: StoredBackend) -> None:
        hint = f"no backup was made; {RESTORE_OR_SALVAGE}"
        summaries.append(_verified(readable(copy, settings), progress, str(log), hint))

    try:
        log.backup(to, check, progress("pages"))
    except FileExistsError as error:
        raise CommandFailed(str(error), hint="name another place, or move it away") from error
    except LogLocked as error:
        raise CommandFailed(str(error), hint="wait for it, or name another place") from error
    return "".join(summaries)


def restored(settings: Settings, backup: Path, progress: Progress, *, replaces: bool) -> str:
    """Give a copy of the file `backup` the place of the log of `settings`, which loses its search index; return its
    contents in a line. Raises CommandFailed, and an EventLogError, RecallLocked or OSError."""
    log = file_backend(settings.log.path)
    summaries: list[str] = []

    def check(copy: StoredBackend) -> None:
        hint = f"restore another backup; {log} is as it was"
        summaries.append(_verified(readable(copy, settings), progress, str(backup), hint))
        forget_index(settings)

    try:
        log.restore(backup, check, progress("pages"), replaces=replaces)
    except FileExistsError as error:
        hint = "move it away" if replaces else "--replace moves it aside, or name another place"
        raise CommandFailed(str(error), hint=hint) from error
    return "".join(summaries)


def _verified(copy: StoredBackend, progress: Progress, name: str, hint: str) -> str:
    """Return the contents of the copy of the file `name` in a line. Raises as `verified` does."""
    see_all = f"`abridged log verify {name} --all` prints them"
    return verified(copy, FINDINGS_MAX, progress("events checked"), name=name, hint=hint, see_all=see_all)
