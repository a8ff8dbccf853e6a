"""Makes the receipt of a pass: the places of the messages, identifiers, decisions and rules that it takes out of the
window.

A place is judged by the texts that the window sends, and REACHABLE by the rule of ExpandSummary, so that a receipt says
what a reader would find. The work is linear in what leaves and in the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.ledger import Use, ledger_lines
from abridged.service.domain.material import read_text
from abridged.service.domain.message import Role
from abridged.service.domain.quoting import quoted
from abridged.service.domain.ranges import covers, partitioned, ranges_of, without
from abridged.service.domain.receipt import (
    ITEMS_MAX,
    Decided,
    Leaving,
    Named,
    Receipt,
    ReceiptItem,
    ReceiptKind,
    ReceiptLine,
    ReceiptPlace,
)
from abridged.service.domain.record import statements_of
from abridged.service.domain.render import said_text
from abridged.service.text.naming import Names

_USES: Final = tuple(Use)
_HIDDEN: Final = (ReceiptPlace.REACHABLE, ReceiptPlace.GONE)
"""The places of which a receipt names things: a reader of the window does not see them."""


class Whereabouts(NamedTuple):
    """The place of everything that a pass took out of the window: messages by number, the others by key."""

    messages: Mapping[int, ReceiptPlace]
    names: Mapping[str, tuple[ReceiptPlace, Named]]
    decisions: Mapping[str, tuple[ReceiptPlace, Decided]]
    rules: Mapping[str, tuple[ReceiptPlace, Decided]]


def receipt_of(before: Conversation, after: Conversation, leaving: Leaving) -> Receipt:
    """The receipt of a pass with a record that found the window as it was `before`, and left it as it is `after`."""
    found = whereabouts_of(before, after, leaving)
    names = sorted(found.names.values(), key=lambda one: (_USES.index(one[1].use), -one[1].number))
    return Receipt(
        (
            *_message_lines(found.messages),
            *_lines(ReceiptKind.IDENTIFIER, ((place, ReceiptItem(one.text, one.number)) for place, one in names)),
            *_sentence_lines(ReceiptKind.DECISION, found.decisions),
            *_sentence_lines(ReceiptKind.RULE, found.rules),
        )
    )


def receipt_of_clearing(before: Conversation, after: Conversation) -> Receipt:
    """The receipt of a pass that needed no record. The receipt counts messages alone: to read the texts of cleared
    results would hold up the append that the pass is a part of."""
    return Receipt(tuple(_message_lines(dict(_message_places(_cleared(before, after), after)))))


def whereabouts_of(before: Conversation, after: Conversation, leaving: Leaving) -> Whereabouts:
    """The place of each thing that left between two states, of which the second has one more record."""
    names = {**_names_beside(before, after, leaving), **leaving.names}
    rules = _new_rules(before, after)
    late = Names([*(key for key in names if key not in leaving.names), *rules])
    found: dict[str, ReceiptPlace] = {}
    for place, texts in _texts_by_place(after):
        for key in (*leaving.index.of(texts), *late.of(texts)):
            found.setdefault(key, place)
    return Whereabouts(
        dict(_message_places([*_left(before, after), *_cleared(before, after)], after)),
        {key: (found.get(key) or _out_of_sight(after, one.number), one) for key, one in names.items()},
        {key: (found.get(key) or _decision_place(after, one), one) for key, one in leaving.decisions.items()},
        {key: (found.get(key) or _out_of_sight(after, one.number), one) for key, one in rules.items()},
    )


def _new_rules(before: Conversation, after: Conversation) -> dict[str, Decided]:
    """The rules that hold and that the pass found in messages that leave, by key; not the tentative ones."""
    known = {rule.name for rule in before.rules.entries}
    new = (rule for rule in after.rules.entries if rule.stands and not rule.is_tentative and rule.name not in known)
    return {rule.text.casefold(): Decided(rule.text, rule.number) for rule in new}


def _names_beside(before: Conversation, after: Conversation, leaving: Leaving) -> dict[str, Named]:
    """The identifiers that leave with the ledger's entries, and with the results that the pass clears."""
    from abridged.service.domain.leaving import names_of

    shown = {entry.key for entry in after.ledger.in_window}
    dropped = (entry for entry in before.ledger.in_window if entry.key not in shown)
    names = {entry.key: Named(entry.text, entry.numbers[-1], entry.use) for entry in dropped}
    for m in _cleared(before, after):
        # The pass has not read what came while it ran.
        read = leaving.results.get(m.number)
        names |= names_of(m) if read is None else read
    return names


