"""A draft beside its source, the record before it and the record it would replace: named reasons that hold no text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy, ToolOutput
from abridged.service.domain.record import MessageRange, Provenance, SummaryRecord
from abridged.service.models.model import CompletionRequest
from abridged.service.models.scripted.model import default_answer
from abridged.service.prompts.prompt import CHAIN_TEMPLATE, PromptInput, prompt_of, repair_text, transcript_entry
from abridged.service.summarizer.check import CheckedDraft, Source, check_draft
from abridged.service.summarizer.draft import Draft, parsed
from tests.support.answers import record
from tests.support.junk import CHATS

GARDEN = CHATS["garden"]
INCIDENT = CHATS["incident"]


def messages(texts: Sequence[str]) -> tuple[Message, ...]:
    return tuple(Message(f"m{n}", Role.USER if n % 2 else Role.ASSISTANT, text) for n, text in enumerate(texts, 1))


def source(texts: Sequence[str], **fields: Any) -> Source:
    given: dict[str, Any] = {"texts": (), "previous": None, "instructions": CHAIN_TEMPLATE.system}
    return Source.of(messages(texts), **(given | fields))


def committed(answer: str, provenance: Provenance = Provenance.MODEL) -> SummaryRecord:
    """The record of an answer."""
    draft: Draft = parsed(answer)
    return SummaryRecord(
        id="r", create_time_us=1, depth=0, parent_id="", summary=draft.summary, key_points=draft.highlights,
        context=draft.context, covered=(MessageRange(1, 9),), tokens_before=900, tokens_after=300, model="m",
        prompt_name="", prompt_version="", provenance=provenance, attempts=1, latency_ms=1,
    )  # fmt: skip


def judged(answer: str, beside: Source) -> CheckedDraft:
    return check_draft(parsed(answer), beside)


def codes(answer: str, beside: Source) -> list[str]:
    return [problem.partition(":")[0] for problem in judged(answer, beside).problems]


HONEST = json.dumps(INCIDENT.honest)
VAGUE = record(
    "The invoice workers held transactions open while the tax engine waited behind a migration; the commander rolled "
    "the worker back, both stuck pods were deleted, and the queue began to drain. Finance accepts the rounding. "
    "The runbook asks for a cancel, never a terminate, and the cache refreshes under a lock without any deadline.",
)
"""Honest, but without a single identifier."""


@pytest.mark.parametrize("summary", ["{{message 1}}", "{id}", "[transcript]"])
def test_lists_without_a_narrative_are_no_record(summary: str):
    """A real small model filled the lists and left a field name of its own where the summary belongs."""
    lists = {name: items for name, items in GARDEN.honest.items() if name != "summary"}

    assert codes(record(summary, **lists), source(GARDEN.first)) == ["placeholder"]


def test_a_remake_that_keeps_fewer_identifiers_than_the_extract_is_refused():
    """The remake may lose nothing of the fallback record; the setting takes any remake."""
    fallback = committed(HONEST, Provenance.EXTRACTIVE)
    beside = source(INCIDENT.first, replaces=fallback)

    assert codes(VAGUE, source(INCIDENT.first)) == []
    assert codes(VAGUE, beside) == ["worse"]
    assert codes(HONEST, beside) == []
    assert codes(VAGUE, source(INCIDENT.first, replaces=fallback, policy=Policy(min_remake_share=0.0))) == []


def test_a_remake_that_tells_less_of_the_source_is_refused():
    """The remake may still name as much."""
    parts = json.loads(HONEST)
    names = " ".join([parts["summary"], *parts["key_points"], *parts["domain_entities"], *parts["decisions"]])
    fallback = committed(HONEST)
    beside = source([*INCIDENT.first, *GARDEN.first, *INCIDENT.later], replaces=fallback)
    wider = committed(record(names, decisions=GARDEN.honest["decisions"], key_points=GARDEN.honest["key_points"]))
    replaced = source([*INCIDENT.first, *GARDEN.first, *INCIDENT.later], replaces=wider)

    assert codes(HONEST, beside) == []
    assert codes(record(parts["summary"]), replaced) == ["worse"]


def test_a_record_that_only_repeats_its_parent_is_refused():
    """The source must say something new; small talk may be left out."""
    answer = json.dumps(GARDEN.honest)
    parent = committed(answer)

    assert codes(answer, source(GARDEN.later, previous=parent)) == ["unchanged"]
    assert codes(answer, source(["Thank you, Walter says hello.", "You are welcome!"], previous=parent)) == []


@pytest.mark.parametrize(
    "talk",
    [
        "Here is the corrected JSON about Eleanor, her Marmande tomatoes and the straw.",
        "The previous answer was not accepted; Eleanor's Marmande tomatoes have blight and get straw.",
        "Eleanor's tomatoes are in key_points as the required format asks, straw and blight too.",
    ],
)
def test_talk_about_the_repair_is_refused_unless_the_conversation_is_about_such_things(talk: str):
    """A chat about a JSON schema may have a summary about one."""
    assert "format_talk" in codes(record(talk), source(GARDEN.first))
    assert codes(record(talk), source([*GARDEN.first, "Put key_points into the JSON schema, Eleanor."])) == []


def test_the_reasons_tell_a_model_what_to_mend_and_hold_no_text():
    """Names and counts alone: they go into events, logs and the repair prompt."""
    parent = committed(json.dumps(GARDEN.honest))
    wiped = record("One Marmande fruit has blossom end rot from uneven watering, and the basil only had thrips.")
    (reason,) = judged(wiped, source(GARDEN.later, previous=parent)).problems
    generic = judged(record("The user and the assistant discussed several topics."), source(GARDEN.first)).problems

    assert reason == (
        "dropped: drops 3 of 3 decisions of the earlier summary without saying what became of them"
    )  # fmt: skip
    assert generic[0].startswith("generic: names none of the source's own words, and needs 4")
    assert not {"marmande", "philona", "walter", "thrips"} & set(
        repair_text([reason, *generic], "Again.").lower().split()
    )


@pytest.mark.parametrize("summary", ["Booking moved.", "The booking moves to May 20.", "Moved to May 20."])
def test_a_short_source_asks_for_little(summary: str):
    """Three short messages are thin evidence, so a terse record of them stands."""
    beside = source(["Please move my booking.", "To which day?", "May 20."])

    assert codes(record(summary), beside) == []


def test_survival_is_of_what_is_required_and_of_everything_apart():
    """A raw tool result is no debt of the summary."""
    rows = Message("t", Role.TOOL, json.dumps([{"id": f"ROW{n}X"} for n in range(500)]), tool_call_id="c")
    beside = Source.of(
        (*messages(["Find my row please.", "It is ROW7X, I moved it."]), rows), texts=(), previous=None, instructions=""
    )

    quality = judged(record("The row ROW7X was found and moved."), beside).quality(beside, reduction=0.5)

    assert quality.identifier_survival == 1.0
    assert quality.all_identifier_survival == pytest.approx(1 / 500)


def test_an_operator_can_ask_for_a_share_of_the_identifiers():
    """Off by default, because small models write honest summaries without any."""
    asked = source(INCIDENT.first, policy=Policy(min_identifier_survival=0.2))

    assert codes(VAGUE, asked) == ["lost_identifiers"]
    assert codes(HONEST, asked) == []


def test_the_scripted_models_own_answer_is_honest_in_every_language():
    """The model of demonstrations and tests passes the floors, with first records and later ones."""
    for chat in CHATS.values():
        first = messages(chat.first)
        answer = default_answer(request(first))
        assert codes(answer, source(chat.first)) == [], chat.name
        if chat.later:
            parent = committed(answer)
            again = default_answer(request(messages(chat.later), parent))
            assert codes(again, source(chat.later, previous=parent)) == [], chat.name


def test_the_scripted_models_answer_says_something_new_however_small_it_is():
    """The record before it may fill the room."""
    parent: SummaryRecord | None = None
    for begin in range(0, 60, 10):
        text = "Release r{0} of billing_api moves host db_{0}, since step migrate_{0} failed with error E{0}."
        texts = [text.format(n) for n in range(begin, begin + 10)]
        answer = default_answer(request(messages(texts), parent, tokens_max=128))
        assert codes(answer, source(texts, previous=parent)) == []
        parent = committed(answer)


def request(
    said: Sequence[Message], previous: SummaryRecord | None = None, *, tokens_max: int = 300
) -> CompletionRequest:
    entries = tuple(
        transcript_entry(n, m, tool_output=ToolOutput.FULL, cap_tokens=1_000, count=len) for n, m in enumerate(said, 1)
    )
    prompt = prompt_of(CHAIN_TEMPLATE, PromptInput(entries, previous, len(said), 100, 0, tokens_max))
    return CompletionRequest(
        system=prompt.system, user=prompt.user, schema={}, prompt_tokens=0, output_tokens_max=1_000,
        summary_tokens_max=tokens_max, temperature=0.0, seed=1,
    )  # fmt: skip


def test_an_item_of_a_list_stays_one_line():
    """A mark of a chat template ends a sentence, and no item."""
    task = {"task": "Put <|im_end|>straw under", "owner": "", "due": "on<|eot_id|>Monday"}
    said = "Keep the straw. Eleanor, put straw under on Monday."
    answer = json.dumps(GARDEN.honest | {"decisions": ["Keep the<|im_end|>straw."], "action_items": [task]})

    clean = judged(answer, source([*GARDEN.first, said])).draft

    assert clean.decisions == ["Keep the straw."]
    assert [(item.task, item.due) for item in clean.action_items] == [("Put straw under", "on Monday")]
