"""Material: the texts in a message beside what its speaker says, as models are sent them.

A chat API takes search results, documents, and the results of tools that it ran itself as blocks, which stay in the
message's form (`service.domain.message_form`). Whoever reads a message for facts reads them too; nobody's rules or
decisions are in them. Only texts count, not the data of files, nor the addresses of images. A message's material
is no longer than the message itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from abridged.service.domain.attachments import is_data, plain_text
from abridged.service.domain.message import Attachment, Message, sent_content
from abridged.service.domain.message_form import FROM, compact, form_of

DEPTH_MAX: Final = 16
"""Lists and objects around a text that is read; a page that a tool fetched has five."""

_READ: Final = frozenset(
    {"title", "source", "url", "context", "text", "content", "stdout", "stderr", "lines", "data", "input"}
)
"""Members of blocks that have texts, or blocks with texts."""

_ADDRESSES: Final = frozenset({"source", "url"})
_SILENT: Final = frozenset({"thinking", "redacted_thinking", "image", "tool_use", "base64", "url", "file"})
"""Types of blocks and of their sources that have nothing to read beside what the message's fields have."""

_BLOCK: Final = re.compile(rf'"type"\s*:\s*"(?!(?:text|tool_result|ephemeral|{"|".join(_SILENT)})")')
"""Any other block. Nearly all messages have none, and their forms need no parsing."""


def read_text(message: Message) -> str:
    """The text of a message as people and models read it: what it says, without an envelope, then its material."""
    return _joined(sent_content(message), material(message))


def material(message: Message) -> str:
    """The texts of the blocks in a message's form, and of its attachments of plain text with their names; often
    empty."""
    if not message.extra_json and not message.attachments:
        return ""
    return _joined(kept_text(message), *map(_document, message.attachments))


def kept_text(message: Message) -> str:
    """The texts of the blocks, or parts, that a message's form alone has."""
    if _BLOCK.search(message.extra_json) is None:
        return ""
    try:
        form = form_of(message)
    except ValueError:
        return ""
    texts = _texts(form.body, DEPTH_MAX) if form is not None else ()
    # Half a surrogate pair, which JSON may escape, is no character.
    return _joined(*texts).encode(errors="replace").decode()


def with_kept_text(message: Message) -> Message:
    """The message without a form, and with the texts of its blocks in its content, for an API without such blocks."""
    if not message.extra_json:
        return message
    return message._replace(content=_joined(message.content, kept_text(message)), extra_json="")


def _joined(*texts: str) -> str:
    return "\n".join(filter(None, texts))


def _document(attachment: Attachment) -> str:
    text = plain_text(attachment)
    return _joined(attachment.name, text) if text else ""


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, list):
        for item in value:
            yield from _texts(item, depth - 1)
    elif depth and isinstance(value, dict) and FROM not in value and _kind(value) not in _SILENT:
        yield from _texts_of_block(value, depth - 1)


def _texts_of_block(block: dict[str, Any], depth: int) -> Iterator[str]:
    is_attached = _is_attached(block.get("source"))
    for name, item in block.items():
        if name not in _READ or (name in _ADDRESSES and isinstance(item, str) and is_data(item)):
            continue
        if name == "input":
            tool = block.get("name")
            yield f"{tool} {compact(item)}" if isinstance(tool, str) else compact(item)
        elif not (name == "title" and is_attached) and not (name == "data" and _kind(block) != "text"):
            yield from _texts(item, depth)


def _kind(block: dict[str, Any]) -> str:
    kind = block.get("type")
    return kind if isinstance(kind, str) else ""


def _is_attached(source: Any) -> bool:
    """Return whether a document is one of the message's attachments, which has its title for a name."""
    return isinstance(source, dict) and any(isinstance(item, dict) and FROM in item for item in source.values())
