"""Lines of the demo that its own conversation does not reach."""

from __future__ import annotations

from abridged.service.cli.demo_lines import INDENT, end_lines, trigger_line, window_lines
from abridged.v1 import conversation_pb2 as pb
from abridged.v1.conversation_service_pb2 import ContextMessage, GetContextResponse
from abridged.v1.message_pb2 import ROLE_SYSTEM, Message
from abridged.v1.summary_pb2 import MessageRange, RecordQuality, SummaryRecord

BEFORE, AFTER = pb.TokenUsage(window_tokens=3_500, ratio=0.86), pb.TokenUsage(window_tokens=2_100, ratio=0.51)


def summary(text: str, *, tokens: int) -> ContextMessage:
    return ContextMessage(message=Message(role=ROLE_SYSTEM, content=text), tokens=tokens, tag="summary-depth:0")


def test_a_trigger_counts_the_messages_of_all_ranges():
    """A pinned message divides them."""
    begun = pb.Summarization(
        id="pass-00ab", trigger=pb.TRIGGER_FOLLOW_UP, token_ratio=1.2, covered=[MessageRange(first=2, last=4)]
    )
    begun.covered.add(first=6, last=6)

    assert trigger_line(begun) == "trigger: pass 00ab, follow up at 1.20, for 4 messages: 2-4, 6"


def test_what_a_check_removed_is_counted():
    """Identifiers that the model invented, and statements that no message is near."""
    record = SummaryRecord(quality=RecordQuality(unsupported_claims=2, unsupported_statements=1), model="m", attempts=1)

    made, check = end_lines(pb.Summarization(), record, BEFORE, AFTER)

    assert made.endswith("m, 1 model call; window: 3,500 -> 2,100 tokens, ratio is now 0.51")
    assert check.startswith("check: passed, 2 invented identifiers and 1 unsupported statement removed; ")


def test_a_pass_without_a_record_says_why():
    """The pass failed, and the window stays."""
    ended = pb.Summarization(id="pass-00ab", state=pb.SUMMARIZATION_STATE_FAILED, asked=True, cause="the host is away")

    state, window = end_lines(ended, None, BEFORE, BEFORE)

    assert "failed" in state and "the host is away" in state
    assert window == "window: 3,500 -> 3,500 tokens, ratio is now 0.86"


def test_lines_of_a_summary_are_indented_and_control_no_terminal():
    """Text of a conversation never begins a line of the command."""
    context = GetContextResponse(messages=[summary("one\ntwo\x1b[2J", tokens=90)])

    head, *lines = window_lines(context, SummaryRecord(tokens_after=50), (), columns=80)

    assert head.endswith("the record (50 tokens), with rules and facts added by code (40):")
    assert lines == [f"{INDENT}one", f"{INDENT}two\N{REPLACEMENT CHARACTER}[2J"]


def test_tokens_of_several_summaries_are_not_divided():
    """Rules and facts stand in one of them."""
    context = GetContextResponse(messages=[summary("a", tokens=20), summary("b", tokens=70)])

    lines = list(window_lines(context, SummaryRecord(tokens_after=50), (), columns=80))

    assert [line for line in lines if "added by code" in line] == []
    assert len(lines) == 4
