"""Attachments reach the chat model in the form of each API, or the answer names them; a summary's prompt names them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import message_pb2
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import call, on_ollama, said, sidecar, tool_result

PIXEL = base64.b64encode(b"\x89PNG not really").decode()
TEXT = base64.b64encode("Zürich".encode()).decode()

PNG_DATA = {"uri": f"data:image/png;base64,{PIXEL}", "token_count": 85}
PNG_URL = {"uri": "https://example.test/a.png", "media_type": "image/png"}
PNG_HTTP = {"uri": "http://10.0.0.7/a.png", "media_type": "image/png"}
PNG_FILE = {"uri": "file:///a.png", "media_type": "image/png"}
PDF_DATA = {"uri": f"data:application/pdf;base64,{PIXEL}", "name": "invoice.pdf"}
PDF_URL = {"uri": "https://example.test/a.pdf", "media_type": "application/pdf"}
WAV_DATA = {"uri": f"DATA:;base64,{PIXEL}", "media_type": "audio/wav; codecs=1"}
TEXT_DATA = {"uri": "data:,Z%C3%BCrich"}
SVG_DATA = {"uri": "data:image/svg+xml,%3Csvg/%3E"}
UNTYPED = {"uri": "https://example.test/a"}
BROKEN = {"uri": "data:image/png;base64,%%%"}

OPENAI, ANTHROPIC, OLLAMA = api.RENDERING_OPENAI, api.RENDERING_ANTHROPIC, api.RENDERING_OLLAMA
DATA_SOURCE = {"type": "base64", "media_type": "image/png", "data": PIXEL}
PDF_SOURCE = {"type": "base64", "media_type": "application/pdf", "data": PIXEL}
PLAIN = {"type": "text", "media_type": "text/plain", "data": "Zürich"}

FORMS: list[tuple[dict[str, Any], Any, Any, Any]] = [
    (
        PNG_DATA,
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image", "source": DATA_SOURCE},
        PIXEL,
    ),
    (
        PNG_URL,
        {"type": "image_url", "image_url": {"url": PNG_URL["uri"]}},
        {"type": "image", "source": {"type": "url", "url": PNG_URL["uri"]}},
        "URI",
    ),
    (PNG_HTTP, {"type": "image_url", "image_url": {"url": PNG_HTTP["uri"]}}, "URI", "URI"),
    (PNG_FILE, "URI", "URI", "URI"),
    (
        PDF_DATA,
        {"type": "file", "file": {"filename": "invoice.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"}},
        {"type": "document", "source": PDF_SOURCE, "title": "invoice.pdf"},
        "MEDIA_TYPE",
    ),
    (PDF_URL, "URI", {"type": "document", "source": {"type": "url", "url": PDF_URL["uri"]}}, "URI"),
    (
        WAV_DATA,
        {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}},
        "MEDIA_TYPE",
        "MEDIA_TYPE",
    ),
    (TEXT_DATA, "MEDIA_TYPE", {"type": "document", "source": PLAIN}, "MEDIA_TYPE"),
    (SVG_DATA, "MEDIA_TYPE", "MEDIA_TYPE", "MEDIA_TYPE"),
    (UNTYPED, "MEDIA_TYPE", "MEDIA_TYPE", "URI"),
    (BROKEN, "URI", "URI", "URI"),
]
"""An attachment, and what of it each API gets: its form, or why it has none."""


def attached(number: int, *attachments: dict[str, Any], **fields: Any) -> message_pb2.Message:
    return said(number, attachments=[message_pb2.Attachment(**a) for a in attachments], **fields)


def omissions(window: api.GetContextResponse) -> list[tuple[str, int, int, str]]:
    return [
        (o.message_id, o.number, o.index, api.AttachmentOmission.Name(o.reason).removeprefix("ATTACHMENT_OMISSION_"))
        for o in window.omitted_attachments
    ]


@pytest.mark.parametrize(("rendering", "column"), [(OPENAI, 1), (ANTHROPIC, 2), (OLLAMA, 3)])
async def test_a_users_attachment_has_the_apis_own_form_or_is_named(tmp_path, rendering, column):
    """Images, documents, audio and text, by data and by address: each is in the rendering or in the answer's list."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(attached(1, *(row[0] for row in FORMS), content="See these."))

        window = await chat.context(rendering=rendering)

    body = json.loads(window.rendered_json)["messages"][0]
    parts = body["images"] if rendering == OLLAMA else [p for p in body["content"] if p.get("type") != "text"]
    assert parts == [row[column] for row in FORMS if row[column] not in ("URI", "MEDIA_TYPE")]
    assert omissions(window) == [
        ("m1", 1, place, row[column]) for place, row in enumerate(FORMS) if row[column] in ("URI", "MEDIA_TYPE")
    ]
    assert body["content"] == "See these." or {"type": "text", "text": "See these."} in body["content"]
    assert len(window.messages[0].message.attachments) == len(FORMS)


