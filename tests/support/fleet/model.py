"""The model of a process, as an actor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from abridged.eventlog.event import StreamId
from abridged.service.domain.events import (
    ErrorClass,
)
from abridged.service.domain.policy import Policy
from abridged.service.domain.record import Provenance, RecordEvidence, RecordQuality
from abridged.service.passes.claims import LEASE_S
from abridged.service.prompts.prompt import CHAIN_TEMPLATE
from abridged.service.summarizer.draft import Draft
from abridged.service.summarizer.summarizer import Observer, PassFailed, PassWork, Summary
from tests.support.fleet.faults import Fault, Point

if TYPE_CHECKING:
    from tests.support.fleet.process import Process


class Model:
    """A summarizer that asks its model one of these numbers of times, and waits for each answer."""

    name = "simulated:model"

    def __init__(self, process: Process, calls: Sequence[int]) -> None:
        self._process = process
        self._calls = calls

    def source_tokens(self, _policy: Policy, _summary_tokens: int, /) -> int:
        return 100_000

    async def has_time(self) -> bool:
        return True

    async def summarize(self, work: PassWork, observer: Observer) -> Summary:
        fleet, process, pass_id = self._process.fleet, self._process, work.plan.pass_id
        key = StreamId("default", work.conversation_id)
        calls = fleet.rng.choice(self._calls)
        for call in range(1, calls + 1):
            observer.attempt(call, self.name)
            fleet.witness.asked(process, key, pass_id)
            fleet.at(Point.MODEL_ASKED, process)
            fleet.seen["model calls"] += 1
            process.asking[pass_id] += 1
            try:
                slow = fleet.has(Fault.SLOW_MODEL, 0.3)
                drawn_s = fleet.rng.choice([LEASE_S, 3 * LEASE_S]) if slow else fleet.rng.uniform(0.5, 8.0)
                await asyncio.sleep(drawn_s if fleet.call_s is None else fleet.call_s)
            finally:
                process.asking[pass_id] -= 1
            fleet.at(Point.MODEL_ANSWERED, process)
        if fleet.fails or fleet.has(Fault.FAILING_MODEL, 0.4):
            failed = PassFailed(ErrorClass.INVALID, retryable=True, cause="simulated", asked=True)
            failed.attempts = calls
            raise failed
        return Summary(
            draft=_DRAFT,
            tokens=50,
            quality=RecordQuality(),
            model=self.name,
            provenance=Provenance.MODEL,
            template=CHAIN_TEMPLATE,
            evidence=RecordEvidence(),
            attempts=calls,
        )


_DRAFT = Draft(
    summary="The importer reads orders.",
    key_points=[],
    participants=[],
    decisions=[],
    action_items=[],
    unresolved=[],
    domain_entities=[],
)
