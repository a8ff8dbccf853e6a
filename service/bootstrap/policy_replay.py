"""Appends the messages of chats once more, under other settings: the passes that they make, and what those cost.

The sidecar's own parts do the work, with a log in memory and a script in place of the model, so that nothing is asked
and nothing is kept. The script's records hold the messages' own sentences; those of a model are longer or shorter, and
passes after the first one move with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from abridged.eventlog.backend import MemoryBackend
from abridged.eventlog.event import StreamId
from abridged.service.bootstrap.core import Core, open_unserved
from abridged.service.bootstrap.prompt_bill import PromptBill, answered
from abridged.service.codec.events import decoded
from abridged.service.codec.values import canonical, message_to_proto
from abridged.service.config.settings import Settings
from abridged.service.conversations.append_request import AppendRequest
from abridged.service.conversations.replay import recorded_events
from abridged.service.domain.conversation import EndedPass
from abridged.service.domain.events import Settings as ChatSettings
from abridged.service.domain.events import SummarizationCompleted
from abridged.service.domain.message import Message
from abridged.service.domain.render import rendered_window
from abridged.service.models.scripted.model import ScriptedModel, default_answer
from abridged.service.summarizer.summarizer import is_extractive


class Chat(NamedTuple):
    """A chat to append: `settings` without a context length takes that of the settings of the sidecar."""

    id: str
    messages: Sequence[Message]
    settings: ChatSettings = ChatSettings()


@dataclass(slots=True)
class Outcome:
    """The result of the chats under one policy.

    Attributes:
        passes: Every pass that has ended, by conversation and in order.
        calls: Calls of the summarizer's model.
        bill: The prompts of the chats and their cost.
    """

    passes: dict[str, Sequence[EndedPass]] = field(default_factory=dict)
    calls: int = 0
    bill: PromptBill = field(default_factory=PromptBill)


async def replayed(
    settings: Settings, environ: Mapping[str, str], chats: Sequence[Chat], appended: Callable[[int, int], None]
) -> Outcome:
    """Append each chat, a message an append, each after the passes of the one before.

    `appended` is called with the messages that are done, and all of them. Memory holds the chats. Raises InvalidRequest
    and its like for messages that no sidecar takes, and what a start raises for the settings.
    """
    outcome, done, total = Outcome(), 0, sum(len(chat.messages) for chat in chats)
    async with AsyncExitStack() as resources:
        core = open_unserved(
            _untitled(settings), environ, resources, backend=MemoryBackend(), stand_in=_stand_in(settings)
        )
        core.reactor.start([])
        resources.push_async_callback(core.reactor.stop, grace_s=1)
        for chat in filter(lambda chat: chat.messages, chats):
            await _append(core, chat, outcome)
            done += len(chat.messages)
            appended(done, total)
    return outcome


def _untitled(settings: Settings) -> Settings:
    return settings.model_copy(update={"titles": settings.titles.model_copy(update={"enabled": False})})


def _stand_in(settings: Settings) -> ScriptedModel | None:
    """The script in place of the preferred model, with its name and window; None if extraction makes the records."""
    name = settings.summarizer.models[0]
    if is_extractive(name):
        return None
    window = next(provider.window for provider in settings.providers_of([name]) if provider.models)
    return ScriptedModel([default_answer], clock=time.monotonic, name=name, context_length=window)


async def _append(core: Core, chat: Chat, outcome: Outcome) -> None:
    key = StreamId("default", chat.id)
    prompts = answered(chat.messages)
    opening = replace(chat.settings, policy={})
    for count, message in enumerate(chat.messages, 1):
        contents = {message.id: canonical(message_to_proto(message))}
        request = AppendRequest((message,), contents, lambda: core.models.opening(key.namespace, opening))
        await core.conversations.append(key, request)
        await core.reactor.backlog.idle(key.namespace)
        if count in prompts:
            state = await core.conversations.state(key)
            policy = core.policies.of(state.settings)
            window = rendered_window(state, policy.summary_role)
            outcome.bill.sent(chat.id, window, budget=state.settings.budget - state.settings.overhead)
    state = await core.conversations.state(key)
    outcome.passes[chat.id] = tuple(state.passes)
    outcome.calls += sum(ended.attempts for ended in state.passes)
    for recorded in recorded_events(core.log, key):
        event = decoded(recorded)
        if isinstance(event, SummarizationCompleted):
            record = event.record
            outcome.bill.summarized(chat.id, asked=record.tokens_read, answered=record.tokens_written)
