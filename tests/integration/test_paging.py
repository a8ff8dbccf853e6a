"""Lists are paged: every item once, whatever is written meanwhile, and a token serves the list that it is of."""

from __future__ import annotations

from typing import Any

import pytest

from abridged.service.api.pages import PAGE_SIZE_MAX, Pages, fitting
from abridged.service.domain.errors import InvalidPageToken
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2 as log
from tests.support.answers import hanging
from tests.support.ollama_server import FakeOllama
from tests.support.patience import PATIENCE_S
from tests.support.refusal import refused
from tests.support.sidecar import ANY_DRAFT, Chat, Sidecar, on_ollama, said, script, sidecar

WIDE = "\N{GRINNING FACE}"
TULIPS = "The gardener waters the tulips beside the gate."
FULL_RECORDS = {"min_range_tokens": 1, "max_summary_chain_depth": 64, "max_summary_tokens": 100_000}
"""One character of four bytes."""


async def listed(s: Sidecar, size: int, **query: Any) -> list[list[str]]:
    """The ids of all conversations, page by page."""
    pages: list[list[str]] = []
    token = ""
    while True:
        request = api.ListConversationsRequest(page_size=size, page_token=token, **query)
        page = await s.conversations.ListConversations(request)
        pages.append([c.id for c in page.conversations])
        token = page.next_page_token
        if not token:
            return pages


async def with_passes(s: Sidecar, count: int) -> Chat:
    chat = s.chat(context_length=100_000, policy={"min_range_tokens": 1})
    for _ in range(count):
        await chat.talk(10, tokens=200)
        await chat.summarize()
    return chat


async def test_conversations_come_in_pages_of_the_size_that_is_asked_for(tmp_path):
    """Filters hold on every page."""
    async with sidecar(tmp_path) as s:
        for number in range(7):
            await s.chat(f"c{number}", labels={"odd": str(number % 2)}).append(said(1))

        assert await listed(s, 3) == [["c6", "c5", "c4"], ["c3", "c2", "c1"], ["c0"]]
        assert await listed(s, 7) == [["c6", "c5", "c4", "c3", "c2", "c1", "c0"]]
        assert await listed(s, 2, labels={"odd": "1"}) == [["c5", "c3"], ["c1"]]


async def test_every_page_is_as_large_as_may_be_when_more_is_asked_for(tmp_path):
    """Too large is the largest, everywhere; negative is refused, everywhere."""
    async with sidecar(tmp_path) as s:
        chat = s.chat(context_length=100_000_000)
        await chat.append(*(said(n, "x", tokens=1) for n in range(1, 401)))
        await chat.append(*(said(n, "x", tokens=1) for n in range(401, 601)))
        reads: list[tuple[Any, Any]] = [
            (s.event_log.ReadEvents, lambda n: log.ReadEventsRequest(conversation_id="c1", limit=n)),
            (s.event_log.ReadEvents, lambda n: log.ReadEventsRequest(limit=n, backward=True)),
            (s.conversations.ListConversations, lambda n: api.ListConversationsRequest(page_size=n)),
            (s.conversations.ListSummaries, lambda n: api.ListSummariesRequest(conversation_id="c1", page_size=n)),
            (
                s.conversations.ListSummarizations,
                lambda n: api.ListSummarizationsRequest(conversation_id="c1", page_size=n),
            ),
        ]

        for call, request in reads:
            largest = await call(request(PAGE_SIZE_MAX))
            assert await call(request(2**31 - 1)) == largest
            async with refused("INVALID_ARGUMENT", "INVALID_FIELD"):
                await call(request(-1))

        assert (
            len((await s.event_log.ReadEvents(log.ReadEventsRequest(limit=PAGE_SIZE_MAX + 1))).events) == PAGE_SIZE_MAX
        )


async def test_a_conversation_that_changes_meanwhile_hides_none_of_the_others(tmp_path):
    """The conversation moves to the front, and the pages that are left are as they were."""
    async with sidecar(tmp_path) as s:
        for number in range(4):
            await s.chat(f"c{number}").append(said(1))
        first = await s.conversations.ListConversations(api.ListConversationsRequest(page_size=2))

        await s.chat("c3").append(said(2))
        rest = await s.conversations.ListConversations(
            api.ListConversationsRequest(page_size=2, page_token=first.next_page_token)
        )

        assert [c.id for c in rest.conversations] == ["c1", "c0"]


async def test_records_and_passes_are_paged_newest_first(tmp_path):
    """Every one once."""
    async with sidecar(tmp_path) as s:
        chat = await with_passes(s, 5)
        records, passes = await chat.summaries(), await chat.passes()

        paged_records: list[str] = []
        token = ""
        for _ in range(3):
            page = await s.conversations.ListSummaries(
                api.ListSummariesRequest(conversation_id="c1", page_size=2, page_token=token)
            )
            assert len(page.summaries) <= 2
            paged_records += [r.id for r in page.summaries]
            token = page.next_page_token
        assert token == ""
        assert paged_records == [r.id for r in records]

        paged_passes: list[str] = []
        for _ in range(3):
            answer = await s.conversations.ListSummarizations(
                api.ListSummarizationsRequest(conversation_id="c1", page_size=2, page_token=token)
            )
            paged_passes += [p.id for p in answer.summarizations]
            token = answer.next_page_token
        assert paged_passes == [p.id for p in passes]
        assert len(passes) == 5


