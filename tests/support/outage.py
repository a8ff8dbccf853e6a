"""Chats whose model comes and goes: the windows that the service hands out, message by message, driven by the pure
domain alone.

A seed is a chat: its policy and budget, how long its messages are, when the model is away, how many messages a pass
takes and how large its records are, when remakes are asked for. Passes end as the service ends them: a model's record
is at most as large as its plan allows, an extract as its plan aims at, and before a window that is over its budget is
handed out, extraction stands in for a pass that is still pending.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from abridged.service.domain.commands import (
    AppendMessages,
    Command,
    CompletePass,
    CountedMessage,
    EndWait,
    FailPass,
    RemakeFallback,
    ReportUsage,
)
from abridged.service.domain.conversation import Conversation, initial_state
from abridged.service.domain.decide import decide
from abridged.service.domain.errors import DomainError, InvalidPolicy
from abridged.service.domain.events import ErrorClass, PassPlan, Settings, SummarizationRequested
from abridged.service.domain.fold import evolve
from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.policy import Fallback, Policy, validated
from abridged.service.domain.profiles import chain
from abridged.service.domain.profiles.profile import DecisionContext, HeldBy
from abridged.service.domain.tokens import TokenCount, TokenSource
from abridged.service.domain.triggers import held_by, may_stand_in
from tests.support.chats import record_for
from tests.support.given import UNCLAIMED

MESSAGES = 90
SECONDS_A_MESSAGE = 7
STAND_INS_MAX = 4
"""The most stand-ins for which one GetContext waits."""

_SECOND = 1_000_000


@dataclass(frozen=True)
class Window:
    """The window that is handed out after a message."""

    state: Conversation
    held_by: HeldBy | None
    policy: Policy


class ChatInOutages:
    """The chat of one seed."""

    def __init__(self, seed: int) -> None:
        self._rng = rng = Random(seed)
        self.policy = _random_policy(rng)
        self._settings = Settings(
            model="ollama:simulated",
            context_length=rng.choice([1_024, 2_048, 4_096, 8_192, 32_768]),
            overhead_tokens=rng.choice([0, 0, 60, 300]),
        )
        self._share = rng.choice([0.01, 0.03, 0.08])
        self._pass_takes = rng.choice([0, 0, 1, 3, 10])
        self._away_share = rng.choice([0.0, 0.2, 0.5, 1.0])
        self._too_large_share = rng.choice([0.0, 0.0, 0.2])
        self.is_healthy = not self._away_share and not self._too_large_share and not self._pass_takes
        self._source = rng.choice([TokenSource.ESTIMATE, TokenSource.CALLER])
        self._away = rng.random() < self._away_share
        self._pass_ends_at = 0
        self._now_us = 0
        self._passes = 0
        self.asked = 0
        self.state = initial_state()

    def windows(self) -> Iterator[Window]:
        """The window after each message."""
        for number in range(1, MESSAGES + 1):
            if number % 15 == 0:
                self._away = self._rng.random() < self._away_share
            self._pass_time()
            self._execute(self._append(number))
            if self._rng.random() < 0.1:
                self._execute(RemakeFallback())
            if self._rng.random() < 0.05:
                self._execute(self._report())
            self._end_passes()
            self._hold()
            held = held_by(self.state, self.policy, self._now_us)
            yield Window(self.state, held, self.policy)

    def _pass_time(self) -> None:
        self._now_us += SECONDS_A_MESSAGE * _SECOND
        state = self.state
        if state.pending is None and state.failures_in_row and state.wait_until_us <= self._now_us:
            self._execute(EndWait(self._now_us))

    def _end_passes(self) -> None:
        """End the passes that have run for as long as passes take; an extractive pass takes no time."""
        for _ in range(STAND_INS_MAX):
            plan = self.state.pending
            if plan is None:
                return
            if plan.extractive:
                self._execute(self._extracted(plan, model_failed=False))
            elif self.state.message_version >= self._pass_ends_at:
                self._execute(self._model_ended(plan))
            else:
                return

    def _hold(self) -> None:
        """Hold the window back as GetContext does while it is over its budget."""
        for _ in range(STAND_INS_MAX):
            plan = self.state.due_pass
            if plan is None or not may_stand_in(self.state, self.policy):
                return
            self._execute(replace(self._extracted(plan, model_failed=False), interrupted=not plan.extractive))

    def _model_ended(self, plan: PassPlan) -> Command:
        self.asked += 1
        if self._away:
            stands_in = plan.policy.fallback is Fallback.ALWAYS or may_stand_in(self.state, self.policy)
            if stands_in and plan.replaces_id == "":
                return self._extracted(plan, model_failed=True)
            return FailPass(plan.pass_id, UNCLAIMED, ErrorClass.TRANSPORT, 2, True)
        if self._rng.random() < self._too_large_share:
            return self._completed(plan, 2 * plan.replaced_tokens, fallback=False, model_failed=False)
        tokens = self._rng.randint(min(60, plan.room_tokens), plan.room_tokens)
        return self._completed(plan, tokens, fallback=False, model_failed=False)

    def _extracted(self, plan: PassPlan, *, model_failed: bool) -> CompletePass:
        most = plan.summary_tokens_max
        return self._completed(plan, self._rng.randint(most // 2, most), fallback=True, model_failed=model_failed)

    def _completed(self, plan: PassPlan, tokens: int, *, fallback: bool, model_failed: bool) -> CompletePass:
        record = record_for(plan, tokens=max(1, tokens))
        return CompletePass(plan.pass_id, UNCLAIMED, record, self._source, fallback, model_failed=model_failed)

    def _execute(self, command: Command) -> None:
        try:
            events = decide(self.state, command, DecisionContext(chain, self.policy, self._now_us, self._pass_id()))
        except DomainError:
            return
        for event in events:
            self.state = evolve(self.state, event, self._now_us)
            if isinstance(event, SummarizationRequested):
                self._pass_ends_at = self.state.message_version + self._pass_takes

    def _append(self, number: int) -> AppendMessages:
        counted = CountedMessage(self._message(number), TokenCount(self._tokens(), self._source), "simulated")
        return AppendMessages("c", (counted,), self._settings)

    def _tokens(self) -> int:
        length = self._settings.context_length
        share = 0.5 if self._rng.random() < 0.01 else self._share
        return 5 + int(share * length * self._rng.random())

    def _message(self, number: int) -> Message:
        name = f"m{number}"
        if number == 1:
            return Message(name, Role.SYSTEM, "rules")
        chance = self._rng.random()
        if chance < 0.15:
            return Message(name, Role.ASSISTANT, "I look.", tool_calls=(ToolCall(f"call{number}", "search"),))
        if chance < 0.3:
            return Message(name, Role.TOOL, "found", tool_call_id=f"call{number - 1}")
        return Message(name, Role.USER if number % 2 else Role.ASSISTANT, "said")

    def _report(self) -> ReportUsage:
        live = self.state.live.id if self.state.live else ""
        tokens = max(1, int(self.state.window_tokens * self._rng.uniform(0.8, 1.25)))
        return ReportUsage(self.state.message_version, live, tokens)

    def _pass_id(self) -> str:
        self._passes += 1
        return f"p{self._passes}"


def _random_policy(rng: Random) -> Policy:
    """A policy under which extraction may stand in; impossible ones are drawn again."""
    while True:
        trigger = rng.uniform(0.6, 0.95)
        policy = Policy(
            trigger_token_ratio=trigger,
            reset_token_ratio=trigger * rng.uniform(0.7, 0.95),
            emergency_token_ratio=rng.choice([trigger, 1.0, 1.0]),
            min_messages=rng.choice([0, 12]),
            preserve_recent=rng.choice([2, 6, 15]),
            tail_token_ratio=rng.uniform(0.1, 0.5),
            cooldown_messages=rng.choice([0, 1, 4, 10]),
            rearm_messages=rng.choice([1, 4, 12]),
            min_gain=rng.choice([0.0, 0.2, 0.4]),
            max_summary_chain_depth=rng.choice([1, 2, 3, 5]),
            fallback=rng.choice([Fallback.EMERGENCY, Fallback.ALWAYS]),
        )
        try:
            return validated(policy)
        except InvalidPolicy:
            continue
