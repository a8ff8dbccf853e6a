"""The contract's own field rules, enforced on every request."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

from google.protobuf.message import Message

from abridged.service.api.errors import InvalidRequest
from abridged.service.api.field_rules import MessageRules

ALL_LISTED_FIELDS_MAX = 128
"""The most fields of a request whose violations are all named. A larger request gets the first violation alone: a
response has no room for thousands."""


class Validation:
    """Checks requests against the rules that are written into the contract."""

    def __init__(self) -> None:
        self._rules: dict[str, MessageRules] = {}

    def check(self, request: Message, *, fields: Callable[[], int]) -> None:
        """Raise InvalidRequest that names every field which breaks a rule, or only the first if the request has more
        `fields` than ALL_LISTED_FIELDS_MAX. Counts them only when a field breaks a rule."""
        descriptor: Any = request.DESCRIPTOR
        rules = self._rules.get(descriptor.full_name) or MessageRules(descriptor, self._rules)
        if not rules.holds(request):
            listed = None if fields() <= ALL_LISTED_FIELDS_MAX else 1
            raise InvalidRequest(tuple(islice(rules.broken(request), listed)))
