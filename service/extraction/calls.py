"""Quotes the tool calls that a record tells of: what was called, and what its result begins and ends with.

Nothing of it is judged: whether a call has succeeded is for its result to say. A call without a result is not quoted,
nor one that may tell of a secret. The lines of an earlier record are kept as they are. All work is linear in the
messages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Final

from abridged.service.domain.message import Message, Role, ToolCall, sent_content
from abridged.service.domain.record import SummaryRecord
from abridged.service.extraction.passages import (
    CALLED,
    Corpus,
    Passage,
    called_tool,
    cleaned,
    is_usable,
    quoted_points,
    speaker_of,
)
from abridged.service.text.secrets import may_carry_secret, names_secret
from abridged.service.text.sentences import clipped, terms_of
from abridged.service.text.tool_error import is_error

_OF_A_TOOL: Final = 2
"""Calls of one tool that a record tells of: the newest. A tool that is called all the time mostly looks."""

_ARGUMENTS_CHARS: Final = 100
_RESULT_CHARS: Final = 60
"""Characters of a call's arguments, of the beginning of its result, and of the end."""

_READ_CHARS: Final = 2_000
"""Characters at either end of a text that are read for it."""

_RESULT: Final = " \u2013 "
"""The mark between a call and its result."""

_EMPTY: Final = "empty result"
_BRACKETS: Final = ("{", "[")
_CUT: Final = "\u2026"


def calls(
    messages: Sequence[Message], numbers: Sequence[int], corpus: Corpus, previous: SummaryRecord | None
) -> list[Passage]:
    """The calls that a record of these numbered messages tells of, and those that `previous` tells of, newest first.

    Each has the messages of the call and of its result, and its place among the sentences of `corpus`.
    """
    said = [max(passage.numbers, default=0) for passage in corpus.passages]
    made = [
        _passage(f"{speaker}{CALLED}{text}", (call, result), bisect_left(said, call))
        for speaker, text, call, result in _answered(messages, numbers)
    ]
    carried = [
        _passage(line, rests_on, 0) for line, rests_on in quoted_points(previous) if called_tool(line) is not None
    ]
    found: list[Passage] = []
    told: Counter[str | None] = Counter()
    for passage in reversed((*carried, *made)):
        tool = called_tool(passage.line)
        if tool is not None and told[tool] < _OF_A_TOOL and is_usable(passage.line):
            told[tool] += 1
            found.append(passage)
    return found


def _passage(line: str, numbers: tuple[int, ...], place: int) -> Passage:
    return Passage(
        line, "", source=-1, place=place, nth=0, weight=0.0, terms=terms_of(line), by_model=True, numbers=numbers
    )


def _answered(messages: Sequence[Message], numbers: Sequence[int]) -> Iterator[tuple[str, str, int, int]]:
    """Speaker, text, and the numbers of call and result, of each call that may be told, in the order of the results.

    A result belongs to the oldest call of its id that has none.
    """
    waiting: dict[str, deque[tuple[str, ToolCall, int]]] = {}
    for number, message in zip(numbers, messages, strict=True):
        for call in message.tool_calls:
            waiting.setdefault(call.id, deque()).append((speaker_of(message), call, number))
        if message.role is Role.TOOL and (calls := waiting.get(message.tool_call_id)):
            speaker, call, called = calls.popleft()
            if (text := _told(call, sent_content(message))) is not None:
                yield speaker, text, called, number


def _told(call: ToolCall, result: str) -> str | None:
    """The call with both ends of its result; None if any of it may be a secret, or cannot be quoted."""
    given = _on_one_line(call.arguments[:_READ_CHARS], _ARGUMENTS_CHARS)
    came = _ends(result)
    if may_carry_secret(call.arguments) or any(map(names_secret, (call.name, call.arguments, came))):
        return None
    if not (given or not call.arguments.strip()) or not (came or not result.strip()):
        return None
    return f"{call.name}({given}){_RESULT}{came or _EMPTY}"


def _ends(result: str) -> str:
    """The beginning and the last line of a result; of long data that is no error, the first bracket alone."""
    begins = result.lstrip()[:1]
    if begins in _BRACKETS and len(result) > _RESULT_CHARS and not is_error(result):
        return f"{begins}{_CUT}"
    came = _on_one_line(result[:_READ_CHARS], _RESULT_CHARS)
    last = _on_one_line(result[-_READ_CHARS:].rstrip().rpartition("\n")[2], _RESULT_CHARS)
    return came if last in came else f"{came} {last}"


def _on_one_line(text: str, chars_max: int) -> str:
    return clipped(" ".join(cleaned(text).split()), chars_max)
