"""A canary in every text field: none of it comes out of a log line, a metric, a span or an error."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from abridged.v1.conversation_pb2 import ConversationSettings
from tests.support.answers import record, saying
from tests.support.ollama_responder import AskRefused, Responder
from tests.support.ollama_server import FakeOllama
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.support.patience import PATIENCE_S
from tests.support.refusal import Refusal, refusal_of
from tests.support.sidecar import Sidecar, on_ollama, said, sidecar, tool_result

CANARY = "canary"
SONG = "The canary sings of the merger"


def singing(number: int, **fields: Any) -> message_pb2.Message:
    """A message with the canary in every text field that it has."""
    return message_pb2.Message(
        id=f"m{number}",
        content=f"{SONG} in turn {number}",
        name=SONG,
        user_id=SONG,
        agent_id=SONG,
        labels={"note": SONG},
        attachments=[message_pb2.Attachment(uri=f"file:///{CANARY}", media_type="text/canary")],
        token_count=120,
        **fields,
    )


def calling(number: int) -> message_pb2.Message:
    call = message_pb2.ToolCall(id=f"{CANARY}-call", name=f"{CANARY}_tool", arguments=f'{{"q": "{SONG}"}}')
    return singing(number, role=message_pb2.ROLE_ASSISTANT, tool_calls=[call])


async def attempts(s: Sidecar) -> list[Refusal]:
    """Calls that are refused, each with the canary in its request; the answers that they got."""
    client = s.conversations
    refused = [
        client.AppendMessages(api.AppendMessagesRequest(conversation_id="c1", messages=[said(1, SONG)])),
        client.AppendMessages(api.AppendMessagesRequest(conversation_id="c1", messages=[said(1, SONG), said(1, SONG)])),
        client.AppendMessages(
            api.AppendMessagesRequest(conversation_id="c1", messages=[said(99, SONG)], expected_version=1)
        ),
        client.AppendMessages(
            api.AppendMessagesRequest(
                conversation_id="c1", messages=[message_pb2.Message(content=SONG, tool_call_id=SONG)]
            )
        ),
        client.AppendMessages(api.AppendMessagesRequest(conversation_id="c1", messages=[said(98, SONG * 20_000)])),
        client.AppendMessages(
            api.AppendMessagesRequest(conversation_id="c1", messages=[said(97, labels={"a": f"{SONG}\n"})])
        ),
        client.GetContext(api.GetContextRequest(conversation_id="c1", max_tokens=1)),
        client.UpdateConversation(
            api.UpdateConversationRequest(
                conversation_id="c1",
                settings=ConversationSettings(title=SONG * 100),
                update_mask=FieldMask(paths=["title"]),
            )
        ),
        client.ListConversations(api.ListConversationsRequest(page_token=SONG)),
        client.GetSummary(api.GetSummaryRequest(conversation_id="c1", summary_id="x")),
    ]
    answers = []
    for call in refused:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        answers.append(refusal_of(caught.value))
    return answers


async def silent(s: Sidecar, sink: OtlpSink, refusals: list[Refusal]) -> None:
    """Everything that leaves the sidecar but its answers, looked through."""
    exposed = await s.http("/metrics") + await s.http("/readyz") + await s.http("/livez")
    await s.stop()
    assert sink.bodies, "spans were exported"
    assert b"summarize" in sink.everything
    assert "pass." in s.log_text
    for place, text in {
        "metrics": exposed,
        "logs": s.log_text,
        "spans": sink.everything.decode("utf-8", "replace"),
        "errors": repr(refusals),
    }.items():
        assert CANARY not in text.lower(), place


def refusing(status: int) -> Responder:
    """A server whose error text quotes the request."""

    async def respond(_: Any) -> Any:
        raise AskRefused(status, f"cannot: {SONG}")
        yield

    return respond


RESPONDERS = {
    "record": saying(record(SONG, key_points=[SONG], participants=[SONG], unresolved=[SONG])),
    "garbage": saying(f"{SONG}, but not as JSON"),
    "wrong schema": saying(f'{{"summary": 7, "{SONG}": "{SONG}"}}'),
    "refusal": saying(record(f"I'm sorry, I cannot tell. {SONG}")),
    "invented": saying(record(f"{SONG} by order 99887766 of 2031-12-24.")),
    "cut off": saying(f'{{"summary": "{SONG}', done_reason="length"),
    "error 500": refusing(500),
    "error 400": refusing(400),
}


@pytest.mark.parametrize("case", RESPONDERS)
async def test_text_of_messages_and_models_reaches_no_log_metric_span_or_error(tmp_path, case):
    """The model may answer well, badly, or with an error that quotes its prompt; logs are at their most talkative."""
    with otlp_sink() as sink:
        async with (
            FakeOllama(responder=RESPONDERS[case]) as ollama,
            sidecar(tmp_path, on_ollama(ollama), environ=sink.environ) as s,
        ):
            chat = s.chat(title=SONG, labels={"note": SONG})
            for number in range(1, 12):
                await chat.append(singing(number, role=message_pb2.ROLE_USER))
            await chat.append(calling(12), tool_result(13, f"{CANARY}-call", SONG, tokens=120))
            await chat.append(singing(14, role=message_pb2.ROLE_USER), wait_s=PATIENCE_S)
            window = await chat.context(rendering=api.RENDERING_ANTHROPIC)
            assert SONG in window.rendered_json
            assert await chat.passes()

            await silent(s, sink, await attempts(s))


async def test_with_content_logging_on_the_debug_log_shows_the_start_of_a_bad_answer(tmp_path):
    """The operator who switched it on sees at most 200 characters, without control characters, secrets masked."""
    answer = f"{SONG}\x07 password=hunter2secret " + " ".join(map(str, range(300)))
    async with (
        FakeOllama(responder=saying(answer)) as ollama,
        sidecar(tmp_path, on_ollama(ollama) | {"telemetry.log_content": True}, log_content=True) as s,
    ):
        await s.chat().talk(14, wait_s=PATIENCE_S)

        (line,) = [line for line in s.logs if line["event"] == "pass.output"]

        assert line["output"].startswith(SONG)
        assert len(line["output"]) <= 200
        assert "\x07" not in line["output"]
        assert "hunter2secret" not in s.log_text
