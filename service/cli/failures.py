"""The failures of commands: a line on the failure, lines with details, a line with the remedy; never a traceback.

click.ClickException
├── CommandFailed    exit code 1
└── Misconfigured    exit code 2, as click's own usage errors
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import click

from abridged.eventlog.errors import (
    KeyLost,
    KeysUnusable,
    LogEncrypted,
    LogForeign,
    LogFull,
    LogGone,
    LogLocked,
    LogNewer,
    LogOlder,
    LogUnavailable,
    LogUnsafe,
)
from abridged.service.cli.terminal import marked
from abridged.service.config.sources import ConfigError
from abridged.service.recall.errors import RecallError, RecallLocked

if TYPE_CHECKING:
    from abridged.client import SidecarError

HINTS_BY_REASON = {
    "CONVERSATION_ARCHIVED": "`abridged unarchive` puts it back",
    "CONVERSATION_NOT_FOUND": "check the id, and that the token belongs to the conversation's namespace",
    "CURSOR_OUT_OF_RANGE": "start over: the conversation is in another log, or was restored from a backup",
    "DEADLINE_EXCEEDED": "run the command again; a message with an --id is never added twice",
    "INTERNAL": "the sidecar's log has the error id",
    "LOG_FULL": "make room on the disk of the sidecar's log",
    "LOG_GONE": "put the sidecar's log back in its place, a file or tables of a database",
    "LOG_UNAVAILABLE": "run the command again; a message with an --id is never added twice",
    "MODEL_AWAY": "start Ollama, or set policy.fallback=always for an extract; `abridged doctor` says more",
    "NOTHING_TO_SUMMARIZE": (
        "append more: the newest messages and pins stay, and a pass takes policy.min_range_tokens of the others or more"
    ),
    "PERMISSION_DENIED": "use a token with this scope",
    "EMBEDDER_AWAY": "search with --mode words, which needs no model",
    "RECALL_OFF": "see recall.index and recall.path in docs/configuration.md",
    "RECALL_STOPPED": "stop the sidecar and run `abridged log reindex`",
    "SERVER_STOPPING": "run the command again; a message with an --id is never added twice",
    "SUMMARIZATION_DISABLED": "switch passes on with policy.enabled",
    "TOO_LARGE": (
        "split it, or send fewer messages per call (--batch); the sidecar's settings are server.message_bytes_max "
        "(one message) and server.batch_bytes_max (one call)"
    ),
    "TOO_MANY_REQUESTS": "run the command again later",
    "UNAUTHENTICATED": "pass the token with --token, ABRIDGED_CLIENT__TOKEN or ABRIDGED_CLIENT__TOKEN_FILE",
    "WINDOW_TOO_LARGE": "allow more tokens, or --clip the largest messages",
}
_HINTS_BY_CODE = {
    "DEADLINE_EXCEEDED": "run the command again; a message with an --id is never added twice",
    "UNAVAILABLE": "start a sidecar with `abridged serve`, or pass its --address",
    "UNIMPLEMENTED": "check --address, and the version with `abridged doctor`",
}

SEE_PRODUCTION = "see docs/production.md"
RESTORE = "restore a backup, see docs/production.md"
RESTORE_OR_SALVAGE = "restore a backup, or run `abridged log salvage`, see docs/production.md"
"""The way out for a log in a file: what is left of it makes a new one."""

GIVE_KEY = "set encryption.key or encryption.key_file to the operator's key: docs/production.md"
CHECK_KEYS = (
    "check encryption.key or encryption.key_file, and set encryption.keys_path to the log's data keys, which no copy "
    "of the log has beside it: docs/production.md"
)

LOST_KEY = (
    "put the data key back from a copy, erase the conversation, name others by --conversation, or make a log of the "
    "others by `abridged log salvage`: docs/production.md"
)
MEND_KEYS = (
    "put these data keys back from a copy, for which the operator's key of that time is needed, or erase the "
    "conversations: docs/production.md"
)

CHECK_DATABASE = "check log.url, its role and password, and that the server runs: docs/production.md"
START_ITS_VERSION = "start the version that wrote it, or a newer one"

_LOG_HINTS: tuple[tuple[type[Exception], str, str], ...] = (
    (RecallLocked, *2 * ("stop the sidecar that has it, or set recall.path to another file",)),
    (RecallError, *2 * ("remove the index: a start, or `abridged log reindex`, makes it again",)),
    (LogLocked, "", "then run this again"),
    (KeyLost, LOST_KEY, LOST_KEY),
    (KeysUnusable, CHECK_KEYS, CHECK_KEYS),
    (LogEncrypted, GIVE_KEY, GIVE_KEY),
    (LogNewer, START_ITS_VERSION, START_ITS_VERSION),
    (LogOlder, SEE_PRODUCTION, SEE_PRODUCTION),
    (LogUnsafe, "keep it on a local disk: docs/production.md", CHECK_DATABASE),
    (LogForeign, "check the name of the file, or log.path", CHECK_DATABASE),
    (LogUnavailable, SEE_PRODUCTION, CHECK_DATABASE),
    (LogGone, SEE_PRODUCTION, SEE_PRODUCTION),
    (LogFull, SEE_PRODUCTION, SEE_PRODUCTION),
)
"""The next step after errors whose own message says enough, by type: for a log in a file, and for one in a database."""

NO_HINTS: Mapping[str, str] = MappingProxyType({})


class CommandFailed(click.ClickException):
    """The command failed."""

    exit_code = 1

    def __init__(self, message: str, *, details: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(message)
        self.details = tuple(details)
        self.hint = hint

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the message, one line per detail, and the hint to standard error."""
        for line in (f"abridged: {self.message}", *(f"  {detail}" for detail in (*self.details, self.hint) if detail)):
            click.echo(marked(line, "red" if line.startswith("abridged:") else ""), file=file, err=file is None)


class Misconfigured(CommandFailed):
    """Settings or arguments cannot be used."""

    exit_code = 2


def of_sidecar_error(error: SidecarError, *, hints: Mapping[str, str] = NO_HINTS) -> CommandFailed:
    """Return a call's error as a failure of the command; `hints`, by reason, take precedence over the usual ones."""
    by_reason = {**HINTS_BY_REASON, **hints}
    hint = by_reason.get(error.reason, "") if error.reason else _HINTS_BY_CODE.get(error.code, "")
    what = error.message
    if error.violations:
        what = "; ".join(f"{field}: {description}" if field else description for field, description in error.violations)
    if error_id := error.metadata.get("error_id"):
        what = f"{what} (error id {error_id})"
    return CommandFailed(f"{error.reason or error.code}: {what}", hint=hint)


def of_log_error(error: Exception, *, is_file: bool, if_locked: str) -> CommandFailed | None:
    """Return an error of a log or its index as a failure; None where the next step depends on the command.

    `if_locked` is that step where a sidecar owns the file; a database says itself what it waits for.
    """
    for kind, of_file, of_database in _LOG_HINTS:
        if isinstance(error, kind):
            return CommandFailed(str(error), hint=(of_file or if_locked) if is_file else of_database)
    return None


def of_config_error(error: ConfigError) -> Misconfigured:
    """Return every problem of the settings as one failure, a line each."""
    return Misconfigured("the settings cannot be used:", details=[str(problem) for problem in error.problems])
