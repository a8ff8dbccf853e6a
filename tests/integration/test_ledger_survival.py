"""Survival of a conversation's identifiers in its window after passes; figures shown with `-rP`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import pytest

from abridged.service.domain.conversation import Conversation
from abridged.service.domain.ledger import ledger_lines
from abridged.service.domain.message import Message, Role
from abridged.service.domain.profiles import chain, episodes, rolling
from abridged.service.domain.profiles.profile import Profile
from abridged.service.tokenizers.estimated import EstimatingCounter
from bench.player import played
from bench.quality.examined import required_of, window_text
from tests.integration.test_costs import AIRLINE, CODING, MEETINGS, chats_of
from tests.support.planted_identifiers import PlantedChat, planted_chat

CONTEXT = 4_096
SHARE = 0.15


class Survivals:
    """Shares of the required identifiers that the window has in each state after a pass, by the number of passes."""

    def __init__(self, messages: dict[str, list[Message]]) -> None:
        self._messages = messages
        self._passes: dict[str, int] = {}
        self.alive: dict[int, list[float]] = {}
        self.largest = 0.0
        self.states: list[Conversation] = []

    def seen(self, name: str, count: int, state: Conversation) -> None:
        if state.completed_passes == self._passes.get(name, 0) or not state.shown:
            return
        self._passes[name] = state.completed_passes
        self.states.append(state)
        text = window_text(state).casefold()
        required = required_of(self._messages[name][:count], state)
        self.largest = max(self.largest, state.ledger.tokens / state.budget)
        if required:
            share = sum(entry.key in text for entry in required) / len(required)
            self.alive.setdefault(state.completed_passes, []).append(share)

    def after(self, passes: int) -> float:
        """The mean over the chats, at the first state after that many passes."""
        shares = self.alive[min(number for number in self.alive if number >= passes)]
        return sum(shares) / len(shares)


async def survivals_of(chats: dict[str, list[Message]], profile: Profile = chain) -> Survivals:
    seen = Survivals(chats)
    await played(chats.items(), context_length=CONTEXT, policy=profile.defaults(), on_window=seen.seen)
    return seen


@pytest.mark.parametrize(("profile", "chats", "messages"), [(chain, 2, 450), (rolling, 1, 250), (episodes, 1, 250)])
async def test_required_identifiers_survive_one_three_and_ten_passes(profile, chats, messages):
    """A window of 4,096 tokens, with a ledger of at most 15 % of them, keeps 99, 98 and 95 of 100.

    Entries that are neither planted nor a code of a tool's result are at most one in twenty; no ledger has a secret,
    and none shows more than the newest of the gates, each of which gave way to the next.
    """
    planted = {f"planted-{seed}": planted_chat(seed, messages) for seed in range(chats)}
    seen = await survivals_of({name: chat.messages for name, chat in planted.items()}, profile)

    figures = [seen.after(passes) for passes in (1, 3, 10)]
    sys.stdout.write(f"\n{profile.__name__}: {figures}, largest ledger {seen.largest:.3f} of the window\n")
    assert all(share >= goal for share, goal in zip(figures, (0.99, 0.98, 0.95), strict=True))
    assert seen.largest <= SHARE
    false, entries = _neither_planted_nor_told(seen, planted.values())
    assert entries > 0
    assert len(false) <= 0.05 * entries, false
    for state in seen.states:
        lines = "\n".join(ledger_lines(state.ledger))
        assert not any(secret in lines for chat in planted.values() for secret in chat.secrets)
        assert sum(e.text.startswith("gate ") and not e.replaced_by for e in state.ledger.in_window) <= 1


def _neither_planted_nor_told(seen: Survivals, planted: Iterable[PlantedChat]) -> tuple[list[str], int]:
    """The entries of all ledgers that are no identifiers, and how many entries there are."""
    chats = list(planted)
    wanted = {text.casefold() for chat in chats for _, text in chat.planted}
    told = "\n".join(m.content for chat in chats for m in chat.messages if m.role is Role.TOOL)
    entries = {entry.text for state in seen.states for entry in state.ledger.in_window}
    known = {e for e in entries if e.casefold() in wanted or e.startswith("gate ") or f'"ref": "{e}"' in told}
    return sorted(entries - known), len(entries)


@pytest.mark.parametrize("name", [AIRLINE, CODING, MEETINGS])
async def test_the_identifiers_of_real_chats_are_alive_in_their_windows(name):
    """A window of 4,096 tokens keeps 95 of 100 that covered messages require, after any number of passes."""
    seen = await survivals_of({chat: list(messages) for chat, messages in chats_of(name)})

    every = [share for shares in seen.alive.values() for share in shares]
    sys.stdout.write(f"\n{name}: {sum(every) / len(every):.4f} of {len(every)} windows, largest {seen.largest:.3f}\n")
    assert sum(every) / len(every) >= 0.95
    assert seen.largest <= SHARE


async def test_what_follows_a_value_is_counted_for_every_fact_of_a_name():
    """Prices that share one name, each with words behind it."""
    texts = [f"Parcel costs {n * 17 % 900}.50 EUR at the counter." for n in range(120)]
    counted: list[float] = []

    def seen(_name: str, _count: int, state: Conversation) -> None:
        if state.ledger.tokens:
            counted.append(EstimatingCounter().count("\n".join(ledger_lines(state.ledger))) / state.ledger.tokens)

    await played(
        [("parcels", [Message(f"m{n}", Role.USER, text) for n, text in enumerate(texts)])],
        context_length=2_000, extractive=True, on_window=seen,
    )  # fmt: skip

    assert counted
    assert max(counted) <= 1.0
