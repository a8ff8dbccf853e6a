"""The extract finds facts that matter, keeps them over passes, invents nothing and passes every check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.record import (
    ActionItem,
    MessageRange,
    Provenance,
    RecordContext,
    RecordEvidence,
    SummaryRecord,
)
from abridged.service.extraction.extract import Extract, extract
from abridged.service.extraction.passages import SENTENCES_MAX, gathered
from abridged.service.extraction.replaced import superseding
from abridged.service.grounding.claims import evidence_of, survival, texts_of
from abridged.service.grounding.draft import Problem, check_record
from abridged.service.text.identifiers import identifiers
from abridged.service.text.sentences import CLIP_CHARS_MAX
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.extracts import extract_of
from tests.support.growth import grows_linearly
from tests.unit.extraction.corpora import PLANNING, real_conversations, said

COUNT = EstimatingCounter().count


def texts_by_field(extracted: Extract) -> dict[str, str]:
    context = extracted.context
    return {
        "summary": extracted.summary,
        "key_points": "\n".join(extracted.key_points),
        "participants": "\n".join(context.participants),
        "decisions": "\n".join(context.decisions),
        "action_items": "\n".join(f"{item.task} {item.owner} {item.due}" for item in context.action_items),
        "unresolved": "\n".join(context.unresolved),
        "domain_entities": "\n".join(context.domain_entities),
    }


def problems_of(extracted: Extract, sources) -> tuple[Problem, ...]:
    return check_record(texts_by_field(extracted), evidence_of(sources), instructions="", unsupported_max=0)


def record_of(extracted: Extract, *, depth: int = 0) -> SummaryRecord:
    return SummaryRecord(
        id=f"r{depth}", create_time_us=0, depth=depth, parent_id="", summary=extracted.summary,
        key_points=extracted.key_points, context=extracted.context, covered=(MessageRange(1, 9),), tokens_before=900,
        tokens_after=300, model="extractive:default", prompt_name="", prompt_version="",
        provenance=Provenance.EXTRACTIVE, attempts=1, latency_ms=1,
    )  # fmt: skip


def sources_of(messages, previous: SummaryRecord | None = None) -> list[str]:
    carried = Extract(previous.summary, previous.key_points, previous.context) if previous else None
    return [
        *(text for message in messages for text in texts_of(message)),
        *(texts_by_field(carried).values() if carried else ()),
    ]


def test_decisions_tasks_and_open_points_are_distinguished() -> None:
    """Each is found by its words, with owner and due date."""
    context = extract_of(PLANNING).context

    assert any("move the import to 04:00" in decision for decision in context.decisions)
    assert ActionItem("Ben: I will change the schedule in etc/cron.d/import by Friday.", "Ben", "Friday") in (
        context.action_items
    )
    assert any("who pays for the disk" in point for point in context.unresolved)
    assert any("who owns OPS-4711" in point for point in context.unresolved)


def test_an_answered_question_is_not_open() -> None:
    """Somebody else spoke after it."""
    messages = said("Ana: Which port does the proxy listen on?", "Ben: It listens on port 8443 since the migration.")

    assert extract_of(messages).context.unresolved == ()


def test_names_are_kept_and_the_most_repeated_come_first() -> None:
    """Identifiers survive letter by letter."""
    messages = said(
        "user: Check ZX-1, ZX-2 and ZX-3 now.", "assistant: ZX-2 is broken.", "user: Then replace ZX-2 today."
    )

    assert extract_of(messages).context.domain_entities[0] == "ZX-2"
    assert {"OPS-4711", "etc/cron.d/import", "orders_2031"} <= set(extract_of(PLANNING).context.domain_entities)


def test_who_speaks_takes_part_and_tools_do_not() -> None:
    """Names where there are names, else roles."""
    messages = (*PLANNING, Message("t", Role.TOOL, '{"rows": 3}', name="count_rows"))

    assert extract_of(messages).context.participants == ("Ana", "Ben")


def test_small_talk_is_left_out() -> None:
    """Backchannels carry nothing."""
    text = "\n".join(texts_by_field(extract_of(PLANNING)).values())

    assert "What a week" not in text
    assert "Okay" not in text


def test_the_same_thing_said_twice_is_taken_once() -> None:
    """Repetition costs tokens and adds nothing."""
    line = "user: The invoice of the harbour project must show the reduced tax rate for all deliveries."
    extracted = extract_of(said(*[line] * 6, "user: The gate code of the yard changed after the burglary."))

    lines = [*extracted.summary.splitlines(), *extracted.key_points]
    assert sum("reduced tax rate" in text for text in lines) == 1
    assert any("gate code" in text for text in lines)


def test_the_same_input_gives_the_same_extract() -> None:
    """No randomness, no clock, no order of a set."""
    assert extract_of(PLANNING) == extract_of(PLANNING)


@pytest.mark.parametrize("tokens_max", [128, 300, 1_024])
def test_the_extract_keeps_its_budget(tokens_max: int) -> None:
    """All its texts together stay below the allowed tokens."""
    messages = PLANNING * 12
    extracted = extract_of(messages, tokens_max=tokens_max)

    assert sum(map(COUNT, texts_by_field(extracted).values())) <= tokens_max


def test_a_tiny_budget_still_yields_a_line() -> None:
    """A record is never empty."""
    assert len(extract_of(PLANNING, tokens_max=1).summary.splitlines()) == 2


def test_no_long_message_is_quoted_whole() -> None:
    """A record holds clipped sentences, not messages."""
    extracted = extract_of(PLANNING * 3, tokens_max=4_000)
    text = "\n".join([extracted.summary, *extracted.key_points])

    long_ones = [message.content for message in PLANNING if len(message.content) > 100]
    assert long_ones
    assert not any(content in text.replace("\n", " ") for content in long_ones)
    assert all(len(line) <= CLIP_CHARS_MAX + len("Ana: ") for line in text.splitlines())


def test_at_most_half_of_a_message_is_quoted() -> None:
    """Even when the budget would hold all of it."""
    message = said(
        "user: The crane at berth seven lost its brake. The yard closes the northern gate at dusk. Customs wants the "
        "manifest of the reefer vessel. Our night shift misses two forklift drivers."
    )
    extracted = extract_of(message, tokens_max=4_000)

    assert len([*extracted.summary.splitlines()[1:], *extracted.key_points]) == 2


def test_a_text_beyond_the_bound_gives_sentences_of_all_its_parts() -> None:
    """No part of a long text is ignored."""
    lines = [f"Crane {number} waits for its berth." for number in range(3 * SENTENCES_MAX)]
    passages = gathered([Message("m", Role.USER, "\n".join(lines))], previous=None).passages

    assert len(passages) == SENTENCES_MAX
    assert [passage.text for passage in passages] == lines[::3]


@pytest.mark.parametrize("hostile", ["use </s> there", "password=hunter2hunter2", "N/A"])
def test_a_bad_record_poisons_no_later_one(hostile: str) -> None:
    """Marks, secrets and placeholders of an earlier record are left behind, wherever they stood."""
    context = RecordContext((hostile,), (hostile,), (ActionItem(hostile, "Ida", ""),), (hostile,), (hostile,))
    extracted = extract_of(PLANNING, previous=record_of(Extract(hostile, (hostile,), context)), tokens_max=2_000)

    assert hostile not in "\n".join(texts_by_field(extracted).values())


def test_an_early_term_is_still_there_after_more_passes() -> None:
    """Drift: a name from the start outlives later talk that never names it again."""
    first = said(
        "user: The cluster runs on Kestrel-9 nodes and the ledger service is called ledger_core_v3.",
        "assistant: Understood, Kestrel-9 nodes with ledger_core_v3. I will keep that in mind for the rollout.",
    )
    record = record_of(extract_of(first))
    for depth in range(1, 4):
        talk = said(
            *(f"user: Step {depth}{n} of the rollout touches host-{depth}{n}.example.org today." for n in range(10, 30))
        )
        record = record_of(extract_of(talk, previous=record), depth=depth)

    assert "ledger_core_v3" in record.context.domain_entities


@pytest.mark.parametrize(
    ("in_ledger", "names"), [((), {"Ida Berg"}), (None, {"Ida Berg", "HAZ", "OPS-4711", "OPS-1203", "dark_mode"})]
)
def test_beside_a_ledger_an_extract_names_no_identifier(in_ledger: tuple[str, ...] | None, names: set[str]) -> None:
    """The ledger has identifiers in the words that say what they are, also those that an earlier record carried."""
    earlier = Extract("The team moves.", (), RecordContext(domain_entities=("OPS-1203",)))
    extracted = extract_of(
        said(
            "user: On the way to the port our colleague Ida Berg has opened OPS-4711 about the dark_mode of the desk.",
            "assistant: I have told the people at the desk of HAZ that our colleague Ida Berg will be late today.",
            "user: And please send the same to the other desk of HAZ before they close it for the night.",
        ),
        previous=record_of(earlier),
        in_ledger=in_ledger,
    )

    assert set(extracted.context.domain_entities) == names


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        ("McKinsey", True),
        ("Angus McDonald", True),
        ("Boeing 747", True),
        ("IDA BERG", True),
        ("HAZ", False),
        ("P1851", False),
        ("batcher.go", False),
        ("12 May 2026", False),
        ("+49 30 1234567", False),
    ],
)
def test_beside_a_ledger_a_record_carries_only_names_of_persons_places_and_firms(name: str, is_kept: bool) -> None:
    """A single abbreviation tells a reader nothing; `McKinsey` is a name, though code writes so."""
    earlier = record_of(Extract("The team moves.", (), RecordContext(domain_entities=(name,))))
    context = extract_of(said("user: The shelves come on Monday."), previous=earlier, in_ledger=()).context

    assert (name in context.domain_entities) is is_kept


def test_a_value_that_the_ledger_lacks_is_told_first() -> None:
    """The sentence whose value stands beside the record can be left out."""
    berth, crane = "The berth of the ferry is 17-C.", "The crane of the ferry is 40-K."

    def told(in_ledger: str) -> str:
        return extract_of(said(f"user: {berth}", f"user: {crane}"), in_ledger=(in_ledger,), tokens_max=34).summary

    assert (berth in told("40-k"), crane in told("40-k")) == (True, False)
    assert (berth in told("17-c"), crane in told("17-c")) == (False, True)


def test_the_previous_record_takes_part() -> None:
    """The record's decisions, tasks and open points stay beside the new ones."""
    previous = record_of(
        Extract(
            "The team moves the database to Oslo.",
            ("The budget is 40,000 euros.",),
            RecordContext(
                participants=("Ida",),
                decisions=("The database moves to Oslo.",),
                action_items=(ActionItem("Order the disks", "Ida", "June 3"),),
                unresolved=("Who signs the contract?",),
                domain_entities=("db-oslo-1",),
            ),
        )
    )
    extracted = extract_of(PLANNING, previous=previous, tokens_max=1_000)
    context = extracted.context

    assert "Ida" in context.participants
    assert "The database moves to Oslo." in context.decisions
    assert ActionItem("Order the disks", "Ida", "June 3") in context.action_items
    assert "Who signs the contract?" in context.unresolved
    assert "db-oslo-1" in context.domain_entities
    assert any("Oslo" in line for line in (*extracted.summary.splitlines(), *extracted.key_points))


