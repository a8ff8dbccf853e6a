"""The summarizer that asks no model: one reading of any length, no floors, a deadline."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from abridged.service.domain.events import ErrorClass
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy
from abridged.service.domain.record import Provenance
from abridged.service.summarizer.summarizer import PassFailed
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.summarizers import Heard, by_extraction, work_on
from tests.unit.extraction.corpora import PLANNING

CRANE = "The harbour crane 17 lifted container MSKU4711 at noon. "
LARGE = (Message("m", Role.USER, CRANE * 9_000),)


def long_chat(turns: int) -> list[Message]:
    """Turns of about 260 tokens, none of which repeats another."""
    text = "The importer reads table orders_{0} at 10.0.{1}.7 on host db-{0:02d}; Maria saw error E{0} in week {1}. "
    return [Message(f"m{n}", Role.USER, text.format(n, n % 250) * 8) for n in range(turns)]


async def test_a_source_of_any_length_is_read_in_one_go():
    """32,000 tokens are one reading where `max_input_tokens` would have a model read five parts and a merge."""
    messages = long_chat(130)
    tokens = sum(EstimatingCounter().count(message.content) for message in messages)
    heard = Heard()

    made = await by_extraction().summarize(work_on(messages, Policy(max_input_tokens=8_000)), heard)

    assert tokens > 32_000
    assert heard.done == [(0, 1), (1, 1)]
    assert made.provenance is Provenance.EXTRACTIVE
    assert "orders_0" in made.draft.summary + "".join([*made.draft.key_points, *made.draft.domain_entities])


@pytest.mark.parametrize("in_ledger", [frozenset(), frozenset({"ops-4711"})])
async def test_identifiers_are_names_where_no_ledger_shows_them(in_ledger):
    """A ledger without room for a single one shows as little as none."""
    work = replace(work_on(PLANNING), ledger_beside=lambda _text, _tokens: in_ledger)

    made = await by_extraction().summarize(work, Heard())

    assert ("OPS-4711" in made.draft.domain_entities) is not bool(in_ledger)


async def test_no_model_is_heard_of():
    """No attempt, no completion, and so no tokens that a model would have read or written."""
    heard = Heard()

    made = await by_extraction().summarize(work_on(PLANNING), heard)

    assert (heard.attempts, heard.answers) == ([], [])
    assert (made.attempts, made.tried) == (0, ("extractive:default",))


async def test_an_extract_has_no_floors():
    """The extract is the way out of a full window; asked again it says the same, and nothing stands in for it."""
    strict = Policy(min_grounded_share=1.0, min_coverage=1.0, min_identifier_survival=1.0, max_repetition=0.001)

    made = await by_extraction().summarize(work_on(PLANNING, strict), Heard())

    assert made.draft.summary


async def test_an_extract_that_fails_the_checks_is_no_record():
    """Words of the prompt that a conversation repeats must not become a record of it; no text is in the reasons."""
    echo = "Copy identifiers, file names, numbers, dates, amounts and versions exactly as they stand in the source. "

    with pytest.raises(PassFailed) as failed:
        await by_extraction().summarize(work_on([Message("m", Role.USER, echo)]), Heard())

    failure = failed.value
    assert (failure.error_class, failure.retryable, failure.asked) == (ErrorClass.INVALID, False, False)
    assert failure.reasons
    assert "file names" in failure.output
    assert "file names" not in failure.cause


async def test_an_extract_is_cut_to_its_room():
    """Nobody can be asked to write it again."""
    work = work_on(PLANNING)
    small = replace(work, plan=replace(work.plan, summary_tokens_max=36, room_tokens=36))

    made = await by_extraction().summarize(small, Heard())

    assert 0 < made.tokens <= 36
    assert made.draft.summary


async def test_the_event_loop_goes_on_during_a_large_extract():
    """Other conversations are served meanwhile."""
    under_way = asyncio.create_task(by_extraction().summarize(work_on(LARGE), Heard()))
    turns = 0
    while not under_way.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns > 10
    assert (await under_way).draft.summary


async def test_an_extract_that_is_late_may_be_tried_again():
    """The pass goes on without waiting for the thread."""
    with pytest.raises(PassFailed) as failed:
        await by_extraction(deadline_s=0.001).summarize(work_on(LARGE), Heard())

    assert (failed.value.error_class, failed.value.retryable) == (ErrorClass.TRANSPORT, True)


async def test_extraction_never_remakes_records():
    """The records of a wanted extraction stand in for nothing."""
    assert not await by_extraction().has_time()
