"""Models that know what was planted: one reports it in words of its own, one lies, one fails every third time.

Each answers as the lossy model does, in whatever form is asked for, and is the same in every run.
"""

from __future__ import annotations

import html
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from abridged.service.domain.record import KEY_POINTS_MAX
from abridged.service.models.model import Completion, CompletionRequest, ModelDescription, OnProgress, SummaryModel
from abridged.service.tokenizers.estimated import EstimatingCounter
from bench.quality.facts import Fact, Values
from bench.quality.lossy import LossyModel

_FRAMES: Final = ("<transcript>", "</transcript>", "<previous_summary>", "</previous_summary>")

_NARRATIVE_SHARE: Final = 0.4
"""Part of the size asked for that the narrative takes; the rest is for statements."""


class FaithfulModel:
    """Reports each current fact of its prompt as a statement in other words, and copies sentences for its narrative.

    `escapes` counts prompts whose frames something quoted in them has closed or opened.
    """

    name = "faithful"

    def __init__(self, facts: Sequence[Fact], *, window: int) -> None:
        self._facts = facts
        self._narrator = LossyModel(kept=1.0, window=window)
        self._count = EstimatingCounter().count
        self.escapes = 0

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """The answer, in the form that the request's schema asks for."""
        self.escapes += any(request.user.count(mark) > 1 for mark in _FRAMES)
        size = int(request.summary_tokens_max * _NARRATIVE_SHARE)
        narrated = await self._narrator.complete(
            replace(request, summary_tokens_max=size), deadline_s=deadline_s, on_progress=on_progress
        )
        text = self._answer(request, narrated.text)
        return replace(narrated, text=text, model=self.name, output_tokens=self._count(text))

    async def describe(self) -> ModelDescription:
        """See SummaryModel."""
        return await self._narrator.describe()

    async def idle(self) -> bool:
        """Always."""
        return True

    async def close(self) -> None:
        """See SummaryModel."""

    def _answer(self, request: CompletionRequest, narrated: str) -> str:
        statements = self._statements(request)
        if request.schema is None:
            return "\n".join((narrated, *statements))
        answer: dict[str, Any] = json.loads(narrated)
        if "key_points" in answer:
            answer["key_points"] = statements
        elif "long_summary" in answer:
            answer["long_summary"] = " ".join((answer["long_summary"], *statements))
        return json.dumps(answer, ensure_ascii=False)

    def _statements(self, request: CompletionRequest) -> list[str]:
        """The facts that the prompt tells, the newest of each name, as many as there is room for."""
        prompt = html.unescape(request.user)
        newest = {fact.anchor: fact for fact in self._facts if fact.anchor and fact.is_attributed_in(prompt)}
        left = int(request.summary_tokens_max * (1 - _NARRATIVE_SHARE))
        statements: list[str] = []
        for fact in reversed(newest.values()):
            left -= self._count(text := Values.restated(fact)) + 3
            if left < 0 or len(statements) == KEY_POINTS_MAX:
                break
            statements.append(text)
        return statements[::-1]


class LieKind(StrEnum):
    """The kind of a lie."""

    INVENTED_VALUE = "invented value"
    INVENTED_EVENT = "invented event"
    OTHER_NAME = "value of another name"


@dataclass(frozen=True, slots=True)
class Lie:
    """A statement that no message supports."""

    kind: LieKind
    text: str


