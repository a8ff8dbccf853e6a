"""Material: everybody who reads messages for facts reads what stands beside the words of a message."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from abridged.service.cli.context import context_line, whole_message
from abridged.service.cli.watch import event_text
from abridged.service.codec.values import message_to_proto
from abridged.service.domain.conversation import initial_state
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.leaving import Hearing
from abridged.service.domain.ledger import NO_LEDGER, Use
from abridged.service.domain.ledger_entries import found_in
from abridged.service.domain.material import DEPTH_MAX, kept_text, material, read_text
from abridged.service.domain.mechanical import is_mechanical
from abridged.service.domain.message import Attachment, Message, Role, ToolCall
from abridged.service.domain.policy import SummaryRole, ToolOutput
from abridged.service.domain.read_json import read_value
from abridged.service.domain.record import MessageRange
from abridged.service.domain.redaction import REDACTED, Redaction, redacted_event
from abridged.service.domain.render import quoted_calls, quoted_result, rendered_window
from abridged.service.domain.render_json import Rendering, render_json
from abridged.service.domain.tokens import TokenSource
from abridged.service.extraction.decided import decided_in
from abridged.service.grounding.claims import evidence_of, texts_of, unsupported
from abridged.service.prompts.prompt import transcript_entry
from abridged.service.recall.passages import text_of_message
from abridged.v1.conversation_service_pb2 import ContextMessage
from abridged.v1.event_pb2 import TOKEN_SOURCE_ESTIMATE, Event
from tests.support.chats import appended, said
from tests.support.extracts import extract_of
from tests.unit.domain.test_clearing import after

FACT = "Invoice INV-7003 is due on 2024-05-04."
MCP = {"type": "mcp_tool_result", "tool_use_id": "x", "content": FACT}
DATA = base64.b64encode(FACT.encode()).decode()
FOUND = {
    "type": "search_result",
    "source": "kb.example/7",
    "title": "Bills",
    "content": [{"type": "text", "text": FACT}],
}
TEXT = {"type": "text", "media_type": "text/plain", "data": FACT}
NESTED = {"type": "content", "content": [{"type": "text", "text": FACT}]}
FETCHED = {
    "type": "web_fetch_result",
    "url": "a.example",
    "content": {"type": "document", "title": "T", "source": TEXT},
}


def read(role: str, *blocks: Any) -> Message:
    """The one message of these blocks."""
    (message,) = read_value([{"role": role, "content": list(blocks)}], Rendering.ANTHROPIC).messages
    return message._replace(id="m1")


def answered(*content: Any) -> Message:
    return read("user", {"type": "tool_result", "tool_use_id": "c1", "content": list(content)})


def numbered(message: Message, number: int = 1) -> MessageAppended:
    return MessageAppended(number, message, 100, TokenSource.ESTIMATE)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (answered(FOUND), f"kb.example/7\nBills\n{FACT}"),
        (read("user", {"type": "text", "text": "Look"}, FOUND), f"Look\nkb.example/7\nBills\n{FACT}"),
        (
            read("user", {"type": "document", "title": "Bills", "context": "of May", "source": TEXT}),
            f"of May\nBills\n{FACT}",
        ),
        (read("user", {"type": "document", "title": "Bills", "source": NESTED}), f"Bills\n{FACT}"),
        (read("user", {"type": "document", "source": {"type": "content", "content": FACT}}), FACT),
        (answered({"type": "document", "source": TEXT}), FACT),
        (read("assistant", {**MCP, "content": [{"type": "text", "text": FACT}]}), FACT),
        (read("assistant", MCP), FACT),
        (
            read("assistant", {"type": "mcp_tool_use", "id": "x", "name": "pay", "input": {"n": 7003}}),
            'pay {"n":7003}',
        ),
        (
            read("assistant", {"type": "web_fetch_tool_result", "tool_use_id": "x", "content": FETCHED}),
            f"a.example\nT\n{FACT}",
        ),
        (
            read(
                "assistant",
                {
                    "type": "web_search_tool_result",
                    "tool_use_id": "x",
                    "content": [
                        {"type": "web_search_result", "title": "T", "url": "a.example", "encrypted_content": DATA}
                    ],
                },
            ),
            "T\na.example",
        ),
        (
            read(
                "assistant",
                {
                    "type": "bash_code_execution_tool_result",
                    "tool_use_id": "x",
                    "content": {"type": "bash_code_execution_result", "stdout": FACT, "stderr": "warned"},
                },
            ),
            f"{FACT}\nwarned",
        ),
        (read("user", {"type": "a_later_block", "title": FACT, "data": DATA}), FACT),
        (
            Message(
                "m1",
                Role.ASSISTANT,
                extra_json=f'{{"api":"openai","body":{{"content":[{{"type":"a_later_part","text":"{FACT}"}}]}}}}',
            ),
            FACT,
        ),
        (
            Message("m1", Role.USER, "Look", attachments=(Attachment(f"data:;base64,{DATA}", "", 9, "Bills"),)),
            f"Look\nBills\n{FACT}",
        ),
    ],
)
def test_texts_of_blocks_and_documents_are_read(message, text):
    """The title of a document stands there once, whether it is a block or an attachment."""
    assert read_text(message) == text


@pytest.mark.parametrize(
    "message",
    [
        Message("m1", Role.USER, ""),
        read("assistant", {"type": "thinking", "thinking": FACT, "signature": DATA}),
        read("assistant", {"type": "redacted_thinking", "data": DATA}, {"type": "a_later_block"}),
        read("user", {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}),
        read("user", {"type": "image", "source": {"type": "file", "file_id": "f"}}),
        read("user", {"type": "a_later_block", "source": {"type": "url", "url": f"https://x.example/{DATA}"}}),
        read("user", {"type": "a_later_block", "source": {"type": "base64", "data": DATA}}),
        read("user", {"type": "a_later_block", "source": f"data:image/png;base64,{DATA}", "data": DATA}),
        read("user", {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": DATA}}),
        Message("m1", Role.USER, "", attachments=(Attachment(f"data:image/png;base64,{DATA}"),)),
        Message("m1", Role.USER, "", attachments=(Attachment("https://x.example/a.txt", "text/plain"),)),
        Message("m1", Role.USER, "", extra_json='{"type":"search_result"'),
        Message("m1", Role.USER, "", extra_json='{"type":"search_result"}'),
    ],
)
def test_data_addresses_of_images_and_reasoning_are_no_text(message):
    """Nobody finds anything in them."""
    assert read_text(message) == ""


def test_a_block_may_have_any_json_in_it():
    """Blocks that no version knows are kept whatever they hold."""
    odd = {"type": "later", "content": [None, 7, {"type": ["x"], "text": FACT}, {"type": {}, "source": 3}], "title": {}}

    assert read_text(read("user", odd)) == FACT


def test_half_a_surrogate_pair_in_a_block_is_no_character():
    """Readers of the text may encode it."""
    assert read_text(read("user", {**FOUND, "content": [{"type": "text", "text": "a\ud800"}]})).endswith("a?")


def test_texts_are_read_to_a_bounded_depth():
    """Python's stack does not decide."""
    deep: Any = FACT
    for _ in range(DEPTH_MAX + 1):
        deep = [deep]

    assert kept_text(read("user", {**FOUND, "content": deep[0][0][0][0]}))
    assert FACT not in kept_text(read("user", {**FOUND, "content": deep}))


