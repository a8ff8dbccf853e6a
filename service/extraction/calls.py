"""Quotes the tool calls that a record tells of: what was called, and what its result begins and ends with.

Nothing of it is judged: whether a call has succeeded is for its result to say. A call without a result is not quoted,
nor one that may tell of a secret. The lines of an earlier record are kept as they are. All work is linear in the
messages.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from abridged.service.domain.material import read_text
from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.record import KEY_POINTS_MAX, SummaryRecord
from abridged.service.extraction.passages import (
    CALLED,
    RESULT,
    Corpus,
    Passage,
    called_tool,
    cleaned,
    is_usable,
    quoted_points,
    speaker_of,
)
from abridged.service.text import nested_json
from abridged.service.text.secrets import may_carry_secret, names_secret
from abridged.service.text.sentences import CLIP_CHARS_MAX, clipped, terms_of
from abridged.service.text.tool_error import is_error

CALLS_MAX: Final = KEY_POINTS_MAX // 3
"""Calls that a record tells of; the other key points are sentences."""

_OF_A_TOOL: Final = 2
"""Calls of one tool among them: the newest. A tool that is called all the time mostly looks."""

_ARGUMENTS_CHARS: Final = 100
_RESULT_CHARS: Final = 60
"""Characters of a call's arguments, of the beginning of its result, and of the end."""

_READ_CHARS: Final = 2_000
"""Characters at either end of a result that are read for it."""

_EMPTY: Final = "empty result"
_CUT: Final = "\u2026"
_NOTHING: Final = ("", "{}")
"""Arguments that tell nothing; nor does such a call with data that is not quoted."""

_FIRST_PART: Final = re.compile(r"\S*\s*")
_LAST_PART: Final = re.compile(r"\S*$")


class _Made(NamedTuple):
    """A call and its messages. `line` quotes it, and is empty if it may not be quoted."""

    tool: str
    numbers: tuple[int, ...]
    line: Callable[[], str]


def calls(
    messages: Sequence[Message], numbers: Sequence[int], corpus: Corpus, previous: SummaryRecord | None
) -> list[Passage]:
    """The calls that a record of these numbered messages tells of, and those that `previous` tells of, newest first.

    Each has the messages of the call and of its result, and its place among the sentences of `corpus`. A call that may
    not be quoted leaves no place to an older one of its tool, which would stand there as the newest.
    """
    said = [max(passage.numbers, default=0) for passage in corpus.passages]
    found: dict[str, Passage] = {}
    told: Counter[str] = Counter()
    for made in reversed((*_carried(previous), *_made(messages, numbers))):
        if told[made.tool] == _OF_A_TOOL or (line := made.line()) in found:
            continue
        told[made.tool] += 1
        if called_tool(line) == made.tool and len(line) <= CLIP_CHARS_MAX and is_usable(line):
            place = bisect_left(said, made.numbers[0]) if made.numbers else 0
            found[line] = Passage(
                line, "", source=-1, place=place, nth=0, weight=0.0, terms=terms_of(line), numbers=made.numbers
            )
    return list(found.values())[:CALLS_MAX]


def _carried(previous: SummaryRecord | None) -> Iterator[_Made]:
    for line, numbers in quoted_points(previous):
        if (tool := called_tool(line)) is not None:
            yield _Made(tool, numbers, partial(str, line))


def _made(messages: Sequence[Message], numbers: Sequence[int]) -> list[_Made]:
    """The calls, oldest first. A result belongs to the oldest call of its id that has none; one without an id to the
    calls of the message before it."""
    calls: list[_Made] = []
    waiting: dict[str, deque[tuple[int, str, ToolCall]]] = {}
    for number, message in zip(numbers, messages, strict=True):
        if message.role is not Role.TOOL:
            waiting.pop("", None)
        for call in message.tool_calls:
            waiting.setdefault(call.id, deque()).append((len(calls), speaker_of(message), call))
            calls.append(_Made(call.name, (number,), lambda: ""))
        if message.role is Role.TOOL and (of_id := waiting.get(message.tool_call_id)):
            at, speaker, call = of_id.popleft()
            text = read_text(message)
            if text or not message.attachments:
                line = partial(_line, speaker, call, text)
                calls[at] = _Made(call.name, (*calls[at].numbers, number), line)
    return calls


def _line(speaker: str, call: ToolCall, result: str) -> str:
    """The call with both ends of its result; empty if any of it may be a secret, or cannot be quoted."""
    begins, ends = _begins(result), _ends(result)
    arguments = nested_json.data_of(call.arguments)
    unescaped = json.dumps(arguments, ensure_ascii=False) if arguments is not None else ""
    read = (call.name, call.arguments, unescaped, begins, ends)
    if any(names_secret(text) or may_carry_secret(f" {text}") for text in read):
        return ""
    given = clipped(_on_one_line(_begins(call.arguments)), _ARGUMENTS_CHARS)
    is_shown = len(result) <= _RESULT_CHARS or is_error(result) or nested_json.data_of(result) is None
    came = _quoted(begins, ends) if is_shown else _CUT
    if (call.arguments.strip() and not given) or (result.strip() and not came) or (came == _CUT and given in _NOTHING):
        return ""
    return f"{speaker}{CALLED}{call.name}({given}){RESULT}{came or _EMPTY}"


def _begins(text: str) -> str:
    """The beginning of a text that is read, up to a whole word."""
    text = text.strip()
    return text if len(text) <= _READ_CHARS else _LAST_PART.sub("", text[:_READ_CHARS])


def _ends(text: str) -> str:
    """The end of a text that is read, from a whole word on."""
    text = text.strip()
    return text if len(text) <= _READ_CHARS else _FIRST_PART.sub("", text[-_READ_CHARS:], count=1)


def _quoted(begins: str, ends: str) -> str:
    """The two ends of a result, which is whole if it is short; empty if a word cannot be cut."""
    first, last = _on_one_line(begins), _on_one_line(ends)
    if first == last and len(first) <= 2 * _RESULT_CHARS:
        return first
    last_line = _on_one_line(ends.rpartition("\n")[2])
    tail = last_line if len(last_line) <= _RESULT_CHARS else _FIRST_PART.sub("", last[-_RESULT_CHARS:], count=1)
    head = clipped(first, _RESULT_CHARS)
    return f"{head} {tail}" if head and tail else ""


def _on_one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in cleaned(text)).split())
