"""Requests as settings: a field that a client does not set stays as it was."""

from __future__ import annotations

from typing import Any, cast

from abridged.service.api.wire import with_kept
from abridged.service.domain.events import Settings


def test_an_update_keeps_the_profile_and_the_calibration_of_the_model():
    """No client sets either; another model is estimated in its own way."""
    current = Settings(model="ollama:a", calibration_factor=1.5, profile=cast(Any, "another"))

    same = with_kept(Settings(model="ollama:a", title="new"), current)
    other = with_kept(Settings(model="ollama:b"), current)

    assert (same.title, same.profile, same.calibration_factor) == ("new", "another", 1.5)
    assert (other.profile, other.calibration_factor) == ("another", 1.0)
