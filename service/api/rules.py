"""The RPCs of standing rules: their list, and the end of those that a caller does not want."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from abridged.service.api.pages import Pages
from abridged.service.api.views import key_of
from abridged.service.conversations.conversations import Conversations
from abridged.service.domain.commands import DropRules
from abridged.service.domain.conversation import Conversation
from abridged.service.domain.rules import Rule
from abridged.service.domain.rules_found import known_rules
from abridged.service.turn import run_off_loop
from abridged.v1 import conversation_service_pb2, summary_pb2

_pb = conversation_service_pb2


class RuleCalls:
    """See the contract."""

    def __init__(self, conversations: Conversations, pages: Pages) -> None:
        self._conversations = conversations
        self._pages = pages

    async def ListRules(self, request: _pb.ListRulesRequest, context: Any) -> _pb.ListRulesResponse:
        key = key_of(request.conversation_id)
        state = await self._conversations.state(key)
        rules = await run_off_loop(self._conversations.window_weight(key), lambda: _views(state, known_rules(state)))
        page, token = self._pages.newest_first("rules", key, request, count=len(rules), entry=rules.__getitem__)
        return _pb.ListRulesResponse(rules=page, next_page_token=token)

    async def DropRules(self, request: _pb.DropRulesRequest, context: Any) -> _pb.DropRulesResponse:
        key, command = key_of(request.conversation_id), DropRules(request.number, request.text)
        state, _ = await self._conversations.execute(key, lambda _: command)
        named = [
            rule for rule in state.rules.entries if rule.number == request.number and request.text in ("", rule.text)
        ]
        return _pb.DropRulesResponse(rules=_views(state, named))


def _views(state: Conversation, rules: Iterable[Rule]) -> list[summary_pb2.Rule]:
    """The rules as clients see them."""
    shown = {rule.name for rule in state.rules.in_window}
    inside = {m.number for m in state.window}
    return [
        summary_pb2.Rule(
            text=rule.text,
            number=rule.number,
            state=_state_of(rule),
            revoked_by=rule.revoked_by,
            shown=rule.name in shown,
            in_window=rule.number in inside,
            pinned=rule.number in state.pins,
        )
        for rule in rules
    ]


def _state_of(rule: Rule) -> summary_pb2.RuleState.ValueType:
    if rule.dropped:
        return summary_pb2.RULE_STATE_DROPPED
    if rule.revoked_by:
        return summary_pb2.RULE_STATE_REVOKED
    return summary_pb2.RULE_STATE_TENTATIVE if rule.is_tentative else summary_pb2.RULE_STATE_STANDING
