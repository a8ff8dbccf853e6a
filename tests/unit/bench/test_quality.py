"""The quality measurement: its plants, the model that forgets, and its counts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from abridged.service.domain.events import Event
from abridged.service.domain.fold import fold
from abridged.service.domain.message import Message, Role
from abridged.service.domain.sequence import Sequence as Window
from abridged.service.models.model import CompletionRequest
from abridged.service.text.mentions import mentions
from abridged.service.text.secrets import contains_secret
from bench.player import MODEL_WINDOW
from bench.quality.facts import Fact, FactKind
from bench.quality.generator import GeneratedChat, generated
from bench.quality.lossy import LossyModel
from bench.quality.named_again import NamedAgain
from bench.quality.runs import HEADINGS, PROFILES, corpora_in, generated_corpus, lossy, row, runs_of
from bench.quality.survival import END, Survey, found_facts
from tests.support.chats import OPEN, appended, said

SEEDS = (1, 2, 31)
SMALL = {"chats": 1, "turns": 40, "facts": 20}


@pytest.fixture(params=SEEDS, scope="module")
def conversation(request) -> GeneratedChat:
    return generated(request.param)


def test_a_seed_gives_the_same_conversation_and_another_seed_another(conversation):
    """Figures of two runs differ only by the measured subject."""
    assert generated(SEEDS[0]) == generated(SEEDS[0])
    assert generated(SEEDS[0]).messages != generated(SEEDS[1]).messages


def test_a_planted_value_is_stated_where_it_should_be_and_nowhere_else(conversation):
    """The message that replaces a value may still state the old one."""
    for fact in conversation.facts:
        for number, message in enumerate(conversation.messages, 1):
            if number == fact.message:
                assert fact.is_attributed_in(message.content)
            elif number != fact.superseded_at:
                assert not fact.is_written_in(message.content), fact


def test_a_name_has_one_current_value_at_any_time(conversation):
    """A question about it has one right answer."""
    for at in range(1, len(conversation.messages) + 1, 10):
        names = [fact.anchor for fact in conversation.facts if fact.anchor and fact.is_current(at)]
        assert len(names) == len(set(names))


def test_a_conversation_has_all_that_it_promises(conversation):
    """Every kind of value, updates, pins, parallel calls with results, credentials, injections, decoys, Chinese."""
    contents = [message.content for message in conversation.messages]
    results = {m.tool_call_id for m in conversation.messages if m.role is Role.TOOL}
    calls = [call.id for m in conversation.messages for call in m.tool_calls]

    assert {fact.kind for fact in conversation.facts} == {*FactKind} - {FactKind.FOUND}
    assert any(fact.superseded_at for fact in conversation.facts)
    assert {fact.pinned for fact in conversation.facts if fact.kind is FactKind.RULE} == {True, False}
    assert all(conversation.messages[f.message - 1].pinned == f.pinned for f in conversation.facts)
    assert results == set(calls)
    assert any(len(message.tool_calls) > 1 for message in conversation.messages)
    for planted in (conversation.secrets, conversation.markers, conversation.decoys):
        assert len(planted) >= 3
        assert all(any(value in content for content in contents) for value in planted)
    assert all(contains_secret(f"The token is {secret} today.") for secret in conversation.secrets)
    assert any("。" in content for content in contents)
    assert any("```" in content for content in contents)


def test_a_value_beside_another_name_is_written_and_not_told():
    """A list of bare identifiers does not name their subjects."""
    fact = Fact(FactKind.TICKET, "ABC-1234", 1, "Lorima")

    assert fact.is_attributed_in("The tracking issue of Lorima is abc-1234.")
    assert fact.is_written_in("Names: ABC-1234")
    assert not fact.is_attributed_in("Names: ABC-1234")
    assert not fact.is_attributed_in("ABC-1234" + " word" * 60 + " Lorima")


def asked(text: str, *, tokens: int = 10_000, schema: dict[str, Any] | None = None) -> CompletionRequest:
    """The request for a record of a transcript."""
    return CompletionRequest(
        system="Condense.",
        user=f"<transcript>\n<message 1 user>\n{text}\n</transcript>",
        schema=schema,
        prompt_tokens=1,
        output_tokens_max=tokens,
        summary_tokens_max=tokens,
        temperature=0.0,
        seed=1,
        repeat_penalty=1.0,
        attempt=1,
        conversation_id="c",
        prompt_name="chain",
        prompt_version="1",
        compacted=False,
    )


async def answered(model: LossyModel, request: CompletionRequest) -> str:
    completion = await model.complete(request, deadline_s=1.0, on_progress=lambda _: None)
    return completion.text


SENTENCES = [f"The ticket of team {chr(65 + n % 26)}{n} is ABC-{1000 + n}." for n in range(400)]


async def test_the_lossy_model_forgets_its_share_with_every_rewriting():
    """Sentences left after n rewritings of the same text are the nth power of its chance."""
    model = LossyModel(kept=0.9, window=MODEL_WINDOW)
    text = " ".join(SENTENCES)
    left = []
    for _ in range(3):
        text = await answered(model, asked(text))
        left.append(sum(sentence in text for sentence in SENTENCES) / len(SENTENCES))

    assert left == [pytest.approx(0.9**n, abs=0.05) for n in (1, 2, 3)]


async def test_the_lossy_model_keeps_to_its_size_and_prefers_what_names_something():
    """Other sentences only fill the rest."""
    prose = "The weather was fine and nobody minded. " * 3
    short = await answered(LossyModel(kept=1.0, window=MODEL_WINDOW), asked(prose + " ".join(SENTENCES), tokens=100))
    long = await answered(LossyModel(kept=1.0, window=MODEL_WINDOW), asked(prose + " ".join(SENTENCES[:3])))

    assert 0 < sum(sentence in short for sentence in SENTENCES) < 15
    assert "weather" not in short
    assert all(sentence in long for sentence in SENTENCES[:3])
    assert "weather" in long


async def test_the_lossy_model_answers_in_the_form_it_is_asked_for():
    """The model answers as text, as a record, as an episode and as a digest."""
    model = LossyModel(window=MODEL_WINDOW)
    for fields in (("summary", "key_points"), ("short_summary", "long_summary"), ("summary",)):
        schema: dict[str, Any] = {"properties": {field: {} for field in fields}}
        answer = json.loads(await answered(model, asked(" ".join(SENTENCES[:9]), schema=schema)))
        assert set(answer) == set(fields)


def survey_of(facts: list[Fact], *, length: int) -> Survey:
    return Survey({"c": facts}, {"c": length})


def test_only_what_has_left_the_window_is_asked_for():
    """A replaced fact is asked for, too: whether the window has the old value alone."""
    messages = [appended(n, 100, message=said(n)) for n in range(1, 10)]
    events: list[Event] = [OPEN, *messages]
    state = fold((event, 1) for event in events)
    facts = [Fact(FactKind.FOUND, "message 1", 1), Fact(FactKind.FOUND, "message 9", 9)]
    survey = survey_of(facts, length=9)

    survey.seen("c", 9, state)

    assert survey.tallies[END].asked == 0
    assert (survey.messages, survey.missing) == (9, 0)


def test_what_people_said_in_a_real_chat_is_found_where_it_was_said_last():
    """A value that only a tool returned is not found."""
    messages = [
        Message("m1", Role.USER, "Look at ABC-1234, please."),
        Message("m2", Role.TOOL, "XYZ-9999", tool_call_id="x"),
        Message("m3", Role.ASSISTANT, "ABC-1234 is closed."),
    ]

    assert [(fact.value, fact.message) for fact in found_facts(("c", messages))] == [("ABC-1234", 3)]


def test_chats_of_a_file_are_joined_into_long_ones(tmp_path):
    """The joined messages have ids of their own, and none of them is a system message."""
    chat = {
        "conversation_id": "c1",
        "messages": [
            {"id": "s", "role": "system", "content": "Be kind."},
            {"id": "m1", "role": "user", "content": "See ABC-1234."},
        ],
    }
    (tmp_path / "one.jsonl").write_text("\n".join(json.dumps(chat | {"conversation_id": f"c{n}"}) for n in range(3)))

    (corpus,) = corpora_in(tmp_path)

    ((_, messages),) = corpus.chats
    assert [message.id for message in messages] == ["0-m1", "1-m1", "2-m1"]


async def test_every_summarizer_under_every_policy_gets_a_row_with_the_same_figures_in_every_run():
    """Counted, not timed; nothing is lost and every pin is kept. The second run has each profile once."""
    corpus = generated_corpus(**SMALL)

    first = [row(run) async for run in runs_of([corpus], [lossy()])]
    second = [row(run) async for run in runs_of([corpus], [replace(lossy(), strategies=PROFILES)])]

    assert first[: len(second)] == second
    assert {len(figures) for figures in first} == {len(HEADINGS)}
    assert {figures[HEADINGS.index("covered")] for figures in first} == {"1.00"}
    assert {figures[HEADINGS.index("pins")] for figures in first} == {"1.00"}


def test_people_and_the_model_say_no_identifier_that_nobody_planted(conversation):
    """An entry of a ledger is therefore planted, a decoy, or noise of a tool's result."""
    planted = {value.casefold() for fact in conversation.facts for value in (fact.value, fact.anchor)}
    said = [m for m in conversation.messages if m.role in (Role.USER, Role.ASSISTANT)]
    named = {found.text.casefold() for message in said for found in mentions(message.content)}

    assert named
    assert not [key for key in named if not any(key in value for value in planted)]


