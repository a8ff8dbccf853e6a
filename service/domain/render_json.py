"""A rendered window as the JSON of chat APIs: OpenAI-style chat completions, Anthropic's Messages, Ollama's.

All of them require a call's results right after the call, and refuse the whole request otherwise. Every rendering here
satisfies them: a call or result without its counterpart is quoted, and an attachment that an API does not take is left
out and reported.

A message that came in the JSON of the API it is rendered for has that form again (`service.domain.message_form`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

from abridged.service.domain.attachments import (
    OmittedAttachment,
    Part,
    anthropic_part,
    ollama_part,
    openai_part,
    parts_of,
)
from abridged.service.domain.material import with_kept_text
from abridged.service.domain.message import Message, Role
from abridged.service.domain.message_form import Form, compact, filled, form_of
from abridged.service.domain.quoting import noted, quoted
from abridged.service.domain.render import quoted_calls, quoted_result
from abridged.service.text import nested_json

OPENING = "[The conversation begins with the assistant.]"
"""Anthropic's API requires a user message first."""

CACHE_CONTROL: Mapping[str, Any] = {"cache_control": {"type": "ephemeral"}}
"""A block's field by which Anthropic's API caches the prompt up to its end."""

CACHE_CONTROLS_MAX = 4
"""Marks that Anthropic's API takes in one request."""

_MARK = "cache_control"
_UNMARKABLE = frozenset({"thinking", "redacted_thinking"})
"""Blocks that may not have a mark."""

_OPENAI_NAME_REFUSED = re.compile(r"[\s<|\\/>]+")
_ANTHROPIC_ID_REFUSED = re.compile(r"[^a-zA-Z0-9_-]")


class Rendering(StrEnum):
    """The API whose JSON to render."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"


_PARTS: Mapping[Rendering, Part] = {
    Rendering.OPENAI: openai_part,
    Rendering.ANTHROPIC: anthropic_part,
    Rendering.OLLAMA: ollama_part,
}

_Attached = Mapping[str, list[Any]]
"""The attachments of each message in the API's form, by its id."""

_Natives = Mapping[str, Form]
"""The messages that came from the API, by id, each as it came."""


