"""Chats played a message at a time through conversations and passes, in one process, in memory.

A scripted model returns good records, made of its source, or is away, unless another one is given. The counts are those
that an operator pays for: calls and their tokens, windows over their budget, passes that free little. The same chats
give the same counts on any machine.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from abridged.eventlog.event import StreamId
from abridged.eventlog.memory import MemoryEventLog
from abridged.observability.metrics import Metrics
from abridged.observability.tracing import SilentTracing
from abridged.service.codec.values import canonical, message_to_proto
from abridged.service.conversations.append_request import AppendRequest
from abridged.service.conversations.conversation_log import ConversationLog
from abridged.service.conversations.conversations import Conversations
from abridged.service.conversations.counting import Counting
from abridged.service.conversations.policies import Policies
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.commands import ApplyRules
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import Event, Settings, SummarizationCleared, SummarizationCompleted
from abridged.service.domain.message import Message, Role
from abridged.service.domain.policy import Policy
from abridged.service.domain.profiles.profile import HeldBy
from abridged.service.domain.record import SummaryRecord
from abridged.service.domain.render import summary_text
from abridged.service.domain.triggers import held_by, may_stand_in
from abridged.service.extraction.episode import extracted_digest, extracted_episode
from abridged.service.extraction.extract import Extract, extract
from abridged.service.models.breaker import BreakerPolicy, CircuitBreaker
from abridged.service.models.model import (
    Completion,
    CompletionRequest,
    ModelDescription,
    ModelUnavailable,
    OnProgress,
    SummaryModel,
)
from abridged.service.models.retry import RetryPolicy
from abridged.service.models.scripted.model import quoted_in
from abridged.service.passes.claims import Claims
from abridged.service.passes.reactor import Reactor, ReactorLimits
from abridged.service.summarizer.ask import AskerSettings, Timing
from abridged.service.summarizer.by_extraction import ExtractiveSummarizer
from abridged.service.summarizer.by_model import ModelSummarizer
from abridged.service.summarizer.forms import FORMS
from abridged.service.summarizer.summarizer import Summarizers
from abridged.service.telemetry.progress import ProgressBoard
from abridged.service.telemetry.telemetry import Telemetry, metric_labels
from abridged.service.tokenizers.estimated import EstimatingCounter

MODEL_WINDOW = 16_384
_DEFAULTS = Policy()
_NO_PAUSES: Mapping[str, Sequence[float]] = {}
PASSES_MAX = 8
"""Passes that one message may lead to."""


PlayedChat = tuple[str, Sequence[Message]]
"""A conversation's id and its messages."""

OnWindow = Callable[[str, int, Conversation], None]
"""Takes a conversation's id, how many of its messages were appended, and its state after the passes that followed."""

OnCall = Callable[[CompletionRequest, Completion], None]
"""Takes a question to the summarizer's model, and its answer."""


@dataclass(slots=True)
class Clock:
    """The time of the log, in microseconds since the epoch. It moves on by one whenever it is read."""

    now_us: int = 1_700_000_000_000_000

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us


@dataclass(slots=True)
class Costs:
    """The costs of a file of chats. `long_chats` counts those that pass their trigger, `call_tokens` the tokens that
    the summarizer's model reads and writes."""

    long_chats: int = 0
    tokens: int = 0
    calls: int = 0
    call_tokens: int = 0
    passes: int = 0
    little_passes: int = 0
    cleared: int = 0
    windows: int = 0
    over_budget: int = 0
    over_without_reason: int = 0

    def __str__(self) -> str:
        per_chat = self.calls / max(1, self.long_chats)
        per_10k = 10_000 * self.calls / max(1, self.tokens)
        return (
            f"{self.calls} calls, {per_chat:.2f} a long chat, {per_10k:.2f} per 10,000 tokens; {self.passes} passes, "
            f"{self.little_passes} of them free less than a fifth, {self.cleared} more cleared; "
            f"{self.over_budget} of {self.windows} windows over "
            f"their budget, {self.over_without_reason} of them without a reason"
        )


