"""A model that follows a script: for tests and demonstrations, deterministic and without any network.

A script is a list of steps, one for each call; the last step repeats, unless `repeat` is false: then a call after the
last step is refused, and says which call it is. A JSON file (`scripted:<path>`) has it as:

    {"context_length": 8192,
     "repeat": true,
     "steps": [{"default": true},
               {"default": true, "delay_s": 5},
               {"text": "not JSON"},
               {"text": "{\\"summ", "finish_reason": "length"},
               {"record": {"summary": "..."}},
               {"error": "unavailable", "retry_after_s": 1},
               {"hang": true}]}

`default` builds a record from what the prompt quotes, `record` fills the fields that it lacks with empty ones, `error`
is one of unavailable, missing, refused, truncated, looped. An error in the file is a ScriptError when it is loaded.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abridged.service.domain.message import Role
from abridged.service.domain.record import DOMAIN_ENTITIES_MAX, KEY_POINTS_MAX, PARTICIPANTS_MAX
from abridged.service.models.deadline import Deadline
from abridged.service.models.model import (
    AnswerLooped,
    Completion,
    CompletionRequest,
    ModelDescription,
    ModelError,
    ModelMissing,
    ModelRefused,
    ModelUnavailable,
    OnProgress,
    PromptTruncated,
)
from abridged.service.models.settings import SettingUnusable

PROVIDER = "scripted"
CONTEXT_LENGTH = 8_192
CHARS_PER_TOKEN = 3
"""Low on purpose: a default record stays within `summary_tokens_max` in most scripts of writing."""

SENTENCE_CHARS_MAX = 120
LONG_SENTENCES = 6

Step = str | Completion | ModelError | asyncio.Event | float | Callable[[CompletionRequest], str]
"""An answer's text, a whole completion, an error to raise, an event to wait for or the seconds before the default
answer, or a function that makes the answer's text."""

_EMPTY_RECORD: Mapping[str, Any] = {
    "summary": "",
    "key_points": [],
    "participants": [],
    "decisions": [],
    "action_items": [],
    "unresolved": [],
    "domain_entities": [],
}
_ERRORS: Mapping[str, type[ModelError]] = {
    "unavailable": ModelUnavailable,
    "missing": ModelMissing,
    "refused": ModelRefused,
    "truncated": PromptTruncated,
    "looped": AnswerLooped,
}
_WORD = re.compile(r"\w[\w.-]{2,60}\w")
# A digit, underscore, inner dot or inner capital: an identifier more often than prose.
_IDENTIFIER = re.compile(r"[\d_.]|[a-z][A-Z]")
_SENTENCE = re.compile(r"[^.!?\n]+")

_TRANSCRIPT = re.compile(r"<transcript>\n(.*)\n</transcript>", re.DOTALL)
_HEADER = re.compile(r'^<message (\d+) (\w+)(?: "([^"\n]*)")?>$', re.MULTILINE)
_CALL = re.compile(r"^\[calls \S+ with .*\]$", re.MULTILINE)
_PARTIAL = re.compile(r"<partial_summary>\n(.*?)\n</partial_summary>", re.DOTALL)
_EARLIER = re.compile(
    r"<previous_summary>\n[^\n]*\n<conversation_summary>\n(.*?)"
    r"(?:\n(?:Key points|Decisions|Action items|Unresolved):\n.*?)?"
    r"(?:\nParticipants: ([^\n]*))?(?:\nNames: ([^\n]*))?\n</conversation_summary>\n</previous_summary>",
    re.DOTALL,
)


class ScriptError(SettingUnusable):
    """The script file is invalid."""


