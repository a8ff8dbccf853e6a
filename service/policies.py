"""Which policy holds for a conversation: the operator's, for its model, under the fields that the client overrides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.domain.events import Settings
from service.domain.policy import Policy, overridden

__all__ = ["Policies"]

_CACHED_MAX = 1_024


class Policies:
    """The operator's policies, and what a client may change of them."""

    def __init__(self, policy_for: Callable[[str], Policy], *, client_fields: frozenset[str]) -> None:
        self._policy_for = policy_for
        self._client_fields = client_fields
        self._cached: dict[tuple[str, tuple[tuple[str, Any], ...]], Policy] = {}

    def of(self, settings: Settings) -> Policy:
        """The policy in force for these settings; raises InvalidPolicy for a field that clients may not set."""
        key = (settings.model, tuple(sorted(settings.policy.items())))
        policy = self._cached.get(key)
        if policy is None:
            policy = self._resolved(settings.model, settings.policy)
            if len(self._cached) >= _CACHED_MAX:
                self._cached.clear()
            self._cached[key] = policy
        return policy

    def _resolved(self, model: str, overrides: Mapping[str, Any]) -> Policy:
        return overridden(self._policy_for(model), overrides, allowed=self._client_fields)
