"""The policy in force for a conversation: the operator's for its model, with the fields that the client overrides.

A client's new overrides are refused if they do not fit. Old ones are in the log, and the operator's policy may have
changed since: the conversation continues without those that no longer fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import structlog

from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.events import Settings
from abridged.service.domain.policy import Policy, ProfileName, largest_summary, overridden

_CACHED_MAX = 1_024

_RATIOS = frozenset({"trigger_token_ratio", "reset_token_ratio", "emergency_token_ratio", "tail_token_ratio"})
"""Fields that limit one another."""

_Key = tuple[str, ProfileName, tuple[tuple[str, Any], ...]]
"""The inputs of a policy: the model, the profile and the client's overrides."""

_log = structlog.get_logger()


class _Kept(NamedTuple):
    """The policy of these very settings, and that for passes of which a call holds `tokens` of a source, beside and for
    a record of `summary_tokens`."""

    settings: Settings
    policy: Policy
    summary_tokens: int
    tokens: int
    planned: Policy


class Policies:
    """The operator's policies, and what clients may change in them."""

    def __init__(
        self,
        policy_for: Callable[[str, ProfileName | None], Policy],
        *,
        client_fields: frozenset[str],
        source_tokens: Callable[[Policy, int], int] = lambda policy, _: policy.max_input_tokens,
        answer_tokens_max: int = 0,
    ) -> None:
        """`policy_for` returns the operator's policy for a model under a profile, or under the operator's own for None.

        `source_tokens` returns what one call of the summarizer holds of a source, beside and for a record of this many
        tokens. `answer_tokens_max` is what a call of it may write; 0 for no bound.
        """
        self._policy_for = policy_for
        self._answer_tokens_max = answer_tokens_max
        self._client_fields = client_fields
        self._source_tokens = source_tokens
        self._kept: dict[int, _Kept] = {}
        self._cached: dict[_Key, Policy] = {}
        self._plannable: dict[tuple[_Key, int], Policy] = {}

    def of(self, settings: Settings) -> Policy:
        """The policy for settings from the log, without overrides that do not fit.

        The policy's max_input_tokens is what a call of the summarizer really holds, and its max_summary_tokens no more
        than one writes, because passes are planned by them.
        """
        kept = self._kept.get(id(settings)) or self._keep(settings)
        tokens = self._source_tokens(kept.policy, kept.summary_tokens)
        return kept.planned if tokens == kept.tokens else self._keep(settings).planned

    def opening(self, settings: Settings) -> Policy:
        """The policy of a new conversation, under the operator's profile. Raises InvalidPolicy as `accepted` does."""
        return self._accepted(settings, None)

    def accepted(self, settings: Settings) -> Policy:
        """The policy for settings that a client asks for. Raises InvalidPolicy if a field does not fit."""
        return self._accepted(settings, settings.profile)

    def _accepted(self, settings: Settings, profile: ProfileName | None) -> Policy:
        profile = settings.policy.get("profile", profile)
        policy = overridden(self._policy_for(settings.model, profile), settings.policy, allowed=self._client_fields)
        return self._planned(policy, self._planned_tokens(policy, settings))

    def _keep(self, settings: Settings) -> _Kept:
        """Find the policy of settings, which a conversation keeps from message to message, and keep it with them."""
        key = (settings.model, settings.profile, tuple(sorted(settings.policy.items())))
        policy = self._cached.get(key)
        if policy is None:
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            policy = self._cached[key] = self._fitting(settings)
        summary_tokens = largest_summary(policy, budget=settings.budget)
        tokens = self._source_tokens(policy, summary_tokens)
        # By the key, since hashing a policy and comparing it with an equal one costs more than all the rest.
        planned = self._plannable.get((key, tokens))
        if planned is None:
            if len(self._plannable) >= _CACHED_MAX:
                self._plannable.clear()
            planned = self._plannable[key, tokens] = self._planned(policy, tokens)
        if len(self._kept) >= _CACHED_MAX:
            self._kept.clear()
        kept = self._kept[id(settings)] = _Kept(settings, policy, summary_tokens, tokens, planned)
        return kept

    def _planned_tokens(self, policy: Policy, settings: Settings) -> int:
        return self._source_tokens(policy, largest_summary(policy, budget=settings.budget))

    def _fitting(self, settings: Settings) -> Policy:
        model, overrides = settings.model, settings.policy
        # The profile was resolved when the conversation opened; an override of it is done.
        own = self._policy_for(model, settings.profile)
        left: dict[str, Any] = {name: value for name, value in overrides.items() if name != "profile"}
        asked = len(left)
        while True:
            try:
                policy = overridden(own, left, allowed=self._client_fields)
            except InvalidPolicy as error:
                # Each round drops at least one, and the operator's own policy is valid.
                for name in {error.field} & left.keys() or _RATIOS & left.keys() or set(left):
                    del left[name]
            else:
                break
        if len(left) < asked:
            left_out = sorted(overrides.keys() - left.keys() - {"profile"})
            _log.warning("policy.overrides_left_out", model=model, fields=left_out)
        return policy

    def _planned(self, policy: Policy, tokens: int) -> Policy:
        """The policy for passes whose calls hold this many tokens of a source."""
        written = min(policy.max_summary_tokens, self._answer_tokens_max or policy.max_summary_tokens)
        if (policy.max_input_tokens, policy.max_summary_tokens) == (tokens, written):
            return policy
        return replace(policy, max_input_tokens=tokens, max_summary_tokens=written)
