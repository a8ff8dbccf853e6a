"""Opens the log with what the service keeps beside it: the read table and the snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import structlog
from sqlalchemy import Connection

from eventlog.errors import LogGone
from eventlog.log import EventLog
from eventlog.memory import MemoryEventLog
from eventlog.sqlite.log import SqliteEventLog
from service.config.settings import Settings
from service.conversations.policies import Policies
from service.conversations.rebuild import Rebuild
from service.conversations.snapshot_writer import SnapshotWriter
from service.conversations.snapshots import PURPOSE, SqlSnapshots
from service.conversations.snapshots import prepare as prepare_snapshots
from service.conversations.sql_table import SqlConversationTable
from service.conversations.table import ConversationTable, MemoryConversationTable
from service.domain.conversation import Conversation
from service.domain.profiles.profile import HeldBy
from service.domain.triggers import held_by
from service.telemetry.commits import CommitReport

_log = structlog.get_logger()


def open_log(
    settings: Settings,
    report: CommitReport,
    policies: Policies,
    resources: AsyncExitStack,
    on_fatal: Callable[[Exception], None],
    now_us: Callable[[], int],
) -> tuple[EventLog, ConversationTable, Rebuild | None, SnapshotWriter | None]:
    """The log of `settings` with its read table, which both backends have; what rebuilds the table and what writes
    snapshots, which only a file has. `resources` closes them. Raises an EventLogError if the log cannot be opened.

    `on_fatal` is called on the event loop when the log has failed for good.
    """
    loop = asyncio.get_running_loop()

    def held(state: Conversation) -> HeldBy | None:
        return held_by(state, policies.of(state.settings), state.updated_us)

    if settings.log.backend == "memory":
        memory_table = MemoryConversationTable(held=held)
        memory = MemoryEventLog(clock_us=now_us, hook=report.hook(memory_table.project))
        resources.callback(memory.close)
        memory.on_commit(report.committed)
        return memory, memory_table, None, None

    def fatal(error: Exception) -> None:
        if isinstance(error, LogGone):
            # A restart would begin a new log. This process still reads, and reports the fault on `/readyz`.
            _log.critical("log.gone", hint=str(error))
            return
        _log.critical("log.failed", error_type=type(error).__name__)
        loop.call_soon_threadsafe(on_fatal, error)

    table = SqlConversationTable(held=held)

    def prepare(connection: Connection) -> None:
        table.prepare(connection)
        prepare_snapshots(connection)

    log = SqliteEventLog.open(
        settings.log.path,
        clock_us=now_us,
        hook=report.hook(table.project),
        check=table.check,
        prepare=prepare,
        on_fatal=fatal,
    )
    resources.callback(log.close)
    log.on_commit(report.committed)
    table.read_through(log.read)
    for warning in log.warnings:
        _log.info("log.notice", code=warning.code, hint=warning.message)
    snapshots = SnapshotWriter(log, SqlSnapshots(log.secret(PURPOSE), log.read), log.write)
    resources.push_async_callback(snapshots.close)
    return log, table, Rebuild(log, table, log.write), snapshots