def test_only_tool_results_still_make_a_record() -> None:
    """Names are listed, and the summary is neither empty nor made up."""
    messages = (
        Message("a", Role.ASSISTANT, tool_calls=(ToolCall("c", "find_order", '{"order": "W2378156"}'),)),
        Message("b", Role.TOOL, '{"status":"shipped","parcel":"ZX81Q0"}', tool_call_id="c"),
    )
    extracted = extract_of(messages)

    assert extracted.summary.strip()
    assert {"W2378156", "ZX81Q0"} <= set(extracted.context.domain_entities)
    assert problems_of(extracted, sources_of(messages)) == ()


def test_an_envelope_is_read_by_its_result() -> None:
    """Signatures are no content."""
    message = Message("a", Role.TOOL, '{"payload": {"result": "parcel ZX81Q0 is in Ghent"}, "sig": "QQ77WW88"}')
    text = "\n".join(texts_by_field(extract_of((message,))).values())

    assert "ZX81Q0" in text
    assert "QQ77WW88" not in text


@pytest.mark.parametrize("hostile", ["<|im_end|>", "</s>", "[INST]", "password=hunter2hunter2", "<think>"])
def test_marks_and_secrets_never_reach_the_extract(hostile: str) -> None:
    """Every text is cleaned before it is looked at."""
    messages = said(f"user: The deploy of the harbour service needs {hostile} before the audit of the yard begins.")
    extracted = extract_of(messages)

    assert "deploy of the harbour" in extracted.summary
    assert hostile not in "\n".join(texts_by_field(extracted).values())
    assert problems_of(extracted, sources_of(messages)) == ()


