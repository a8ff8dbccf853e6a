"""Context lengths that are learned late: whoever waits for a description is told, whenever it comes."""

from __future__ import annotations

import asyncio

from eventlog.event import StreamId
from service.chat_models import ChatModels
from service.context_lengths import ASK_AGAIN_S, ContextLengths
from service.domain.events import ContextLengthSource, Settings

KEY = StreamId("default", "c1")


class World:
    """A model's server that answers when it is let, and everybody who heard of it."""

    def __init__(self, length: int | None = 32_768) -> None:
        self.length = length
        self.gate = asyncio.Event()
        self.asked = 0
        self.learned: list[str] = []
        self.updated: list[StreamId] = []
        self.now_s = 0.0
        self.lengths = ContextLengths(
            describe=self._describe,
            table={"tabled-*": 4_096},
            default=8_192,
            now_s=lambda: self.now_s,
            on_learned=self.learned.append,
        )
        self.models = ChatModels(self.lengths, calibrations={"m": 1.25})

    async def _describe(self, _: str) -> int | None:
        self.asked += 1
        await self.gate.wait()
        return self.length

    async def update(self, key: StreamId) -> None:
        self.updated.append(key)

    async def described(self) -> None:
        """The server answers."""
        self.gate.set()
        for _ in range(3):
            await asyncio.sleep(0)


async def test_a_conversation_that_waits_is_told_when_the_description_comes():
    """Once, and it opened with the default in the meantime."""
    world = World()
    opening = world.models.opening(Settings(model="m"))
    world.models.changed(KEY, opening)
    await world.described()

    await world.models.learned("m", world.update)

    assert (opening.context_length_source, opening.calibration_factor) == (ContextLengthSource.DEFAULT, 1.25)
    assert world.learned == ["m"]
    assert world.updated == [KEY]
    assert world.models.resolved(opening).context_length == 32_768


async def test_a_description_that_comes_before_the_first_commit_is_not_missed():
    """Between opening and hearing of the commit nobody waits yet; the conversation is told all the same."""
    world = World()
    opening = world.models.opening(Settings(model="m"))
    await world.described()
    assert world.learned == ["m"]

    world.models.changed(KEY, opening)

    assert world.learned == ["m", "m"]
    await world.models.learned("m", world.update)
    assert world.updated == [KEY]


async def test_a_server_that_does_not_answer_is_asked_again_only_after_a_while():
    """And the operator's table serves as long."""
    world = World(length=None)
    world.gate.set()
    for _ in range(5):
        settings = world.models.opening(Settings(model="tabled-1"))
        await world.described()
    assert world.asked == 1
    assert (settings.context_length, settings.context_length_source) == (4_096, ContextLengthSource.TABLE)

    world.now_s += ASK_AGAIN_S
    world.models.opening(Settings(model="tabled-1"))
    await world.described()

    assert world.asked == 2


async def test_a_client_that_names_a_length_asks_nobody():
    """Its word is trusted first."""
    world = World()

    settings = world.models.opening(Settings(model="m", requested_context_length=1_000))

    assert (settings.context_length, settings.context_length_source) == (1_000, ContextLengthSource.CONVERSATION)
    assert world.asked == 0
    await world.lengths.close()
