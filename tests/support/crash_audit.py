"""An audit of a log after kills: it compares the log with the clients' messages and the acknowledged ones.

The audit sees facts, not a sidecar: events in the order of the log, and a ledger of the clients. A violation is a
sentence; kept promises leave no sentence.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message as its writer knows it; `content` is unique, so that a mix-up shows."""

    writer: str
    conversation: str
    id: str
    content: str


@dataclass
class Ledger:
    """The clients' knowledge: messages in the order of sending, and the number that each acknowledged one was given."""

    sent: dict[tuple[str, str], SentMessage] = field(default_factory=dict)
    acked: dict[tuple[str, str], int] = field(default_factory=dict)
    requests_acked: int = 0
    retries: int = 0

    def send(self, message: SentMessage) -> None:
        """Remember a message before it is sent for the first time."""
        self.sent[message.conversation, message.id] = message

    def retry(self) -> None:
        """Count a call that nobody answered."""
        self.retries += 1

    def ack(self, conversation: str, message_id: str, number: int) -> None:
        """Remember the server's answer."""
        self.acked[conversation, message_id] = number


class PassStep:
    """The step to which an event brings a pass."""

    REQUESTED = "requested"
    STARTED = "started"
    COMPLETED = "completed"
    ENDED = "ended without a record"


@dataclass(frozen=True, slots=True)
class PassFact:
    """An event of a pass."""

    pass_id: str
    step: str
    claim: int = 0


@dataclass(frozen=True, slots=True)
class Fact:
    """An event, as far as the audit needs it: of a message, of a pass, or of neither."""

    position: int
    conversation: str
    version: int
    event_id: str
    message: tuple[str, str, int] | None = None
    """Id, content and number."""
    of_pass: PassFact | None = None


@dataclass
class Audit:
    """Follows a log from its first event on; `head` is the position that was seen last."""

    head: int = 0
    facts: list[Fact] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    _versions: Counter[str] = field(default_factory=Counter)
    _numbers: Counter[str] = field(default_factory=Counter)
    _event_ids: set[tuple[str, str]] = field(default_factory=set)
    _found: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)

    def take(self, facts: Iterable[Fact]) -> None:
        """Look at the next events of the log."""
        for fact in facts:
            self.facts.append(fact)
            if fact.position != self.head + 1:
                self._complain(f"position {fact.position} comes after {self.head}")
            self.head = fact.position
            if fact.version != self._versions[fact.conversation] + 1:
                self._complain(f"{fact.conversation}: version {fact.version} after {self._versions[fact.conversation]}")
            self._versions[fact.conversation] = fact.version
            if (fact.conversation, fact.event_id) in self._event_ids:
                self._complain(f"{fact.conversation}: event id {fact.event_id} twice")
            self._event_ids.add((fact.conversation, fact.event_id))
            if fact.message is not None:
                self._take_message(fact.conversation, *fact.message)

    def check_messages(self, ledger: Ledger, acked: Mapping[tuple[str, str], int]) -> None:
        """Complain unless the log has all acknowledged messages, and only sent ones, as they were sent."""
        for key, number in acked.items():
            found = self._found.get(key)
            if found is None:
                self._complain(f"{key}: acknowledged and lost")
            elif found[1] != number:
                self._complain(f"{key}: acknowledged as number {number}, is {found[1]}")
        for key, (content, _) in self._found.items():
            sent = ledger.sent.get(key)
            if sent is None:
                self._complain(f"{key}: nobody sent it")
            elif sent.content != content:
                self._complain(f"{key}: is not what was sent")
        self._check_order(ledger)

    def has_pending(self) -> bool:
        """Return whether a pass that was requested has not ended."""
        pending = {of_pass.pass_id for of_pass in self._passes() if of_pass.step == PassStep.REQUESTED}
        ends = {of_pass.pass_id for of_pass in self._passes() if of_pass.step in (PassStep.COMPLETED, PassStep.ENDED)}
        return bool(pending - ends)

    def check_passes(self) -> None:
        """Complain unless every requested pass ended exactly once; call it when no pass is pending."""
        by_pass: dict[str, list[PassFact]] = defaultdict(list)
        for of_pass in self._passes():
            by_pass[of_pass.pass_id].append(of_pass)
        for pass_id, steps in by_pass.items():
            counts = Counter(step.step for step in steps)
            ends = counts[PassStep.COMPLETED] + counts[PassStep.ENDED]
            if steps[0].step != PassStep.REQUESTED or counts[PassStep.REQUESTED] != 1:
                self._complain(f"pass {pass_id}: requested {counts[PassStep.REQUESTED]} times")
            if ends != 1:
                self._complain(f"pass {pass_id}: ended {ends} times")
            if counts[PassStep.COMPLETED] > 1:
                self._complain(f"pass {pass_id}: {counts[PassStep.COMPLETED]} records")

    def figures(self) -> dict[str, int]:
        """Count the audited facts. A pass that was claimed more than once ran when a process was killed."""
        last_claims: dict[str, int] = {}
        for of_pass in self._passes():
            last_claims[of_pass.pass_id] = max(last_claims.get(of_pass.pass_id, 0), of_pass.claim)
        steps = Counter(of_pass.step for of_pass in self._passes())
        return {
            "events": self.head,
            "messages": len(self._found),
            "conversations": len(self._versions),
            "passes": steps[PassStep.REQUESTED],
            "records": steps[PassStep.COMPLETED],
            "passes_resumed": sum(claim > 1 for claim in last_claims.values()),
        }

    def _take_message(self, conversation: str, message_id: str, content: str, number: int) -> None:
        if number != self._numbers[conversation] + 1:
            self._complain(f"{conversation}: message number {number} after {self._numbers[conversation]}")
        self._numbers[conversation] = number
        if (conversation, message_id) in self._found:
            self._complain(f"{conversation}: message {message_id} twice")
        self._found[conversation, message_id] = (content, number)

    def _check_order(self, ledger: Ledger) -> None:
        """The messages of one writer in one conversation stand in the order in which it sent them."""
        last: dict[tuple[str, str], tuple[int, str]] = {}
        for key, sent in ledger.sent.items():
            if key not in self._found:
                continue
            number = self._found[key][1]
            before = last.get((sent.writer, sent.conversation))
            if before is not None and before[0] > number:
                self._complain(f"{sent.conversation}: {before[1]} was sent before {sent.id} and stands after it")
            last[sent.writer, sent.conversation] = (number, sent.id)

    def _passes(self) -> Iterator[PassFact]:
        return (fact.of_pass for fact in self.facts if fact.of_pass is not None)

    def _complain(self, violation: str) -> None:
        self.violations.append(violation)
