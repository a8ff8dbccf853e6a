"""Prints a log's verification: the damage, and the conversations that a sidecar serves in spite of it."""

from __future__ import annotations

from collections.abc import Callable

from abridged.eventlog.backend import StoredBackend
from abridged.eventlog.event import StreamId
from abridged.eventlog.rows import Fault
from abridged.service.cli.failures import RESTORE, CommandFailed
from abridged.service.cli.terminal import number_of, say
from abridged.service.conversations.row import READ_TABLE
from abridged.service.conversations.snapshots import ConversationSnapshots
from abridged.service.conversations.table import ConversationTable
from abridged.service.conversations.verification import Damage, Service, damages, service_of

_UNCOMPARED = (Fault.OLDER, Fault.NEWER, Fault.INTERRUPTED)


def verified(
    backend: StoredBackend,
    lines_max: int,
    progress: Callable[[int, int], None],
    *,
    name: str = "",
    hint: str = RESTORE,
    see_all: str = "--all prints them",
) -> str:
    """Return the log's contents in a line. Print the damage, at most `lines_max` lines about conversations.

    Raises CommandFailed if anything is, and an EventLogError or OSError if the log cannot be checked. The lines give
    the log this `name`, if any, and for damage to events this `hint`; `see_all` says how to see the lines that are left
    out.
    """
    found = _Findings(lines_max, see_all)
    rows = backend.rows(READ_TABLE)
    with backend.verification(rows) as log:
        fault = log.fault
        if fault in _UNCOMPARED:
            say(f"not checked: the read table, because it {fault}", is_error=True)
        elif fault is not None:
            found.add(Damage("", f"the read table {fault}", of_table=True))
        events = log.event_count()
        compared = ConversationTable(rows) if fault is None else None
        snapshots = ConversationSnapshots(log.snapshots) if compared and log.snapshots else None
        unread = 0

        def not_read(_stream: StreamId, lost: str) -> None:
            nonlocal unread
            unread += 1
            if lost:
                found.add_unread(lost)

        def walked(done: int) -> None:
            progress(done, events)

        for damage in damages(log, compared, snapshots, walked=walked, unread=not_read):
            found.add(damage)
        found.end()
        service = service_of(log, compared)
        nameless = log.nameless.count
        conversations = len(log.streams()) + nameless
    if found.count or service.refusal or service.hazard:
        raise CommandFailed(
            f"{name or backend} is damaged: {number_of(found.count, 'finding')}",
            details=_served(service, found, conversations, nameless),
            hint=hint if found.in_events else "stop the sidecar and run `abridged log rebuild`",
        )
    whole = f"{number_of(events, 'event')} in {number_of(conversations, 'conversation')}, log {log.log_id[:8]}"
    if not unread:
        return whole
    return f"{whole}; contents of {unread:,} were not read, whose keys are not here or were erased"


class _Findings:
    """Prints the damage, at most `lines_max` lines about conversations, and counts it; `see_all` tells of the rest.

    `damaged` counts conversations that are not whole, `lost` those of whose events some are damaged.
    """

    def __init__(self, lines_max: int, see_all: str) -> None:
        self.count = self.damaged = self.lost = 0
        self.in_events = False
        self._lines_left = lines_max
        self._see_all = see_all
        self._unprinted = 0
        self._last = ""

    def add(self, damage: Damage) -> None:
        """Print a finding, if there is a line left for it; those of one conversation follow each other."""
        where, what, of_table, is_lost = damage
        self.count += 1
        if not of_table:
            self.in_events = True
            self.damaged += bool(where) and where != self._last
            self.lost += is_lost
            self._last = where
        if where:
            self._say(f"damaged  {where}: {what}")
        else:
            say(f"damaged  log: {what}")

    def add_unread(self, lost: str) -> None:
        """Print a conversation whose data key is lost, if there is a line left for it: it is no damage of the log."""
        self._say(f"unread  {lost}")

    def end(self) -> None:
        """Print how many findings had no line."""
        if self._unprinted:
            say(f"and {self._unprinted:,} more findings of conversations; {self._see_all}")

    def _say(self, line: str) -> None:
        """Print a line about a conversation if one is left for it."""
        self._lines_left -= 1
        if self._lines_left < 0:
            self._unprinted += 1
        else:
            say(line)


def _served(service: Service, found: _Findings, conversations: int, nameless: int) -> tuple[str, ...]:
    """Return how a sidecar treats the file, and how many conversations it serves or a backup need not bring."""
    named = conversations - nameless
    if not service.refusal and not service.hazard:
        return (f"{named - found.damaged:,} of {conversations:,} conversations are whole; no file was changed",)
    way = (
        f"no sidecar starts on this log: {service.refusal}"
        if service.refusal
        else f"an append to any conversation may stop the sidecar: {service.hazard}"
    )
    intact = f"{named - found.lost:,} of {conversations:,} conversations are intact as far as they can be read"
    return (way, f"the events of {intact}; no file was changed")
