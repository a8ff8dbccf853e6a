"""A row of the read table, and the seal by which a damaged one is known."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from eventlog.errors import LogCorrupt
from eventlog.event import StreamId

__all__ = ["Row", "checked", "sealed"]

SEAL_BYTES = 12


class Row(NamedTuple):
    """One conversation, as it is stored: the fields are the table's columns in their order.

    `position` is that of its last event; `labels` has every `name=value` between separators; `view` is its state as the
    contract shows it; `held_by` is empty below the trigger and when nothing holds it; `seal` is a hash of the others.
    """

    namespace: str
    id: str
    position: int
    event_version: int
    ratio: float
    labels: str
    pending: int
    wait_until_us: int
    fallback: int
    model: str
    calibration_factor: float
    usage_reports: int
    view: bytes
    held_by: str = ""
    seal: bytes = b""

    @property
    def key(self) -> StreamId:
        """The conversation's stream."""
        return StreamId(self.namespace, self.id)


def sealed(row: Row) -> Row:
    """The row with its seal."""
    return row._replace(seal=_seal(row))


def checked(columns: Any) -> Row:
    """The row of these columns; raise LogCorrupt when they are not what was written."""
    row = Row(*columns)
    if row.seal != _seal(row):
        raise LogCorrupt("a row of the read table is not what was written")
    return row


def _seal(row: Row) -> bytes:
    # How Python writes values tells their types too: a number is not its text.
    return hashlib.blake2b(repr(tuple(row[:-1])).encode(), digest_size=SEAL_BYTES).digest()
