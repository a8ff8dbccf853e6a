"""SearchHistory while the index is late: messages taken back are no hits all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from abridged.service.bootstrap.recall import index_path
from abridged.v1 import conversation_service_pb2 as api
from tests.support.held_index import held_index
from tests.support.searching import BOTH, MEANING, exchange, numbers, search, searched
from tests.support.sidecar import Sidecar, said, sidecar

MODES = [api.SEARCH_MODE_WORDS, MEANING, api.SEARCH_MODE_BOTH]
EXTRACTED: dict[str, Any] = {**BOTH, "summarizer.models": ["extractive:default"]}


def index_of(folder: Path) -> Path:
    """The index of the folder's sidecar."""
    return index_path(folder / "abridged.db")


async def rewind(s: Sidecar, to: int, conversation_id: str = "c1") -> None:
    """Remove the messages after a number."""
    await s.conversations.RewindConversation(
        api.RewindConversationRequest(conversation_id=conversation_id, to_version=to)
    )


async def summary_ids(s: Sidecar, mode: int) -> set[str]:
    """The records that a search of the conversation finds now."""
    summaries: dict[str, Any] = {"conversation_id": "c1", "kinds": [api.SEARCH_KIND_SUMMARY], "page_size": 100}
    return {hit.summary_id for hit in (await search(s, "importer orders", mode=mode, **summaries)).hits}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("conversation_id", ["", "c1"])
async def test_rewound_messages_are_no_hits_while_the_index_still_has_them(tmp_path, mode, conversation_id):
    """The search may compare anything, anywhere."""
    async with sidecar(tmp_path, BOTH) as s:
        await s.chat().append(*(exchange(n, f"zebra number {n}") for n in range(1, 11)))
        await s.chat("c2").append(said(1, "zebra elsewhere"))
        before = await searched(s, "zebra", mode=mode, conversation_id=conversation_id, page_size=100)
        assert {*range(1, 11)} <= set(numbers(before))

        with held_index(index_of(tmp_path)):
            await rewind(s, 5)

            late = await search(s, "zebra", mode=mode, conversation_id=conversation_id, page_size=100)

        assert late.indexed_position == before.indexed_position
        assert sorted(numbers(late)) == sorted([*range(1, 6), *([] if conversation_id else [1])])


@pytest.mark.parametrize("mode", MODES)
async def test_a_revoked_record_is_no_hit_while_the_index_still_has_it(tmp_path, mode):
    """The record is out from the moment that RevokeSummary returns; the messages that it covered stay hits."""
    async with sidecar(tmp_path, EXTRACTED) as s:
        chat = s.chat(context_length=64_000)
        await chat.talk(20)
        await chat.summarize()
        (record, *_) = await chat.summaries()
        before = await searched(s, "importer", mode=mode, page_size=100)
        assert record.id in await summary_ids(s, mode)

        with held_index(index_of(tmp_path)):
            await s.conversations.RevokeSummary(api.RevokeSummaryRequest(conversation_id="c1", summary_id=record.id))

            assert record.id not in await summary_ids(s, mode)
            assert numbers(await search(s, "importer", mode=mode, page_size=100)) == numbers(before)


async def test_a_rewind_takes_its_records_out_of_a_late_index_too(tmp_path):
    """Records that cover a removed message are out."""
    async with sidecar(tmp_path, EXTRACTED) as s:
        chat = s.chat(context_length=64_000)
        await chat.talk(20)
        await chat.summarize()
        await searched(s, "importer")
        assert await summary_ids(s, api.SEARCH_MODE_WORDS)

        with held_index(index_of(tmp_path)):
            await rewind(s, 2)

            assert await summary_ids(s, api.SEARCH_MODE_WORDS) == set()


@pytest.mark.parametrize("mode", MODES)
async def test_what_was_taken_back_is_no_hit_after_a_restart_either(tmp_path, mode):
    """The index is where the last run left it, and no state is in memory."""
    async with sidecar(tmp_path, BOTH) as s:
        await s.chat().append(*(exchange(n, f"zebra number {n}") for n in range(1, 11)))
        before = await searched(s, "zebra", page_size=100)

    with held_index(index_of(tmp_path)):
        async with sidecar(tmp_path, BOTH) as s:
            await rewind(s, 5)
        async with sidecar(tmp_path, BOTH) as s:
            late = await search(s, "zebra", mode=mode, page_size=100)

            assert late.indexed_position == before.indexed_position
            assert sorted(numbers(late)) == [*range(1, 6)]


@pytest.mark.parametrize("conversation_id", ["", "c1"])
async def test_a_page_is_filled_with_what_stands(tmp_path, conversation_id):
    """The best hits are taken back, more than a page has candidates at first: the next ones are on it."""
    async with sidecar(tmp_path, BOTH) as s:
        await s.chat().append(*(exchange(n, "zebra with many other words " * 3) for n in range(1, 6)))
        await s.chat().append(*(exchange(n, "zebra") for n in range(6, 31)))
        best = await searched(s, "zebra", mode=api.SEARCH_MODE_WORDS, conversation_id=conversation_id, page_size=5)
        assert min(numbers(best)) > 5

        with held_index(index_of(tmp_path)):
            await rewind(s, 5)

            late = await search(s, "zebra", mode=api.SEARCH_MODE_WORDS, conversation_id=conversation_id, page_size=5)

        assert sorted(numbers(late)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("mode", MODES)
async def test_the_rest_of_an_exchange_is_a_hit_when_its_best_message_was_rewound(tmp_path, mode):
    """The exchange's range ends with the messages that stand."""
    async with sidecar(tmp_path, BOTH) as s:
        await s.chat().append(said(1, "a zebra among other words"), said(2, "so many other words"), said(3, "zebra"))
        await s.chat().append(said(4, "zebra zebra"), said(5, "horse"), said(6, "donkey"))
        before = (await searched(s, "zebra", mode=mode)).hits
        assert {(1, 2), (3, 4)} <= {(hit.exchange.first, hit.exchange.last) for hit in before}

        with held_index(index_of(tmp_path)):
            await rewind(s, 3)

            hits = (await search(s, "zebra", mode=mode)).hits

        assert {(hit.messages.first, hit.exchange.first, hit.exchange.last) for hit in hits} == {(1, 1, 2), (3, 3, 3)}


async def test_a_closed_conversation_is_searched_as_before(tmp_path):
    """Closing takes no text back, and a rewind before it stays one."""
    async with sidecar(tmp_path, BOTH) as s:
        await s.chat().append(*(exchange(n, f"zebra number {n}") for n in range(1, 11)))
        await searched(s, "zebra")

        with held_index(index_of(tmp_path)):
            await rewind(s, 8)
            await s.conversations.CloseConversation(api.CloseConversationRequest(conversation_id="c1"))

            assert sorted(numbers(await search(s, "zebra", page_size=100))) == [*range(1, 9)]
