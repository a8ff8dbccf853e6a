"""Notes the writes and questions of a run's processes, and judges the run by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from abridged.eventlog.event import RecordedEvent, StreamId
from abridged.service.codec.events import decode
from abridged.service.domain.events import (
    ErrorClass,
    Event,
    SummarizationCompleted,
    SummarizationFailed,
    SummarizationReleased,
    SummarizationRequested,
    SummarizationSkipped,
    SummarizationStarted,
)
from abridged.service.domain.fold import fold
from abridged.service.domain.message import Message
from abridged.service.passes.claims import LEASE_S
from abridged.service.passes.run import CLAIMS_MAX
from tests.support.histories import Ack, Turn, contradictions, unlike_passes
from tests.support.leases import MemoryLeases
from tests.support.virtual_loops import VirtualTime

if TYPE_CHECKING:
    from tests.support.fleet.process import Process


SLACK_S = 0.05
"""Seconds that a process may go on after its lease has lapsed, for the turns that were due before."""


@dataclass
class Newest:
    """The newest claim of a pass, as the log has it."""

    process: Process
    token: int
    count: int
    released: bool = False


class Witness:
    """A witness of a run: it sees each write and question of the processes, and says which are wrong.

    `acks` are the appends that clients know of, `holders` the claims by conversation, `told` the leases of which a
    process knows that they have lapsed, and `seen` counts rare cases.
    """

    def __init__(self, time: VirtualTime, leases: MemoryLeases, seen: Counter[str]) -> None:
        self._time = time
        self._leases = leases
        self._seen = seen
        self._newest: dict[str, Newest] = {}
        self._ended_s: dict[StreamId, float] = {}
        self._renewed_s: dict[StreamId, float] = {}
        self.wrong: list[str] = []
        self.acks: list[Ack] = []
        self.holders: dict[StreamId, tuple[Process, int]] = {}
        self.requested: dict[str, Process] = {}
        self.told: set[tuple[StreamId, int]] = set()

    def committed(self, process: Process, key: StreamId, events: Sequence[Event], versions: Sequence[int]) -> None:
        """Note the passes that a process has written."""
        for event, version in zip(events, versions, strict=True):
            match event:
                case SummarizationRequested():
                    self.requested[event.plan.pass_id] = process
                case SummarizationStarted():
                    self._claimed(process, key, event, version)
                case SummarizationReleased():
                    self._seen["a claim is given back"] += 1
                    self._newest[event.pass_id].released = True
                case SummarizationCompleted() | SummarizationFailed():
                    self._ended(process, key, event)
                case SummarizationSkipped(pass_id=str(pass_id)) if pass_id:
                    self._ended(process, key, event)
                case _:
                    pass

    def _claimed(self, process: Process, key: StreamId, event: SummarizationStarted, version: int) -> None:
        before = self._newest.get(event.pass_id)
        if before is None:
            stolen = self.requested.get(event.pass_id) is not process
            self._seen["a pass that nobody has claimed is taken up"] += stolen
        elif before.released:
            self._seen["a pass that was given back is taken up"] += 1
        elif before.process is process:
            self._seen["a process claims again"] += 1
        else:
            self._seen["a pass is taken over"] += 1
            self._require(self._has_lapsed(key, before), f"{event.pass_id} was taken over before its lease had lapsed")
        if before is not None and before.process is not process and before.process.is_asking(event.pass_id):
            self._require(False, f"{event.pass_id} was claimed while another process was asking a model for it")
        self._newest[event.pass_id] = Newest(process, version, event.claim)
        self.holders[key] = process, version
        process.sent_until_s[key] = process.claim_sent_s.get(key, self._time.now_s) + LEASE_S

    def _ended(
        self,
        process: Process,
        key: StreamId,
        event: SummarizationCompleted | SummarizationFailed | SummarizationSkipped,
    ) -> None:
        newest = self._newest.get(event.pass_id)
        self._ended_s[key] = self._time.now_s
        if isinstance(event, SummarizationFailed) and event.error_class is ErrorClass.INTERNAL:
            self._seen["a pass was claimed too often"] += 1
            given_up = newest is not None and newest.count >= CLAIMS_MAX
            mine = newest is not None and (newest.process is process or self._has_lapsed(key, newest))
            self._require(given_up and mine, f"{event.pass_id} was given up by who may not")
            return
        self._require(newest is not None and newest.process is process, f"{event.pass_id} was ended by a stale owner")

    def _has_lapsed(self, key: StreamId, claim: Newest) -> bool:
        row = self._leases.rows.get(key)
        return claim.released or (row is not None and row.token == claim.token and row.until_s <= self._time.now_s)

    def asked(self, process: Process, key: StreamId, pass_id: str) -> None:
        """A process asks a model."""
        until_s = process.sent_until_s.get(key, 0.0)
        self._require(
            self._time.now_s <= until_s + SLACK_S, f"a model was asked for {pass_id} after the lease had lapsed"
        )

    def _require(self, holds: bool, said: str) -> None:
        if not holds:
            self.wrong.append(f"{self._time.now_s:.3f} s: {said}")

    def judge(
        self, recorded: Sequence[RecordedEvent], sent: Mapping[StreamId, Sequence[Message]], live: Sequence[Process]
    ) -> list[str]:
        """Return the faults of a run, given its log, the clients' messages, and the processes that live."""
        places = [(event.position, event.event_id) for event in recorded]
        turns: list[Turn] = []
        streams: dict[StreamId, list[tuple[Event, int]]] = {}
        for each in recorded:
            event = decode(each.type, each.schema_version, each.payload)
            streams.setdefault(each.stream, []).append((event, each.time_us))
            if isinstance(event, SummarizationRequested):
                turns.append(Turn(event.plan.pass_id, False))
            elif isinstance(event, SummarizationCompleted | SummarizationFailed | SummarizationSkipped):
                # A skip without a pass ends none.
                turns += [Turn(event.pass_id, True)] if event.pass_id else []
        wrong = [*self.wrong, *contradictions(places, self.acks), *unlike_passes(turns)]
        for key, events in streams.items():
            wrong += _unlike_fold(key, events, len(sent[key]), live)
        for key, renewed_s in self._renewed_s.items():
            if renewed_s > self._ended_s.get(key, 0.0) + LEASE_S:
                wrong.append(f"the lease of {key.name} is renewed after its pass")
        return wrong

    def is_told(self, key: StreamId) -> None:
        """A process hears how its pass has ended: until then it may renew the lease."""
        self._ended_s[key] = self._time.now_s

    def held(self, process: Process, key: StreamId, token: int) -> None:
        """A lease was taken or renewed."""
        self._require((key, token) not in self.told, f"the lapsed lease of {key.name} was renewed")
        if self.holders.get(key) == (process, token):
            process.sent_until_s[key] = process.loop.asked_s + LEASE_S
            self._renewed_s[key] = process.loop.asked_s


def _unlike_fold(
    key: StreamId, events: Sequence[tuple[Event, int]], sent: int, live: Sequence[Process]
) -> Iterator[str]:
    state = fold(events)
    if state.message_version != sent:
        yield f"{key.name} has {state.message_version} messages of {sent}"
    folded = {len(events): state}
    for process in live:
        known = process.known(key)
        if known is None:
            continue
        if known.event_version not in folded:
            folded[known.event_version] = fold(events[: known.event_version])
        if known != folded[known.event_version]:
            yield f"{process.name} knows another {key.name} than the log"
