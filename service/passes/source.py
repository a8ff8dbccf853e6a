"""Reads the source of a pass: its messages, or the records that it merges, from the window or from the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from abridged.eventlog.event import StreamId
from abridged.service.conversations.conversation_log import ConversationLog
from abridged.service.domain.clearing import clearable, freed_tokens
from abridged.service.domain.conversation import Conversation, ShownRecord, record_named
from abridged.service.domain.events import MessageAppended, PassPlan, Trigger
from abridged.service.domain.ledger import NOTHING_FOUND, LedgerFinds
from abridged.service.domain.message import Message, Role
from abridged.service.domain.ranges import covers, partitioned, ranges_of, without
from abridged.service.domain.receipt import Leaving
from abridged.service.domain.record import FormName, MessageRange
from abridged.service.domain.rules import NO_RULES_FOUND, RuleFinds
from abridged.service.domain.sent_chat import sent_up_to
from abridged.service.domain.sizes import ledger_limits, ledger_tokens, ledger_tokens_max, rules_tokens_max
from abridged.service.domain.tokens import TokenCounter, calibrated_tokens
from abridged.service.domain.told_answers import numbers_before_answers, without_answer
from abridged.service.summarizer.summarizer import PassWork

SOURCE_MESSAGES_MAX: Final = 100_000


class PassSource:
    """Reads what passes summarize. `counter` counts the ledger's identifiers and the standing rules."""

    def __init__(self, log: ConversationLog, counter: TokenCounter) -> None:
        self._log = log
        self._counter = counter

    async def work(self, key: StreamId, state: Conversation, plan: PassPlan) -> PassWork:
        """Read the work of a plan that was made of this state, or of an earlier one of its epoch."""
        merged = _merged(state, plan)
        return await self.with_finds(
            key,
            state,
            PassWork(
                key.name,
                plan,
                tuple(map(_as_message, merged)) if merged else await self._chat(key, state, plan.source),
                record_named(state, plan.base_id) if plan.base_id else None,
                state.settings.model,
                record_named(state, plan.replaces_id) if plan.replaces_id else None,
                state.settings.calibration_factor,
                overlap=await self._chat(key, state, plan.overlap) if plan.overlap else (),
                merged=merged,
                redone=_redone(state, plan),
                sent=partial(sent_up_to, state, plan),
            ),
        )

    async def with_finds(self, key: StreamId, state: Conversation, work: PassWork) -> PassWork:
        """Return the work with what is read of the texts that leave the window by its plan, as they were appended.

        A remake takes no message out of the window.
        """
        plan = work.plan
        leaving: Sequence[MessageAppended] = ()
        staying: Sequence[MessageAppended] = ()
        if plan.trigger is not Trigger.REMAKE:
            inside, staying = partitioned(state.window, without(plan.covered, ranges_of(state.pins)))
            ranges = ranges_of(m.number for m in inside)
            leaving = await self._chat(key, state, ranges) if ranges else ()
        finds, rules, read = await asyncio.to_thread(self._read, state, plan, leaving, staying)
        beside = partial(_ledger_beside, state, plan, finds)
        return replace(work, finds=finds, ledger=state.ledger, rules=rules, leaving=read, ledger_beside=beside)

    def _read(
        self,
        state: Conversation,
        plan: PassPlan,
        leaving: Sequence[MessageAppended],
        staying: Sequence[MessageAppended],
    ) -> tuple[LedgerFinds, RuleFinds, Leaving]:
        """Read the messages for the ledger and the rules, each as far as the policy has room, and for the receipt."""
        from abridged.service.domain.leaving import Hearing, replaced_texts
        from abridged.service.extraction.decided import decided_in
        from abridged.service.summarizer.finds import finds_of, rules_in

        heard = Hearing(leaving, staying)
        counter = self._counter.of(state.settings.model)
        source = counter.source_for(state.settings.model)
        finds, rules = (
            finds_of(leaving, staying, state.ledger, counter=counter, source=source, heard=heard),
            NO_RULES_FOUND,
        )
        is_remake = plan.trigger is Trigger.REMAKE
        if not is_remake and rules_tokens_max(state, plan.policy):
            rules = rules_in(leaving, staying, state.rules, finds.replaced, counter=counter, source=source)
        if is_remake or not ledger_tokens_max(state, plan.policy):
            finds = NOTHING_FOUND
        return finds, rules, heard.leaving(replaced_texts(state, plan), decided_in(leaving))

    async def _chat(
        self, key: StreamId, state: Conversation, ranges: tuple[MessageRange, ...]
    ) -> tuple[MessageAppended, ...]:
        """The messages of these ranges, from the window if it has them all as they were appended, else from the log."""
        inside, _ = partitioned(state.window, ranges)
        messages: Sequence[MessageAppended] = inside
        if len(inside) < sum(map(len, ranges)) or any(m.cleared_tokens for m in inside):
            messages = await self._log.originals(key, state, limit=SOURCE_MESSAGES_MAX, within=ranges)
        return await self._without_answers(key, state, [m for m in messages if m.message.role is not Role.SYSTEM])

    async def _without_answers(
        self, key: StreamId, state: Conversation, messages: Sequence[MessageAppended]
    ) -> tuple[MessageAppended, ...]:
        """The messages with masks for the secrets of those that answer the message before them, which may have left."""
        asking = list(numbers_before_answers(messages))
        if not asking:
            return tuple(messages)
        known = {m.number: m for m in (*state.window, *messages)}
        for number in asking:
            if number not in known:
                read = await self._log.originals(key, state, limit=1, within=ranges_of((number,)))
                known |= {m.number: m for m in read}
        return tuple(without_answer(m, known.get(m.number - 1)) for m in messages)


def _redone(state: Conversation, plan: PassPlan) -> int:
    """Count the times that a model may have been asked for the range: by the passes that failed since the last success,
    and for a fallback record by the pass that it ended and its earlier remakes. Each of them may have been prepared,
    too."""
    remakes = 1 + state.remakes.get(plan.replaces_id, 0) if plan.replaces_id else 0
    return 2 * (state.failures_in_row + remakes)


def _merged(state: Conversation, plan: PassPlan) -> tuple[ShownRecord, ...]:
    if plan.form is not FormName.DIGEST:
        return ()
    found = (record_named(state, name) for name in plan.merged_ids)
    return tuple(ShownRecord(r, state.sources[r.id], short=bool(r.short_summary)) for r in found if r)


def _ledger_beside(state: Conversation, plan: PassPlan, finds: LedgerFinds, text: str, tokens: int) -> frozenset[str]:
    marks = [mark for mark in clearable(state, plan.policy) if not covers(plan.covered, mark.number)]
    without = state.window_tokens - ledger_tokens(state) - plan.replaced_tokens - freed_tokens(state, marks)
    tokens = calibrated_tokens(tokens, max(1.0, state.settings.calibration_factor))
    limit, _ = ledger_limits(state, plan.policy, window_tokens=without + tokens, record_tokens=tokens)
    ledger = state.ledger.after(finds._replace(limit_tokens=limit, memory_tokens=limit), text)
    return frozenset(entry.key for entry in ledger.in_window)


def _as_message(shown: ShownRecord) -> MessageAppended:
    """A record as a message of a transcript, with the number of its first message."""
    record = shown.record
    text = record.short_summary if shown.short else record.summary
    message = Message(id=record.id, role=Role.ASSISTANT, content=text)
    return MessageAppended(record.covered[0].first, message, shown.tokens, shown.source)
