"""Judges several processes' views of one log: acknowledgements, reads, and ends of passes.

Positions are a total order, so one look along the log finds every contradiction. Times are of one clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Place = tuple[int, bytes]
"""A position, and the id of the event there."""


class Ack(NamedTuple):
    """An append that was acknowledged, with the places of its events, and between which times it was called."""

    places: tuple[Place, ...]
    called_s: float
    acked_s: float


class Look(NamedTuple):
    """The events that a reader was shown in order after a position, from its call to the answer."""

    after: int
    places: tuple[Place, ...]
    called_s: float
    shown_s: float


class Turn(NamedTuple):
    """An event of a pass: its request, or its end."""

    pass_id: str
    ended: bool


def contradictions(log: Sequence[Place], acks: Sequence[Ack], looks: Sequence[Look] = ()) -> list[str]:
    """Return the faults, given the places of all events in the end."""
    return [*_of_log(log), *_of_acks(log, acks), *_of_order(acks), *_of_looks(log, acks, looks)]


def _of_log(log: Sequence[Place]) -> Iterator[str]:
    for wanted, (position, _) in enumerate(log, 1):
        if position != wanted:
            yield f"gap: position {wanted} is followed by {position}"
            break
    for event_id, count in Counter(event_id for _, event_id in log).items():
        if count > 1:
            yield f"doubled: {event_id.hex()} is there {count} times"


def _of_acks(log: Sequence[Place], acks: Iterable[Ack]) -> Iterator[str]:
    there = set(log)
    for ack in acks:
        if lost := [position for position, event_id in ack.places if (position, event_id) not in there]:
            yield f"lost: what was acknowledged at {lost} is not there"


def _of_order(acks: Sequence[Ack]) -> Iterator[str]:
    """An append that was called after another was acknowledged has the greater positions, unless it repeats one."""
    first: dict[bytes, float] = {}
    for ack in acks:
        for _, event_id in ack.places:
            first[event_id] = min(ack.called_s, first.get(event_id, ack.called_s))
    begun = sorted((min(first[event_id] for _, event_id in ack.places), ack.places[0][0]) for ack in acks if ack.places)
    known = sorted((ack.acked_s, ack.places[-1][0]) for ack in acks if ack.places)
    newest, at = 0, 0
    for called_s, position in begun:
        while at < len(known) and known[at][0] < called_s:
            newest = max(newest, known[at][1])
            at += 1
        if position <= newest:
            yield f"order: {position} was called after {newest} had been acknowledged"


def _of_looks(log: Sequence[Place], acks: Sequence[Ack], looks: Iterable[Look]) -> Iterator[str]:
    """A reader is shown the log from its place on, and every event that was acknowledged before it looked."""
    known = sorted((ack.acked_s, ack.places[-1][0]) for ack in acks if ack.places)
    newest, at = 0, 0
    for look in sorted(looks, key=lambda look: look.called_s):
        end = look.after + len(look.places)
        if tuple(log[look.after : end]) != look.places:
            yield f"prefix: a reader after {look.after} was shown another log"
        while at < len(known) and known[at][0] < look.called_s:
            newest = max(newest, known[at][1])
            at += 1
        if end < newest:
            yield f"stale: a reader was shown no more than {end} after {newest} had been acknowledged"


def unlike_passes(turns: Iterable[Turn]) -> list[str]:
    """The passes that did not end exactly once after one trigger."""
    requested: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for pass_id, is_end in turns:
        (ended if is_end else requested)[pass_id] += 1
    return [
        f"pass {pass_id}: {requested[pass_id]} triggers and {ended[pass_id]} ends"
        for pass_id in sorted(requested | ended)
        if (requested[pass_id], ended[pass_id]) != (1, 1)
    ]
