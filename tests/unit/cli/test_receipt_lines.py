"""Receipts and notices as a terminal shows them."""

from __future__ import annotations

from abridged.service.cli.context import context_lines
from abridged.service.cli.figures import ahead_text, pass_line, receipt_text, unseen_lines
from abridged.service.cli.watch import event_text, fact_line
from abridged.v1 import conversation_pb2 as pb
from abridged.v1 import summary_pb2
from abridged.v1.conversation_service_pb2 import GetContextResponse, WatchConversationResponse
from abridged.v1.event_pb2 import Event

RECEIPT = pb.Receipt(
    lines=[
        pb.ReceiptLine(kind=pb.RECEIPT_KIND_MESSAGE, place=pb.RECEIPT_PLACE_REACHABLE, count=14),
        pb.ReceiptLine(kind=pb.RECEIPT_KIND_IDENTIFIER, place=pb.RECEIPT_PLACE_RECORD, count=12),
        pb.ReceiptLine(
            kind=pb.RECEIPT_KIND_IDENTIFIER,
            place=pb.RECEIPT_PLACE_REACHABLE,
            count=3,
            items=[pb.ReceiptItem(text="KX-5512093-R", number=7), pb.ReceiptItem(text="rel/24.12")],
        ),
        pb.ReceiptLine(kind=pb.RECEIPT_KIND_DECISION, place=pb.RECEIPT_PLACE_RECORD, count=1),
    ]
)
FIGURES = (
    "14 messages left: 14 reachable; 15 identifiers left: 12 in the record, 3 reachable; "
    "1 decision left: 1 in the record"
)
AHEAD = pb.PassAhead(leaving=[summary_pb2.MessageRange(first=2, last=9)], message_count=8, trigger_token_ratio=0.8)


def test_a_receipt_is_a_line_of_figures_and_a_line_for_what_nobody_sees():
    """Counts by kind and place; texts with their messages."""
    assert receipt_text(RECEIPT) == FIGURES
    assert list(unseen_lines(RECEIPT)) == ["reachable: KX-5512093-R [7], rel/24.12 and 1 more"]


def test_a_pass_from_before_receipts_says_nothing_of_them():
    """Unknown is not nothing."""
    known, unknown = pb.Summarization(id="pass-1", receipt=pb.Receipt()), pb.Summarization(id="pass-1")

    assert pass_line(known).endswith("; nothing left the window")
    assert "left" not in pass_line(unknown)


def test_a_watcher_reads_the_receipt_with_the_end_of_the_pass():
    """The line is the same one that a demo prints."""
    event = Event(type="SummarizationCleared")
    event.summarization_cleared.plan.trigger = pb.TRIGGER_RATIO
    event.summarization_cleared.plan.policy.SetInParent()
    assert event_text(event, chars_max=80).endswith("ratio at 0.00")

    event.summarization_cleared.receipt.CopyFrom(RECEIPT)

    assert event_text(event, chars_max=80).endswith(f"ratio at 0.00; {FIGURES}")


def test_a_notice_says_what_would_leave():
    """A watch shows the notice, and so does the text under the window."""
    line = "a pass is near, at 0.80: 8 messages would leave, 2-9"

    assert ahead_text(AHEAD) == line
    assert fact_line(WatchConversationResponse(pass_ahead=AHEAD), columns=80) == f"     ! {line}"
    assert context_lines(GetContextResponse(pass_ahead=AHEAD), columns=80)[-1] == line