def test_material_is_no_longer_than_its_message():
    """Readers of material have the bounds of messages."""
    for message in (answered(FOUND, FOUND), read("user", {"type": "document", "title": "T", "source": TEXT})):
        size = len(message.extra_json) + sum(len(one.uri) + len(one.name) for one in message.attachments)
        assert 0 < len(material(message)) < size


@pytest.mark.parametrize(
    "message", [answered(FOUND), read("user", FOUND), read("user", {"type": "document", "source": TEXT})]
)
def test_everybody_reads_material(message):
    """Search, prompts, the ground of drafts, and what the command line shows."""
    shown = ContextMessage(number=1, message=message_to_proto(message))
    event = Event(type="MessageAppended")
    event.message_appended.message.CopyFrom(shown.message)
    event.message_appended.token_source = TOKEN_SOURCE_ESTIMATE
    entry = transcript_entry(1, message, tool_output=ToolOutput.FULL, cap_tokens=9, count=len)

    assert FACT in text_of_message(message)
    assert FACT in entry
    assert unsupported(FACT, evidence_of(texts_of(message))) == ()
    assert FACT in whole_message(shown)
    assert "INV-7003" in context_line(shown, columns=120)
    assert "INV-7003" in event_text(event, chars_max=120)
    assert not is_mechanical(message, None)


