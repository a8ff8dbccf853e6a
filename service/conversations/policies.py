"""Which policy holds for a conversation: the operator's, for its model, under the fields that the client overrides.

What a client asks for now is refused when it does not fit. What it asked for long ago is in the log, and the operator
may have changed the policy since: a conversation never stops working for that, it goes on without what no longer fits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog

from service.domain.errors import InvalidPolicy
from service.domain.events import Settings
from service.domain.policy import Policy, ProfileName, largest_summary, overridden

__all__ = ["Policies"]

_CACHED_MAX = 1_024

_RATIOS = frozenset({"trigger_token_ratio", "reset_token_ratio", "emergency_token_ratio", "tail_token_ratio"})
"""The fields of which each is limited by another."""

_log = structlog.get_logger()


class Policies:
    """The operator's policies, and what a client may change of them."""

    def __init__(
        self,
        policy_for: Callable[[str, ProfileName | None], Policy],
        *,
        client_fields: frozenset[str],
        source_tokens: Callable[[Policy, int], int] = lambda policy, _: policy.max_input_tokens,
    ) -> None:
        """`policy_for` returns the operator's policy for a model, under a profile or, for None, the operator's own.

        `source_tokens` says what one call of the summarizer holds beside and for a record of so many tokens.
        """
        self._policy_for = policy_for
        self._client_fields = client_fields
        self._source_tokens = source_tokens
        self._cached: dict[tuple[str, ProfileName, tuple[tuple[str, Any], ...]], Policy] = {}
        self._plannable: dict[tuple[Policy, int], Policy] = {}

    def of(self, settings: Settings) -> Policy:
        """The policy in force for settings from the log; overrides that do not fit are left out.

        Its max_input_tokens is what a call of the summarizer really holds, so that passes are planned by that.
        """
        key = (settings.model, settings.profile, tuple(sorted(settings.policy.items())))
        policy = self._cached.get(key)
        if policy is None:
            policy = self._fitting(settings)
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            self._cached[key] = policy
        return self._planned(policy, settings)

    def opening(self, settings: Settings) -> Policy:
        """The policy of a new conversation, under the operator's profile; raises InvalidPolicy as `accepted` does."""
        return self._accepted(settings, None)

    def accepted(self, settings: Settings) -> Policy:
        """The policy for settings that a client asks for; raises InvalidPolicy when one of its fields does not fit."""
        return self._accepted(settings, settings.profile)

    def _accepted(self, settings: Settings, profile: ProfileName | None) -> Policy:
        profile = settings.policy.get("profile", profile)
        policy = overridden(self._policy_for(settings.model, profile), settings.policy, allowed=self._client_fields)
        return self._planned(policy, settings)

    def _planned(self, policy: Policy, settings: Settings) -> Policy:
        tokens = self._source_tokens(policy, largest_summary(policy, budget=settings.budget))
        if tokens == policy.max_input_tokens:
            return policy
        planned = self._plannable.get((policy, tokens))
        if planned is None:
            if len(self._plannable) >= _CACHED_MAX:
                self._plannable.clear()
            planned = self._plannable[policy, tokens] = replace(policy, max_input_tokens=tokens)
        return planned

    def _fitting(self, settings: Settings) -> Policy:
        model, overrides = settings.model, settings.policy
        # The profile was resolved when the conversation opened, whatever may be asked for today.
        own = self._policy_for(model, settings.profile)
        left: dict[str, Any] = {name: value for name, value in overrides.items() if name != "profile"}
        asked = len(left)
        while True:
            try:
                policy = overridden(own, left, allowed=self._client_fields)
            except InvalidPolicy as error:
                # Each turn leaves out at least one, and the operator's own policy is valid.
                for name in {error.field} & left.keys() or _RATIOS & left.keys() or set(left):
                    del left[name]
            else:
                break
        if len(left) < asked:
            left_out = sorted(overrides.keys() - left.keys() - {"profile"})
            _log.warning("policy.overrides_left_out", model=model, fields=left_out)
        return policy
