"""Sizes that the cache counts are those of its states' objects: a bound on less would bound nothing."""

from __future__ import annotations

import gc
import sys
from enum import Enum
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import pytest

from abridged.eventlog.event import StreamId
from abridged.service.conversations.cache import ConversationCache
from tests.support.sidecar import said, sidecar

MESSAGES = 60
CONVERSATIONS = 4

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, Enum)


def text(conversation: int, number: int, sentences: int) -> str:
    at = 1_000 * conversation + number
    return " ".join(
        f"We moved service-{at}{s} to db-{at}{s}.example.com because src/app/migrate_{at}{s}.py failed with E{at}{s}."
        for s in range(sentences)
    )


def bytes_of(found: Any, seen: set[int]) -> int:
    """The memory of an object and of all that it leads to and that `seen` has not."""
    total, left = 0, [found]
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, _SHARED):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        left += gc.get_referents(thing)
    return total


@pytest.mark.parametrize("sentences", [3, 12])
async def test_the_cache_counts_what_its_states_take(sentences, tmp_path):
    """Windows, ledgers, records and sent bytes, after passes over short and over long messages."""
    async with sidecar(tmp_path) as s:
        for c in range(CONVERSATIONS):
            chat = s.chat(f"c{c}-{sentences}", context_length=4_096)
            for number in range(1, MESSAGES + 1):
                await chat.append(said(number, text(c, number, sentences)))
            await s.idle()
            await chat.context()
        key = StreamId("default", f"c0-{sentences}")
        (cache,) = [found for found in gc.get_objects() if isinstance(found, ConversationCache) and found.get(key)]
        kept = list(cache._kept.values())
        seen: set[int] = set()
        bytes_of(kept[0], seen)
        shown = [len(k.state.records) for k in kept]
        counted = sum(k.size.bytes + k.sent.size for k in kept[1:])
        taken = sum(bytes_of(k, seen) for k in kept[1:])

    assert min(shown) >= 1
    assert cache.bytes >= counted
    assert 0.9 * taken <= counted <= 1.25 * taken, f"{counted} bytes are counted, {taken} are taken"