class Entry(NamedTuple):
    """An entry of `messages`, or what stands in `system`: as JSON values, as compact JSON, and the messages in it."""

    body: Any
    text: str
    message_ids: tuple[str, ...]

    @classmethod
    def of(cls, body: Any, message_ids: Iterable[str]) -> Self:
        return cls(body, compact(body), tuple(message_ids))

    def marked(self) -> Self:
        """The entry with a mark at the end of its last block that may have one: the API caches the prompt so far."""
        if "content" not in self.body:
            return self.of({**self.body, **CACHE_CONTROL}, self.message_ids)
        content = self.body["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        for i in reversed(range(len(blocks))):
            if blocks[i]["type"] not in _UNMARKABLE and blocks[i].get("text") != "":
                blocks[i] = {**blocks[i], **CACHE_CONTROL}
                return self.of({**self.body, "content": blocks}, self.message_ids)
        return self

    def with_marks(self, most: int) -> tuple[Self, int]:
        """The entry with its last `most` marks, and how many more it could have."""
        if f'"{_MARK}"' not in self.text:
            return self, most
        body, left = _with_marks(self.body, most)
        return self.of(body, self.message_ids), left


class RenderedJson(NamedTuple):
    """The parts of a request's body, and the attachments left out of it.

    `system` has no entry, or the text of all system messages, or with `has_blocks` one block for each.
    """

    system: tuple[Entry, ...]
    messages: tuple[Entry, ...]
    omitted: tuple[OmittedAttachment, ...]
    has_blocks: bool = False

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All that is sent, in the order in which the model reads it."""
        return (*self.system, *self.messages)

    def text(self, *, marked: int = 0) -> str:
        """Compact JSON, ready to be merged into a request's body, with a mark at the end of its first `marked` entries.

        Only the form with blocks takes a mark.
        """
        entries = list(self.entries)
        if marked:
            entries[marked - 1] = entries[marked - 1].marked()
        texts = [entry.text for entry in entries]
        system, messages = ",".join(texts[: len(self.system)]), ",".join(texts[len(self.system) :])
        if not system:
            return f'{{"messages":[{messages}]}}'
        return f'{{"system":{f"[{system}]" if self.has_blocks else system},"messages":[{messages}]}}'


def render_json(messages: Sequence[Message], rendering: Rendering, *, cache_marks: bool = False) -> RenderedJson:
    """The messages in the form of an API.

    `cache_marks` makes Anthropic's `system` a list of blocks, and the messages' own marks make room for new ones.
    """
    ordered = _answered_in_place(messages)
    if rendering is Rendering.ANTHROPIC:
        ordered = _with_own_ids(ordered)
    natives = {m.id: native for m in ordered if m.extra_json and (native := _native(m, rendering))}
    ordered = [m if m.id in natives else with_kept_text(m) for m in ordered]
    attached: dict[str, list[Any]] = {}
    omitted: list[OmittedAttachment] = []
    for m in ordered:
        if m.attachments and m.id not in natives:
            attached[m.id], left_out = parts_of(m, _PARTS[rendering])
            omitted += left_out
    match rendering:
        case Rendering.OPENAI:
            bodies: Iterable[Any] = (natives[m.id].body if m.id in natives else _openai(m, attached) for m in ordered)
        case Rendering.OLLAMA:
            bodies = _ollama(ordered, attached)
        case Rendering.ANTHROPIC:
            system, has_blocks = _anthropic_system(ordered, natives, blocks=cache_marks)
            entries = (*system, *_anthropic_turns(ordered, attached, natives))
            if natives:
                entries = _with_marks_of_all(entries, 0 if cache_marks else CACHE_CONTROLS_MAX)
            return RenderedJson(entries[: len(system)], entries[len(system) :], tuple(omitted), has_blocks)
    entries = tuple(Entry.of(body, (m.id,)) for m, body in zip(ordered, bodies, strict=True))
    return RenderedJson((), entries, tuple(omitted))


def openai_body(message: Message) -> dict[str, Any]:
    """A message as OpenAI-style chat completions have it, by its fields."""
    return _openai(message, {message.id: parts_of(message, openai_part)[0]})


def _native(message: Message, rendering: Rendering) -> Form | None:
    """The message's form with its values, if it came from this API and they still fit."""
    try:
        form = form_of(message)
        return form._replace(body=filled(form, message)) if form and form.api == rendering.value else None
    except ValueError:
        return None


def _answered_in_place(messages: Sequence[Message]) -> list[Message]:
    """The messages with results right after their calls. Only the last message may have calls without a result."""
    waiting: dict[str, list[tuple[int, int]]] = {}
    results: dict[int, list[Message]] = {}
    kept: list[int] = []
    for i, m in enumerate(messages):
        unanswered = waiting.get(m.tool_call_id) if m.role is Role.TOOL else None
        if unanswered:
            results.setdefault(unanswered.pop()[0], []).append(m)
            continue
        kept.append(i)
        for place, call in enumerate(m.tool_calls):
            waiting.setdefault(call.id, []).append((i, place))
    open_places: dict[int, set[int]] = {}
    for i, place in (call for calls in waiting.values() for call in calls if call[0] != kept[-1]):
        open_places.setdefault(i, set()).add(place)
    ordered: list[Message] = []
    for i in kept:
        m = messages[i]
        if m.role is Role.TOOL:
            m = quoted_result(m)
        ordered.append(quoted_calls(m, open_places[i]) if i in open_places else m)
        ordered.extend(results.get(i, ()))
    return ordered


def _with_own_ids(messages: Iterable[Message]) -> list[Message]:
    """The messages with call ids that Anthropic's API accepts: a small alphabet, and each id used once."""
    uses: dict[str, int] = {}
    current: dict[str, list[str]] = {}
    renamed: list[Message] = []
    for m in messages:
        if m.role is Role.TOOL:
            renamed.append(m._replace(tool_call_id=current[m.tool_call_id].pop()))
            continue
        current = {}
        calls = []
        for call in m.tool_calls:
            own = _unused(_ANTHROPIC_ID_REFUSED.sub("_", call.id) or "_", uses)
            current.setdefault(call.id, []).append(own)
            calls.append(replace(call, id=own))
        renamed.append(m._replace(tool_calls=tuple(calls)) if calls else m)
    return renamed


def _unused(name: str, uses: dict[str, int]) -> str:
    """`name`, with a number appended from its second use on. `uses` counts the names given out."""
    candidate = name
    while candidate in uses:
        uses[name] += 1
        candidate = f"{name}-{uses[name]}"
    uses[candidate] = 1
    return candidate


def _openai(m: Message, attached: _Attached) -> dict[str, Any]:
    body: dict[str, Any] = {"role": m.role.value, "content": m.content}
    if parts := attached.get(m.id):
        body["content"] = [*([{"type": "text", "text": m.content}] if m.content else []), *parts]
    if m.name:
        body["name"] = _OPENAI_NAME_REFUSED.sub("_", m.name)
    if m.tool_call_id:
        body["tool_call_id"] = m.tool_call_id
    if m.tool_calls:
        body["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in m.tool_calls
        ]
    return body


def _ollama(messages: Iterable[Message], attached: _Attached) -> Iterable[dict[str, Any]]:
    names: dict[str, str] = {}
    for m in messages:
        body: dict[str, Any] = {"role": m.role.value, "content": m.content}
        if images := attached.get(m.id):
            body["images"] = images
        if m.tool_calls:
            names.update((c.id, c.name) for c in m.tool_calls)
            body["tool_calls"] = [
                {"id": c.id, "function": {"name": c.name, "arguments": _arguments(c.arguments)}} for c in m.tool_calls
            ]
        if m.tool_call_id:
            body["tool_call_id"] = m.tool_call_id
            body["tool_name"] = names.get(m.tool_call_id, m.name)
        yield body


def _anthropic_system(
    messages: Iterable[Message], natives: _Natives, *, blocks: bool
) -> tuple[tuple[Entry, ...], bool]:
    """The entries of `system`, and whether they are blocks."""
    system = [m for m in messages if m.role is Role.SYSTEM and m.content]
    own = {m.id: natives[m.id].body for m in system if m.id in natives and isinstance(natives[m.id].body, list)}
    if not blocks and not own:
        return (Entry.of("\n\n".join(m.content for m in system), (m.id for m in system)),) if system else (), False
    entries = (
        Entry.of(block, (m.id,))
        for m in system
        for block in own.get(m.id, [{"type": "text", "text": m.content}] if m.content.strip() else [])
    )
    return tuple(entries), True


class _Turn(NamedTuple):
    """A message of Anthropic's API as it grows; `members` are those beside its role and content."""

    role: str
    content: str | list[Any]
    message_ids: list[str]
    members: Mapping[str, Any] = {}
    is_native: bool = False


def _anthropic_turns(messages: Iterable[Message], attached: _Attached, natives: _Natives) -> tuple[Entry, ...]:
    """Consecutive messages of one role joined, tool results as blocks of a user message; a message in the form of this
    API is joined with its own parts alone."""
    turns: list[_Turn] = []
    for m in messages:
        if m.role is Role.SYSTEM:
            continue
        role = "assistant" if m.role is Role.ASSISTANT else "user"
        native = natives.get(m.id)
        content = native.body if native else _anthropic_blocks(m, attached.get(m.id, []))
        if not content and not native:
            continue
        last = turns[-1] if turns and turns[-1].role == role else None
        joins = last is not None and (native.continues if native else not last.is_native)
        if last is not None and joins and isinstance(last.content, list):
            last.content.extend(content)
            last.message_ids.append(m.id)
        elif native:
            turns.append(_Turn(role, content, [m.id], native.members, is_native=True))
        else:
            turns.append(_Turn(role, content, [m.id]))
    if turns and turns[0].role == "assistant":
        turns.insert(0, _Turn("user", [{"type": "text", "text": OPENING}], []))
    return tuple(Entry.of({"role": t.role, "content": t.content, **t.members}, t.message_ids) for t in turns)


def _with_marks_of_all(entries: Sequence[Entry], most: int) -> tuple[Entry, ...]:
    """The entries with the last `most` marks of all: the API refuses more, and the newest reach furthest."""
    kept: list[Entry] = []
    for entry in reversed(entries):
        entry, most = entry.with_marks(most)
        kept.append(entry)
    return tuple(reversed(kept))


def _with_marks(value: Any, most: int) -> tuple[Any, int]:
    if isinstance(value, list):
        items: list[Any] = []
        for item in reversed(value):
            made, most = _with_marks(item, most)
            items.append(made)
        return items[::-1], most
    if not isinstance(value, dict) or not value.keys() & {_MARK, "content"}:
        return value, most
    value = dict(value)
    if value.get(_MARK) is not None:
        if most:
            most -= 1
        else:
            del value[_MARK]
    if isinstance(value.get("content"), list):
        value["content"], most = _with_marks(value["content"], most)
    return value, most


def _anthropic_blocks(m: Message, attached: list[Any]) -> list[dict[str, Any]]:
    if m.role is Role.TOOL:
        text_blocks = [{"type": "text", "text": m.content}] if m.content.strip() else []
        content = [*text_blocks, *attached] if attached else m.content
        return [{"type": "tool_result", "tool_use_id": m.tool_call_id, "content": content}]
    # Its models read material better if it precedes the question.
    blocks: list[dict[str, Any]] = list(attached)
    if m.content.strip():
        text = f"{quoted(f'{noted(m.name)}:')} {m.content}" if m.name and m.role is Role.USER else m.content
        blocks.append({"type": "text", "text": text})
    blocks.extend(
        {"type": "tool_use", "id": c.id, "name": c.name, "input": _arguments(c.arguments)} for c in m.tool_calls
    )
    return blocks


def _arguments(text: str) -> Any:
    """Arguments as an object; text that is not a JSON object is passed on under one key."""
    try:
        arguments = nested_json.strictly_parsed(text)
    except ValueError:
        arguments = None
    return arguments if isinstance(arguments, dict) else {"arguments": text}
