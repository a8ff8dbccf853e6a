"""Claims and conversations that note their refusals, and those with a planted bug."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from abridged.eventlog.event import StreamId
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.commands import Command, CompletePass, FailPass, StartPass
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.errors import PassSuperseded
from abridged.service.domain.events import (
    Event,
)
from abridged.service.passes.claims import Claim, Claims
from tests.support.fleet.faults import Bug, Point

if TYPE_CHECKING:
    from tests.support.fleet.fleet import Fleet
    from tests.support.fleet.process import Process


class Noticed(Conversations):
    """Conversations that note refusals."""

    fleet: Fleet

    async def execute(
        self, key: StreamId, command: Callable[[Conversation], Command]
    ) -> tuple[Conversation, list[Event]]:
        wanted: list[Command] = []

        def noted(state: Conversation) -> Command:
            wanted.append(self.written(command(state), state))
            return wanted[-1]

        try:
            return await super().execute(key, noted)
        except PassSuperseded:
            if wanted and isinstance(wanted[-1], StartPass):
                self.fleet.seen["a claim comes second"] += 1
            elif wanted and isinstance(wanted[-1], CompletePass | FailPass):
                self.fleet.seen["an end comes too late"] += 1
            raise

    def written(self, command: Command, state: Conversation) -> Command:
        """The command that is decided on."""
        del state
        return command


class Unfenced(Noticed):
    """Every end has the newest token."""

    def written(self, command: Command, state: Conversation) -> Command:
        return replace(command, token=state.claim_token) if isinstance(command, CompletePass | FailPass) else command


class NoticedClaims(Claims):
    """Claims that note each lapse."""

    fleet: Fleet
    process: Process

    def start(self, on_lapsed: Callable[[StreamId], None]) -> None:
        def noted(key: StreamId) -> None:
            self.fleet.seen["a lease lapses in its process"] += 1
            on_lapsed(key)

        super().start(noted)

    def require(self, claim: Claim) -> None:
        super().require(claim)
        self.fleet.at(Point.CLAIM_CHECKED, self.process)


class NeverEnding(NoticedClaims):
    """Bug.NOT_RELEASED"""

    def end(self, claim: Claim) -> None: ...

    def leave(self, claim: Claim) -> None: ...


class Deaf(NoticedClaims):
    """Bug.NO_LAPSE"""

    def require(self, claim: Claim) -> None: ...

    def start(self, on_lapsed: Callable[[StreamId], None]) -> None:
        del on_lapsed
        super().start(lambda _: None)


class CountedFromAnswer(NoticedClaims):
    """Bug.COUNTED_FROM_ANSWER"""

    def _lapsing(self, key: StreamId, token: int, sent_s: float) -> asyncio.TimerHandle:
        del sent_s
        return super()._lapsing(key, token, asyncio.get_running_loop().time())


def claims_with(bugs: Collection[Bug]) -> type[NoticedClaims]:
    """The claims of a process with these bugs."""
    kinds = {Bug.NOT_RELEASED: NeverEnding, Bug.NO_LAPSE: Deaf, Bug.COUNTED_FROM_ANSWER: CountedFromAnswer}
    return next((kind for bug, kind in kinds.items() if bug in bugs), NoticedClaims)


def conversations_with(bugs: Collection[Bug]) -> type[Noticed]:
    """The conversations of a process with these bugs."""
    return Unfenced if Bug.NO_FENCE in bugs else Noticed
