"""The notice of a pass over a real channel: once for each time that a pass comes near, in time to pin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from abridged.v1 import conversation_service_pb2 as api
from tests.support.patience import PATIENCE_S
from tests.support.sidecar import Chat, Sidecar, decoded, said, sidecar

EXTRACTING = {"summarizer.models": ["extractive:default"]}


def watching(s: Sidecar) -> Any:
    return s.conversations.WatchConversation(
        api.WatchConversationRequest(conversation_id="c1"), timeout=PATIENCE_S, metadata=s.metadata
    )


async def until(stream: Any, found: Callable[[Any], bool]) -> list[Any]:
    """The items up to the one that is looked for."""
    items = []
    async for item in stream:
        items.append(item)
        if found(item):
            return items
    raise AssertionError("the stream ended before")


def notices(items: list[Any]) -> list[int]:
    """The newest message of each notice."""
    return [item.pass_ahead.message_version for item in items if item.HasField("pass_ahead")]


def message(number: int) -> Callable[[Any], bool]:
    """Return a check whether an item is the event of this message."""
    return lambda item: item.HasField("event") and getattr(decoded(item.event), "number", 0) == number


async def talk_one_by_one(chat: Chat, last: int) -> None:
    """Append messages up to number `last`, of a twentieth of the budget each, waiting for passes."""
    while chat.count < last:
        await chat.append(said(chat.count + 1, tokens=100), wait_s=PATIENCE_S)


async def test_a_watcher_is_given_notice_once_before_each_pass(tmp_path):
    """The notice follows the message that brings the ratio to the mark, and comes again once a pass has made room."""
    async with sidecar(tmp_path, EXTRACTING) as s:
        chat = s.chat()
        await talk_one_by_one(chat, 1)
        stream = watching(s)
        await until(stream, lambda item: item.HasField("caught_up"))

        await talk_one_by_one(chat, 40)
        items = await until(stream, message(40))
        stream.cancel()
        requested = [item.event.version for item in items if item.event.type == "SummarizationRequested"]

    before_first = items[: next(i for i, item in enumerate(items) if item.event.type == "SummarizationRequested")]
    assert notices(before_first) == [14]
    assert [item.event.version for item in before_first if item.HasField("event")][-1] == requested[0] - 1
    assert len(requested) > 1
    assert len(requested) <= len(notices(items)) <= len(requested) + 1


async def test_a_watcher_who_comes_later_is_given_the_notice_that_holds(tmp_path):
    """The notice follows the mark that the watcher has caught up; a second watcher gets it, too."""
    async with sidecar(tmp_path, EXTRACTING) as s:
        chat = s.chat()
        await talk_one_by_one(chat, 15)
        for _ in range(2):
            stream = watching(s)
            items = await until(stream, lambda item: item.HasField("pass_ahead"))
            stream.cancel()

            assert [item.WhichOneof("item") for item in items[-2:]] == ["caught_up", "pass_ahead"]
            assert items[-1].pass_ahead.message_version == 15


async def test_a_window_that_fell_below_the_mark_gives_notice_again(tmp_path):
    """A larger context makes room; the notice of before holds no longer."""
    async with sidecar(tmp_path, EXTRACTING) as s:
        chat = s.chat()
        await talk_one_by_one(chat, 14)
        stream = watching(s)
        await until(stream, lambda item: item.HasField("pass_ahead"))

        await chat.update(["context_length"], context_length=4_000)
        await talk_one_by_one(chat, 15)
        await until(stream, message(15))
        await chat.update(["context_length"], context_length=2_000)
        items = await until(stream, lambda item: item.HasField("pass_ahead"))
        stream.cancel()

    assert items[-1].pass_ahead.message_version == 15


async def test_a_message_that_is_pinned_upon_the_notice_stays(tmp_path):
    """GetContext says what would leave; a pin takes it out of that, and of the pass."""
    async with sidecar(tmp_path, EXTRACTING) as s:
        chat = s.chat()
        await talk_one_by_one(chat, 14)
        first = (await chat.context(with_notice=True)).pass_ahead
        assert (first.leaving[0].first, first.message_count, first.clears) == (1, 8, False)
        assert (first.token_ratio, first.trigger_token_ratio) == (0.7, 0.8)

        pin = api.PinMessagesRequest(conversation_id="c1", numbers=[1])
        await s.conversations.PinMessages(pin, timeout=PATIENCE_S)
        second = (await chat.context(with_notice=True)).pass_ahead
        await talk_one_by_one(chat, 17)
        context = await chat.context(with_notice=True)

    assert second.leaving[0].first == 2
    assert context.compacted
    assert 1 in [m.number for m in context.messages]
    assert not context.HasField("pass_ahead")


async def test_the_notice_is_given_where_the_conversation_wants_it(tmp_path):
    """A client's own ratio, and only if it asks; the ORIGINAL view is of no window, and has none."""
    async with sidecar(tmp_path, EXTRACTING) as s:
        chat = s.chat(policy={"notice_token_ratio": 0.75})
        await talk_one_by_one(chat, 14)
        assert not (await chat.context(with_notice=True)).HasField("pass_ahead")

        await talk_one_by_one(chat, 15)

        assert (await chat.context(with_notice=True)).HasField("pass_ahead")
        assert not (await chat.context()).HasField("pass_ahead")
        assert not (await chat.context(with_notice=True, view=api.CONTEXT_VIEW_ORIGINAL)).HasField("pass_ahead")
