"""A row of the read table of conversations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from abridged.eventlog.event import StreamId
from abridged.eventlog.rows import RowTable
from abridged.service.codec.values import settings_to_bytes
from abridged.service.domain.conversation import LastSummarization
from abridged.service.domain.events import Settings

_SEPARATOR = "\x1f"


def label_column(labels: Mapping[str, str]) -> str:
    """The labels as a column has them."""
    return _SEPARATOR.join(["", *(f"{name}={value}" for name, value in sorted(labels.items())), ""])


def label_in_column(name: str, value: str) -> str:
    """A label as it stands in a column of them."""
    return f"{_SEPARATOR}{name}={value}{_SEPARATOR}"


class Row(NamedTuple):
    """A conversation as stored; the fields are the table's columns in order.

    `position` is that of its last event. `labels` has every `name=value` between separators, and is empty while the key
    is lost. `settings` are encoded. `pending_pass` is empty without one; `depth` and `last_*` are None without such a
    record or pass; `held_by` is empty below the trigger and if nothing holds it. `title` is the one that is shown.
    `over_budget` is 1 for an open conversation whose window exceeds its budget. `forked_from` is empty but for forks.
    An `erased` conversation has 1; `purge_due` is 0 unless the files may still have what was taken out of it.
    `archive_file` is empty unless it is archived.
    """

    namespace: str
    id: str
    position: int
    event_version: int
    message_version: int
    ratio: float
    labels: str
    pending_pass: str
    wait_until_us: int
    fallback: int
    model: str
    calibration_factor: float
    usage_reports: int
    settings: bytes
    window_tokens: int
    lowest_ratio_since_pass: float
    window_messages: int
    messages_since_pass: int
    live_summary_id: str
    depth: int | None
    summary_count: int
    failures_in_row: int
    last_depth: int | None
    last_message_count: int | None
    last_token_ratio: float | None
    created_us: int
    updated_us: int
    used_us: int
    held_by: str = ""
    title: str = ""
    closed: int = 0
    over_budget: int = 0
    forked_from: str = ""
    erased: int = 0
    purge_due: int = 0
    archive_file: str = ""

    @property
    def key(self) -> StreamId:
        return StreamId(self.namespace, self.id)

    @property
    def is_unread(self) -> bool:
        """True if nobody can read its title, labels and settings, because its key is lost."""
        return not self.labels

    @property
    def last_summarization(self) -> LastSummarization | None:
        """The figures of the last completed pass; None before one."""
        depth, message_count, token_ratio = self.last_depth, self.last_message_count, self.last_token_ratio
        if depth is None or message_count is None or token_ratio is None:
            return None
        return LastSummarization(depth, message_count, token_ratio)


READ_TABLE = RowTable(
    "conversations",
    version=12,
    row=Row,
    marks={
        "pending": ("pending_pass",),
        "attention": ("pending_pass", "wait_until_us", "fallback"),
        "over_budget": ("over_budget",),
        "held": ("held_by",),
        "reported": ("usage_reports",),
        "purging": ("purge_due",),
        "forked": ("forked_from",),
        "archived": ("archive_file",),
    },
    private={"title": "", "labels": label_column({}), "settings": settings_to_bytes(Settings())},
)
"""The read table."""