def test_a_rule_that_a_window_lost_is_no_lost_identifier():
    """A lost rule is counted by itself, unless it is pinned."""
    messages = [appended(n, 100, message=said(n)) for n in range(1, 10)]
    events: list[Event] = [OPEN, *messages]
    state = fold((event, 1) for event in events)
    gone = state._replace(window=Window([*state.window][3:]))
    survey = survey_of([Fact(FactKind.RULE, "two reviewers", 1), Fact(FactKind.FOUND, "ABC-1234", 2)], length=9)

    survey.seen("c", 9, gone)

    end = survey.tallies[END]
    assert (end.asked, end.written, end.rules, end.ruling) == (1, 0, 1, 0)


def test_what_is_named_again_is_looked_for_in_the_window_before():
    """Only if every message that named it had left."""
    chat = [Message(f"m{n}", Role.USER, f"See OPS-{n} and OPS-{max(1, n - 3)}.") for n in range(1, 7)]
    events: list[Event] = [OPEN, *(appended(n, 100, message=m) for n, m in enumerate(chat, 1))]
    state = fold((event, 1) for event in events)
    late = state._replace(window=Window([*state.window][4:]))
    again = NamedAgain({"c": [*chat, Message("m7", Role.ASSISTANT, "OPS-1, OPS-2, OPS-5 and OPS-99.")]})

    for count in range(1, 6):
        again.seen("c", count, state)
    again.seen("c", 6, late)
    again.seen("c", 7, state)

    assert (again.alive.part, again.alive.whole) == (0, 1)
