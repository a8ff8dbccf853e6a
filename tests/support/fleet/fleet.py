"""Several sidecars on one log, in one virtual time: who is struck when, and which messages clients send."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from abridged.eventlog.event import StreamId
from abridged.eventlog.memory import MemoryEventLog
from abridged.eventlog.rows import MemoryRows
from abridged.service.conversations.row import READ_TABLE
from abridged.service.conversations.table import ConversationTable
from abridged.service.domain.message import Message, Role
from abridged.service.passes.claims import LEASE_S
from tests.support.fleet.faults import AT_POINTS, SHARES, Bug, Fault, Point
from tests.support.fleet.process import Process
from tests.support.fleet.witness import Witness
from tests.support.histories import Ack
from tests.support.leases import MemoryLeases
from tests.support.virtual_loops import VirtualTime

BEGUN_US = 1_700_000_000_000_000
SETTLED_WITHIN_S = 3_600.0
CALM_S = 2 * LEASE_S
"""Seconds that a fleet is watched after its last pass: a lease that is renewed for nothing shows in them."""

PATIENCE_S = 20.0
"""Seconds that a client waits for an answer."""

TOKENS_EACH = 300
"""The tokens of a message, five of which fill a window so far that a pass is due."""


@dataclass
class Fleet:
    """All processes of a run, and the parts that they share.

    A test without a seed's faults chooses each call's delay, which calls of the model fail, and which commit is
    unanswered.
    """

    seed: int
    bugs: frozenset[Bug] = frozenset()
    faults: frozenset[Fault] = frozenset()
    seen: Counter[str] = field(default_factory=Counter)
    call_s: float | None = None
    fails: bool = False
    unanswered: set[Point] = field(default_factory=set)
    damaged: set[StreamId] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.time = VirtualTime(self.rng)
        self.rows = MemoryRows(READ_TABLE)
        self.table = ConversationTable(self.rows)
        self.log = MemoryEventLog(clock_us=self.clock_us, hook=self.table.project)
        self.leases = MemoryLeases(lambda: self.time.now_s)
        self.processes: list[Process] = []
        self.witness = Witness(self.time, self.leases, self.seen)
        self.sent: dict[StreamId, list[Message]] = {}
        self.waiting = 0
        self._named = 0

    def clock_us(self) -> int:
        """The right time."""
        return BEGUN_US + round(self.time.now_s * 1e6)

    def start(self) -> Process:
        """Start a process."""
        self._named += 1
        process = Process(self, f"process-{self._named}")
        self.processes.append(process)
        return process

    def restart(self) -> None:
        """Start a process in the place of another."""
        self.start()

    def has(self, fault: Fault, share: float) -> bool:
        """Return whether this fault happens now."""
        return fault in self.faults and self.rng.random() < share

    def delay_s(self) -> float:
        """Seconds that a process is stopped or a commit takes: mostly about a lease, when others begin to take over."""
        about_s = self.rng.uniform(0.7, 1.7) * LEASE_S
        return self.rng.choice([1.0, about_s, about_s, 4 * LEASE_S])

    def at(self, point: Point, process: Process) -> None:
        """A process is at a point: it may be killed or stopped here."""
        self.seen[f"at {point}"] += 1
        for fault in AT_POINTS:
            if self.has(fault, SHARES.get(point, 0.04)):
                self.seen[f"{fault} at {point}"] += 1
                self.time.later(0.0, lambda fault=fault: self.strike(fault, process))  # type: ignore[misc]  # mypy does not see the default

    def strike(self, fault: Fault, process: Process) -> None:
        """Have a fault happen to a process, unless it is dead."""
        if process.loop.is_dead:
            return
        if fault is Fault.STOPPED:
            process.loop.stop_for(self.delay_s())
            return
        if fault is Fault.RESTARTED:
            process.leave()
        else:
            process.kill()
        self.time.later(self.rng.choice([0.1, LEASE_S / 4, LEASE_S * 2]), self.restart)

    def append(self, key: StreamId, count: int) -> None:
        """Have a client append messages, and try again until it has an answer."""
        said = self.sent.setdefault(key, [])
        new = [_message(key, number) for number in range(len(said), len(said) + count)]
        said += new
        self.waiting += 1
        self._call(key, new)

    def append_later(self, delay_s: float, key: StreamId, count: int) -> None:
        """Have a client append messages then."""
        self.time.later(delay_s, lambda: self.append(key, count))

    def strike_later(self, delay_s: float, fault: Fault) -> None:
        """Have a fault happen then, to any process."""

        def strike() -> None:
            if live := self.live():
                self.seen[str(fault)] += 1
                self.strike(fault, self.rng.choice(live))

        self.time.later(delay_s, strike)

    def until(self, happened: str, *, within_s: float) -> None:
        """Let time pass until something was seen once more."""
        before = self.seen[happened]
        self.time.later(within_s, lambda: None)
        self.time.run(lambda: self.seen[happened] > before, within_s=within_s)

    def play_for(self, seconds: float) -> None:
        """Let time pass."""
        end_s = self.time.now_s + seconds
        self.time.later(seconds, lambda: None)
        self.time.run(lambda: self.time.now_s >= end_s, within_s=seconds)

    def live(self) -> list[Process]:
        """The processes that take calls."""
        return [p for p in self.processes if not p.loop.is_dead and p.is_serving]

    def _call(self, key: StreamId, messages: list[Message]) -> None:
        serving = self.live()
        if not serving:
            self.time.later(1.0, lambda: self._call(key, messages))
            return
        process = self.rng.choice(serving)
        called_s = self.time.now_s
        over = False

        def answered(ack: Ack | None) -> None:
            nonlocal over
            if over:
                return
            over = True
            if ack is None:
                self.time.later(self.rng.uniform(0.1, 2.0), lambda: self._call(key, messages))
            else:
                self.witness.acks.append(ack)
                self.waiting -= 1

        process.call(lambda: process.append(key, messages, called_s, answered))
        self.time.later(PATIENCE_S, lambda: answered(None))

    def settle(self) -> None:
        """End the faults, and have everything that is pending end."""
        self.faults = frozenset()
        for process in self.processes:
            process.loop.resume()
        for _ in range(2 - sum(not process.is_gone for process in self.processes)):
            self.start()
        self.time.run(self._is_idle, within_s=SETTLED_WITHIN_S)
        self.play_for(CALM_S)
        self.time.run(self._is_idle, within_s=SETTLED_WITHIN_S)

    def _is_idle(self) -> bool:
        return not self.waiting and not self.table.pending()

    def judge(self) -> list[str]:
        """Return the faults of the run."""
        return self.witness.judge(self.log.read_all(limit=1_000_000), self.sent, self.live())


def _message(key: StreamId, number: int) -> Message:
    role = Role.ASSISTANT if number % 2 else Role.USER
    return Message(f"{key.name}{number}", role, "well", token_count=TOKENS_EACH)
