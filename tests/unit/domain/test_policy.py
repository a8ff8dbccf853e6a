"""Policies: a value that no data makes possible is refused by the name of its field."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.policy import (
    CLIENT_FIELDS,
    Policy,
    overridden,
    summary_cap,
    validated,
    wait_after_failures,
)
from abridged.service.domain.record import FormName

NOT_A_NUMBER = float("nan")


@pytest.mark.parametrize(
    ("field", "overrides"),
    [
        ("trigger_token_ratio", {"trigger_token_ratio": 0.0}),
        ("trigger_token_ratio", {"trigger_token_ratio": 1.01, "emergency_token_ratio": 2.0}),
        ("trigger_token_ratio", {"trigger_token_ratio": NOT_A_NUMBER}),
        ("reset_token_ratio", {"reset_token_ratio": 0.0}),
        ("reset_token_ratio", {"reset_token_ratio": 0.80}),
        ("reset_token_ratio", {"reset_token_ratio": 0.95}),
        ("emergency_token_ratio", {"emergency_token_ratio": 0.79}),
        ("emergency_token_ratio", {"emergency_token_ratio": NOT_A_NUMBER}),
        ("preserve_recent", {"preserve_recent": 1}),
        ("record_form", {"record_form": FormName.EPISODE}),
        ("record_form", {"record_form": FormName.DIGEST}),
        ("pin_token_ratio", {"pin_token_ratio": 0.6}),
        ("tail_token_ratio", {"tail_token_ratio": -0.1}),
        ("tail_token_ratio", {"tail_token_ratio": 1.0}),
        ("tail_token_ratio", {"tail_token_ratio": 0.58}),
        ("max_summary_tokens", {"max_summary_tokens": -1}),
        ("max_summary_tokens", {"max_summary_tokens": 127}),
        ("min_gain", {"min_gain": 1.0}),
        ("min_gain", {"min_gain": -0.1}),
        ("min_gain", {"min_gain": NOT_A_NUMBER}),
        ("min_range_tokens", {"min_range_tokens": 0}),
        ("max_summary_chain_depth", {"max_summary_chain_depth": 0}),
        ("rebase_calls_max", {"rebase_calls_max": 0}),
        ("max_input_tokens", {"max_input_tokens": 999}),
        ("tool_output_tokens_max", {"tool_output_tokens_max": 15}),
        ("min_messages", {"min_messages": -1}),
        ("cooldown_messages", {"cooldown_messages": -1}),
        ("rearm_messages", {"rearm_messages": -1}),
        ("force_refresh_after_messages", {"force_refresh_after_messages": -1}),
        ("repair_attempts", {"repair_attempts": -1}),
        ("min_shared_words", {"min_shared_words": -1}),
        ("min_grounded_share", {"min_grounded_share": 1.1}),
        ("min_coverage", {"min_coverage": NOT_A_NUMBER}),
        ("min_identifier_survival", {"min_identifier_survival": 1.1}),
        ("min_carried_share", {"min_carried_share": -0.1}),
        ("min_remake_share", {"min_remake_share": 1.1}),
        ("max_repetition", {"max_repetition": 1.1}),
    ],
)
def test_an_impossible_policy_is_refused_by_the_name_of_its_field(field, overrides):
    """The first field that cannot work is named."""
    with pytest.raises(InvalidPolicy) as refused:
        overridden(Policy(), overrides)
    assert refused.value.field == field


def test_the_defaults_and_their_edges_are_possible():
    """The edges are allowed: reset just below trigger, tail and summary exactly at reset, every count at its least."""
    edge = Policy(
        trigger_token_ratio=1.0,
        reset_token_ratio=0.475,
        emergency_token_ratio=1.0,
        tail_token_ratio=0.35,
        preserve_recent=2,
        min_messages=0,
        cooldown_messages=0,
        rearm_messages=0,
        min_range_tokens=1,
        min_gain=0.0,
        max_summary_chain_depth=1,
        rebase_calls_max=1,
        max_input_tokens=1_000,
        max_summary_tokens=128,
        repair_attempts=0,
        tool_output_tokens_max=16,
    )

    assert validated(edge) is edge
    assert validated(Policy()) == Policy()


def test_a_client_sets_only_what_the_operator_allows():
    """An unknown field and a forbidden one are refused by name; without overrides the policy is the same object."""
    policy = Policy()
    for name in ("endpoint", "rebase_calls_max"):
        with pytest.raises(InvalidPolicy) as refused:
            overridden(policy, {name: 1}, allowed=CLIENT_FIELDS)
        assert refused.value.field == name
    assert overridden(policy, {"min_messages": 3}, allowed=CLIENT_FIELDS) == replace(policy, min_messages=3)
    assert overridden(policy, {}) is policy


def test_clients_cannot_raise_what_a_pass_costs():
    """The profile is the operator's, the bounds of model calls and their input, and the floors that cause repairs."""
    costly = {
        "profile",
        "rebase_calls_max",
        "rewrites_max",
        "pass_calls_max",
        "max_input_tokens",
        "tool_output_tokens_max",
    }
    floors = {"min_shared_words", "min_grounded_share", "min_coverage", "min_identifier_survival"}
    floors |= {"min_carried_share", "min_remake_share", "max_repetition"}

    assert {f.name for f in fields(Policy)} - CLIENT_FIELDS == costly | floors


@pytest.mark.parametrize(
    ("maximum", "budget", "replaced", "cap"),
    [
        (0, 8_192, 100, 128),
        (0, 8_192, 600, 300),
        (0, 8_192, 100_000, 1_024),
        (0, 32_768, 100_000, 2_048),
        (0, 4_096, 100_000, 512),
        (0, 3_072, 100_000, 443),
        (0, 2_048, 100_000, 362),
        (0, 800, 100_000, 141),
        (0, 1, 0, 1),
        (0, 8_192, 0, 128),
        (500, 8_192, 100_000, 500),
        (4_000, 8_192, 100_000, 4_000),
    ],
)
def test_the_summary_cap_is_tied_to_what_it_replaces(maximum, budget, replaced, cap):
    """Half of it, at least 128; at most an eighth of a budget of 4,096 to 8,192, the root below it and beyond, or the
    policy's own number."""
    assert summary_cap(Policy(max_summary_tokens=maximum), budget=budget, replaced_tokens=replaced) == cap


def test_waits_grow_and_are_bounded_whatever_the_cooldown():
    """The first wait without a cooldown is one message; a huge one is capped at once."""
    assert wait_after_failures(Policy(cooldown_messages=0), failures=1) == (1, 30)
    assert wait_after_failures(Policy(cooldown_messages=10_000), failures=1) == (64, 30)
    assert wait_after_failures(Policy(), failures=10**6) == (64, 900)
