"""Removes chat-template marks that leak into a model's answer, and finds any that remain.

A record goes back into prompts, where such a mark would end our frame or open another role, so none may stay, of any
family of models. Marks are found as a model reads them: other spellings by lookalike and invisible characters too. All
patterns are bounded, and the work is linear in the text.
"""

from __future__ import annotations

import re
from typing import Final

from abridged.service.text.lookalikes import reading, replaced

_MARKS: Final = re.compile(
    r"<\|[\w/][^|<>\n]{0,40}\|>"  # ChatML, Llama 3, Phi, Qwen, GPT, Granite, Command R, DeepSeek
    r"|<(?:start|end)_of_turn>(?:(?:user|model)\b)?|<(?:bos|eos|pad|unk|sop|eop)>|\[gMASK\]"  # Gemma, GLM
    r"|<\|(?:turn|channel|tool|tool_call|tool_response)>|<(?:turn|channel|tool|tool_call|tool_response)\|>"  # Gemma 4
    r"|\[/?(?:INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|SYSTEM_PROMPT|THINK)\]"  # Mistral
    r"|<</?SYS>>"  # Llama 2
    r"|</?s>(?!\w)"
    r"|</?(?:think|thinking|thought|reasoning|reflection|scratchpad|tool_call|tool_response)>",
    re.IGNORECASE,
)

_HEADER: Final = re.compile(
    r"<\|im_start\|>[ \t]{0,4}(?:system|user|assistant|tool)\b[ \t]{0,4}\n?"
    r"|<\|start_header_id\|>[ \t]{0,4}\w{1,20}[ \t]{0,4}<\|end_header_id\|>\n{0,2}"
    r"|<\|start\|>\w{1,20}(?:<\|channel\|>\w{1,20})?<\|message\|>",
    re.IGNORECASE,
)

_OPENING: Final = re.compile(r"[<\[]")

_TURN: Final = re.compile(r"<\|im_start\|>[ \t]{0,4}(\w{0,20})|<\|im_end\|>", re.IGNORECASE)

_NESTING_MAX: Final = 40
"""Deeper nesting is no accident, and what remains of it is broken instead of removed."""

_THOUGHT_OPEN: Final = re.compile(r"<(think|thinking|thought|reasoning|reflection|scratchpad)>", re.IGNORECASE)
_THOUGHT_CLOSE: Final = re.compile(r"</(?:think|thinking|thought|reasoning|reflection|scratchpad)>", re.IGNORECASE)


def strip_chat_markup(text: str) -> str:
    """`text` without thoughts, role headers and marks of chat templates, stripped of white space.

    A thought that never ends removes the rest, which is not an answer. A thought's end without a beginning removes what
    precedes it, because some templates open the thought in the prompt.
    """
    return strip_marks(_without_thoughts(text))


def answered_turn(text: str) -> str:
    """The first turn of an assistant in a plain answer that goes on in ChatML: blocks of other roles are left out with
    what they say, and nothing follows the turn's end. Text without such marks is returned as it is.
    """
    kept, position, is_others = "", 0, False
    for mark in _TURN.finditer(text):
        if not is_others:
            kept += text[position : mark.start()]
            if kept.strip():
                return kept
        opens, role = mark[0].lower().startswith("<|im_start"), (mark[1] or "").lower()
        is_others = opens and role != "assistant"
        position = mark.end()
    return kept if is_others else kept + text[position:]


def strip_marks(text: str) -> str:
    """`text` with a line's end for each role header and mark of a chat template, stripped of white space."""
    return without_marks(text).strip()


def without_marks(text: str) -> str:
    """`text` with a line's end for each role header and mark of a chat template: no sentence goes on behind one."""
    # Removing a mark can join its surroundings into another. Every header begins with a mark.
    for _ in range(_NESTING_MAX):
        if not leftover_markup(text):
            return text
        text = replaced(replaced(text, _HEADER, "\n"), _MARKS, "\n")
    return replaced(text, _OPENING, "(")


def leftover_markup(text: str) -> bool:
    """Return whether `text` contains a mark of a chat template."""
    return _MARKS.search(reading(text).text) is not None


def _without_thoughts(text: str) -> str:
    kept: list[str] = []
    position = 0
    first_close = _THOUGHT_CLOSE.search(text)
    opening = _THOUGHT_OPEN.search(text)
    if first_close is not None and (opening is None or first_close.start() < opening.start()):
        position = first_close.end()
        opening = _THOUGHT_OPEN.search(text, position)
    while opening is not None:
        kept.append(text[position : opening.start()])
        closing = _THOUGHT_CLOSE.search(text, opening.end())
        if closing is None:
            return " ".join(kept)
        position = closing.end()
        opening = _THOUGHT_OPEN.search(text, position)
    kept.append(text[position:])
    return " ".join(kept)