FRAGMENTS = st.sampled_from(
    [
        *(
            "I'm sorry, I can't.",
            "N/A",
            "None",
            "Error:",
            "ZFA04Y",
            "$1,200.50",
            "May 15,",
            "2024",
            "+49 30",
            "1234567",
        ),
        *(
            "<|im_end|>",
            "password=",
            "hunter2",
            "```",
            "We decided to",
            "by Friday",
            '{"a":',
            "3.14",
            "e.g.",
            "?",
            "\n",
        ),
        *("- ", "user:", "10:30", "sk-" + "A1b2C3d4" * 5, "src/a.py:12", "</think>", "\u6211\u4eec\u51b3\u5b9a\u3002"),
        *("12", "k", "pm", "#123", "_", "()", "\u00b2"),
    ]
)
TEXTS = st.lists(st.one_of(FRAGMENTS, st.text(st.characters(), max_size=12)), max_size=25).flatmap(
    lambda parts: st.sampled_from([" ", "", "\n"]).map(lambda joint: joint.join(parts))
)
MESSAGES = st.builds(
    Message,
    id=st.just("m"),
    role=st.sampled_from(list(Role)),
    content=TEXTS,
    name=st.one_of(st.just(""), st.sampled_from(["Ana", "None", "Error", "user_42", "I cannot"]), TEXTS),
)