async def test_a_page_of_conversations_ends_where_a_client_would_refuse_it(tmp_path):
    """Labels may be many and long; gRPC clients take four megabytes unless they say otherwise."""
    labels = {f"label{number}": WIDE * 255 for number in range(64)}
    ids = [f"c{number:02d}" for number in range(64)]
    async with sidecar(tmp_path) as s:
        for conversation_id in ids:
            await s.chat(conversation_id, labels=labels).append(said(1))

        pages = await listed(s, 500)

        assert len(pages) == 2
        assert [c for page in pages for c in page] == ids[::-1]


async def test_a_page_of_records_ends_where_a_client_would_refuse_it(tmp_path):
    """Every one once, also where a page is cut short."""
    texts = [f"{'字' * 990} {letter}" for letter in "abcdefghijklmnopqrst"]
    lists = {"participants": texts, "domain_entities": [f"{text}{n}" for text in texts for n in range(2)]}
    answers = [{"record": {"summary": f"Turn {turn}.", **lists}} for turn in range(2, 282, 10)]
    settings = script(tmp_path, *answers, context_length=10_000_000) | {"policy.max_input_tokens": 10_000_000}
    async with sidecar(tmp_path, settings | ANY_DRAFT) as s:
        chat = s.chat(context_length=10_000_000, policy=FULL_RECORDS)
        for turn in range(0, 280, 10):
            await chat.append(*(said(turn + n, TULIPS, tokens=100_000) for n in range(1, 11)))
            await chat.summarize()
        request = api.ListSummariesRequest(conversation_id="c1", page_size=500)

        page = await s.conversations.ListSummaries(request)
        request.page_token = page.next_page_token
        rest = await s.conversations.ListSummaries(request)

        assert [record.depth for record in (*page.summaries, *rest.summaries)] == list(range(27, -1, -1))
        assert (len(rest.summaries) > 0, rest.next_page_token) == (True, "")


def test_an_answer_has_one_item_at_least():
    """A page without any would have no successor: its reader would ask for the same one for ever."""
    assert fitting([5, 1], int, bytes_max=4) == [5]
    assert fitting([2, 2, 1], int, bytes_max=4) == [2, 2]
    assert fitting([], int, bytes_max=4) == []


async def test_a_pending_pass_is_one_of_its_page(tmp_path):
    """A page never has more than was asked for."""
    async with FakeOllama(responder=hanging()) as ollama, sidecar(tmp_path, on_ollama(ollama)) as s:
        chat = s.chat()
        await chat.talk(14)

        page = await s.conversations.ListSummarizations(
            api.ListSummarizationsRequest(conversation_id="c1", page_size=1)
        )

        assert [p.id for p in page.summarizations] == [(await chat.state()).pending_summarization_id]
        assert page.next_page_token == ""


@pytest.mark.parametrize("token", ["x", "AAAA", "A" * 40, "ünïcode", "*" * 64])
async def test_a_token_that_is_not_ours_is_refused(tmp_path, token):
    """Every list refuses it."""
    async with sidecar(tmp_path) as s:
        await s.chat().append(said(1))
        requests = {
            "ListConversations": api.ListConversationsRequest(page_token=token),
            "ListSummaries": api.ListSummariesRequest(conversation_id="c1", page_token=token),
            "ListEpisodes": api.ListEpisodesRequest(conversation_id="c1", page_token=token),
            "ListSummarizations": api.ListSummarizationsRequest(conversation_id="c1", page_token=token),
        }
        for method, request in requests.items():
            async with refused("INVALID_ARGUMENT", "INVALID_PAGE_TOKEN") as refusal:
                await getattr(s.conversations, method)(request, timeout=PATIENCE_S)
            assert list(refusal.fields) == ["page_token"]


async def test_a_token_of_another_list_or_filter_is_refused(tmp_path):
    """The token would skip entries that the reader has not seen."""
    async with sidecar(tmp_path) as s:
        chat = await with_passes(s, 2)
        await s.chat("c2").append(said(1))
        records = await s.conversations.ListSummaries(api.ListSummariesRequest(conversation_id=chat.id, page_size=1))
        token = records.next_page_token
        assert token

        for method, request in (
            ("ListSummarizations", api.ListSummarizationsRequest(conversation_id="c1", page_token=token)),
            ("ListSummaries", api.ListSummariesRequest(conversation_id="c2", page_token=token)),
            ("ListConversations", api.ListConversationsRequest(page_token=token)),
        ):
            async with refused("INVALID_ARGUMENT", "INVALID_PAGE_TOKEN"):
                await getattr(s.conversations, method)(request)
        plain = await s.conversations.ListConversations(api.ListConversationsRequest(page_size=1))
        async with refused("INVALID_ARGUMENT", "INVALID_PAGE_TOKEN"):
            await s.conversations.ListConversations(
                api.ListConversationsRequest(page_size=1, min_ratio=0.1, page_token=plain.next_page_token)
            )


async def test_a_token_serves_after_a_restart(tmp_path):
    """A reader does not notice."""
    async with sidecar(tmp_path) as s:
        for number in range(3):
            await s.chat(f"c{number}").append(said(1))
        token = (await s.conversations.ListConversations(api.ListConversationsRequest(page_size=1))).next_page_token

    async with sidecar(tmp_path) as s:
        page = await s.conversations.ListConversations(api.ListConversationsRequest(page_size=1, page_token=token))

        assert [c.id for c in page.conversations] == ["c1"]


@pytest.mark.parametrize("cursor", [-1, 1 << 63, 10**30])
def test_a_cursor_that_no_log_has_is_refused(cursor):
    """Anybody who knows the log's id can make up a token; the database never sees a value that it cannot take."""
    token = Pages(b"key").token("scope", cursor)

    with pytest.raises(InvalidPageToken):
        Pages(b"key").cursor("scope", token)
