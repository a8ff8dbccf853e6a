"""Planted questions, and who finds their answers: the window, the last messages, an agent with the history tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from abridged.eventlog.event import NewEvent, StreamId
from abridged.eventlog.log import Append
from abridged.eventlog.memory import MemoryEventLog
from abridged.service.codec.events import encode
from abridged.service.domain.conversation import Conversation, initial_state
from abridged.service.domain.events import ConversationOpened, Event, MessageAppended, Settings
from abridged.service.domain.policy import Policy
from abridged.service.domain.tokens import TokenSource
from abridged.service.models.model import SummaryModel
from abridged.service.recall.file import Kind
from abridged.service.recall.projection import Pace, Projection
from abridged.service.recall.query import parsed
from abridged.service.recall.recall import Recall
from abridged.service.recall.search import Mode, Search
from abridged.service.tokenizers.estimated import EstimatingCounter
from bench.player import played
from bench.quality.examined import Share, window_text
from bench.quality.facts import Fact
from bench.quality.generator import GeneratedChat, generated_chats

PROBES: Final = 200
CHATS, TURNS, FACTS = 8, 80, 40
"""Conversations with about that many questions between them."""

SHARE: Final = 0.25
"""The context that a window is for, as a share of the tokens of the whole conversation."""

KEPT: Final = 6
"""Messages that are kept by whoever cuts a conversation to its last ones."""

HITS: Final = 5
"""The hits of a search, as many as the example of an agent asks for."""

_AT_ONCE: Final = Pace(rest_share=0.0, rest_s=0.0)
_COUNTER: Final = EstimatingCounter()


@dataclass(slots=True)
class Answers:
    """The questions whose answer is in each place.

    Attributes:
        window: The value is in the window.
        attributed: The value is there beside the name that it belongs to.
        last: The value is in the last KEPT messages.
        tools: The value is there beside its name, or in what the agent reads.
        tokens: Tokens of the windows, as a share of those of the conversations.
        with_tools: The same with what the agent reads for each question, on average.
    """

    window: Share = field(default_factory=Share)
    attributed: Share = field(default_factory=Share)
    last: Share = field(default_factory=Share)
    tools: Share = field(default_factory=Share)
    tokens: Share = field(default_factory=Share)
    with_tools: Share = field(default_factory=Share)


@dataclass(frozen=True, slots=True)
class Probing:
    """Conversations, the questions of each, and the index over them."""

    chats: Sequence[GeneratedChat]
    questions: Sequence[Sequence[Fact]]
    recall: Recall

    async def read(self, chat: GeneratedChat, question: str) -> Sequence[str]:
        """Return the texts that an agent reads besides its window: the HITS first snippets for the question's words, as
        `search_history` returns them, and the first hit's message, as `expand_history` does."""
        query = parsed(question.rstrip("?"))
        search = Search("default", chat.id, query, Mode.WORDS, HITS, kinds=(Kind.MESSAGE,))
        found = (await self.recall.search(search)).hits
        return [*(hit.snippet for hit in found), *(chat.messages[hit.entry.first - 1].content for hit in found[:1])]


@asynccontextmanager
async def probe_chats() -> AsyncIterator[Probing]:
    """The conversations with PROBES questions, indexed."""
    chats = generated_chats(chats=CHATS, turns=TURNS, facts=FACTS, seed=131)
    left, questions = PROBES, list[list[Fact]]()
    for chat in chats:
        asked = [f for f in chat.facts if f.question and f.is_current(len(chat.messages))][:left]
        left -= len(asked)
        questions.append(asked)
    with TemporaryDirectory(prefix="abridged-bench-") as folder:
        log = MemoryEventLog(clock_us=lambda: 1_700_000_000_000_000)
        _append(log, chats)
        recall = Recall(log, Projection(log, Path(folder) / "recall", None, pace=_AT_ONCE), _untouched)
        try:
            recall.projection.start()
            await recall.projection.caught_up()
            yield Probing(chats, questions, recall)
        finally:
            await recall.close()
            await asyncio.to_thread(log.close)


async def _untouched(_: StreamId) -> Conversation:
    """Return the state of a conversation that takes nothing back."""
    return initial_state()


def _append(log: MemoryEventLog, chats: Sequence[GeneratedChat]) -> None:
    ids = count(1)
    for chat in chats:
        messages = [
            MessageAppended(number, message, 1, TokenSource.ESTIMATE) for number, message in enumerate(chat.messages, 1)
        ]
        new: list[NewEvent] = []
        events: list[Event] = [ConversationOpened(chat.id, Settings()), *messages]
        for event in events:
            name, schema_version, payload = encode(event)
            new.append(NewEvent(next(ids).to_bytes(16, "big"), name, payload, schema_version))
        log.submit(Append(StreamId("default", chat.id), new)).result()


async def probed(probing: Probing, policy: Policy, model: SummaryModel | None) -> Answers:
    """Play the conversations, each in a window of SHARE of its tokens, and ask at its end."""
    answers = Answers()
    for chat, questions in zip(probing.chats, probing.questions, strict=True):
        last = _Last()
        whole = sum(_COUNTER.count(message.content) for message in chat.messages)
        await played(
            [chat.played],
            context_length=int(whole * SHARE),
            policy=policy,
            model=model,
            extractive=model is None,
            on_window=last.seen,
        )
        await _ask(answers, probing, chat, questions, last.state)
    return answers


class _Last:
    """The newest state."""

    def __init__(self) -> None:
        self.state = initial_state()

    def seen(self, _name: str, _count: int, state: Conversation) -> None:
        self.state = state


async def _ask(
    answers: Answers, probing: Probing, chat: GeneratedChat, questions: Sequence[Fact], state: Conversation
) -> None:
    window = window_text(state)
    kept = "\n".join(message.content for message in chat.messages[-KEPT:])
    for fact in questions:
        is_attributed = fact.is_attributed_in(window)
        texts = await probing.read(chat, fact.question)
        answers.window.add(fact.is_written_in(window), 1)
        answers.attributed.add(is_attributed, 1)
        answers.last.add(fact.is_written_in(kept), 1)
        answers.tools.add(is_attributed or any(map(fact.is_attributed_in, texts)), 1)
        answers.tokens.add(state.window_tokens, state.original_tokens)
        answers.with_tools.add(state.window_tokens + sum(map(_COUNTER.count, texts)), state.original_tokens)
