"""A rendered window as the JSON that chat APIs take: OpenAI-style chat completions, Anthropic's Messages, Ollama's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from service.domain.message import Message, Role

__all__ = ["Rendering", "render_json"]

OPENING = "[The conversation begins with the assistant.]"
"""Anthropic's API wants a user message first."""


class Rendering(StrEnum):
    """Whose JSON."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"


def render_json(messages: Sequence[Message], rendering: Rendering) -> str:
    """The messages as compact JSON text, ready to be merged into a request's body."""
    match rendering:
        case Rendering.OPENAI:
            body: dict[str, Any] = {"messages": [_openai(m) for m in messages]}
        case Rendering.OLLAMA:
            body = {"messages": list(_ollama(messages))}
        case Rendering.ANTHROPIC:
            body = _anthropic(messages)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def _openai(m: Message) -> dict[str, Any]:
    body: dict[str, Any] = {"role": m.role.value, "content": m.content}
    if m.name:
        body["name"] = m.name
    if m.tool_call_id:
        body["tool_call_id"] = m.tool_call_id
    if m.tool_calls:
        body["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in m.tool_calls
        ]
    return body


def _ollama(messages: Iterable[Message]) -> Iterable[dict[str, Any]]:
    names: dict[str, str] = {}
    for m in messages:
        body: dict[str, Any] = {"role": m.role.value, "content": m.content}
        if m.tool_calls:
            names.update((c.id, c.name) for c in m.tool_calls)
            body["tool_calls"] = [
                {"id": c.id, "function": {"name": c.name, "arguments": _arguments(c.arguments)}} for c in m.tool_calls
            ]
        if m.tool_call_id:
            body["tool_call_id"] = m.tool_call_id
            body["tool_name"] = names.get(m.tool_call_id, m.name)
        yield body


def _anthropic(messages: Sequence[Message]) -> dict[str, Any]:
    """System text apart; consecutive messages of one role as one; tool results as blocks of a user message."""
    system = "\n\n".join(m.content for m in messages if m.role is Role.SYSTEM and m.content)
    turns: list[dict[str, Any]] = []
    for m in messages:
        if m.role is Role.SYSTEM:
            continue
        role = "assistant" if m.role is Role.ASSISTANT else "user"
        blocks = _anthropic_blocks(m)
        if not blocks:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": role, "content": blocks})
    for turn in turns:
        # The API wants results before any text of the same turn.
        turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    if turns and turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    return {"system": system, "messages": turns} if system else {"messages": turns}


def _anthropic_blocks(m: Message) -> list[dict[str, Any]]:
    if m.role is Role.TOOL:
        return [{"type": "tool_result", "tool_use_id": m.tool_call_id, "content": m.content}]
    blocks: list[dict[str, Any]] = []
    if m.content.strip():
        text = f"{m.name}: {m.content}" if m.name and m.role is Role.USER else m.content
        blocks.append({"type": "text", "text": text})
    blocks.extend({"type": "tool_use", "id": c.id, "name": c.name, "input": _arguments(c.arguments)} for c in m.tool_calls)
    return blocks


def _arguments(text: str) -> Any:
    """Arguments as the object that they are; text that is no JSON object is handed on under one key."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else {"arguments": text}
