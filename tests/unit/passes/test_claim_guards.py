"""The guards of a process's claims, one by one: each keeps a late commit, a double record or a lapsed lease out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping

import pytest

from abridged.eventlog.errors import LogUnavailable
from abridged.eventlog.event import StreamId
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import PassSuperseded
from abridged.service.passes.claims import LEASE_S, Claim, Claims
from tests.support.leases import Lease, MemoryLeases
from tests.support.patience import PATIENCE_S

KEY = StreamId("default", "c")
OLD, NEW = Claim(KEY, "p", 5), Claim(KEY, "p", 9)
SHORT_S = 0.03


class Leases(MemoryLeases):
    """Leases at the hour zero. Renewals wait for `answer` and fail for tokens of `lost`; first drops are refused."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.asked = threading.Event()
        self.answer = threading.Event()
        self.answer.set()
        self.lost: set[int] = set()
        self.refused_drops = 0

    def hold(self, tokens: Mapping[StreamId, int], seconds: float) -> set[StreamId]:
        self.asked.set()
        assert self.answer.wait(PATIENCE_S)
        if self.lost & set(tokens.values()):
            raise LogUnavailable("no leases")
        return super().hold(tokens, seconds)

    def drop(self, tokens: Mapping[StreamId, int]) -> None:
        if self.refused_drops:
            self.refused_drops -= 1
            raise LogUnavailable("no leases")
        super().drop(tokens)


@pytest.fixture
async def leases() -> Leases:
    return Leases()


@pytest.fixture
async def claims(leases: Leases) -> AsyncIterator[Claims]:
    made = Claims(leases, owner="mine")
    yield made
    await made.stop()


def now_s() -> float:
    """The time of the loop."""
    return asyncio.get_running_loop().time()


def claimed(claim: Claim, owner: str) -> Conversation:
    """A conversation whose newest claim is this one."""
    return Conversation(id=KEY.name, claim_token=claim.token, claim_owner=owner)


async def test_nothing_begins_without_a_claim(claims: Claims):
    """A claim that was never made, that another has replaced or that has ended lets nothing begin."""
    with pytest.raises(PassSuperseded):
        claims.require(NEW)
    claims.begin(NEW, now_s())
    claims.require(NEW)
    with pytest.raises(PassSuperseded):
        claims.require(OLD)
    claims.end(NEW)
    with pytest.raises(PassSuperseded):
        claims.require(NEW)


async def test_nothing_begins_after_a_lease_even_before_its_timer(claims: Claims):
    """A process that goes on after a stop first does its overdue work."""
    claims.begin(NEW, now_s() - LEASE_S)

    with pytest.raises(PassSuperseded):
        claims.require(NEW)


async def test_the_end_of_an_older_claim_leaves_a_newer_one_alone(claims: Claims, leases: Leases):
    """However it ends, and its release gives back no lease that is not its own."""
    claims.begin(NEW, now_s())
    leases.rows[KEY] = Lease(OLD.token, 30.0)
    claims.leave(OLD)
    await claims.release(OLD)
    claims.end(OLD)

    claims.require(NEW)
    assert leases.rows[KEY] == Lease(OLD.token, 30.0)


async def test_a_process_claims_what_is_nobody_elses(claims: Claims):
    """A process may claim a pass without a claim, one of its own claim, and one that it took over and still knows."""
    assert claims.may_claim(KEY, Conversation(id=KEY.name))
    assert claims.may_claim(KEY, claimed(OLD, "mine"))
    assert not claims.may_claim(KEY, claimed(OLD, "another's"))

    assert await claims.take_over(KEY, claimed(OLD, "another's"), OLD.token)
    assert claims.may_claim(KEY, claimed(OLD, "another's"))
    assert not claims.may_claim(KEY, claimed(NEW, "another's"))
    claims.forget(KEY)
    assert not claims.may_claim(KEY, claimed(OLD, "another's"))


async def test_a_claim_that_was_made_ends_its_takeover(claims: Claims):
    """The same token is not claimed a second time by it."""
    await claims.take_over(KEY, claimed(OLD, "another's"), OLD.token)
    claims.begin(NEW, now_s())

    assert not claims.may_claim(KEY, claimed(OLD, "another's"))


async def test_a_pass_that_another_has_claimed_since_is_left_to_it(claims: Claims, leases: Leases):
    """The claim gets a lease, in case its process is gone, too."""
    assert not await claims.take_over(KEY, claimed(NEW, "another's"), OLD.token)

    assert not claims.may_claim(KEY, claimed(NEW, "another's"))
    assert leases.rows == {KEY: Lease(NEW.token, LEASE_S)}


async def test_a_late_answer_to_a_renewal_does_not_move_the_lease_of_the_next_claim(leases: Leases):
    """The lease of the next claim lapses when its own time is over."""
    claims = Claims(leases, owner="mine", lease_s=LEASE_S)
    lapsed = asyncio.Event()
    claims.start(lambda _: lapsed.set())
    leases.answer.clear()
    leases.lost = {NEW.token}
    claims.begin(OLD, now_s())
    await asyncio.to_thread(leases.asked.wait, PATIENCE_S)
    claims.end(OLD)
    claims.begin(NEW, now_s() - LEASE_S + SHORT_S)
    leases.answer.set()

    async with asyncio.timeout(PATIENCE_S):
        await lapsed.wait()
    await claims.stop()


async def test_a_renewal_that_is_refused_ends_the_work(leases: Leases):
    """Another process may have heard that the lease has lapsed."""
    leases.rows[KEY] = Lease(NEW.token + 1, 30.0)
    claims = Claims(leases, owner="mine")
    lapsed = asyncio.Event()
    claims.start(lambda _: lapsed.set())
    claims.begin(NEW, now_s())

    async with asyncio.timeout(PATIENCE_S):
        await lapsed.wait()
    with pytest.raises(PassSuperseded):
        claims.require(NEW)
    await claims.stop()


async def test_a_lease_that_could_not_be_dropped_is_dropped_later(claims: Claims, leases: Leases):
    """The stop drops it at the latest, and never the lease of an end without a claim."""
    short = Claims(leases, owner="mine", lease_s=SHORT_S)
    leases.rows[KEY] = Lease(NEW.token, 30.0)
    leases.refused_drops = 2
    short.start(lambda _: None)
    short.begin(NEW, now_s())
    short.end(NEW)
    async with asyncio.timeout(PATIENCE_S):
        while KEY in leases.rows:
            await asyncio.to_thread(lambda: None)
    await short.stop()

    leases.rows[KEY] = Lease(0, 30.0)
    claims.start(lambda _: None)
    claims.end(Claim(KEY, "p", 0))
    await claims.stop()
    assert leases.rows == {KEY: Lease(0, 30.0)}
