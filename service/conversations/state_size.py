"""Weighs a cached state in memory: its window, and beside it the ledger, records, passes and settings.

Sizes are in bytes: texts and the ledger's entries are measured, and what surrounds them has constants, which
`tests/integration/test_cached_memory.py` holds to what the objects take.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from operator import is_
from typing import Final, NamedTuple, TypeVar

from abridged.service.domain.conversation import Conversation, EndedPass
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import Ledger
from abridged.service.domain.ranges import partitioned, ranges_of, without
from abridged.service.domain.record import SummaryRecord, statements_of
from abridged.service.domain.rules import Rules
from abridged.service.domain.sequence import Sequence

_MESSAGE_BYTES: Final = 448
"""A message beside its texts."""

_PART_BYTES: Final = 192
"""A call, an attachment or a label of a message, or a mark, pin or name of a state, beside its text."""

_STATE_BYTES: Final = 2_048
"""A state with its settings and its place in the cache, beside all that is counted."""

_RECORD_BYTES: Final = 1_024
_STATEMENT_BYTES: Final = 96
_PASS_BYTES: Final = 768
_DEFERRED_BYTES: Final = 1_024
"""An item of a history that has not been read: it lies compressed."""

_GROWING: Final = Conversation._fields.index("messages_since_pass") + 1

_T = TypeVar("_T")


class WindowSize(NamedTuple):
    """The size of a window: bytes of its texts, and the number of messages, calls, attachments and labels."""

    bytes: int = 0
    parts: int = 0


class StateSize(NamedTuple):
    """The size of a state: its window, and the bytes of its records, its passes and all the rest."""

    window: WindowSize
    records: int
    revoked: int
    passes: int
    rest: int
    messages: int

    @property
    def bytes(self) -> int:
        """All of it."""
        window = self.window.bytes + _MESSAGE_BYTES * self.messages + _PART_BYTES * (self.window.parts - self.messages)
        return window + self.records + self.revoked + self.passes + self.rest


def state_size(
    state: Conversation, before: tuple[Conversation, StateSize] | None = None, window: WindowSize | None = None
) -> StateSize:
    """The size of a state.

    `before` is an earlier state with its size, so that only what is new is looked at; `window` is that of the state's
    window, if the caller has it.
    """
    known = window or _window_size(state, before)
    if before is None:
        return StateSize(
            known,
            _history(state.records, _record),
            _history(state.revoked, _record),
            _history(state.passes, _pass),
            _rest(state),
            len(state.window),
        )
    old, size = before
    # The fields after these are the same objects after a message.
    unchanged = all(map(is_, old[_GROWING:], state[_GROWING:]))
    return StateSize(
        known,
        _grown(state.records, old.records, size.records, _record),
        _grown(state.revoked, old.revoked, size.revoked, _record),
        _grown(state.passes, old.passes, size.passes, _pass),
        size.rest if unchanged else _rest(state),
        len(state.window),
    )


def window_size(messages: Iterable[MessageAppended]) -> WindowSize:
    """The size of these messages; linear."""
    total = parts = 0
    sizeof = sys.getsizeof
    for appended in messages:
        message = appended.message
        parts += 1
        total += sizeof(message.content)
        if message.extra_json:
            total += sizeof(message.extra_json)
        if message.tool_calls:
            parts += len(message.tool_calls)
            total += sum(sizeof(call.arguments) for call in message.tool_calls)
        if message.attachments:
            parts += len(message.attachments)
            total += sum(sizeof(attachment.uri) for attachment in message.attachments)
        parts += len(message.labels)
    return WindowSize(total, parts)


def _window_size(state: Conversation, before: tuple[Conversation, StateSize] | None) -> WindowSize:
    """Between two records a window only grows, so only new messages are looked at."""
    window = state.window
    if before is None:
        return window_size(window)
    old, size = before
    gone = old.window
    if old.epoch == state.epoch:
        return _added(size.window, window_size(window[place] for place in range(len(gone), len(window))))
    one_pass = old.epoch + 1 == state.epoch and len(old.records) + 1 == len(state.records) and old.marks is state.marks
    if 2 * len(window) < len(gone) or not one_pass:
        return window_size(window)
    inside, left = partitioned(gone, without(state.records[-1].covered, ranges_of(state.pins)))
    taken = window_size(inside)
    return _added(
        WindowSize(size.window.bytes - taken.bytes, size.window.parts - taken.parts),
        window_size(window[place] for place in range(len(left), len(window))),
    )


def _added(one: WindowSize, other: WindowSize) -> WindowSize:
    return WindowSize(one.bytes + other.bytes, one.parts + other.parts)


def _history(items: Sequence[_T], weigh: Callable[[_T], int]) -> int:
    return _DEFERRED_BYTES * len(items) if items.is_deferred else sum(map(weigh, items))


def _grown(items: Sequence[_T], old: Sequence[_T], old_bytes: int, weigh: Callable[[_T], int]) -> int:
    """The bytes of `items`, of which the first may be those of `old`, counted or only guessed."""
    if items is old:
        return old_bytes
    was_guessed = old_bytes == _DEFERRED_BYTES * len(old)
    if items.is_deferred or old.is_deferred or was_guessed or not items.continues(old):
        return _history(items, weigh)
    return old_bytes + sum(weigh(items[place]) for place in range(len(old), len(items)))


def _record(record: SummaryRecord) -> int:
    sizeof, context = sys.getsizeof, record.context
    texts = sum(map(sizeof, (record.summary, record.short_summary, record.label, context.raw)))
    statements = statements_of(record)
    texts += sum(sizeof(text) for text, _ in statements)
    listed = (*context.participants, *context.domain_entities)
    return _RECORD_BYTES + _STATEMENT_BYTES * len(statements) + texts + sum(map(sizeof, listed))


def _pass(ended: EndedPass) -> int:
    lines = ended.receipt.lines if ended.receipt else ()
    items = [item for line in lines for item in line.items]
    receipt = _PART_BYTES * (len(lines) + len(items)) + sum(sys.getsizeof(item.text) for item in items)
    return _PASS_BYTES + sys.getsizeof(ended.cause) + receipt


def _rest(state: Conversation) -> int:
    settings, sizeof = state.settings, sys.getsizeof
    named = len(settings.labels) + len(settings.policy) + len(state.marks) + len(state.pins) + len(state.removed)
    named += len(state.sources) + len(state.ratings) + len(state.remakes) + len(state.successors)
    prompt = settings.system_prompt
    texts = sizeof(prompt.content) + sizeof(prompt.extra_json) if prompt else 0
    texts += sizeof(settings.title) + sizeof(state.title) + sum(map(sizeof, settings.labels.values()))
    return _STATE_BYTES + _PART_BYTES * named + texts + _ledger(state.ledger) + _rules(state.rules)


def _ledger(ledger: Ledger) -> int:
    sizeof = sys.getsizeof
    return sum(
        sizeof(entry) + sizeof(entry.text) + sizeof(entry.context) + sizeof(entry.numbers) for entry in ledger.entries
    )


def _rules(rules: Rules) -> int:
    return sum(sys.getsizeof(rule) + sys.getsizeof(rule.text) for rule in rules.entries)