@pytest.mark.parametrize(
    ("rendering", "taken"), [(OPENAI, []), (ANTHROPIC, [{"type": "image", "source": DATA_SOURCE}]), (OLLAMA, [PIXEL])]
)
async def test_attachments_of_other_roles_are_sent_only_where_an_api_takes_them(tmp_path, rendering, taken):
    """A tool's screenshot reaches those that take it in a result; nobody takes the system's or the assistant's."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        answer = tool_result(4, "x")
        answer.attachments.add(**PNG_DATA)
        await chat.append(
            attached(1, PNG_DATA, role=message_pb2.ROLE_SYSTEM),
            attached(2, PNG_DATA, role=message_pb2.ROLE_ASSISTANT),
            call(3, "x"),
            answer,
        )

        window = await chat.context(rendering=rendering)

    assert _sent(json.loads(window.rendered_json)["messages"]) == taken
    others = [("m1", 1, 0, "ROLE"), ("m2", 2, 0, "ROLE")]
    assert omissions(window) == others + ([] if taken else [("m4", 4, 0, "ROLE")])


def _sent(rendered: list[Any]) -> list[Any]:
    """Images of the messages, and of the tool results within their blocks."""
    images = [image for m in rendered for image in m.get("images", [])]
    blocks = [block for m in rendered if isinstance(m["content"], list) for block in m["content"]]
    inner = [part for block in blocks if isinstance(block.get("content"), list) for part in block["content"]]
    return images + [block for block in (*blocks, *inner) if block["type"] in ("image", "image_url")]


async def test_without_a_rendering_no_attachment_is_left_out(tmp_path):
    """The messages of the answer have them as they came."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(attached(1, PNG_FILE))

        window = await chat.context()

        assert list(window.omitted_attachments) == []
        assert window.messages[0].message.attachments[0].uri == PNG_FILE["uri"]


async def test_a_long_address_is_refused_and_long_data_is_taken(tmp_path):
    """A prompt quotes an address whole; data is as long as a message may be."""
    async with sidecar(tmp_path) as s:
        chat = s.chat()
        await chat.append(attached(1, {"uri": "data:image/png;base64," + "A" * 200_000}))

        async with refused("INVALID_ARGUMENT", "INVALID_FIELD") as refusal:
            await chat.append(attached(2, {"uri": "https://example.test/" + "a" * 2_048}))

        assert list(refusal.fields) == ["messages[0].attachments[0].uri"]


async def test_the_prompt_of_a_summary_names_attachments_and_has_none_of_their_data(tmp_path):
    """The prompt has name, address and media type, so that the record can name them too."""
    async with FakeOllama() as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat(policy={"min_range_tokens": 1})
        await chat.append(attached(1, PNG_URL, PDF_DATA, TEXT_DATA, tokens=100))
        await chat.append(*(said(n, tokens=100) for n in range(2, 12)), wait_s=PATIENCE_S)
        await chat.summarize()

        prompts = json.dumps(ollama.asked())

    assert "[attachment https://example.test/a.png image/png]" in prompts
    assert "[attachment invoice.pdf application/pdf]" in prompts
    assert "[attachment text/plain]" in prompts
    assert PIXEL not in prompts