def _texts_by_place(after: Conversation) -> Iterator[tuple[ReceiptPlace, list[str]]]:
    """The texts that the window sends, by the places where they are, in the order of `ReceiptPlace`."""
    pinned, _ = partitioned(after.window, ranges_of(after.pins))
    yield ReceiptPlace.PINNED, list(_texts(pinned))
    yield ReceiptPlace.RECORD, [said_text(shown) for shown in after.shown]
    yield ReceiptPlace.LEDGER, [quoted("\n".join(ledger_lines(after.ledger)))] if after.shown else []
    yield ReceiptPlace.RULES, [quoted(rule.text) for rule in after.rules.in_window] if after.shown else []
    yield ReceiptPlace.WINDOW, list(_texts(_newest(after) if after.passes[-1].plan.cut else after.window))


def _newest(after: Conversation) -> Iterator[MessageAppended]:
    """The system messages, and the newest others that the budget has room for: what is older waits for the pass that
    follows, and each of many would read it again."""
    if len(after.window) > after.chat_messages:
        yield from (m for m in after.window if m.message.role is Role.SYSTEM)
    tokens = 0
    for m in reversed(after.window):
        tokens += m.tokens
        if tokens > after.budget:
            return
        yield m


def _texts(messages: Iterable[MessageAppended]) -> Iterator[str]:
    for m in messages:
        yield read_text(m.message)
        yield from (call.arguments for call in m.message.tool_calls)


def _left(before: Conversation, after: Conversation) -> list[MessageAppended]:
    """The messages that the newest record took out of the window; a remake's takes out none."""
    covered = without(after.records[-1].covered, ranges_of(before.pins))
    left, _ = partitioned(before.window, covered)
    return left


def _cleared(before: Conversation, after: Conversation) -> list[MessageAppended]:
    """The results that a mark took the place of, as they were."""
    cleared, _ = partitioned(before.window, ranges_of(after.marks.keys() - before.marks.keys()))
    return cleared


def _message_places(messages: Iterable[MessageAppended], after: Conversation) -> Iterator[tuple[int, ReceiptPlace]]:
    """The places of messages: in the record if a statement rests on one, in the ledger if an entry names it."""
    stated = _rested_on(after)
    listed = {number for entry in after.ledger.in_window for number in entry.numbers}
    for m in messages:
        if m.number in stated:
            yield m.number, ReceiptPlace.RECORD
        elif m.number in listed:
            yield m.number, ReceiptPlace.LEDGER
        else:
            yield m.number, _out_of_sight(after, m.number)


def _rested_on(after: Conversation) -> set[int]:
    """The messages that a statement in the window rests on; an episode's short text has no statements."""
    whole = (shown.record for shown in after.shown if not shown.short)
    return {number for record in whole for _, numbers in statements_of(record) for number in numbers}


def _decision_place(after: Conversation, decided: Decided) -> ReceiptPlace:
    """The place of a decision that no text of the window says word by word."""
    evidence = (shown.record.evidence.decisions for shown in after.shown if not shown.short)
    rests = any(decided.number in numbers for statements in evidence for numbers in statements)
    return ReceiptPlace.RECORD if rests else _out_of_sight(after, decided.number)


def _out_of_sight(after: Conversation, number: int) -> ReceiptPlace:
    """Return REACHABLE if ExpandSummary returns the message, GONE otherwise; a record without one is returned by
    GetSummary for ever."""
    is_kept = number <= after.message_version and not covers(after.removed, number)
    return ReceiptPlace.REACHABLE if is_kept else ReceiptPlace.GONE


def _message_lines(places: Mapping[int, ReceiptPlace]) -> Iterator[ReceiptLine]:
    newest_first = sorted(places.items(), reverse=True)
    return _lines(ReceiptKind.MESSAGE, ((place, ReceiptItem("", number)) for number, place in newest_first))


def _sentence_lines(kind: ReceiptKind, found: Mapping[str, tuple[ReceiptPlace, Decided]]) -> Iterator[ReceiptLine]:
    newest_first = sorted(found.values(), key=lambda one: -one[1].number)
    return _lines(kind, ((place, ReceiptItem(one.text, one.number)) for place, one in newest_first))


def _lines(kind: ReceiptKind, things: Iterable[tuple[ReceiptPlace, ReceiptItem]]) -> Iterator[ReceiptLine]:
    by_place: dict[ReceiptPlace, list[ReceiptItem]] = {}
    for place, item in things:
        by_place.setdefault(place, []).append(item)
    for place in ReceiptPlace:
        items = by_place.get(place)
        if items:
            named = tuple(items[:ITEMS_MAX]) if place in _HIDDEN else ()
            yield ReceiptLine(kind, place, len(items), named)
