"""Random histories that are edited, regenerated, summarized and forked, over a real log file.

A plain model of each branch, a list of what was said and not taken back, is what the sidecar must show of it, live and
after a restart.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from abridged.eventlog.event import StreamId
from abridged.service.bootstrap.backends import stored_backend
from abridged.service.cli.log_verification import verified
from abridged.service.config.settings import LogSettings
from abridged.v1 import conversation_pb2
from abridged.v1 import conversation_service_pb2 as api
from tests.support.below_grpc import RefusedCall, below_grpc
from tests.support.sidecar import Chat, said

HISTORIES = int(os.environ.get("BRANCHING_HISTORIES", "40"))
PER_LOG = 20
STEPS = 14

SETTINGS: dict[str, Any] = {
    "summarizer.models": "extractive:default",
    "policy.min_range_tokens": 1,
    "policy.preserve_recent": 2,
    "policy.reset_token_ratio": 0.5,
    "policy.trigger_token_ratio": 0.7,
    "policy.cooldown_messages": 0,
}


Messages = dict[int, tuple[str, str]]


class Branch:
    """A conversation, and what it must show: its messages by number, how many were ever appended, and its messages as
    they stood when each number was the newest."""

    def __init__(self, chat: Chat, messages: Messages, version: int, stood: dict[int, Messages]) -> None:
        self.chat = chat
        self.messages = messages
        self.version = version
        self.stood = stood

    async def append(self, texts: list[str], *, replace_after: int | None = None, repeats: int = 1) -> None:
        messages = [said(0, text) for text in texts]
        for message in messages:
            message.id = _id_of(message.content)
        fields = {} if replace_after is None else {"replace_after": replace_after}
        for _ in range(repeats):
            answer = await self.chat.append(*messages, **fields)
        assert [m.number for m in answer.messages] == list(range(self.version + 1, self.version + 1 + len(texts)))
        self._keep(replace_after)
        for text in texts:
            self.version += 1
            self.messages[self.version] = (_id_of(text), text)
            self.stood[self.version] = dict(self.messages)

    async def rewind(self, to: int) -> None:
        await self._ask("RewindConversation", to_version=to)
        self._keep(to)

    async def fork(self, name: str, to: int | None) -> Branch:
        fields = {} if to is None else {"to_version": to}
        await self._ask("ForkConversation", fork_id=name, **fields)
        version = self.version if to is None else to
        messages = self.messages if to is None else self.stood[version]
        return Branch(Chat(self.chat.sidecar, name, self.chat.settings), dict(messages), version, dict(self.stood))

    async def revoke(self, rng: random.Random) -> None:
        if records := await self.chat.summaries():
            with suppress(RefusedCall):
                await self._ask("RevokeSummary", summary_id=rng.choice(records).id)

    async def pin(self, rng: random.Random) -> None:
        if self.messages:
            with suppress(RefusedCall):
                await self._ask("PinMessages", numbers=[rng.choice([*self.messages])])

    async def require(self) -> None:
        """Hold the conversation against the messages of its model."""
        answer = await self.chat.context(view=api.CONTEXT_VIEW_ORIGINAL)
        assert {m.number: (m.message.id, m.message.content) for m in answer.messages} == self.messages
        assert answer.message_version == self.version
        window = {m.number: m.message.content for m in (await self.chat.context()).messages if m.number}
        assert all(self.messages[number][1] == text for number, text in window.items())
        covered: set[int] = set()
        for record in await self.chat.summaries():
            for one in record.covered:
                covered |= set(range(one.first, one.last + 1))
        assert self.messages.keys() <= window.keys() | covered, "a message is neither in the window nor in a record"

    def _keep(self, to: int | None) -> None:
        if to is not None:
            self.messages = {number: text for number, text in self.messages.items() if number <= to}

    async def _ask(self, method: str, **fields: Any) -> None:
        request = getattr(api, f"{method}Request")(conversation_id=self.chat.id, **fields)
        await getattr(self.chat.sidecar.conversations, method)(request)


def _id_of(text: str) -> str:
    return text.partition(" ")[0]


async def history(s: Any, name: str, rng: random.Random) -> list[Branch]:
    """One tree of branches."""
    branches = [Branch(Chat(s, name, conversation_pb2.ConversationSettings(context_length=1_000)), {}, 0, {0: {}})]
    await branches[0].append([f"{name} begins"])
    for step in range(STEPS):
        branch = rng.choice(branches)
        texts = [f"{name}.{step}.{n} says {'word ' * rng.randrange(20, 160)}" for n in range(rng.randrange(1, 5))]
        match rng.choice(
            ("append", "append", "append", "replace", "rewind", "fork", "fork", "revoke", "pin", "repeat")
        ):
            case "append":
                await branch.append(texts)
            case "repeat":
                await branch.append(texts, repeats=2)
            case "replace":
                await branch.append(texts, replace_after=rng.randint(0, branch.version), repeats=rng.choice((1, 2)))
            case "rewind":
                await branch.rewind(rng.randint(0, branch.version))
            case "fork":
                to = rng.choice((None, rng.randint(0, branch.version)))
                branches.append(await branch.fork(f"{name}-{len(branches)}", to))
            case "revoke":
                await branch.revoke(rng)
            case "pin":
                await branch.pin(rng)
    return branches


def key_of(branch: Branch) -> StreamId:
    return StreamId("default", branch.chat.id)


def below(folder: Path) -> Any:
    return below_grpc(folder, SETTINGS, now_us=lambda: time.time_ns() // 1_000)


async def checked(folder: Path, seeds: range) -> Counter[str]:
    """Run the histories of these seeds in one log, open it again, and verify it. Return its events by type."""
    grown: list[Branch] = []
    kinds: Counter[str] = Counter()
    async with below(folder) as s:
        for seed in seeds:
            grown += await history(s, f"h{seed}", random.Random(seed))
        await s.idle()
        for branch in grown:
            await branch.require()
        live = {b.chat.id: await s.core.conversations.state(key_of(b)) for b in grown}
        for branch in grown:
            kinds.update(type(event).__name__ for event in await branch.chat.events())
            assert await s.core.conversations.log.fold(key_of(branch)) == live[branch.chat.id]
    async with below(folder) as s:
        for branch in grown:
            branch.chat.sidecar = s
            assert await s.core.conversations.state(key_of(branch)) == live[branch.chat.id]
            await branch.require()
    assert "events in" in verified(
        stored_backend(LogSettings(path=folder / "abridged.db")), 10, lambda _done, _of: None
    )
    return kinds


@pytest.mark.parametrize("chunk", range(-(-HISTORIES // PER_LOG)))
async def test_every_branch_has_its_own_history_and_no_other(tmp_path, chunk):
    """Live, folded anew, and after a restart; the log of them all is whole."""
    kinds = await checked(tmp_path, range(chunk * PER_LOG, (chunk + 1) * PER_LOG))

    # They would prove little if they did not branch, take back and summarize.
    assert kinds["ConversationForked"] > PER_LOG
    assert all(kinds[kind] > 4 for kind in ("ConversationRewound", "SummarizationCompleted", "MessagesPinned")), kinds
