"""Context lengths that are learned late: a conversation that waits for a description gets it, whenever it comes."""

from __future__ import annotations

import asyncio

from abridged.eventlog.errors import LogUnavailable
from abridged.eventlog.event import StreamId
from abridged.service.conversations.chat_models import FACTORS_MAX, ChatModels, Recount
from abridged.service.conversations.context_lengths import (
    ASK_AGAIN_S,
    ASKING_MAX,
    MODELS_REMEMBERED_MAX,
    ContextLengths,
)
from abridged.service.conversations.counting import Counting
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.events import ContextLengthSource, Settings
from abridged.service.domain.tokens import Taught
from abridged.service.tokenizers.estimated import EstimatingCounter

KEY = StreamId("default", "c1")


def state_of(settings: Settings, *, reports: int = 0) -> Conversation:
    """A conversation with these settings, whose model that many reports have taught."""
    return Conversation()._replace(settings=settings, usage_reports=reports)


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
        self.models = ChatModels(self.lengths, Counting(EstimatingCounter()))
        self.models.remember({("default", "m"): Taught(1.25, 3)})

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
    opening = world.models.opening("default", Settings(model="m"))
    world.models.changed(KEY, state_of(opening))
    await world.described()

    await world.models.learned("m", world.update)

    assert (opening.context_length_source, opening.calibration_factor) == (ContextLengthSource.DEFAULT, 1.25)
    assert world.learned == ["m"]
    assert world.updated == [KEY]
    assert world.models.resolved(opening).context_length == 32_768


async def test_a_description_that_comes_before_the_first_commit_is_not_missed():
    """A conversation learns it even between its opening and its commit, when nobody waits yet."""
    world = World()
    opening = world.models.opening("default", Settings(model="m"))
    await world.described()
    assert world.learned == ["m"]

    world.models.changed(KEY, state_of(opening))

    assert world.learned == ["m", "m"]
    await world.models.learned("m", world.update)
    assert world.updated == [KEY]


async def test_a_recount_of_one_model_is_not_the_factor_of_another():
    """The conversation may have got another model while its window was counted."""
    world = World()
    recount = Recount("m", 1.5)

    factors = [world.models.updated(Settings(model=model), recount).calibration_factor for model in ("m", "other")]

    assert factors == [1.5, 1.0]
    await world.lengths.close()


async def test_a_server_that_does_not_answer_is_asked_again_only_after_a_while():
    """The operator's table serves as long."""
    world = World(length=None)
    world.gate.set()
    for _ in range(5):
        settings = world.models.opening("default", Settings(model="tabled-1"))
        await world.described()
    assert world.asked == 1
    assert (settings.context_length, settings.context_length_source) == (4_096, ContextLengthSource.TABLE)

    world.now_s += ASK_AGAIN_S
    world.models.opening("default", Settings(model="tabled-1"))
    await world.described()

    assert world.asked == 2


async def test_a_client_that_names_a_length_asks_nobody():
    """The client's own length is trusted first."""
    world = World()

    settings = world.models.opening("default", Settings(model="m", requested_context_length=1_000))

    assert (settings.context_length, settings.context_length_source) == (1_000, ContextLengthSource.CONVERSATION)
    assert world.asked == 0
    await world.lengths.close()


async def test_a_conversation_that_cannot_be_written_now_goes_on_waiting():
    """A log that is busy for one conversation costs neither it nor the others the learned length."""
    world = World()
    other = StreamId("default", "c2")
    for key in (KEY, other):
        world.models.changed(key, state_of(world.models.opening("default", Settings(model="m"))))
    await world.described()

    async def busy_once(key: StreamId) -> None:
        await world.update(key)
        if world.updated == [KEY]:
            raise LogUnavailable("busy")

    await world.models.learned("m", busy_once)
    assert world.updated == [KEY, other]

    await world.models.learned("m", busy_once)
    assert world.updated == [KEY, other, KEY]


async def test_names_that_clients_make_up_cost_a_bounded_number_of_questions():
    """A model's server is asked for a bounded number of descriptions at once, whatever comes."""
    world = World()

    for number in range(3 * ASKING_MAX):
        world.models.opening("default", Settings(model=f"made-up-{number}"))
    await asyncio.sleep(0)

    assert world.asked == ASKING_MAX
    await world.described()
    world.models.opening("default", Settings(model=f"made-up-{3 * ASKING_MAX - 1}"))
    await asyncio.sleep(0)
    assert world.asked == ASKING_MAX + 1
    await world.lengths.close()


async def test_what_is_remembered_of_models_is_bounded_and_the_newest_stays():
    """Names come from clients: calibrations and descriptions make room for the newest ones."""
    world = World()
    world.gate.set()
    for number in range(FACTORS_MAX + 1):
        world.models.changed(KEY, state_of(Settings(model=f"m{number}", calibration_factor=1.5), reports=1))
    for number in range(MODELS_REMEMBERED_MAX + 1):
        world.models.opening("default", Settings(model=f"m{number}"))
        await world.described()

    factors = [world.models.opening("default", Settings(model=f"m{n}")).calibration_factor for n in (0, FACTORS_MAX)]
    newest = world.models.opening("default", Settings(model=f"m{MODELS_REMEMBERED_MAX}"))

    assert factors == [1.0, 1.5]
    assert newest.context_length_source is ContextLengthSource.MODEL
    await world.lengths.close()


async def test_what_one_namespace_reports_teaches_no_other():
    """A tenant's wrong usage reports must not fill another one's windows."""
    world = World()
    theirs = Settings(model="shared", calibration_factor=1.9)
    world.models.changed(StreamId("theirs", "c1"), state_of(theirs, reports=1))

    assert world.models.opening("default", Settings(model="shared")).calibration_factor == 1.0
    assert world.models.opening("theirs", Settings(model="shared")).calibration_factor == 1.9
    await world.lengths.close()


async def test_an_old_conversation_takes_nothing_back_of_what_others_have_taught():
    """The old factor is that of its own last report; the model has learned from more."""
    world = World()
    world.models.changed(KEY, state_of(Settings(model="m", calibration_factor=1.6), reports=5))
    world.models.changed(KEY, state_of(Settings(model="m", calibration_factor=1.1), reports=4))
    world.models.changed(KEY, state_of(Settings(model="m"), reports=0))

    assert world.models.taught("default", "m") == Taught(1.6, 5)
    await world.lengths.close()


async def test_one_namespace_cannot_crowd_out_what_another_has_learned():
    """Each has room of its own."""
    world = World()
    for number in range(FACTORS_MAX + 1):
        world.models.changed(StreamId("theirs", "c1"), state_of(Settings(model=f"m{number}"), reports=1))

    assert world.models.taught("default", "m") == Taught(1.25, 3)
    await world.lengths.close()
