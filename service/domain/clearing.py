"""Clearing: old tool results give way to one-line marks when that is all that a full window needs.

A mark names the message, its size and its tool, so that whoever needs the result can expand it; the log keeps it. A
window is cleared only when a pass is due, in the commit of what made it due: between two passes nothing of it changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from abridged.service.domain.amendments_fold import marked
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import MessageAppended, ResultMark
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy
from abridged.service.domain.tokens import TokenSource, calibrated_tokens
from abridged.service.domain.window import ToolPairs, pinned_units, relieved_ratio, tool_pairs, tool_units
from abridged.service.text.tool_error import is_error

MARK_CHARS_PER_TOKEN = 3
"""Marks are English words and digits: most tokenizers need a token for more than three characters of them."""

TOOL_NAME_CHARS_MAX = 64
"""Characters of a tool's name in a mark, which stays a line of its own."""

_UNSAFE = re.compile(r"[^\w.:/-]+")


@dataclass(frozen=True, slots=True)
class _Result:
    """A tool result and the name of the tool that made it."""

    appended: MessageAppended
    tool: str


def marks_that_suffice(state: Conversation, policy: Policy) -> tuple[ResultMark, ...]:
    """The marks that bring the window below its reset ratio, with a runway to the next trigger; none if they do not."""
    marks = clearable(state, policy)
    if not marks:
        return ()
    left = state.window_tokens + state.settings.overhead - freed_tokens(state, marks)
    return marks if left <= relieved_ratio(policy) * state.budget else ()


def clearable(state: Conversation, policy: Policy) -> tuple[ResultMark, ...]:
    """A mark for every result that may give way to one, in order.

    Results of at least `clear_min_tokens` may, if they are before the last `clear_keep_tool_units` answered calls. An
    agent works on one request for hours, so its results age by calls and not by requests. Errors, pins and the results
    of excluded tools stay.
    """
    if not policy.clearing or not any(m.message.role is Role.TOOL for m in state.window):
        return ()
    chat = [m for m in state.window if m.message.role is not Role.SYSTEM]
    pairs = tool_pairs(chat)
    factor = state.settings.calibration_factor
    units = pinned_units(tool_units(chat, pairs), state.pins) if state.pins else ()
    pinned = {m.number for unit in units for m in unit}
    return tuple(
        _mark(result)
        for result in _old_results(chat, pairs, keep_units=policy.clear_keep_tool_units)
        if _costs(result.appended, factor) >= policy.clear_min_tokens
        and not result.appended.cleared_tokens
        and result.appended.number not in pinned
        and result.tool not in policy.clear_exclude_tools
        and not is_error(result.appended.message.content)
    )


def freed_tokens(state: Conversation, marks: Sequence[ResultMark]) -> int:
    """Return the tokens that the window saves with these marks in the place of their results."""
    by_number = {mark.number: mark for mark in marks}
    after = [marked(m, by_number[m.number]) if m.number in by_number else m for m in state.window]
    estimated = sum(m.tokens for m in after if m.source is TokenSource.ESTIMATE)
    exact = sum(m.tokens for m in after if m.source is not TokenSource.ESTIMATE)
    return state.window_tokens - state._replace(exact_tokens=exact, estimated_tokens=estimated).window_tokens


def _old_results(chat: Sequence[MessageAppended], pairs: ToolPairs, *, keep_units: int) -> Iterator[_Result]:
    calling = sorted({number for number, _ in pairs.results})
    old = frozenset(calling[: max(0, len(calling) - keep_units)])
    tools = _tools_by_result(chat, pairs)
    for m in chat:
        call_number, tool = tools.get(m.number, (0, ""))
        if call_number in old:
            yield _Result(m, tool)


def _tools_by_result(chat: Sequence[MessageAppended], pairs: ToolPairs) -> Mapping[int, tuple[int, str]]:
    """Map the number of each result to the number of the calling message and the tool's name."""
    messages: dict[int, Message] = {m.number: m.message for m in chat if m.message.tool_calls}
    return {
        result: (number, messages[number].tool_calls[place].name) for (number, place), result in pairs.results.items()
    }


def _mark(result: _Result) -> ResultMark:
    m = result.appended
    tool = _UNSAFE.sub("_", result.tool)[:TOOL_NAME_CHARS_MAX]
    text = f"[Result of {tool} cleared: message {m.number}, {m.tokens} tokens. Expand it by its number.]"
    return ResultMark(m.number, text, -(-len(text) // MARK_CHARS_PER_TOKEN))


def _costs(m: MessageAppended, factor: float) -> int:
    return calibrated_tokens(m.tokens, factor) if m.source is TokenSource.ESTIMATE else m.tokens
