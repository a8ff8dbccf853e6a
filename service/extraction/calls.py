"""The tool calls of a conversation as lines of a record: what somebody called, and what came of it.

A call that only looks counts if it failed, any other always. A later call that succeeds takes the place of one that
failed with the same first argument, and calls that differ in one argument share a line. The lines of an earlier record
are read again, so both hold for them too. Whether a call only looks is told by its first word, which is data, by
language. All work is linear in the messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any, Final

from abridged.service.domain.message import Message, Role, ToolCall, sent_content
from abridged.service.domain.record import EVIDENCE_MAX, SummaryRecord
from abridged.service.extraction.passages import cleaned, is_usable, speaker_of
from abridged.service.grounding.claims import evidence_of, unsupported
from abridged.service.text import nested_json
from abridged.service.text.markup import strip_chat_markup
from abridged.service.text.phrases import Words, words_of
from abridged.service.text.rows import own_values
from abridged.service.text.secrets import may_carry_secret, names_secret
from abridged.service.text.sentences import clipped
from abridged.service.text.tool_error import HEAD_CHARS, TAIL_CHARS, is_error

_DONE: Final = "done"
_FAILED: Final = "failed"
_NO_OUTPUT: Final = "no output"
"""Empty results say nothing that a record could need, so they do not come with their calls."""

_NAME_CHARS_MAX: Final = 64
_FIRST_CHARS_MAX: Final = 100
_VALUE_CHARS_MAX: Final = 40
_OUTCOME_CHARS_MAX: Final = 120
"""Characters of a tool's name, of a call's first argument, of any other, and of what came of it."""

_ARGUMENTS_MAX: Final = 5
_VALUES_MAX: Final = 6
"""Arguments of a call, and calls that share a line: the newest."""

_READ_CHARS_MAX: Final = 4_000
"""Characters of a value, or of the start of a result, that are read for what is told of them."""

_LINE: Final = re.compile(
    rf"(?P<speaker>[^:\n]{{1,60}}): called (?P<name>[\w.:/-]{{1,{_NAME_CHARS_MAX}}}?)"
    r"(?:\((?P<arguments>[^\n]*?)\))?: (?P<outcome>[^\n]+)"
)
_NAME: Final = re.compile(rf"[\w.:/-]{{1,{_NAME_CHARS_MAX}}}")
_WORD: Final = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+")
_SPACE_ENDS: Final = re.compile(r".*(?:__|[.:/])(?=\w)")
"""The part of a name before the tool's own, such as the name of its server."""

_DATA: Final = re.compile(r"\s*(?:\{|\[\s*[][{\"])")
"""The beginning of JSON, which a text in brackets is not."""

_COMMANDS: Final = frozenset({"command", "cmd", "sql"})
"""Arguments whose first word says more of a call than the tool's name."""

_SHELL: Final = re.compile(r"^(?:/\S{1,40}/)?(?:ba|da|z)?sh -\w+ ")
_COMPOUND: Final = re.compile(r"[;&|>`]|\$\(")
"""A command of a shell that may do more than its first word."""

_TOLD_KEYS: Final = (
    *("error", "errors", "exception", "message", "detail", "details"),
    *("reason", "stderr", "text", "content"),
)
"""Keys of a failed result that say why, the best first."""

_TOLD_DEPTH: Final = 4


@dataclass(frozen=True, slots=True)
class Call:
    """A call, or several that differ in one argument.

    Attributes:
        speaker: Who called.
        name: The tool's name.
        arguments: The arguments with their values: several of a list, and where calls differ.
        outcome: The first telling line of the result.
        numbers: The messages of call and result.
        raw: The call and its result as they were written, or its line in an earlier record.
        looks: True if it changes nothing.
    """

    speaker: str
    name: str
    arguments: tuple[tuple[str, tuple[str, ...]], ...]
    outcome: str
    numbers: tuple[int, ...]
    raw: str
    looks: bool

    @property
    def line(self) -> str:
        """The line that a record has."""
        given = "; ".join(f"{key}={', '.join(values)}" if key else ", ".join(values) for key, values in self.arguments)
        return f"{self.speaker}: called {self.name}{f'({given})' if given else ''}: {self.outcome}"

    @property
    def failed(self) -> bool:
        """True if the outcome is an error."""
        return is_error(self.outcome)


def is_of_call(line: str) -> bool:
    """Return whether a line of a record tells of a call."""
    return _LINE.fullmatch(line) is not None


def without_calls(record: SummaryRecord) -> SummaryRecord:
    """The record without its lines of calls."""
    listed = zip(record.key_points, chain(record.evidence.key_points, repeat(())), strict=False)
    points = [(line, numbers) for line, numbers in listed if not is_of_call(line)]
    numbers = tuple(numbers for _, numbers in points)
    return replace(
        record,
        key_points=tuple(line for line, _ in points),
        evidence=replace(record.evidence, key_points=numbers if any(numbers) else ()),
    )


