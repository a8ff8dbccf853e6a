"""Lines of an extract can be read by themselves: each names its subject, and is no chatter."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from abridged.service.domain.message import Message, Role
from abridged.service.extraction.cues import stands_alone
from abridged.service.extraction.extract import Extract, extract
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.unit.extraction.corpora import said

COUNT = EstimatingCounter().count
LONG = "The harbour office keeps the lists of all ships in the archive of the northern pier."


def extract_of(messages: Sequence[Message]) -> Extract:
    return extract(messages, previous=None, tokens_max=600, count_tokens=COUNT)


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("Yes, that one.", False),
        ("Yes, please go ahead with the changes.", False),
        ("I will take Option 1.", True),
        ("We keep the window seats for that one.", False),
        ("Yes, let us take the window seat in economy class.", True),
        ("I will take HAT271 then.", True),
        ("Wir haben uns für den Umzug nach Bremen entschieden.", True),
        ("我们决定把导入移到四点。", True),
    ],
)
def test_a_sentence_stands_alone_if_it_names_what_it_is_about(text: str, alone: bool) -> None:
    """Identifiers name it, and so do words that are not general, in any language."""
    assert stands_alone(text) is alone


def test_a_bare_assent_is_no_decision_of_a_record() -> None:
    """The sentence that names the thing is listed alone."""
    messages = said(
        f"Mara: {LONG}",
        "Jonas: We decided to move the archive to the southern pier.",
        "Mara: Yes, please proceed with the changes.",
    )

    assert extract_of(messages).context.decisions == ("Jonas: We decided to move the archive to the southern pier.",)


def test_a_step_at_a_machine_is_no_decision() -> None:
    """The things that an agent created or removed on its way settle nothing; an act done for somebody does."""
    messages = said(
        f"user: {LONG}",
        "assistant: The `reproduce_bug.py` script has been successfully removed.",
        "assistant: Your reservation NQNU5R has been successfully updated.",
    )

    assert extract_of(messages).context.decisions == (
        "assistant: Your reservation NQNU5R has been successfully updated.",
    )


@pytest.mark.parametrize(
    "chatter",
    [
        "I'll share the numbers shortly!",
        "I'll bring the ship papers of the harbour if necessary.",
        'It is the page with the line "please send me the ship papers of the harbour".',
    ],
)
def test_chatter_and_quotations_are_no_tasks(chatter: str) -> None:
    """A task says what is to be done, lies ahead, and is in the speaker's own words."""
    messages = said(f"Mara: {LONG}", f"Jonas: {chatter}", "Jonas: I'll bring the cargo sheets of the northern pier.")

    assert [item.task for item in extract_of(messages).context.action_items] == [
        "Jonas: I'll bring the cargo sheets of the northern pier."
    ]


def test_a_step_that_a_tool_has_answered_is_no_task() -> None:
    """The control is the same announcement at the end of the conversation."""
    step = said(f"user: {LONG}", "assistant: I will search the archive for the northern pier lists.")
    result = Message("t1", Role.TOOL, "14 lists found", tool_call_id="c1")

    assert extract_of((*step, result)).context.action_items == ()
    assert len(extract_of(step).context.action_items) == 1


@pytest.mark.parametrize(
    "idle",
    [
        "We have come a long way with the harbour archive, haven't we?",
        "Put it in parentheses if you are not sure what the harbour archive said.",
        "Which of those options would cost us less money?",
    ],
)
def test_what_wants_agreement_or_only_supposes_is_not_open(idle: str) -> None:
    """An open question wants information and names its subject."""
    messages = said(f"Mara: {LONG}", f"Jonas: {idle}", "Jonas: Which crew unloads the cargo at the northern pier?")

    assert extract_of(messages).context.unresolved == ("Jonas: Which crew unloads the cargo at the northern pier?",)


def test_lines_of_a_summary_quote_no_system_text() -> None:
    """Words of the conversation fill them; the system's instructions do where nobody else spoke."""
    rule = Message("s1", Role.SYSTEM, "Agents of the harbour archive always greet the ships at the northern pier.")
    talk = said(f"Mara: {LONG}", "Jonas: The cargo sheets lie in the harbour archive of the old town.")

    extracted = extract_of((rule, *talk))
    told = "\n".join((extracted.summary, *extracted.key_points))

    assert "cargo sheets" in told
    assert "greet the ships" not in told
    more = Message("s2", Role.SYSTEM, "Agents weigh the cargo of every barge before the evening bell.")
    alone = extract_of((rule, more))
    assert "greet the ships" in "\n".join((alone.summary, *alone.key_points))
    assert "evening bell" in "\n".join((alone.summary, *alone.key_points))