@given(st.lists(MESSAGES, min_size=1, max_size=8), st.integers(1, 800))
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_every_extract_passes_every_check(messages: list[Message], tokens_max: int) -> None:
    """The fallback of any messages can be committed; and so can the next one, made from it."""
    first = extract_of(messages, tokens_max=tokens_max)
    record = record_of(first)
    second = extract_of(messages[::-1], previous=record, tokens_max=tokens_max)

    assert problems_of(first, sources_of(messages)) == ()
    assert problems_of(second, sources_of(messages, record)) == ()


def test_real_conversations_pass_every_check_over_three_passes() -> None:
    """Untidy data: repeated call ids, empty messages, long tool output."""
    kept = []
    for name, messages in real_conversations():
        third = max(1, len(messages) // 3)
        record = None
        for depth in range(3):
            part = messages[depth * third : (depth + 1) * third]
            extracted = extract_of(part, previous=record)
            assert problems_of(extracted, sources_of(part, record)) == (), name
            if depth == 0:
                kept.append(
                    survival(identifiers("\n".join(sources_of(part))), "\n".join(texts_by_field(extracted).values()))
                )
            record = record_of(extracted, depth=depth)

    assert sum(kept) / len(kept) >= 0.3


@pytest.mark.parametrize(
    "material",
    [
        lambda size: [
            Message("m", Role.USER, "The harbour crane 17 lifted container MSKU4711 at noon. " * (size // 56))
        ],
        lambda size: [Message("m", Role.USER, "a" * size)],
        lambda size: [Message("m", Role.TOOL, '{"a":12345,' * (size // 11))],
        lambda size: [
            Message(f"m{n}", Role.USER, f"Line {n}: crane {n % 40} waits for berth {n % 7}.")
            for n in range(size // 200)
        ],
    ],
    ids=["one-text", "one-word", "one-tool-result", "thousands-of-messages"],
)
def test_the_work_grows_with_the_material_and_no_faster(material: Callable[[int], list[Message]]) -> None:
    """The material may be one message or thousands."""
    assert grows_linearly(extract_of, material, size=400_000)


def test_what_an_extract_takes_over_keeps_the_messages_that_the_earlier_record_names():
    """Sentences of its narrative and items of its lists are such; words of messages now rest on these."""
    decision = "Rosa: We decided to keep the quota of db-07."
    earlier = replace(
        record_of(Extract("Ida: The parser of Heron fails on empty frames.", (), RecordContext(decisions=(decision,)))),
        evidence=RecordEvidence(summary=((4,),), decisions=((7,),)),
    )
    crane, audit = (
        "Ida: The crane at pier 4 is in repair until Thursday.",
        "Rosa: The audit in Lyon found 3 faults in it.",
    )

    extracted = extract(said(crane, audit), previous=earlier, tokens_max=600, count_tokens=COUNT, numbers=[21, 22])

    lines = (*extracted.summary.splitlines()[1:], *extracted.key_points, *extracted.context.decisions)
    assert {line: extracted.rests_on[line] for line in lines} == {
        earlier.summary: (4,),
        decision: (7,),
        crane: (21,),
        audit: (22,),
    }


def test_a_superseded_value_is_told_unless_its_own_sentence_speaks_of_the_change():
    """A change beside it is of another thing."""
    assert superseding("The port is 8443. The deadline was moved to 9 May.", {"8443": 5}) == 5
    assert superseding("It is no longer 8443, but another port.", {"8443": 5}) == 0


def test_a_message_before_a_change_does_not_speak_of_it():
    """Words of change in it are about something else: `the new flat`."""
    text = "The deposit is no longer 2,900 EUR but 2,956 EUR."

    assert superseding(text, {"2,900 eur": 5, "2,956 eur": 5}) == 0
    assert superseding(text, {"2,900 eur": 5, "2,956 eur": 5}, said=4) == 5
    assert superseding(text, {"2,900 eur": 5, "2,956 eur": 5}, said=5) == 0
