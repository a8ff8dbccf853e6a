"""Weighs a cached state in memory: its window, and beside it the ledger, records, passes and settings.

Sizes are in bytes: texts and the ledger's entries are measured, and what surrounds them has constants, which
`tests/integration/test_cached_memory.py` holds to what the objects take.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import is_
from typing import Final, NamedTuple, TypeVar

from abridged.service.codec.state import KeptWindow
from abridged.service.domain.conversation import Conversation, EndedPass
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import Ledger
from abridged.service.domain.ranges import partitioned, ranges_of, without
from abridged.service.domain.record import SummaryRecord, statements_of
from abridged.service.domain.rules import Rules
from abridged.service.domain.sequence import Sequence
from abridged.service.domain.window_size import WindowSize, window_size

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

_KEPT_BYTES: Final = 192
"""A message's id beside a window that came from a snapshot."""

_GROWING: Final = Conversation._fields.index("messages_since_pass") + 1

_T = TypeVar("_T")


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
        """Bytes of the whole state."""
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
    # After a message, all fields behind its own are the same objects.
    if all(map(is_, old[_GROWING:], state[_GROWING:])):
        return StateSize(known, size.records, size.revoked, size.passes, size.rest, len(state.window))
    return StateSize(
        known,
        _grown(state.records, old.records, size.records, _record),
        _grown(state.revoked, old.revoked, size.revoked, _record),
        _grown(state.passes, old.passes, size.passes, _pass),
        _rest(state),
        len(state.window),
    )


def whole_window_size(window: Sequence[MessageAppended]) -> WindowSize:
    """The size of the window; one that is kept as bytes is not read for it."""
    kept = window.origin
    if not isinstance(kept, KeptWindow) or not window.is_deferred:
        return window_size(window)
    return kept.size.with_more(window_size(window[place] for place in range(len(kept), len(window))))


def _window_size(state: Conversation, before: tuple[Conversation, StateSize] | None) -> WindowSize:
    """The size of the window; it only grows between two records, so only new messages are looked at."""
    window = state.window
    if before is None:
        return whole_window_size(window)
    old, size = before
    gone = old.window
    if old.epoch == state.epoch:
        return size.window.with_more(window_size(window[place] for place in range(len(gone), len(window))))
    one_pass = old.epoch + 1 == state.epoch and len(old.records) + 1 == len(state.records) and old.marks is state.marks
    if 2 * len(window) < len(gone) or not one_pass:
        return whole_window_size(window)
    inside, left = partitioned(gone, without(state.records[-1].covered, ranges_of(state.pins)))
    taken = window_size(inside)
    return WindowSize(size.window.bytes - taken.bytes, size.window.parts - taken.parts).with_more(
        window_size(window[place] for place in range(len(left), len(window)))
    )


def _history(items: Sequence[_T], weigh: Callable[[_T], int]) -> int:
    unread = len(items.origin) if items.origin is not None and items.is_deferred else 0
    return _DEFERRED_BYTES * unread + sum(weigh(items[place]) for place in range(unread, len(items)))


def _grown(items: Sequence[_T], old: Sequence[_T], old_bytes: int, weigh: Callable[[_T], int]) -> int:
    """The bytes of `items`, of which the first may be those of `old`, counted or only guessed."""
    if items is old:
        return old_bytes
    if items.origin is not None or not items.continues(old):
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
    kept = state.window.origin
    named += len(state.sources) + len(state.ratings) + len(state.remakes) + len(state.successors)
    prompt = settings.system_prompt
    texts = sizeof(prompt.content) + sizeof(prompt.extra_json) if prompt else 0
    texts += sizeof(settings.title) + sizeof(state.title) + sum(map(sizeof, settings.labels.values()))
    texts += _KEPT_BYTES * kept.ids.count if isinstance(kept, KeptWindow) else 0
    return _STATE_BYTES + _PART_BYTES * named + texts + _ledger(state.ledger) + _rules(state.rules)


def _ledger(ledger: Ledger) -> int:
    sizeof = sys.getsizeof
    return sum(
        sizeof(entry) + sizeof(entry.text) + sizeof(entry.context) + sizeof(entry.numbers) for entry in ledger.entries
    )


def _rules(rules: Rules) -> int:
    return sum(sys.getsizeof(rule) + sys.getsizeof(rule.text) for rule in rules.entries)
