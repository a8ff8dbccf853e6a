"""The policy that holds when a client's earlier wishes and the operator's settings now do not fit together."""

from __future__ import annotations

from typing import cast

import pytest
from structlog.testing import capture_logs

from abridged.service.conversations.policies import Policies
from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.events import Settings
from abridged.service.domain.policy import CLIENT_FIELDS, Policy, ProfileName

LOWER = Policy(trigger_token_ratio=0.75, reset_token_ratio=0.6)


def policies(operator: Policy = LOWER, *, allowed: frozenset[str] = CLIENT_FIELDS) -> Policies:
    return Policies(lambda *_: operator, client_fields=allowed)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"reset_token_ratio": 0.75, "min_messages": 3}, {"min_messages": 3}),
        ({"trigger_token_ratio": 0.5, "min_messages": 3}, {"min_messages": 3}),
        (
            {"trigger_token_ratio": 0.9, "reset_token_ratio": 0.8},
            {"trigger_token_ratio": 0.9, "reset_token_ratio": 0.8},
        ),
        ({"min_messages": 3, "preserve_recent": 1}, {"min_messages": 3}),
        ({"max_input_tokens": 9_000, "min_messages": 3}, {"min_messages": 3}),
        ({"gone_long_ago": 1, "min_messages": 3}, {"min_messages": 3}),
    ],
)
def test_overrides_of_an_existing_conversation_that_do_not_fit_are_left_out(overrides, expected):
    """The others hold, and those that fit together hold together."""
    policy = policies().of(Settings(policy=overrides))

    changed = {
        name: getattr(policy, name) for name in Policy.__slots__ if getattr(policy, name) != getattr(LOWER, name)
    }
    assert changed == expected


def test_what_is_left_out_is_said_once_for_each_kind_of_settings():
    """The log line has the fields' names and no values, and does not come with each append."""
    held = policies()
    with capture_logs() as lines:
        for _ in range(3):
            held.of(Settings(model="m", policy={"reset_token_ratio": 0.75}))
            held.of(Settings(model="m", policy={"min_messages": 3}))

    assert [(line["event"], line["model"], line["fields"]) for line in lines] == [
        ("policy.overrides_left_out", "m", ["reset_token_ratio"])
    ]


def test_a_conversation_keeps_the_profile_that_it_opened_with():
    """The operator's and the client's choice are for new ones; a client changes its own by asking for another."""
    other, asked = cast(ProfileName, "other"), cast(ProfileName, "asked")
    held = Policies(lambda _, profile: Policy(profile=profile or other), client_fields=CLIENT_FIELDS | {"profile"})
    plain, asking = Settings(), Settings(policy={"profile": asked})

    assert [held.opening(plain).profile, held.opening(asking).profile] == [other, asked]
    assert [held.of(plain).profile, held.of(asking).profile] == [ProfileName.CHAIN, ProfileName.CHAIN]
    assert [held.accepted(plain).profile, held.accepted(asking).profile] == [ProfileName.CHAIN, asked]


@pytest.mark.parametrize("overrides", [{"reset_token_ratio": 0.75}, {"max_input_tokens": 9_000}])
def test_what_a_client_asks_for_now_is_refused_when_it_does_not_fit(overrides):
    """The refusal names the field."""
    with pytest.raises(InvalidPolicy) as refused:
        policies().accepted(Settings(policy=overrides))

    assert refused.value.field in overrides


def test_the_policy_of_known_settings_follows_what_a_call_holds_now():
    """Passes are planned by what the summarizer's model holds, which is learned while conversations go on."""
    held_tokens, settings = [8_000], Settings(model="m")
    held = Policies(lambda *_: LOWER, client_fields=CLIENT_FIELDS, source_tokens=lambda *_: held_tokens[0])

    assert held.of(settings) is held.of(settings)
    assert held.of(settings).max_input_tokens == 8_000
    held_tokens[0] = 3_000
    assert held.of(settings).max_input_tokens == 3_000
    assert held.of(Settings(model="m")) is held.of(settings), "equal settings share their policy"