class ScriptedModel:
    """A `SummaryModel` that performs step n at call n. `asked` counts the calls."""

    def __init__(
        self,
        steps: Sequence[Step],
        *,
        clock: Callable[[], float],
        name: str = f"{PROVIDER}:default",
        context_length: int = CONTEXT_LENGTH,
        repeat: bool = True,
    ) -> None:
        assert steps, "a script has a step"
        self._repeat = repeat
        self._steps = tuple(steps)
        self._clock = clock
        self._name = name
        self._context_length = context_length
        self.asked = 0

    @property
    def name(self) -> str:
        """`scripted:` and the script, unless it stands in for another model."""
        return self._name

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """Perform the next step."""
        started = self._clock()
        self.asked += 1
        if self.asked > len(self._steps) and not self._repeat:
            raise ModelRefused(f"the script ends after step {len(self._steps)}, and this is call {self.asked}")
        step = self._steps[min(self.asked, len(self._steps)) - 1]
        async with Deadline(deadline_s, clock=self._clock).rest(self.name):
            # A step must be cancellable like a call on a network.
            await asyncio.sleep(0)
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, float):
                await asyncio.sleep(step)
        match step:
            case Completion():
                completion = step
            case ModelError():
                raise step
            case str():
                completion = self._completion(step, request, started)
            case asyncio.Event() | float():
                completion = self._completion(default_answer(request), request, started)
            case _:
                completion = self._completion(step(request), request, started)
        on_progress(len(completion.text))
        return completion

    async def describe(self) -> ModelDescription:
        """The context length that the script names."""
        return ModelDescription(context_length=self._context_length, window=self._context_length)

    async def idle(self) -> bool:
        """Always: it has no host to share."""
        return True

    async def close(self) -> None:
        """Do nothing: a script holds no connection."""

    def _completion(self, text: str, request: CompletionRequest, started: float) -> Completion:
        return Completion(
            text=text,
            model=self.name,
            finish_reason="stop",
            input_tokens=request.prompt_tokens,
            output_tokens=-(-len(text) // CHARS_PER_TOKEN),
            duration_s=self._clock() - started,
        )


def load_script(script: str, *, clock: Callable[[], float]) -> ScriptedModel:
    """The model for `scripted:<script>`: `default`, or the path of a JSON file. Raises ScriptError."""
    if script == "default":
        return ScriptedModel([default_answer], clock=clock)
    try:
        parsed = json.loads(Path(script).read_text(encoding="utf-8"))
    except OSError as error:
        raise ScriptError(f"{script} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ScriptError(f"{script}: not JSON") from error
    if not isinstance(parsed, dict) or not isinstance(parsed.get("steps"), list) or not parsed["steps"]:
        raise ScriptError(f"{script}: a script is an object with a list `steps` that is not empty")
    context_length = parsed.get("context_length", CONTEXT_LENGTH)
    if not isinstance(context_length, int) or context_length <= 0:
        raise ScriptError(f"{script}: context_length is a number of tokens")
    repeat = parsed.get("repeat", True)
    if not isinstance(repeat, bool):
        raise ScriptError(f"{script}: repeat is true or false")
    steps = [_read_step(step, f"{script}: step {number}") for number, step in enumerate(parsed["steps"], start=1)]
    name = f"{PROVIDER}:{script}"
    return ScriptedModel(steps, clock=clock, name=name, context_length=context_length, repeat=repeat)


@dataclass(frozen=True, slots=True)
class QuotedMessage:
    """A message quoted in a prompt, without its calls. `number` is 0 for the rest of one that was cut."""

    number: int
    role: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Quotations:
    """A prompt's quotations, oldest first: messages, or partial summaries to merge, and the previous record.

    `narrative`, `participants` and `names` are that record's, and empty without one.
    """

    messages: tuple[QuotedMessage, ...]
    partials: tuple[str, ...]
    narrative: str
    participants: tuple[str, ...]
    names: tuple[str, ...]


def quoted_in(prompt: str) -> Quotations:
    """The quotations in a prompt's user text, by the frames of `service.domain.prompt`; empty without frames."""
    earlier = _EARLIER.search(prompt)
    narrative, participants, names = (group or "" for group in earlier.groups()) if earlier else ("", "", "")
    transcript = _TRANSCRIPT.search(prompt)
    return Quotations(
        messages=tuple(_quoted_messages(transcript[1])) if transcript else (),
        partials=tuple(_PARTIAL.findall(prompt)),
        narrative=narrative,
        participants=tuple(filter(None, participants.split(", "))),
        names=tuple(filter(None, names.split(", "))),
    )


def _quoted_messages(transcript: str) -> Iterator[QuotedMessage]:
    rest, *pieces = _HEADER.split(transcript)
    if rest.strip() and not _PARTIAL.search(rest):
        yield QuotedMessage(0, "", "", rest.strip())
    for number, role, name, text in zip(*[iter(pieces)] * 4, strict=True):
        yield QuotedMessage(int(number), role, html.unescape(name or ""), _CALL.sub("", text).strip())


def default_answer(request: CompletionRequest) -> str:
    """A valid record as JSON: the first sentence of as many messages as `summary_tokens_max` holds, newest first.

    Plain text has an opening and these sentences. Names and identifiers come from what the prompt quotes, so that every
    one of them has a source.
    """
    quoted = quoted_in(request.user)
    chars_left = request.summary_tokens_max * CHARS_PER_TOKEN
    record = dict(_EMPTY_RECORD)
    record["summary"] = _clip(_opening(quoted), chars_left // 3)
    chars_left -= len(record["summary"])
    if request.schema is None:
        sentences = _taken(_first_sentences(quoted, SENTENCE_CHARS_MAX), KEY_POINTS_MAX, chars_left)
        return " ".join((record["summary"], *sentences))
    fields = set(request.schema.get("properties", ()))
    if "long_summary" in fields:
        sentences = _taken(_first_sentences(quoted, SENTENCE_CHARS_MAX), LONG_SENTENCES, chars_left)
        long = ". ".join((record["summary"].rstrip("."), *sentences)) + "."
        return json.dumps({"short_summary": _most_telling(sentences) or record["summary"], "long_summary": long})
    if fields == {"summary"}:
        sentences = _taken(_first_sentences(quoted, SENTENCE_CHARS_MAX), KEY_POINTS_MAX, chars_left)
        return json.dumps({"summary": ". ".join(sentences) or record["summary"]}, ensure_ascii=False)
    record["participants"] = _taken(_participants(quoted), PARTICIPANTS_MAX, chars_left // 4)
    record["domain_entities"] = _taken(_entities(quoted), DOMAIN_ENTITIES_MAX, chars_left // 3)
    points = chars_left // 3
    record["key_points"] = _taken(_first_sentences(quoted, min(points, SENTENCE_CHARS_MAX)), KEY_POINTS_MAX, points)
    return json.dumps(record, ensure_ascii=False)


def _opening(quoted: Quotations) -> str:
    if quoted.partials:
        return " ".join(quoted.partials)
    # The newest part must not be lost to an older summary that already fills the room.
    speakers = ", ".join(dict.fromkeys(message.name or message.role for message in quoted.messages if message.role))
    return f"Messages by {speakers}. {quoted.narrative}".strip()


def _participants(quoted: Quotations) -> Iterator[str]:
    yield from quoted.participants
    for message in quoted.messages:
        if message.role in {Role.USER, Role.ASSISTANT}:
            yield message.name or message.role


def _entities(quoted: Quotations) -> Iterator[str]:
    yield from quoted.names
    for text in (*quoted.partials, *(message.text for message in quoted.messages)):
        yield from filter(_IDENTIFIER.search, _WORD.findall(text))


def _first_sentences(quoted: Quotations, chars_max: int) -> Iterator[str]:
    for message in reversed(quoted.messages):
        found = _SENTENCE.search(message.text)
        if found is not None and found[0].strip():
            yield _clip(found[0].strip(), chars_max)


def _most_telling(sentences: Sequence[str]) -> str:
    """The two longest sentences, which have most words of their own."""
    return ". ".join(sorted(sentences, key=len, reverse=True)[:2])


def _taken(texts: Iterator[str], count_max: int, chars_max: int) -> list[str]:
    """The first distinct texts within both limits."""
    taken: list[str] = []
    for text in dict.fromkeys(texts):
        chars_max -= len(text)
        if len(taken) == count_max or chars_max < 0:
            break
        taken.append(text)
    return taken


def _clip(text: str, chars_max: int) -> str:
    """The text cut at a word's end."""
    if len(text) <= chars_max:
        return text
    return text[:chars_max].rpartition(" ")[0] or text[:chars_max]


def _read_step(step: object, where: str) -> Step:
    match step:
        case {"default": True, "delay_s": int(delay_s) | float(delay_s)}:
            return float(delay_s)
        case {"default": True}:
            return default_answer
        case {"hang": True}:
            # Never set: the call ends by its deadline or by cancellation.
            return asyncio.Event()
        case {"record": dict(record)}:
            return json.dumps({**_EMPTY_RECORD, **record}, ensure_ascii=False)
        case {"error": "unavailable", **rest}:
            retry_after = rest.get("retry_after_s")
            return ModelUnavailable(
                "scripted failure", retry_after_s=float(retry_after) if isinstance(retry_after, int | float) else None
            )
        case {"error": str(kind)} if kind in _ERRORS:
            return _ERRORS[kind]("scripted failure")
        case {"text": str(text), "finish_reason": "length"}:
            return Completion(text, f"{PROVIDER}:script", "length", 0, len(text) // CHARS_PER_TOKEN, 0.0)
        case {"text": str(text)}:
            return text
    raise ScriptError(f"{where}: has one of default, hang, record, error or text")