def calls_of(messages: Sequence[Message], numbers: Sequence[int], previous: SummaryRecord | None) -> Iterator[Call]:
    """The calls that a record may tell of, the most telling first: those that change something, then those that look,
    both newest first."""
    found = _collapsed(_standing([*_carried(previous), *_called(messages, numbers)]))
    found.sort(key=lambda call: (call.looks, -max(call.numbers, default=0)))
    return (call for call in found if is_usable(call.line) and _is_borne_out(call))


def _carried(previous: SummaryRecord | None) -> Iterator[Call]:
    """The calls that a record tells of."""
    if previous is None:
        return
    for line, numbers in zip(previous.key_points, chain(previous.evidence.key_points, repeat(())), strict=False):
        if (found := _LINE.fullmatch(line)) is not None:
            arguments = tuple(_argument(part) for part in (found["arguments"] or "").split("; ") if part)
            name = found["name"]
            yield Call(found["speaker"], name, arguments, found["outcome"], numbers, line, _looks(name, arguments))


def _argument(part: str) -> tuple[str, tuple[str, ...]]:
    key, sign, value = part.partition("=")
    return (key, _values(value)) if sign else ("", _values(part))


def _values(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


def _called(messages: Sequence[Message], numbers: Sequence[int]) -> Iterator[Call]:
    """The calls with their results, in the order of the calls; a result belongs to the nearest call of its id before
    it that has none."""
    calls: list[tuple[int, Message, ToolCall]] = []
    results: dict[int, tuple[int, str]] = {}
    waiting: dict[str, list[int]] = {}
    for number, message in zip(numbers, messages, strict=True):
        for call in message.tool_calls:
            waiting.setdefault(call.id, []).append(len(calls))
            calls.append((number, message, call))
        if message.role is Role.TOOL and waiting.get(message.tool_call_id):
            results[waiting[message.tool_call_id].pop()] = number, sent_content(message)
    for place, (number, message, call) in enumerate(calls):
        if _NAME.fullmatch(call.name):
            result_number, result = results.get(place, (number, _NO_OUTPUT))
            yield _call(speaker_of(message), call, result, tuple(sorted({number, result_number})))


def _call(speaker: str, call: ToolCall, result: str, numbers: tuple[int, ...]) -> Call:
    arguments = tuple(_arguments(call.arguments))
    looks = _looks(call.name, arguments)
    ends = f"{result[:_READ_CHARS_MAX]}\n{result[-TAIL_CHARS:]}"
    outcome = _DONE if looks and not is_error(result) else _outcome(result, given=call.arguments)
    raw = "\n".join((call.name, call.arguments, ends))
    return Call(speaker, call.name, arguments, outcome, numbers, raw, looks)


def _looks(name: str, arguments: Sequence[tuple[str, tuple[str, ...]]]) -> bool:
    """Return whether a call changes nothing, by the first word of the tool's own name or of a shell's command."""
    commands = [_SHELL.sub("", " ".join(values)) for key, values in arguments if key in _COMMANDS]
    if any(map(_COMPOUND.search, commands)):
        return False
    first = _WORD.search(commands[0] if commands else _SPACE_ENDS.sub("", name))
    return first is not None and first[0].lower() in words_of(Words.LOOKING)


def _arguments(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The arguments that can be told, the first one first and then the shortest."""
    value = _json(text)
    if not isinstance(value, dict):
        if shown := _shown(_readable(text) if value is None else _flat(value), _FIRST_CHARS_MAX):
            yield "", _values(shown)
        return
    told = ((key, _plain(_flat(one))) for key, one in value.items() if not names_secret(key))
    listed = [(key, one) for key, one in told if one and _NAME.fullmatch(key)]
    first, others = listed[:1], sorted(listed[1:], key=lambda pair: len(pair[1]) > _VALUE_CHARS_MAX)
    for nth, (key, one) in enumerate([*first, *others][:_ARGUMENTS_MAX]):
        if shown := _shown(one, _VALUE_CHARS_MAX if nth else _FIRST_CHARS_MAX):
            yield key, _values(shown)


def _flat(value: Any) -> str:
    """The values of a JSON value, without the secrets."""
    match value:
        case dict():
            return " ".join(filter(None, (_flat(one) for key, one in value.items() if not names_secret(key))))
        case list():
            return ", ".join(filter(None, map(_flat, value)))
        case bool():
            return str(value).lower()
        case None:
            return ""
    return str(value)


def _plain(text: str) -> str:
    """The start of a text on one line, as a record may have it."""
    start = text[:_READ_CHARS_MAX].replace("; ", ", ")
    return " ".join(strip_chat_markup(cleaned(start)).split())


def _shown(text: str, chars_max: int) -> str:
    """The start of a text as a line of a call has it; empty if it may have a credential that only its program knows."""
    shown = clipped(_plain(text), chars_max)
    return "" if may_carry_secret(shown) else shown


def _readable(text: str) -> str:
    """The text, if it is not JSON that was cut off."""
    return "" if _DATA.match(text) else text


def _outcome(result: str, *, given: str) -> str:
    """The outcome of a call, in a line: why it failed, or what its result says of itself that the call does not."""
    failed, value = is_error(result), _json(result)
    if isinstance(value, dict) and not failed:
        told = "; ".join(one for one in own_values(value) if one.partition("=")[2] not in given)
    elif isinstance(value, dict | list):
        told = _told(value, _TOLD_DEPTH)
    else:
        told = _telling_line(_readable(result), failed=failed)
    shown = _shown(told, _OUTCOME_CHARS_MAX)
    if failed and not is_error(shown):
        return f"{_FAILED}: {shown}" if shown else _FAILED
    return shown or _DONE


def _told(value: Any, depth: int) -> str:
    """The first text in a JSON value that says why; empty if none does."""
    if isinstance(value, str):
        return value
    inner: list[Any] = value[:_VALUES_MAX] if isinstance(value, list) else []
    if isinstance(value, dict):
        inner = [value[key] for key in _TOLD_KEYS if key in value]
    return next(filter(None, (_told(one, depth - 1) for one in inner if depth)), "")


def _telling_line(result: str, *, failed: bool) -> str:
    """The first line with a word; of a failed result the first that is an error by itself and says which."""
    start = result[:HEAD_CHARS]
    lines = [line for line in start.splitlines() if any(map(str.isalnum, line))]
    if failed:
        lines = [*(line for line in chain(lines, result[-TAIL_CHARS:].splitlines()) if _is_error_line(line)), *lines]
    return next(iter(lines), "")


def _is_error_line(line: str) -> bool:
    return is_error(line) and not line.startswith("Traceback ")


def _json(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return nested_json.parsed(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None


def _standing(calls: Sequence[Call]) -> list[Call]:
    """The calls that count: without those that look and succeed, the failures that a later one overcame, and all but
    the last of equal ones."""
    last: dict[tuple[object, ...], int] = {}
    succeeded: dict[tuple[str, str], int] = {}
    for place, call in enumerate(calls):
        last[call.name, call.arguments] = place
        if not call.failed:
            succeeded.update(((call.name, value), place) for value in _first_values(call))
    counting: list[Call] = []
    for place, call in enumerate(calls):
        if last[call.name, call.arguments] != place or (call.looks and not call.failed):
            continue
        if call.failed:
            left = [one for one in _first_values(call) if succeeded.get((call.name, one), -1) < place]
            if not left:
                continue
            if call.arguments:
                call = replace(call, arguments=((call.arguments[0][0], tuple(left)), *call.arguments[1:]))
        counting.append(call)
    return counting


def _first_values(call: Call) -> tuple[str, ...]:
    return call.arguments[0][1] if call.arguments else ("",)


def _collapsed(calls: Sequence[Call]) -> list[Call]:
    """The calls; those of one tool with one outcome that differ in one argument become one."""
    kept: list[Call] = []
    varying: dict[int, int] = {}
    places: dict[tuple[object, ...], int] = {}
    for call in calls:
        rests = [(call.speaker, call.name, call.outcome, nth, *_but(call, nth)) for nth in range(len(call.arguments))]
        for nth, rest in enumerate(rests):
            place = places.get(rest)
            if place is not None and varying.get(place, nth) == nth and len(call.arguments[nth][1]) == 1:
                varying[place] = nth
                kept[place] = _joined(kept[place], call, nth)
                break
        else:
            places.update(dict.fromkeys(rests, len(kept)))
            kept.append(call)
    return kept


def _but(call: Call, nth: int) -> tuple[object, ...]:
    """The arguments, of this one the name alone."""
    return *call.arguments[:nth], call.arguments[nth][0], *call.arguments[nth + 1 :]


def _joined(earlier: Call, later: Call, nth: int) -> Call:
    """One call for two that differ in this argument."""
    key, values = later.arguments[nth]
    both = tuple(dict.fromkeys((*earlier.arguments[nth][1], *values)))[-_VALUES_MAX:]
    arguments = (*later.arguments[:nth], (key, both), *later.arguments[nth + 1 :])
    numbers = tuple(sorted({*earlier.numbers, *later.numbers})[-EVIDENCE_MAX:])
    return replace(later, arguments=arguments, numbers=numbers, raw="\n".join((earlier.raw, later.raw)))


def _is_borne_out(call: Call) -> bool:
    """Return whether every identifier of a call's line was written so, which a value in JSON may not be."""
    return not unsupported(call.line, evidence_of([call.raw]))