class _Chat:
    """The memory of the scripted model: the messages by number, and the records made of them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.records: dict[str, SummaryRecord] = {}

    def said(self, request: CompletionRequest) -> tuple[Message, ...]:
        """The messages that a question quotes or follows, as they were sent; summaries of parts as messages."""
        if request.chat:
            followed = {m.id for m in request.chat}
            return tuple(m for m in self.messages if m.id in followed and m.role is not Role.SYSTEM)
        quoted = quoted_in(request.user)
        partials = (Message(f"part {n}", Role.USER, text) for n, text in enumerate(quoted.partials))
        return (*partials, *(self.messages[said.number - 1] for said in quoted.messages if said.number))

    def earlier(self, request: CompletionRequest) -> SummaryRecord | None:
        """The record that a question quotes or follows."""
        followed = {m.id for m in request.chat}
        return next((r for text, r in self.records.items() if r.id in followed or text in request.user), None)

    def committed(self, record: SummaryRecord) -> None:
        """A record that a later prompt may quote."""
        text = summary_text(replace(record, left_out=0))
        self.records[f"<previous_summary>\n{text}\n</previous_summary>"] = record


class _Scripted:
    """A model that makes records of its source by extraction, or that is away behind its breaker."""

    name = "scripted:costs"

    def __init__(self, costs: Costs, on_call: OnCall, *, away: bool, clock: Callable[[], float]) -> None:
        self._costs = costs
        self._on_call = on_call
        self._away = away
        self._clock = clock
        self._breaker = CircuitBreaker(BreakerPolicy(), clock=clock, on_change=lambda _: None)
        self.chats: dict[str, _Chat] = defaultdict(_Chat)

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        if self._away:
            raise self._unavailable(called=True)
        self._costs.calls += 1
        text = self._answer(request)
        on_progress(len(text))
        written = EstimatingCounter().count(text)
        self._costs.call_tokens += request.prompt_tokens + written
        completion = Completion(text, self.name, "stop", request.prompt_tokens, written, 0.0)
        self._on_call(request, completion)
        return completion

    def _answer(self, request: CompletionRequest) -> str:
        count, tokens_max = EstimatingCounter().count, request.summary_tokens_max
        if request.prompt_name == "digest":
            texts = [said.text for said in quoted_in(request.user).messages]
            return json.dumps({"summary": extracted_digest(texts, tokens_max=tokens_max, count_tokens=count)})
        # A remake may come when the next chat has begun.
        chat = self.chats[request.conversation_id]
        messages = chat.said(request)
        if request.prompt_name == "episode":
            short, long = extracted_episode(messages, tokens_max=tokens_max, count_tokens=count)
            return json.dumps({"short_summary": short[:400], "long_summary": long})
        earlier = chat.earlier(request)
        extracted = extract(messages, previous=earlier, tokens_max=tokens_max, count_tokens=count)
        plain = " ".join((extracted.summary, *extracted.key_points, *extracted.context.decisions))
        return plain if request.schema is None else _draft_json(extracted)

    async def describe(self) -> ModelDescription:
        if self._away:
            raise self._unavailable(called=False)
        return ModelDescription(context_length=MODEL_WINDOW, window=MODEL_WINDOW)

    async def idle(self) -> bool:
        return True

    async def close(self) -> None: ...

    def _unavailable(self, *, called: bool) -> ModelUnavailable:
        error = ModelUnavailable("away")
        if not called or self._breaker.refusal_s() is not None:
            error.asked = False
            return error
        self._costs.calls += 1
        self._breaker.began()
        self._breaker.failed()
        return error


def _draft_json(extracted: Extract) -> str:
    """The extract as a model would write it."""
    context = asdict(extracted.context)
    # An operator's own part, which no operator asks for here.
    del context["raw"]
    return json.dumps({"summary": extracted.summary, "key_points": extracted.key_points, **context}, ensure_ascii=False)


async def played(
    chats: Iterable[PlayedChat],
    *,
    context_length: int,
    away: bool = False,
    policy: Policy = _DEFAULTS,
    model: SummaryModel | None = None,
    extractive: bool = False,
    after_chat: bool = False,
    clock: Clock | None = None,
    pauses_s: Mapping[str, Sequence[float]] = _NO_PAUSES,
    on_window: OnWindow = lambda *_: None,
    on_call: OnCall = lambda *_: None,
) -> Costs:
    """Play every chat, a message an append, each followed by a read of its window that waits for its passes.

    `model` is asked instead of the scripted one; `extractive` has extraction make every record. The scripted one is
    the chats' own if it is asked `after_chat`. `pauses_s` are the seconds before each message, by conversation.
    """
    costs = Costs()
    clock = clock or Clock()
    scripted = _Scripted(costs, on_call, away=away, clock=lambda: clock.now_us / 1e6)
    player = _Player(
        costs,
        context_length,
        policy=policy,
        on_window=on_window,
        scripted=scripted,
        clock=clock,
        pauses_s=pauses_s,
        model=model,
        extractive=extractive,
        after_chat=after_chat,
    )
    player.reactor.start([])
    for chat in chats:
        await player.play(chat)
    await player.reactor.stop(grace_s=1)
    return costs


class _Counted:
    """A model whose calls and tokens are counted, also those that fail."""

    def __init__(self, model: SummaryModel, costs: Costs) -> None:
        self._model = model
        self._costs = costs

    @property
    def name(self) -> str:
        return self._model.name

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        self._costs.calls += 1
        completion = await self._model.complete(request, deadline_s=deadline_s, on_progress=on_progress)
        self._costs.call_tokens += completion.input_tokens + completion.output_tokens
        return completion

    async def describe(self) -> ModelDescription:
        return await self._model.describe()

    async def idle(self) -> bool:
        return await self._model.idle()

    async def close(self) -> None:
        await self._model.close()


class _Player:
    def __init__(
        self,
        costs: Costs,
        context_length: int,
        *,
        policy: Policy,
        on_window: OnWindow,
        scripted: _Scripted,
        clock: Clock,
        pauses_s: Mapping[str, Sequence[float]],
        model: SummaryModel | None,
        extractive: bool,
        after_chat: bool,
    ) -> None:
        clock_s = asyncio.get_running_loop().time
        counter = EstimatingCounter()
        self._costs = costs
        self._on_window = on_window
        self._opening = Settings(context_length=context_length, model=scripted.name if after_chat else "")
        self._ids = 0
        self._clock = clock
        self._pauses_s = pauses_s
        self._changed = asyncio.Event()
        self._scripted = scripted
        wanted = ModelSummarizer(
            _Counted(model, costs) if model else self._scripted,
            settings=AskerSettings(0.0, 1, 1.0, RetryPolicy(delay_base_s=0.001), 600.0),
            forms=FORMS,
            window_default=MODEL_WINDOW,
            counter=counter,
            timing=Timing(clock_s, asyncio.sleep, random.Random(1)),
            after_chat=after_chat,
        )
        extraction = ExtractiveSummarizer(counter=counter, forms=FORMS, deadline_s=600.0)
        self._policies = Policies(lambda *_: policy, client_fields=frozenset(), source_tokens=wanted.source_tokens)
        table = ConversationTable()
        self._conversations = Conversations(
            ConversationLog(
                MemoryEventLog(clock_us=clock, hook=table.project),
                table=table,
                new_id=self._new_id,
                traceparent=str,
            ),
            policies=self._policies,
            counting=Counting(counter),
            clock_us=clock,
            new_id=self._new_id,
            on_changed=self._heard,
            on_loaded=lambda _key, _state: None,
        )
        metrics = Metrics(version="1", labels=metric_labels())
        self.reactor = Reactor(
            self._conversations,
            summarizers=Summarizers(extraction if extractive else wanted, extraction),
            counter=counter,
            telemetry=Telemetry(metrics, SilentTracing(), ProgressBoard(), log_content=False),
            limits=ReactorLimits(concurrent_passes=1, queue_max=10, multi_tenant=False),
            hash_key=b"key",
            clock_s=clock_s,
            claims=Claims(None, owner=""),
            table=table,
        )

    async def play(self, chat: PlayedChat) -> None:
        name, messages = chat
        key = StreamId("default", name)
        state: Conversation | None = None
        pauses_s = self._pauses_s.get(name, ())
        for count, message in enumerate(messages, 1):
            if pauses_s:
                await self._pause(key, state, pauses_s[count - 1])
            self._scripted.chats[name].messages.append(message)
            contents = {message.id: canonical(message_to_proto(message))}
            request = AppendRequest((message,), contents, lambda: self._opening)
            await self._conversations.append(key, request)
            state = await self._window(key)
            self._on_window(name, count, state)
        assert state is not None
        self._costs.tokens += state.original_tokens
        self._costs.long_chats += state.completed_passes > 0

    async def _pause(self, key: StreamId, state: Conversation | None, seconds: float) -> None:
        """Let the time pass, and have the rules applied when they want it."""
        ends_us = self._clock.now_us + int(1e6 * seconds)
        asked_us = self._conversations.idle_from_us(state) if state else 0
        if 0 < asked_us < ends_us:
            self._clock.now_us = asked_us
            await self._conversations.execute(key, lambda _: ApplyRules())
            await self._window(key)
        self._clock.now_us = ends_us

    async def _window(self, key: StreamId) -> Conversation:
        """The state after the passes that the message led to."""
        for _ in range(PASSES_MAX):
            self._changed.clear()
            state = await self._conversations.state(key)
            if state.due_pass is None:
                break
            await self._changed.wait()
        held = held_by(state, self._policies.of(state.settings), self._clock())
        assert state.due_pass is None or not may_stand_in(state, self._policies.of(state.settings))
        self._costs.windows += 1
        if state.ratio > 1:
            self._costs.over_budget += 1
            self._costs.over_without_reason += held is not HeldBy.IRREDUCIBLE
        return state

    def _heard(self, key: StreamId, state: Conversation, events: Sequence[Event]) -> None:
        self.reactor.changed(key, state, events)
        for event in events:
            self._costs.cleared += isinstance(event, SummarizationCleared)
            if isinstance(event, SummarizationCompleted):
                self._completed(key, state, event)
        self._changed.set()

    def _completed(self, key: StreamId, state: Conversation, event: SummarizationCompleted) -> None:
        self._scripted.chats[key.name].committed(event.record)
        plan = next(ended.plan for ended in reversed(state.passes) if ended.plan.pass_id == event.pass_id)
        freed = (plan.replaced_tokens - event.record.tokens_after) / (plan.token_ratio * state.budget)
        self._costs.passes += 1
        self._costs.little_passes += freed < 0.2

    def _new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"
