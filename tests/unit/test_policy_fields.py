"""The policy's fields have one table, the domain's: settings and contract have its names, ranges and defaults."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest
from pydantic import ValidationError

from abridged.service.config.settings import PolicySettings, Settings
from abridged.service.config.sources import load
from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.policy import RANGES, Policy, Range, overridden
from abridged.service.models.ollama.settings import OllamaSettings
from abridged.v1 import conversation_pb2
from tests.support.field_rules import rules_of


def test_every_number_of_the_policy_has_a_range_that_holds_its_default():
    """A field without one could be anything."""
    policy = Policy()
    numbers = {f.name for f in fields(Policy) if type(getattr(policy, f.name)) in (int, float)}

    assert set(RANGES) == numbers
    assert all(allowed.includes(getattr(policy, name)) for name, allowed in RANGES.items())


@pytest.mark.parametrize("name", sorted(RANGES))
def test_the_contract_lets_clients_set_exactly_the_range(name: str):
    """The range is in the descriptor's field rules, which are enforced on every request; seconds are a duration."""
    contract = conversation_pb2.PolicyOverrides.DESCRIPTOR.fields_by_name
    rules = rules_of(contract.get(name) or contract[name.removesuffix("_s")])
    kind = rules.WhichOneof("type")
    assert kind is not None, "the field has rules"
    of_type: Any = getattr(rules, kind)
    bounds = {bound.name: getattr(value, "seconds", value) for bound, value in of_type.ListFields()}

    assert bounds == _rules(RANGES[name])


@pytest.mark.parametrize("name", sorted(RANGES))
def test_the_settings_and_the_rules_take_exactly_the_range(name: str):
    """The bounds are taken, and nothing beyond: for a ratio, the next number that there is."""
    allowed = RANGES[name]
    for value in (*_around(allowed.low, name), *_around(allowed.high, name)):
        assert _is_taken(name, value) is allowed.includes(value), value
        if not allowed.includes(value):
            with pytest.raises(InvalidPolicy) as refused:
                overridden(Policy(), {name: value})
            assert refused.value.field == name


def test_the_settings_have_the_policys_fields_and_defaults():
    """The order is the same, as the page lists them."""
    assert list(PolicySettings.model_fields) == [f.name for f in fields(Policy)]
    assert Policy(**PolicySettings().model_dump()) == Policy()


def test_config_shows_the_defaults_of_the_profile_that_is_set():
    """A field that nobody set has the value of the profile, not of another one."""
    shown = {name: value for name, value, _ in load({}, flags={"policy.profile": "rolling"}).shown()}

    assert (shown["policy.preserve_recent"], shown["policy.max_summary_tokens"]) == ("4", "800")
    assert {name: value for name, value, _ in load({}).shown()}["policy.preserve_recent"] == "6"


def test_the_settings_of_ollama_have_the_providers_defaults():
    """A field that nobody set is the same whoever makes the provider."""
    assert Settings().ollama.calls() == OllamaSettings()


def _rules(allowed: Range) -> dict[str, float]:
    return {
        "gt" if allowed.above else "gte": allowed.low,
        "lt" if allowed.below else "lte": allowed.high,
    }


def _around(bound: float, name: str) -> tuple[float, ...]:
    if isinstance(getattr(Policy(), name), int):
        return bound - 1, bound, bound + 1
    return math.nextafter(bound, -math.inf), bound, math.nextafter(bound, math.inf)


def _is_taken(name: str, value: float) -> bool:
    try:
        PolicySettings(**{name: value})
    except ValidationError:
        return False
    return True
