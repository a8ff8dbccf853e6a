"""Requests as settings: a field that a client does not set stays as it was."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from abridged.service.api.wire import requested, with_kept
from abridged.service.domain.events import Settings
from abridged.v1 import conversation_pb2


def test_an_update_keeps_the_profile_and_the_calibration_of_the_model():
    """No client sets either; another model is estimated in its own way."""
    current = Settings(model="ollama:a", calibration_factor=1.5, profile=cast(Any, "another"))

    same = with_kept(Settings(model="ollama:a", title="new"), current)
    other = with_kept(Settings(model="ollama:b"), current)

    assert (same.title, same.profile, same.calibration_factor) == ("new", "another", 1.5)
    assert (other.profile, other.calibration_factor) == ("another", 1.0)


@given(st.text(max_size=3), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.text(max_size=3))
def test_short_settings_are_read_as_those_with_a_policy(
    model: str, length: int, reserved: int, overhead: int, title: str
) -> None:
    """Settings without policy, labels and prompt are remembered; a policy without a field says the same."""
    short = conversation_pb2.ConversationSettings(
        model=model, context_length=length, reserved_output_tokens=reserved, overhead_tokens=overhead, title=title
    )
    whole = conversation_pb2.ConversationSettings()
    whole.CopyFrom(short)
    whole.policy.SetInParent()

    assert requested(short) == requested(whole)
