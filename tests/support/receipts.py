"""Receipts checked by other means than they are made by: the texts of a window, a record and a call, read over a
channel.

Invariant: nothing here looks anything up by the code that makes receipts; a name is found by an expression of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from abridged.service.codec.events import fact_of
from abridged.service.codec.values import message_to_proto
from abridged.service.domain.conversation import Conversation, initial_state
from abridged.service.domain.events import MessageAppended, SummarizationCompleted, Trigger
from abridged.service.domain.fold import evolve
from abridged.service.domain.leaving import Hearing, replaced_texts
from abridged.service.domain.ledger import Use
from abridged.service.domain.ledger_entries import found_in
from abridged.service.domain.message import Message, Role
from abridged.service.domain.receipt import Leaving, Named, ReceiptPlace
from abridged.service.domain.whereabouts import Whereabouts, receipt_of, whereabouts_of
from abridged.service.extraction.decided import decided_in
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2, message_pb2
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import Chat

_EDGE = r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\uffef]"


_FRAME = re.compile(r"\A.*\n| \[\d+\]$|^\d+ more rules: .*$", re.MULTILINE)
"""Words of the sidecar's own: the messages that a record covers, and those of standing rules."""


class Accounted(NamedTuple):
    """A pass as the log tells it: the state after it, and where everything is by the receipt's own reckoning."""

    after: Conversation
    whereabouts: Whereabouts


async def played(chat: Chat, messages: Iterable[Message]) -> tuple[Counter[ReceiptPlace], list[str]]:
    """Append the messages one by one, and look after each pass where its identifiers are. Returns how many were looked
    for by place, and those that are not where the receipt says."""
    looked: Counter[ReceiptPlace] = Counter()
    wrong: list[str] = []
    log = _Log(chat)
    for message in messages:
        await chat.append(message_to_proto(message), wait_s=PATIENCE_S)
        for accounted in await log.new_passes():
            window = await _Window.now(chat, accounted.after)
            found = accounted.whereabouts
            ruled = ((place, Named(one.text, one.number, Use.USER)) for place, one in found.rules.values())
            for place, named in (*found.names.values(), *ruled):
                looked[place] += 1
                if not await window.holds(place, named):
                    wrong.append(f"{chat.id}: {named.text} [{named.number}] is not {place}")
    return looked, wrong


class _Log:
    """The conversation's events, folded as they come."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._state = initial_state()
        self._messages: dict[int, MessageAppended] = {}
        self._read = 0

    async def new_passes(self) -> list[Accounted]:
        """The newest pass that made a record, if the window has not changed since; its event's receipt is checked."""
        found: list[Accounted] = []
        stub = self._chat.sidecar.event_log
        request = event_log_service_pb2.ReadEventsRequest(conversation_id=self._chat.id, after=self._read, limit=500)
        for event in (await stub.ReadEvents(request, timeout=PATIENCE_S)).events:
            self._read = event.version
            fact, before = fact_of(event), self._state
            assert fact is not None
            if isinstance(fact, MessageAppended):
                self._messages[fact.number] = fact
            self._state = evolve(self._state, fact, 0)
            if isinstance(fact, SummarizationCompleted):
                read = self._read_again(before, self._state)
                assert receipt_of(before, self._state, read) == fact.receipt
                found = [Accounted(self._state, whereabouts_of(before, self._state, read))]
        return found

    def _read_again(self, before: Conversation, after: Conversation) -> Leaving:
        plan = before.pending
        assert plan is not None
        is_remake = plan.trigger is Trigger.REMAKE
        stays = {m.number for m in after.window}
        gone = [m.number for m in before.window if m.number not in stays and not is_remake]
        leaving = [self._messages[n] for n in gone if self._messages[n].message.role is not Role.SYSTEM]
        staying = () if is_remake else [m for m in before.window if m.number in stays]
        heard = Hearing(leaving, staying)
        found_in(leaving, staying, before.ledger, heard)
        return heard.leaving(replaced_texts(before, plan), decided_in(leaving))


