"""Opens the log with what the service keeps beside it: the read table and the snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

import structlog

from abridged.eventlog.backend import Backend, StreamKeys
from abridged.eventlog.encryption.probe import require_clear
from abridged.eventlog.errors import LogGone
from abridged.eventlog.leases import Leases
from abridged.eventlog.log import EventLog
from abridged.service.codec.events import CLEAR
from abridged.service.conversations.policies import Policies
from abridged.service.conversations.rebuild import Rebuild
from abridged.service.conversations.row import READ_TABLE
from abridged.service.conversations.snapshot_writer import SnapshotWriter
from abridged.service.conversations.snapshots import ConversationSnapshots
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.profiles.profile import HeldBy
from abridged.service.domain.triggers import held_by, idle_from_us
from abridged.service.models.settings import SettingUnusable
from abridged.service.telemetry.commits import CommitReport

ARCHIVED = (
    "encryption.key: the log has archived conversations, such as {}, and an encrypted log has no archives; see "
    "Encryption in docs/production.md"
)

_log = structlog.get_logger()


class OpenLog(NamedTuple):
    """The log with its read table; `rebuild` makes the table again and `snapshots` writes snapshots, which only a log
    that outlives the process has, `leases` keep processes apart that work on one log, and `keys` are those of one that
    is encrypted."""

    log: EventLog
    table: ConversationTable
    rebuild: Rebuild | None = None
    snapshots: SnapshotWriter | None = None
    leases: Leases | None = None
    keys: StreamKeys | None = None


def open_log(
    backend: Backend,
    report: CommitReport,
    policies: Policies,
    resources: AsyncExitStack,
    on_fatal: Callable[[Exception], None],
    now_us: Callable[[], int],
) -> OpenLog:
    """Open the log of `backend`; `resources` closes it. Raises an EventLogError if it cannot be opened.

    `on_fatal` is called on the event loop when the log has failed for good.
    """
    loop = asyncio.get_running_loop()

    def held(state: Conversation) -> HeldBy | None:
        return held_by(state, policies.of(state.settings), state.updated_us)

    def idle(state: Conversation) -> int:
        return idle_from_us(state, policies.of(state.settings))

    def fatal(error: Exception) -> None:
        if isinstance(error, LogGone):
            # A restart would begin a new log. This process still reads, and reports the fault on `/readyz`.
            _log.critical("log.gone", hint=str(error))
            return
        _log.critical("log.failed", error_type=type(error).__name__)
        loop.call_soon_threadsafe(on_fatal, error)

    rows = backend.rows(READ_TABLE)
    table = ConversationTable(rows, held=held, idle=idle)
    log, kept, notices, leases, keys = backend.open(
        rows, clock_us=now_us, hook=report.hook(table.project), on_fatal=fatal
    )
    resources.callback(log.close)
    if keys is None:
        require_clear(log, CLEAR)
    log.on_commit(report.committed)
    for notice in notices:
        _log.info("log.notice", code=notice.code, hint=notice.message)
    if kept is None:
        return OpenLog(log, table, leases=leases, keys=keys)
    snapshots = SnapshotWriter(log, ConversationSnapshots(kept.snapshots))
    resources.push_async_callback(snapshots.close)
    return OpenLog(log, table, Rebuild(log, table, kept.rows, kept.snapshots), snapshots, leases, keys)


def require_no_archives(table: ConversationTable) -> None:
    """Raise SettingUnusable for archived conversations, since an encrypted log has no way to take them back."""
    for key in table.archived(limit=1):
        raise SettingUnusable(ARCHIVED.format(key.name))
