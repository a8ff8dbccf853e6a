"""The audit of the crash test finds its violations: each is planted once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.crash_audit import Audit, Fact, Ledger, PassFact, PassStep, SentMessage

MESSAGES = [SentMessage("w0", "a", f"m{number}", f"text {number}") for number in range(4)]


def ledger() -> Ledger:
    known = Ledger()
    for number, message in enumerate(MESSAGES, start=1):
        known.send(message)
        known.ack("a", message.id, number)
    return known


def log() -> list[Fact]:
    """Four messages as they were sent, then a pass that ended."""
    facts = [
        Fact(place, "a", place, f"e{place}", message=(message.id, message.content, place))
        for place, message in enumerate(MESSAGES, start=1)
    ]
    steps = (PassStep.REQUESTED, PassStep.STARTED, PassStep.COMPLETED)
    return facts + [Fact(5 + i, "a", 5 + i, f"p{i}", of_pass=PassFact("p", step)) for i, step in enumerate(steps)]


def audited(facts: list[Fact], known: Ledger | None = None) -> list[str]:
    audit = Audit()
    audit.take(facts)
    known = known or ledger()
    audit.check_messages(known, known.acked)
    audit.check_passes()
    return audit.violations


def moved(facts: list[Fact]) -> list[Fact]:
    """The facts at the positions, versions and numbers that they would have without those that are missing."""
    return [
        replace(fact, position=place, version=place, message=fact.message and (*fact.message[:2], place))
        for place, fact in enumerate(facts, start=1)
    ]


def test_a_log_that_kept_every_promise_is_not_complained_of():
    """Otherwise every other test here would say nothing."""
    assert audited(log()) == []


def test_a_lost_message_is_found_though_the_log_closed_the_gap():
    """Numbers without a gap hide a loss from everybody but clients with an acknowledgement."""
    assert "('a', 'm3'): acknowledged and lost" in audited(moved(log()[:3] + log()[4:]))


def test_a_message_that_is_there_twice_is_found():
    """The second one has another event id, as a retry that was not recognized would write it."""
    again = replace(log()[0], event_id="e9")

    assert "a: message m0 twice" in audited(moved([*log()[:4], again, *log()[4:]]))


def test_a_message_that_nobody_sent_is_found():
    """A message may not appear from nowhere."""
    stranger = Fact(8, "a", 8, "e8", message=("x", "text", 5))

    assert "('a', 'x'): nobody sent it" in audited([*log(), stranger])


def test_a_message_whose_text_changed_is_found():
    """Bytes are compared, not only ids."""
    changed = replace(log()[1], message=("m1", "text 9", 2))

    assert "('a', 'm1'): is not what was sent" in audited([log()[0], changed, *log()[2:]])


def test_messages_out_of_their_writers_order_are_found():
    """Both are there, both were acknowledged, and yet the conversation is another one."""
    first, second = log()[0], log()[1]
    swapped = [replace(first, message=("m1", "text 1", 1)), replace(second, message=("m0", "text 0", 2)), *log()[2:]]

    assert "a: m0 was sent before m1 and stands after it" in audited(swapped)


@pytest.mark.parametrize(
    ("place", "version", "complaint"),
    [
        (8, 4, "position 8 comes after 3"),
        (4, 8, "a: version 8 after 3"),
    ],
)
def test_a_gap_is_found(place, version, complaint):
    """The gap may be in the log's positions or in a conversation's versions."""
    facts = log()
    facts[3] = replace(facts[3], position=place, version=version)

    assert complaint in audited(facts)


def test_a_gap_in_the_message_numbers_is_found():
    """Even when positions and versions are whole."""
    facts = log()
    facts[3] = replace(facts[3], message=("m3", "text 3", 9))

    assert "a: message number 9 after 3" in audited(facts)


def test_an_event_id_that_is_there_twice_is_found():
    """Event ids are unique in their stream for ever."""
    facts = log()
    facts[3] = replace(facts[3], event_id="e1")

    assert "a: event id e1 twice" in audited(facts)


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ([PassStep.REQUESTED, PassStep.STARTED], "pass p: ended 0 times"),
        ([PassStep.REQUESTED, PassStep.COMPLETED, PassStep.COMPLETED], "pass p: 2 records"),
        ([PassStep.REQUESTED, PassStep.COMPLETED, PassStep.ENDED], "pass p: ended 2 times"),
        ([PassStep.REQUESTED, PassStep.REQUESTED, PassStep.ENDED], "pass p: requested 2 times"),
        ([PassStep.STARTED, PassStep.COMPLETED], "pass p: requested 0 times"),
    ],
)
def test_a_pass_that_did_not_end_exactly_once_is_found(steps, complaint):
    """Pending for ever, recorded twice, or begun by nobody."""
    passes = [Fact(5 + i, "a", 5 + i, f"p{i}", of_pass=PassFact("p", step)) for i, step in enumerate(steps)]

    assert complaint in audited(log()[:4] + passes)


def test_a_number_other_than_the_acknowledged_one_is_found():
    """The client knows where its message is; that must not move."""
    known = ledger()
    known.ack("a", "m3", 9)

    assert "('a', 'm3'): acknowledged as number 9, is 4" in audited(log(), known)
