"""The values of a search: what a caller asks for, and what the index finds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from abridged.service.domain.message import Role
from abridged.service.domain.record import MessageRange
from abridged.service.recall.file import Kind
from abridged.service.recall.query import Query
from abridged.service.recall.vectors import Direction

HITS_MAX = 100
"""Limit on the hits of a search, and on the exchanges of each order that are fused."""

ENTRIES_MAX = 2 * HITS_MAX
"""Hits of both orders, if none is in both."""


class Mode(Enum):
    """The ways to compare."""

    WORDS = "words"
    MEANING = "meaning"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Search:
    """A search and its place: `conversation` is empty for all of the namespace, an empty filter filters nothing.

    Times are in microseconds since the epoch, from `since_us` on and before `until_us`; 0 for no bound. `gone`
    has the messages that are not to be found, by conversation. `records` are the ids of the records to find, None for
    all that no later one has superseded.
    `tokens_max` bounds the passages that the hits come with, 0 for hits without passages.
    """

    namespace: str
    conversation: str
    query: Query
    mode: Mode
    limit: int
    kinds: tuple[Kind, ...] = ()
    roles: tuple[Role, ...] = ()
    labels: Mapping[str, str] | None = None
    since_us: int = 0
    until_us: int = 0
    gone: Mapping[str, tuple[MessageRange, ...]] = field(default_factory=dict)
    records: Collection[str] | None = None
    tokens_max: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A query as a vector: None where it has no angle. `require` raises unless it can be compared with vectors of a
    model's name and a dimension, which is 0 without vectors."""

    vector: Direction | None
    require: Callable[[str, int], None]


class Opening(NamedTuple):
    """The message that an exchange begins with, by the position and the version of its event."""

    id: int
    version: int
    checksum: int


class Entry(NamedTuple):
    """A message or record that was found, and where: `version` is its event's in the conversation's stream, `checksum`
    that of its text in the log. `source` is a record's id, empty for a message.

    A message is the best of its `exchange`, whose first message is its `opening`, None if that is the message itself,
    or is taken back. A record has neither.

    `piece` is the one that is nearest in meaning, None when words found it. `score` compares within a response only: it
    is that of the fused ranks. `similarity` is the cosine of the nearest piece of the exchange, None unless meaning
    found it.
    """

    id: int
    conversation: str
    version: int
    kind: Kind
    role: Role | None
    first: int
    last: int
    source: str
    time_us: int
    checksum: int
    exchange: MessageRange | None
    opening: Opening | None
    score: float
    piece: int | None
    similarity: float | None
    found_by: Mode


class Found(NamedTuple):
    """Entries, one an exchange, best first, and how far the index was read.

    Attributes:
        entries: The entries, at most as many as were asked for.
        position: Every event up to here was searched by all that was compared.
        words: Every event up to here is indexed, and what it takes back is gone from the index.
    """

    entries: tuple[Entry, ...]
    position: int
    words: int
