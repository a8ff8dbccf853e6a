"""Keeps the claims of this process: renews their leases, and decides which claims of others it may replace.

A claim is an event, and whether a pass may end under it is decided in the log. Leases only say when another process may
claim. The time of a lease is counted here from before it was sent, so it ends here first: a process that was stopped
for longer asks no model when it goes on. A log that one process owns has no leases.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, ParamSpec, TypeVar

import structlog

from abridged.eventlog.errors import EventLogError
from abridged.eventlog.event import StreamId
from abridged.eventlog.leases import Leases
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import PassSuperseded

LEASE_S: Final = 30.0
"""Seconds after which the pass of a process that has died may be claimed by another."""

RELEASE_S: Final = 1.0
"""Seconds that a stop waits for a claim to be given back, and for its lease: a failure costs only the claim."""

RENEWALS: Final = 3
"""Renewals in the time of a lease: one may fail, and one may be slow."""

P = ParamSpec("P")
T = TypeVar("T")

_log = structlog.get_logger()


class Claim(NamedTuple):
    """A pass, and the token of the claim under which it ends; 0 for none."""

    key: StreamId
    pass_id: str
    token: int


@dataclass(slots=True)
class _Held:
    token: int
    lapse: asyncio.TimerHandle


class Claims:
    """Keeps the leases of the passes that the process `owner` has claimed."""

    def __init__(self, leases: Leases | None, *, owner: str, lease_s: float = LEASE_S) -> None:
        self.owner = owner
        self._leases = leases
        self._lease_s = lease_s
        self._on_lapsed: Callable[[StreamId], None] = lambda _: None
        self._held: dict[StreamId, _Held] = {}
        self._ended: dict[StreamId, int] = {}
        self._taken_over: dict[StreamId, int] = {}
        self._begun = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        # A thread of its own: a renewal may not wait behind reads.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="leases")

    @property
    def are_shared(self) -> bool:
        """True if other processes claim passes, too."""
        return self._leases is not None

    @property
    def renewal_s(self) -> float:
        """Seconds between two renewals."""
        return self._lease_s / RENEWALS

    def start(self, on_lapsed: Callable[[StreamId], None]) -> None:
        """Begin to renew. `on_lapsed` is called when a lease has ended before its pass."""
        self._on_lapsed = on_lapsed
        if self._leases is not None:
            self._keeper = asyncio.create_task(self._keep(self._leases), name="claims")

    async def stop(self) -> None:
        """Renew no lease any more, and forget those of passes that have ended."""
        if self._leases is not None and self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await self._drop(self._leases)
        self._thread.shutdown(wait=False)

    def may_claim(self, key: StreamId, state: Conversation) -> bool:
        """Return whether this process may claim the pending pass: nobody has, or its last claim is this one's or has
        lapsed."""
        return (
            self._leases is None
            or state.claim_token == 0
            or state.claim_owner == self.owner
            or self._taken_over.get(key) == state.claim_token
        )

    def begin(self, claim: Claim, sent_s: float) -> None:
        """Keep a claim whose event was sent at this time of the loop's clock, and is in the log."""
        self._taken_over.pop(claim.key, None)
        if self._leases is not None:
            self._held[claim.key] = _Held(claim.token, self._lapsing(claim.key, claim.token, sent_s))
            self._begun.set()

    def require(self, claim: Claim) -> None:
        """Raise PassSuperseded if the lease of a claim has lapsed, even if its timer has not run yet: a process that
        goes on after a stop first does what was due before."""
        held = self._held.get(claim.key)
        if self._leases is not None and (held is None or held.token != claim.token or _is_over(held)):
            raise PassSuperseded

    def end(self, claim: Claim) -> None:
        """Forget the claim of a pass that has ended, whoever made it."""
        self._let_go(claim)
        if self._leases is not None and claim.token:
            self._ended[claim.key] = claim.token

    def leave(self, claim: Claim) -> None:
        """The pass is left as it is; its lease lapses by itself."""
        self._let_go(claim)

    async def release(self, claim: Claim) -> None:
        """The claim was given back: another process may take the pass up at once."""
        if self._leases is not None and self._let_go(claim):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await self._asked(self._leases.hold, {claim.key: claim.token}, 0.0)

    async def lapsed(self, keys: Collection[StreamId]) -> Mapping[StreamId, int]:
        """The conversations whose lease has lapsed, with the token of the claim; the leases of others are kept from now
        on."""
        if self._leases is None or not keys:
            return {}
        return await self._asked(self._leases.lapsed, keys, self._lease_s) or {}

    async def take_over(self, key: StreamId, state: Conversation, lapsed: int) -> bool:
        """Return whether this process may claim the pass, now that the lease with this token has lapsed.

        A claim that another process has made since gets a lease, in case its owner is gone, too.
        """
        if self._leases is None or state.claim_token in (0, lapsed):
            self._taken_over[key] = lapsed
            return True
        await self._asked(self._leases.hold, {key: state.claim_token}, self._lease_s)
        return False

    def forget(self, key: StreamId) -> None:
        """The conversation's pass is no longer this process's to claim."""
        self._taken_over.pop(key, None)

    async def _keep(self, leases: Leases) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.renewal_s):
                    await self._begun.wait()
            self._begun.clear()
            try:
                await self._renew(leases)
                await self._drop(leases)
            except Exception as error:  # noqa: BLE001 - supervision: a renewal that failed must not end all others
                _log.error("leases.failed", error_type=type(error).__name__, exc_info=True)

    async def _renew(self, leases: Leases) -> None:
        tokens = {key: held.token for key, held in self._held.items() if not _is_over(held)}
        if not tokens:
            return
        sent_s = asyncio.get_running_loop().time()
        held = await self._asked(leases.hold, tokens, self._lease_s)
        if held is None:
            return
        for key, token in tokens.items():
            known = self._held.get(key)
            if known is None or known.token != token:
                continue
            if key in held:
                known.lapse.cancel()
                known.lapse = self._lapsing(key, token, sent_s)
            else:
                self._lapse(key, token)

    async def _drop(self, leases: Leases) -> None:
        tokens, self._ended = self._ended, {}
        if tokens and await self._asked(_dropped, leases, tokens) is None:
            self._ended = {**tokens, **self._ended}

    async def _asked(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The answer of the leases; None if they cannot be asked now."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, partial(ask, *args, **kwargs))
        except EventLogError as error:
            _log.warning("leases.unavailable", error_type=type(error).__name__)
            return None

    def _lapsing(self, key: StreamId, token: int, sent_s: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_at(sent_s + self._lease_s, self._lapse, key, token)

    def _lapse(self, key: StreamId, token: int) -> None:
        if self._let_go(Claim(key, "", token)):
            _log.warning("pass.lease_lapsed", conversation_id=key.name)
            self._on_lapsed(key)

    def _let_go(self, claim: Claim) -> bool:
        held = self._held.get(claim.key)
        if held is None or held.token != claim.token:
            return False
        held.lapse.cancel()
        del self._held[claim.key]
        return True


def _dropped(leases: Leases, tokens: Mapping[StreamId, int]) -> bool:
    leases.drop(tokens)
    return True


def _is_over(held: _Held) -> bool:
    return held.lapse.when() <= asyncio.get_running_loop().time()
