"""Attachments in the form of each chat API, or the reason why an API has no form for one.

Attachments that an API would refuse are left out and reported, because it would refuse the whole request. The module
fetches nothing, and guesses no media type.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from abridged.service.domain.message import Attachment, Message, Role

IMAGE_TOKENS: Final = 1_000
"""The tokens of an image without a count of its caller's. APIs count by its size, which few URIs tell: one of 1,000 by
1,000 pixels takes 765 at OpenAI's and 1,334 at Anthropic's, by their guides to vision."""

_DATA = "data:"

_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})
_ANY_IMAGE = "image/"
_OLLAMA_IMAGES = _IMAGES - {"image/gif"}
_AUDIO = {"audio/mp3": "mp3", "audio/mpeg": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}
_PDF = "application/pdf"
_PLAIN_TEXT = "text/plain"


class Omission(StrEnum):
    """The reason why a rendering leaves out an attachment."""

    ROLE = "role"
    MEDIA_TYPE = "media_type"
    URI = "uri"


@dataclass(frozen=True, slots=True)
class OmittedAttachment:
    """The attachment at `place` in a message, which an API does not take."""

    message_id: str
    place: int
    reason: Omission


@dataclass(frozen=True, slots=True)
class _Content:
    """An attachment as it can be sent: `data` in base64, or a `url` to fetch it from."""

    media_type: str
    name: str
    url: str = ""
    data: str = ""

    @property
    def data_uri(self) -> str:
        return f"{_DATA}{self.media_type};base64,{self.data}"


Part = Callable[[Attachment, Role], "dict[str, Any] | str | Omission"]
"""The form of an attachment in an API's message of a role."""


def parts_of(message: Message, part: Part) -> tuple[list[Any], list[OmittedAttachment]]:
    """The message's attachments in an API's form, and those that it does not take."""
    parts: list[Any] = []
    omitted: list[OmittedAttachment] = []
    for place, attachment in enumerate(message.attachments):
        made = part(attachment, message.role)
        if isinstance(made, Omission):
            omitted.append(OmittedAttachment(message.id, place, made))
        else:
            parts.append(made)
    return parts, omitted


def openai_part(attachment: Attachment, role: Role) -> dict[str, Any] | Omission:
    """A content part of OpenAI-style chat completions, which only user messages may have."""
    if role is not Role.USER:
        return Omission.ROLE
    content = _content(attachment, schemes=("https", "http"))
    if isinstance(content, Omission):
        return content
    if content.media_type in _IMAGES:
        return {"type": "image_url", "image_url": {"url": content.url or content.data_uri}}
    if content.media_type != _PDF and content.media_type not in _AUDIO:
        return Omission.MEDIA_TYPE
    if content.url:
        return Omission.URI
    if content.media_type in _AUDIO:
        audio = {"data": content.data, "format": _AUDIO[content.media_type]}
        return {"type": "input_audio", "input_audio": audio}
    return {"type": "file", "file": {"filename": content.name or "attachment.pdf", "file_data": content.data_uri}}


def anthropic_part(attachment: Attachment, role: Role) -> dict[str, Any] | Omission:
    """A block of Anthropic's Messages API: of a user's message or of a tool's result."""
    if role not in (Role.USER, Role.TOOL):
        return Omission.ROLE
    content = _content(attachment, schemes=("https",))
    if isinstance(content, Omission):
        return content
    title = {"title": content.name} if content.name else {}
    if content.media_type == _PLAIN_TEXT:
        text = text_of(attachment.uri)
        if not text:
            return Omission.URI
        return {"type": "document", "source": {"type": "text", "media_type": _PLAIN_TEXT, "data": text}, **title}
    source = (
        {"type": "url", "url": content.url}
        if content.url
        else {"type": "base64", "media_type": content.media_type, "data": content.data}
    )
    if content.media_type in _IMAGES:
        return {"type": "image", "source": source}
    return {"type": "document", "source": source, **title} if content.media_type == _PDF else Omission.MEDIA_TYPE


def ollama_part(attachment: Attachment, role: Role) -> str | Omission:
    """An item of `images` of Ollama's chat API: the data alone, because Ollama fetches nothing."""
    if role not in (Role.USER, Role.TOOL):
        return Omission.ROLE
    content = _content(attachment, schemes=())
    if isinstance(content, Omission):
        return content
    return content.data if content.media_type in _OLLAMA_IMAGES else Omission.MEDIA_TYPE


def fixed_tokens(attachment: Attachment) -> int:
    """The tokens of an attachment beside its text: its caller's count, or else IMAGE_TOKENS for an image."""
    return attachment.token_count or IMAGE_TOKENS * _media_type(attachment).startswith(_ANY_IMAGE)


def sent_text(attachment: Attachment) -> str:
    """The text of an attachment without a count of its caller's; empty unless it is plain text in a `data:` URI."""
    return "" if attachment.token_count else plain_text(attachment)


def plain_text(attachment: Attachment) -> str:
    """The text of an attachment; empty unless it is plain text in a `data:` URI."""
    is_text = is_data(attachment.uri) and _media_type(attachment) == _PLAIN_TEXT
    return text_of(attachment.uri) if is_text else ""


def described(attachment: Attachment) -> str:
    """A text in place of an attachment; its data is not text."""
    uri, media_type = attachment.uri, attachment.media_type
    if is_data(uri):
        uri, media_type = "", media_type or _data_type(uri)
    return " ".join(part for part in ("attachment", attachment.name, uri, media_type) if part)


def is_data(uri: str) -> bool:
    """Return whether the URI contains the data itself."""
    return uri[: len(_DATA)].lower() == _DATA


def data_of(uri: str) -> str:
    """The data of a `data:` URI, as it is written there."""
    return uri.partition(",")[2]


def text_of(uri: str) -> str:
    """The text in a `data:` URI; empty if the data is not UTF-8."""
    return _text(_data(uri))


def _content(attachment: Attachment, *, schemes: Iterable[str]) -> _Content | Omission:
    """The attachment, if its URI is data or has a scheme that the API fetches."""
    uri = attachment.uri
    if is_data(uri):
        data = _data(uri)
        return _Content(_media_type(attachment), attachment.name, data=data) if data else Omission.URI
    if uri.partition("://")[0].lower() not in schemes:
        return Omission.URI
    media_type = _essence(attachment.media_type)
    return _Content(media_type, attachment.name, url=uri) if media_type else Omission.MEDIA_TYPE


def _media_type(attachment: Attachment) -> str:
    return _essence(attachment.media_type) or (_data_type(attachment.uri) if is_data(attachment.uri) else "")


def _data_type(uri: str) -> str:
    """The media type of a `data:` URI; plain text if it names none (RFC 2397)."""
    return _essence(uri[len(_DATA) :].partition(",")[0]) or _PLAIN_TEXT


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _data(uri: str) -> str:
    """The data of a `data:` URI in base64; empty without any, or if it is broken."""
    head, _, data = uri.partition(",")
    raw = unquote_to_bytes(data)
    if not head.lower().endswith(";base64"):
        return base64.b64encode(raw).decode()
    try:
        return base64.b64encode(base64.b64decode(raw, validate=True)).decode()
    except binascii.Error:
        return ""


def _text(data: str) -> str:
    try:
        return base64.b64decode(data).decode()
    except UnicodeDecodeError:
        return ""
