"""Access of a command to a log that it works on by itself: its settings, its keys, its errors, its progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from abridged.eventlog.errors import EventLogError, KeysUnusable
from abridged.service.cli.failures import CHECK_KEYS, SEE_PRODUCTION, CommandFailed, Misconfigured, of_log_error
from abridged.service.cli.log_place import absent, on_disk
from abridged.service.cli.terminal import say
from abridged.service.config.settings import LogSettings, Settings
from abridged.service.models.settings import SettingUnusable
from abridged.service.recall.errors import RecallError

if TYPE_CHECKING:
    from abridged.service.conversations.log_copy import Walked

PROGRESS_EVENTS = 20_000


@contextmanager
def as_served(settings: Settings, at: LogSettings, *, is_new: bool = False) -> Iterator[Settings]:
    """Log warnings as the settings say, and yield the settings with the log `at` its place, which is there unless it
    `is_new`; explain the errors of the work on it."""
    from abridged.service.bootstrap import logging_as_set
    from abridged.service.bootstrap.backends import stored_backend

    def damaged(error: Exception) -> CommandFailed:
        return CommandFailed(f"{stored_backend(at)}: {error}", hint="`abridged log verify` says what is damaged")

    at = on_disk(at)
    # A command says itself what it does.
    quiet = {} if settings.telemetry.log_level == "error" else {"log_level": "warning"}
    undo_logs = logging_as_set(settings.telemetry.model_copy(update=quiet))
    try:
        with explained(damaged, at, if_locked="stop the sidecar, then run this again"):
            is_there = at.path.exists() if at.url is None else bool(stored_backend(at).log_id())
            if not (is_there or is_new):
                raise absent(at)
            yield settings.model_copy(update={"log": at})
    finally:
        undo_logs()


@contextmanager
def explained(otherwise: Callable[[Exception], CommandFailed], at: LogSettings, *, if_locked: str) -> Iterator[None]:
    """Turn the errors of work on a log into CommandFailed; `otherwise` makes it where `of_log_error` does not."""
    try:
        yield
    except BrokenPipeError:
        raise  # of the output, which nobody reads on; a log is no pipe
    except SettingUnusable as error:
        raise Misconfigured(str(error)) from error
    except (EventLogError, RecallError, OSError) as error:
        raise of_log_error(error, if_locked=if_locked, is_file=at.url is None) or otherwise(error) from error


def require_log_keys(settings: Settings, checked: str = "") -> None:
    """Raise CommandFailed, with what was `checked` without them, if the log's data keys are not in their place."""
    if not settings.encryption.is_on:
        return
    from abridged.service.bootstrap.encryption import require_keys

    try:
        require_keys(settings)
    except KeysUnusable as error:
        raise CommandFailed(str(error), details=(checked,), hint=CHECK_KEYS) from error


def require_no_keys(settings: Settings) -> None:
    """Refuse what would make a copy of an encrypted log under other keys, which an erasure does not reach."""
    if settings.encryption.is_on:
        raise CommandFailed(
            "an encrypted log in a database is copied by the server's own tools alone: what makes lines of it encrypts "
            "them anew, under keys that no erasure reaches",
            hint=SEE_PRODUCTION,
        )


def progress(noun: str = "events") -> Walked:
    """Return a report of progress on standard error, every PROGRESS_EVENTS events, or other things of that `noun`."""
    from abridged.service.bootstrap.progress import ProgressSteps

    return ProgressSteps(PROGRESS_EVENTS, lambda done, total: say(f"{done:,} of {total:,} {noun}", is_error=True))
