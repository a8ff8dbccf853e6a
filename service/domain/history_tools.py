"""Tools by which a chat model reads back what a summary or a mark stands for, as its API takes their definitions.

No window names the tools: a mark and a summary say numbers, which are the tools' arguments. An offer of the tools
therefore changes no byte of the messages.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from enum import StrEnum
from typing import Any

from abridged.service.domain.render_json import Rendering


class HistoryTool(StrEnum):
    """A tool; its name ends in `_history`."""

    EXPAND = "expand"
    SEARCH = "search"


_DESCRIPTIONS = {
    HistoryTool.EXPAND: (
        "Returns original messages of this conversation by number. Use it when the summary or a cleared tool result "
        "lacks a detail that you need; do not guess such a detail."
    ),
    HistoryTool.SEARCH: (
        "Finds messages of this whole conversation, summarized ones included, and returns their numbers and the text "
        "around what was found. Read a message whole with expand_history."
    ),
}

_ARGUMENTS: dict[HistoryTool, dict[str, Any]] = {
    HistoryTool.EXPAND: {
        "first": {"type": "integer", "minimum": 1, "description": "Number of the first message."},
        "last": {"type": "integer", "minimum": 1, "description": "Number of the last message; first if only one."},
    },
    HistoryTool.SEARCH: {
        "query": {"type": "string", "description": 'Words to find, and "phrases" that must occur.'},
    },
}


def tools_json(tools: Collection[HistoryTool], rendering: Rendering) -> str:
    """A JSON array of these tools' definitions, in a fixed order: the same bytes whenever they are asked for."""
    definitions = [_definition(tool, rendering) for tool in HistoryTool if tool in tools]
    return json.dumps(definitions, separators=(",", ":"))


def _definition(tool: HistoryTool, rendering: Rendering) -> dict[str, Any]:
    arguments = _ARGUMENTS[tool]
    schema = {"type": "object", "properties": arguments, "required": list(arguments), "additionalProperties": False}
    named = {"name": f"{tool}_history", "description": _DESCRIPTIONS[tool]}
    if rendering is Rendering.ANTHROPIC:
        return {**named, "input_schema": schema}
    return {"type": "function", "function": {**named, "parameters": schema}}
