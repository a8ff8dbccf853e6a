"""The read table in memory: reads run in threads while the log writes."""

from __future__ import annotations

from eventlog.event import RecordedEvent, StreamId
from eventlog.log import Committed
from service.domain.conversation import Conversation
from service.domain.events import ConversationOpened, Settings
from service.projections import ListQuery, MemoryConversationTable, Projected


class _Namespace(str):  # noqa: SLOT000 - it carries the table
    """A namespace at whose comparison another thread commits a new conversation."""

    table: MemoryConversationTable
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        opened(self.table, "late")
        return str(self) == str(other)


def opened(table: MemoryConversationTable, name: str) -> None:
    stream = StreamId("default", name)
    event = ConversationOpened(name, Settings())
    recorded = RecordedEvent(1, stream, 1, b"", "ConversationOpened", 1, 1, "", b"")
    table.project(None, [Committed(stream, (recorded,), Projected(Conversation(), [event]))])


def test_a_commit_during_a_page_does_not_disturb_it():
    """The page is of the rows that were there when it began."""
    table = MemoryConversationTable(lambda state: b"")
    for name in ("a", "b"):
        opened(table, name)
    namespace = _Namespace("default")
    namespace.table = table

    page = table.page(ListQuery(namespace, 10))

    assert sorted(row.id for row in page) == ["a", "b"]
    assert len(table.page(ListQuery("default", 10))) == 3
