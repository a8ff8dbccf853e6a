"""The read table in memory: reads run in threads while the log writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eventlog.event import RecordedEvent, StreamId
from eventlog.log import Committed
from service.domain.conversation import Conversation
from service.domain.events import ConversationOpened, Settings
from service.projections import ListQuery, MemoryConversationTable, Projected


class _Labels(Mapping[str, str]):
    """Labels at whose look-up another thread commits a new conversation."""

    def __init__(self, table: MemoryConversationTable) -> None:
        self._table = table

    def __getitem__(self, name: str) -> str:
        opened(self._table, "late")
        return "1"

    def __iter__(self) -> Iterator[str]:
        return iter(["x"])

    def __len__(self) -> int:
        return 1


def opened(table: MemoryConversationTable, name: str, labels: Mapping[str, str] | None = None) -> None:
    stream = StreamId("default", name)
    event = ConversationOpened(name, Settings(labels=labels or {}))
    recorded = RecordedEvent(1, stream, 1, b"", "ConversationOpened", 1, 1, "", b"")
    table.project(None, [Committed(stream, (recorded,), Projected(Conversation(), [event]))])


def test_a_commit_during_a_page_does_not_disturb_it():
    """The page is of the rows that were there when it began."""
    table = MemoryConversationTable(lambda state: b"")
    for name in ("a", "b"):
        opened(table, name, _Labels(table))

    page = table.page(ListQuery("default", 10, labels=(("x", "1"),)))

    assert sorted(row.id for row in page) == ["a", "b"]
    assert len(table.page(ListQuery("default", 10))) == 3