@pytest.mark.parametrize(
    ("message", "use"),
    [
        (answered(FOUND), Use.TOOL),
        (read("user", FOUND), Use.USER),
        (read("assistant", MCP), Use.TOOL),
    ],
)
def test_the_ledger_and_the_receipt_take_values_of_material(message, use):
    """The output of a tool stands beside a model's words; a message that stays adds nothing."""
    hearing = Hearing([numbered(message)], [numbered(message, 2)])
    found, _ = found_in([numbered(message)], [numbered(message, 2)], NO_LEDGER, hearing)
    left = hearing.leaving((), ())

    assert {one.text: one.use for one in found}["INV-7003"] is use
    assert {"inv-7003", "2024-05-04"} <= left.names.keys()


def test_nobody_decides_in_a_document():
    """A search result is nobody's word, whoever sends it."""
    said_here = read("user", {**FOUND, "content": [{"type": "text", "text": "We decided to cancel the contract."}]})

    assert list(decided_in([numbered(said_here)])) == []
    assert list(decided_in([numbered(said_here._replace(content="We decided to cancel the contract."))]))


def test_a_chat_of_material_alone_has_sentences():
    """A record quotes what there is, if nobody says a word."""
    assert FACT in extract_of((answered(FOUND),)).summary


def test_a_record_quotes_the_result_of_a_call_that_is_a_block():
    """A call whose result is all material has a result."""
    asked = Message("m0", Role.ASSISTANT, tool_calls=(ToolCall("c1", "find", "{}"),))
    result = answered({**FOUND, "source": "", "title": ""})
    extract = extract_of((said(1), asked, result), tokens_max=500)

    assert any("called find" in point and "INV-7003" in point for point in extract.key_points)


@pytest.mark.parametrize("rendering", [Rendering.OPENAI, Rendering.OLLAMA])
def test_an_api_without_such_blocks_gets_their_texts(rendering):
    """The message costs what it cost; the text stands where the API takes it."""
    call = Message("m0", Role.ASSISTANT, tool_calls=(ToolCall("c1", "find", "{}"),))
    result = answered({"type": "text", "text": "One hit:"}, FOUND)
    bodies = json.loads(render_json([call, result], rendering).text())["messages"]

    assert bodies[1]["content"] == f"One hit:\nkb.example/7\nBills\n{FACT}"


def test_its_own_api_gets_the_blocks_as_they_were():
    """No text is sent twice."""
    block = {"type": "tool_result", "tool_use_id": "c1", "content": [FOUND]}
    call = Message("m0", Role.ASSISTANT, tool_calls=(ToolCall("c1", "find", "{}"),))
    bodies = json.loads(render_json([said(1), call, answered(FOUND)], Rendering.ANTHROPIC).text())["messages"]

    assert bodies[2]["content"] == [block]


def test_what_no_api_takes_is_quoted_with_its_material():
    """A result without its call, and a call without its result, lose their form."""
    calls = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}

    assert FACT in quoted_result(answered(FOUND)).content
    assert FACT in quoted_calls(read("assistant", MCP, calls), (0,)).content


def test_a_mark_takes_the_place_of_material_too():
    """A cleared result costs its mark, and says nothing else to any API."""
    messages = []
    for n in range(1, 26, 4):
        result = answered({"type": "text", "text": "One hit:"}, FOUND)._replace(id=f"r{n}", tool_call_id=f"c{n}")
        messages += [
            appended(n, 3, message=said(n)),
            appended(n + 1, 3, message=Message(f"a{n}", Role.ASSISTANT, tool_calls=(ToolCall(f"c{n}", "find", "{}"),))),
            appended(n + 2, 110, message=result),
        ]
    state, _ = after(initial_state(), *messages)
    assert state.marks

    sent = [m.message for m in rendered_window(state, SummaryRole.USER)]
    cleared = next(m for m in sent if m.id == "r1")
    for rendering in (Rendering.ANTHROPIC, Rendering.OPENAI):
        assert render_json(sent, rendering).text().count("INV-7003") == len(messages) // 3 - len(state.marks)
    assert read_text(cleared) == cleared.content


def test_a_redacted_message_has_no_material():
    """The form goes with the text, and with it whatever search and receipts would read."""
    left = redacted_event(numbered(answered(FOUND)), Redaction((MessageRange(1, 1),)))

    assert isinstance(left, MessageAppended)
    assert read_text(left.message) == REDACTED
