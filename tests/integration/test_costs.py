"""Costs of compaction on real chats: calls, windows over their budget, passes that free little; shown with `-rP`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest

from abridged.service.domain.conversation import Conversation, live_coverage
from abridged.service.domain.policy import SummaryRole
from abridged.service.domain.profiles import chain, episodes, rolling
from abridged.service.domain.profiles.profile import Profile
from abridged.service.domain.render import rendered_window
from abridged.service.models.model import SummaryModel
from bench.player import MODEL_WINDOW, Costs, OnWindow, PlayedChat, played
from bench.quality.lossy import LossyModel
from tests.support.invariants import Violation, calls_are_answered
from tests.support.shared_data import loaded, shared_chats

AIRLINE, CODING, MEETINGS = "airline_tool_chats.jsonl", "coding_agent_chats.jsonl", "meetings.jsonl"


_AT_DEFAULT: dict[str, Costs] = {}
"""Costs of each file at the default context length: those that are played once are those that are played again."""


def chats_of(name: str) -> list[PlayedChat]:
    return [(chat["conversation_id"], [*map(loaded, chat["messages"])]) for chat in shared_chats(name)]


class Losses:
    """Messages that are nowhere at the end of their chat, and windows with a call or a result by itself."""

    def __init__(self, chats: Sequence[PlayedChat]) -> None:
        self.messages = dict(chats)
        self.uncovered = self.orphans = 0

    def seen(self, name: str, count: int, state: Conversation) -> None:
        originals = dict(enumerate(self.messages[name][:count], 1))
        try:
            calls_are_answered(rendered_window(state, SummaryRole.SYSTEM), originals)
        except Violation:
            self.orphans += 1
        if count == len(self.messages[name]):
            inside = {m.number for m in state.window}
            covered = {n for r in live_coverage(state) for n in range(r.first, r.last + 1)}
            self.uncovered += len({*originals} ^ (inside | covered)) + len(inside & covered)


async def costs_of(
    name: str,
    *,
    context_length: int = 4_096,
    away: bool = False,
    clearing: bool = True,
    profile: Profile = chain,
    model: SummaryModel | None = None,
    on_window: OnWindow = lambda *_: None,
    chats: Sequence[PlayedChat] = (),
) -> Costs:
    policy = replace(profile.defaults(), clearing=clearing)
    costs = await played(
        chats or chats_of(name),
        context_length=context_length,
        away=away,
        policy=policy,
        model=model,
        on_window=on_window,
    )
    how = f", {policy.profile}{', model away' if away else ''}{'' if clearing else ', nothing cleared'}"
    sys.stdout.write(f"\n{name} at {context_length}{how}: {costs}\n")
    return costs


async def costs_at_default(name: str) -> Costs:
    if name not in _AT_DEFAULT:
        _AT_DEFAULT[name] = await costs_of(name, context_length=8_192)
    return _AT_DEFAULT[name]


async def test_tool_chats_cost_less_than_five_calls_for_two_and_no_window_is_over_without_a_reason():
    """The windows have 4,096 tokens, of which system messages take up to half and ledgers 15 %."""
    airline, coding = await costs_of(AIRLINE, clearing=False), await costs_of(CODING, clearing=False)

    long_chats = airline.long_chats + coding.long_chats
    assert airline.calls + coding.calls < 2.5 * long_chats
    assert airline.over_without_reason + coding.over_without_reason == 0
    assert airline.little_passes + coding.little_passes <= 0.11 * (airline.passes + coding.passes)


@pytest.mark.parametrize("name", [AIRLINE, CODING])
async def test_a_mediocre_models_drafts_cost_no_second_call(name):
    """The model copies sentences and JSON of tools, and code drops what would be refused."""
    costs = await costs_of(name, clearing=False, model=LossyModel(window=MODEL_WINDOW))

    assert costs.passes > 0
    assert costs.calls == costs.passes


async def test_clearing_saves_calls_wherever_old_results_fill_the_window():
    """The windows have 6,144 tokens, where the system messages leave results room to grow old."""
    whole = await costs_of(AIRLINE, context_length=6_144, clearing=False)
    cleared = await costs_of(AIRLINE, context_length=6_144)

    assert cleared.cleared > 0
    assert cleared.calls < whole.calls
    assert cleared.over_without_reason == 0


async def test_at_the_default_context_length_a_long_chat_costs_about_two_calls_and_fewer_with_clearing():
    """The three files together, a long chat being one that reaches its trigger when nothing is cleared."""
    whole = [await costs_of(name, context_length=8_192, clearing=False) for name in (AIRLINE, CODING, MEETINGS)]
    cleared = [await costs_at_default(name) for name in (AIRLINE, CODING, MEETINGS)]

    calls, long_chats = sum(costs.calls for costs in whole), sum(costs.long_chats for costs in whole)
    assert calls <= 2.2 * long_chats
    assert sum(costs.calls for costs in cleared) < calls
    assert sum(costs.over_without_reason for costs in (*whole, *cleared)) == 0


async def test_a_meeting_costs_one_call_a_pass():
    """However often the chain is as deep as it may be: nothing is read again that one call does not hold."""
    costs = await costs_of(MEETINGS)

    assert costs.passes >= 20
    assert costs.calls == costs.passes
    assert (costs.over_budget, costs.little_passes) == (0, 0)


async def test_a_rebase_costs_what_it_promises():
    """The default context length has at most two calls for 10,000 tokens, rebases among them."""
    costs = await costs_at_default(MEETINGS)

    assert costs.calls <= 2 * costs.tokens / 10_000


@pytest.mark.parametrize("name", [AIRLINE, CODING, MEETINGS])
async def test_with_the_model_away_windows_hold_and_hardly_anybody_is_asked(name):
    """Extraction serves; the breaker opens, and no time passes in which it would let another call through."""
    costs = await costs_of(name, away=True)

    assert costs.over_without_reason == 0
    assert costs.calls <= 5


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("name", [AIRLINE, CODING, MEETINGS])
@pytest.mark.parametrize("profile", [rolling, episodes])
async def test_no_profile_loses_a_message_splits_a_call_or_leaves_a_window_over_without_a_reason(name, away, profile):
    """The same chats under the other profiles, every other one without a model."""
    chats = chats_of(name)[away::2]
    losses = Losses(chats)
    costs = await costs_of(name, away=away, profile=profile, on_window=losses.seen, chats=chats)

    assert costs.passes > 0
    assert (losses.uncovered, losses.orphans, costs.over_without_reason) == (0, 0, 0)
