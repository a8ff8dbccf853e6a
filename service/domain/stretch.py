"""Selects the messages of an episode: the oldest messages of a window that no other episode divides, by exchange.

The messages of an episode are thus without a gap, but for pins and system messages, and no two episodes overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, takewhile
from typing import Final, NamedTuple

from abridged.service.domain.conversation import Conversation, live_coverage
from abridged.service.domain.events import MessageAppended
from abridged.service.domain.exchanges import exchanges, whole_before_kept
from abridged.service.domain.message import Role
from abridged.service.domain.policy import RECORD_TOKENS_MIN, Policy
from abridged.service.domain.portion import closed_units
from abridged.service.domain.ranges import covers
from abridged.service.domain.record import MessageRange
from abridged.service.domain.window import counted_tokens, split

SEEN_BEYOND: Final = 8
"""Messages after the longest episode that the search for topic shifts looks at."""

Unit = Sequence[MessageAppended]


class Stretch(NamedTuple):
    """Messages by exchange, oldest first, and how many others could be compressed, too."""

    units: Sequence[Unit]
    others: int

    @property
    def messages(self) -> int:
        return sum(map(len, self.units))


def least_tokens(policy: Policy) -> int:
    """Return the fewest tokens that the smallest record must replace to be worth it; an episode is longer than its
    limit below that."""
    return int(RECORD_TOKENS_MIN / (1 - policy.min_gain)) + 1


def tokens_of(state: Conversation, units: Iterable[Unit]) -> int:
    """The tokens that the units cost in the window, estimates corrected."""
    return counted_tokens(chain.from_iterable(units), state.settings.calibration_factor)


def stretch(state: Conversation, policy: Policy, *, tail_messages: int, whole: bool = True) -> Stretch:
    """The oldest messages that may be compressed; in whole exchanges, or if not `whole` around whatever stays.

    The search looks at the beginning alone of a long window: the work is for one episode, however many messages follow.
    """
    messages_max = policy.max_episode_size if whole else 1
    pins = _staying(state, messages_max)
    reach = policy.max_episode_size + SEEN_BEYOND + len(state.pins)
    if state.chat_messages > 2 * reach + tail_messages:
        head = list(islice(_chat(state), reach))
        closed = {m.number for unit in closed_units(state, head) for m in unit}
        # How the last exchange of the head goes on is not known.
        staying = pins if whole else {m.number for m in head} - closed
        units = whole_before_kept(exchanges(head, messages_max=messages_max)[:-1], closed, staying)
        found = _undivided(state, policy, units)
        if tokens_of(state, found.units) >= least_tokens(policy):
            return found._replace(others=state.chat_messages - found.messages)
    dropped = {m.number for m in split(state, policy, tail_messages=tail_messages).dropped}
    chat = list(_chat(state))
    staying = pins if whole else {m.number for m in chat} - dropped
    units = whole_before_kept(exchanges(chat, messages_max=messages_max), dropped, staying)
    return _undivided(state, policy, units)


def rest(state: Conversation, policy: Policy) -> Stretch:
    """The oldest messages of all that no episode covers: what a conversation that has ended leaves, its tail too."""
    chat = list(_chat(state))
    units = exchanges(chat, messages_max=policy.max_episode_size)
    return _undivided(state, policy, whole_before_kept(units, {m.number for m in chat}, state.pins))


def _chat(state: Conversation) -> Iterator[MessageAppended]:
    return (m for m in state.window if m.message.role is not Role.SYSTEM)


def _staying(state: Conversation, messages_max: int) -> frozenset[int]:
    """Pins, and the user's newest message if its exchange is longer than an episode: it stays verbatim, and what an
    agent has done since may leave."""
    since = list(islice(takewhile(lambda m: m.message.role is not Role.USER, reversed(state.window)), messages_max))
    if len(since) < messages_max:
        return state.pins
    newest = next((m.number for m in reversed(state.window) if m.message.role is Role.USER), 0)
    return state.pins | {newest}


def _undivided(state: Conversation, policy: Policy, units: Sequence[Unit]) -> Stretch:
    """The first of the stretches between episodes that an episode could pay for, else the longest one."""
    stretches: list[list[list[MessageAppended]]] = []
    coverage = live_coverage(state)
    before = 0
    for unit in units:
        for i, m in enumerate(unit):
            if not stretches or _lies_between(coverage, before, m.number):
                stretches.append([[]])
            elif not i:
                stretches[-1].append([])
            stretches[-1][-1].append(m)
            before = m.number
    if not stretches:
        return Stretch((), others=0)
    paying = (one for one in stretches if tokens_of(state, one) >= least_tokens(policy))
    found = next(paying, None) or max(stretches, key=lambda one: tokens_of(state, one))
    return Stretch(found, others=sum(map(len, units)) - sum(map(len, found)))


def _lies_between(coverage: tuple[MessageRange, ...], before: int, after: int) -> bool:
    """Return whether another episode lies between two messages."""
    return after > before + 1 and any(covers(coverage, number) for number in (before + 1, after - 1))