class _Window:
    """The window after a pass, as GetContext returns it, with the records that it shows."""

    def __init__(
        self, chat: Chat, context: Any, records: Sequence[Any], rules: Sequence[str], pins: frozenset[int]
    ) -> None:
        self._chat = chat
        summary = [_FRAME.sub("", m.message.content) for m in context.messages if not m.number]
        self._summary = _folded(summary)
        self._said = _folded(_texts(m.message) for m in context.messages if m.number and m.number not in pins)
        self._pinned = _folded(_texts(m.message) for m in context.messages if m.number in pins)
        self._records = _folded(_as_shown(record, summary) for record in records)
        self._rules = _folded(rules)
        self._ledger = _folded(f"{entry.context}{entry.text}{entry.rest}" for entry in context.ledger)

    @classmethod
    async def now(cls, chat: Chat, after: Conversation) -> _Window:
        context = await chat.context(with_ledger=True)
        assert (context.epoch, context.message_version) == (after.epoch, after.message_version)
        shown = {m.message.id for m in context.messages if not m.number}
        records = [record for record in await chat.summaries() if record.id in shown]
        request = api.ListRulesRequest(conversation_id=chat.id, page_size=500)
        ruled = (await chat.sidecar.conversations.ListRules(request, timeout=PATIENCE_S)).rules
        return cls(chat, context, records, [rule.text for rule in ruled if rule.shown], after.pins)

    async def holds(self, place: ReceiptPlace, named: Named) -> bool:
        """Return whether an identifier is where the receipt says, and nowhere that lasts longer."""
        pinned, recorded = _say(self._pinned, named.text), _say(self._records, named.text)
        listed, said = _say(self._ledger, named.text), _say(self._said, named.text)
        match place:
            case ReceiptPlace.PINNED:
                return pinned
            case ReceiptPlace.RECORD:
                return recorded and _say(self._summary, named.text) and not pinned
            case ReceiptPlace.LEDGER:
                return listed and _say(self._summary, named.text) and not (pinned or recorded)
            case ReceiptPlace.RULES:
                ruled = _say(self._rules, named.text) and _say(self._summary, named.text)
                return ruled and not (pinned or recorded or listed)
            case ReceiptPlace.WINDOW:
                return said and not (pinned or _say(self._summary, named.text))
            case ReceiptPlace.REACHABLE:
                seen = pinned or said or _say(self._summary, named.text)
                return not seen and await self._is_returned(named)
            case _:
                return False

    async def _is_returned(self, named: Named) -> bool:
        """Return whether ExpandSummary returns a message, or GetSummary a record, with every word of the identifier."""
        stub = self._chat.sidecar.conversations
        if not named.number:
            return any(_has_words(_record_texts(record), named.text) for record in await self._chat.summaries())
        numbers = api.MessageNumbers(numbers=[named.number])
        request = api.ExpandSummaryRequest(conversation_id=self._chat.id, numbers=numbers)
        answer = await stub.ExpandSummary(request, timeout=PATIENCE_S)
        return any(_has_words(_texts(m.message), named.text) for m in answer.messages)


def _folded(texts: Iterable[str]) -> list[str]:
    return [text.casefold() for text in texts]


def _texts(message: message_pb2.Message) -> str:
    return "\n".join((message.content, *(call.arguments for call in message.tool_calls)))


def _as_shown(record: Any, summary: Iterable[str]) -> str:
    """The record's texts, or only its short one, by which the window shows older episodes."""
    is_whole = any(record.summary in text for text in summary)
    return _record_texts(record) if is_whole else str(record.short_summary)


def _record_texts(record: Any) -> str:
    context = record.context
    listed = [s.text for s in (*record.key_points, *context.decisions, *context.unresolved)]
    items = [" ".join((item.task, item.owner, item.due)) for item in context.action_items]
    return "\n".join(
        (record.summary, record.short_summary, *listed, *items, *context.participants, *context.domain_entities)
    )


def _say(texts: Iterable[str], name: str) -> bool:
    """Return whether a text has the name by itself. The texts are casefolded."""
    path = "" if {"/", "."} & set(name) else "/"
    before = _may_precede(path, bool(re.match(_EDGE, name)), name[0].isdigit())
    behind = _may_follow(path, bool(re.match(_EDGE, name[-1])), name[-1].isdigit())
    folded = name.casefold()
    return any(
        before.match(text, at) and behind.match(text, at + len(folded))
        for text in texts
        for at in _places(text, folded)
    )


def _places(text: str, name: str) -> Iterator[int]:
    at = text.find(name)
    while at >= 0:
        yield at
        at = text.find(name, at + 1)


@cache
def _may_precede(path: str, is_word: bool, is_number: bool) -> re.Pattern[str]:
    """Match at a place before which a name may begin."""
    word = rf"(?<!{_EDGE})(?<!{_EDGE}\.)" if is_word else ""
    number = r"(?<!\d[,:'\u2019])" if is_number else ""
    return re.compile(rf"(?<![-_{path}@#]){word}{number}")


@cache
def _may_follow(path: str, is_word: bool, is_number: bool) -> re.Pattern[str]:
    """Match at a place at which a name may end."""
    word = rf"(?!\.?{_EDGE})" if is_word else ""
    number = r"(?![,:'\u2019]\d)" if is_number else ""
    return re.compile(rf"{word}{number}(?![-_{path}@#])")


def _has_words(text: str, name: str) -> bool:
    folded = text.casefold()
    return all(word in folded for word in re.findall(r"\w+", name.casefold()))
