"""A rendered window as the JSON of chat APIs: OpenAI-style chat completions, Anthropic's Messages, Ollama's.

All of them require a call's results right after the call, and refuse the whole request otherwise. That holds for every
rendering here: a call or result without its counterpart is quoted, and an attachment that an API does not take is left
out and reported.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn, Self

from abridged.service.domain.attachments import (
    OmittedAttachment,
    Part,
    anthropic_part,
    ollama_part,
    openai_part,
    parts_of,
)
from abridged.service.domain.message import Message, Role
from abridged.service.domain.quoting import noted, quoted
from abridged.service.domain.render import quoted_calls, quoted_result
from abridged.service.text import nested_json

OPENING = "[The conversation begins with the assistant.]"
"""Anthropic's API requires a user message first."""

CACHE_CONTROL: Mapping[str, Any] = {"cache_control": {"type": "ephemeral"}}
"""A block's field by which Anthropic's API caches the prompt up to its end."""

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


class Entry(NamedTuple):
    """An entry of `messages`, or what stands in `system`: as JSON values, as compact JSON, and the messages in it."""

    body: Any
    text: str
    message_ids: tuple[str, ...]

    @classmethod
    def of(cls, body: Any, message_ids: Iterable[str]) -> Self:
        return cls(body, _dumped(body), tuple(message_ids))

    def marked(self) -> Self:
        """The entry with a mark at its end: the API caches the prompt up to there."""
        if "content" not in self.body:
            return self.of({**self.body, **CACHE_CONTROL}, self.message_ids)
        *blocks, last = self.body["content"]
        return self.of({**self.body, "content": [*blocks, {**last, **CACHE_CONTROL}]}, self.message_ids)


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


def render_json(messages: Sequence[Message], rendering: Rendering, *, blocks: bool = False) -> RenderedJson:
    """The messages in the form of an API; with `blocks`, Anthropic's `system` is a list of blocks."""
    ordered = _answered_in_place(messages)
    attached: dict[str, list[Any]] = {}
    omitted: list[OmittedAttachment] = []
    for m in ordered:
        if m.attachments:
            attached[m.id], left_out = parts_of(m, _PARTS[rendering])
            omitted += left_out
    match rendering:
        case Rendering.OPENAI:
            entries = tuple(Entry.of(_openai(m, attached), (m.id,)) for m in ordered)
        case Rendering.OLLAMA:
            bodies = _ollama(ordered, attached)
            entries = tuple(Entry.of(body, (m.id,)) for m, body in zip(ordered, bodies, strict=True))
        case Rendering.ANTHROPIC:
            turns = _anthropic_turns(_with_own_ids(ordered), attached)
            return RenderedJson(_anthropic_system(ordered, blocks=blocks), turns, tuple(omitted), blocks)
    return RenderedJson((), entries, tuple(omitted))


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


def _dumped(body: Any) -> str:
    """Compact JSON. Half a surrogate pair, which arguments may escape, stays escaped, and with it what is beside it."""
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":"))
    return text


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


def _anthropic_system(messages: Iterable[Message], *, blocks: bool) -> tuple[Entry, ...]:
    system = [m for m in messages if m.role is Role.SYSTEM and m.content]
    if blocks:
        return tuple(Entry.of({"type": "text", "text": m.content}, (m.id,)) for m in system if m.content.strip())
    return (Entry.of("\n\n".join(m.content for m in system), (m.id for m in system)),) if system else ()


def _anthropic_turns(messages: Iterable[Message], attached: _Attached) -> tuple[Entry, ...]:
    """Consecutive messages of one role joined, tool results as blocks of a user message."""
    turns: list[tuple[str, list[Any], list[str]]] = []
    for m in messages:
        if m.role is Role.SYSTEM:
            continue
        role = "assistant" if m.role is Role.ASSISTANT else "user"
        blocks = _anthropic_blocks(m, attached.get(m.id, []))
        if not blocks:
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
            turns[-1][2].append(m.id)
        else:
            turns.append((role, blocks, [m.id]))
    if turns and turns[0][0] == "assistant":
        turns.insert(0, ("user", [{"type": "text", "text": OPENING}], []))
    return tuple(Entry.of({"role": role, "content": blocks}, ids) for role, blocks, ids in turns)


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
        arguments = nested_json.parsed(text, parse_constant=_refused, parse_float=_finite)
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {"arguments": text}


def _refused(constant: str) -> NoReturn:
    """Refuses NaN and infinities, which are not JSON, though Python reads them and makes them of large numbers."""
    raise ValueError(constant)


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _refused(number)