class LyingModel:
    """The faithful model, which adds a lie of each kind to every record; `lies` has all of them."""

    name = "lying"

    def __init__(self, facts: Sequence[Fact], *, window: int) -> None:
        self._facts = [fact for fact in facts if fact.anchor]
        self._honest = FaithfulModel(facts, window=window)
        self.lies: list[Lie] = []

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """The honest answer with its lies, in lists; without them for a form that has none."""
        completion = await self._honest.complete(request, deadline_s=deadline_s, on_progress=on_progress)
        if request.schema is None or "key_points" not in request.schema.get("properties", ()):
            return completion
        answer: dict[str, Any] = json.loads(completion.text)
        value, event, other = lies = self._lies(request.user)
        answer["decisions"] = [value.text]
        answer["action_items"] = [{"task": event.text, "owner": "", "due": ""}]
        answer["key_points"] = [*answer["key_points"][1 - KEY_POINTS_MAX :], other.text]
        self.lies += lies
        return replace(completion, text=json.dumps(answer, ensure_ascii=False), model=self.name)

    async def describe(self) -> ModelDescription:
        """See SummaryModel."""
        return await self._honest.describe()

    async def idle(self) -> bool:
        """Always."""
        return True

    async def close(self) -> None:
        """See SummaryModel."""

    def _lies(self, prompt: str) -> tuple[Lie, Lie, Lie]:
        rng = random.Random(int.from_bytes(blake2b(prompt.encode(), digest_size=8).digest(), "big"))
        values, text = Values(rng), html.unescape(prompt)
        known = [fact for fact in self._facts if fact.is_attributed_in(text)] or self._facts
        fact = rng.choice(known)
        kin = [other for other in self._facts if other.kind is fact.kind and other.anchor != fact.anchor]
        other = rng.choice([other for other in kin if other in known] or kin or [replace(fact, anchor="Nobody")])
        invented = replace(fact, value=values.value(fact.kind), anchor=values.anchor())
        event = f"{values.anchor()} must refund the {rng.choice(_CUSTOMERS)} for the {rng.choice(_TROUBLES)}"
        return (
            Lie(LieKind.INVENTED_VALUE, Values.restated(invented)),
            Lie(LieKind.INVENTED_EVENT, event),
            Lie(LieKind.OTHER_NAME, Values.restated(replace(fact, anchor=other.anchor))),
        )


_CUSTOMERS: Final = ("hospital", "bakery", "orchestra", "airport", "ministry", "museum")
_TROUBLES: Final = ("spoiled shipment", "cancelled concert", "flooded basement", "wrong uniforms", "lost luggage")


@dataclass(frozen=True, slots=True)
class BadAnswer:
    """A model's answer in place of a record. `mark` is the text that a record made of it would have; empty for half an
    answer, which is cut from a good one."""

    name: str
    text: str
    mark: str = ""


BAD_ANSWERS: Final = (
    BadAnswer("nothing", ""),
    BadAnswer("junk", "xq zzv 0x0x0x lorem {{{ ]]] qqq " * 12, "xq zzv"),
    BadAnswer("NONE", "NONE", "NONE"),
    BadAnswer("refusal", "I'm sorry, but I can't help with that request.", "can't help with"),
    BadAnswer("cut off", ""),
    BadAnswer(
        "another language",
        "Участники обсудили погоду, поездку на дачу и рецепт пирога, после чего все разошлись довольные. " * 3,
        "рецепт пирога",
    ),
    BadAnswer(
        "instructions copied",
        "You condense conversations so that a chat model can go on without the older messages. Answer with one JSON "
        "object and nothing else: no Markdown, no comment.",
        "You condense conversations",
    ),
)


class FailingModel:
    """Another model, of whose answers every third is bad, in turns of BAD_ANSWERS; each also in the form asked for.

    `bad` are those, with their texts.
    """

    def __init__(self, model: SummaryModel) -> None:
        self._model = model
        self._calls = 0
        self.bad: list[tuple[BadAnswer, str]] = []

    @property
    def name(self) -> str:
        """The other's, and that it fails."""
        return f"{self._model.name}, every third answer bad"

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """The other's answer, or a bad one."""
        completion = await self._model.complete(request, deadline_s=deadline_s, on_progress=on_progress)
        self._calls += 1
        if self._calls % 3:
            return completion
        place = len(self.bad)
        bad = BAD_ANSWERS[place % len(BAD_ANSWERS)]
        text, reason = bad.text, "stop"
        if bad.name == "cut off":
            text, reason = completion.text[: len(completion.text) // 2], "length"
        elif place // len(BAD_ANSWERS) % 2 and request.schema is not None:
            # Junk that obeys the schema is the harder half.
            answer = json.loads(completion.text)
            field = "long_summary" if "long_summary" in answer else "summary"
            lists: dict[str, Any] = {name: [] for name, value in answer.items() if isinstance(value, list)}
            text = json.dumps({**answer, **lists, field: bad.text}, ensure_ascii=False)
        self.bad.append((bad, text))
        return replace(completion, text=text, finish_reason=reason)

    async def describe(self) -> ModelDescription:
        """The other's."""
        return await self._model.describe()

    async def idle(self) -> bool:
        """See LossyModel."""
        return await self._model.idle()

    async def close(self) -> None:
        """Close the other."""
        await self._model.close()
