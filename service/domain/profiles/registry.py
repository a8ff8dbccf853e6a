"""The profiles by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from abridged.service.domain.policy import ProfileName
from abridged.service.domain.profiles import chain, episodes, rolling
from abridged.service.domain.profiles.profile import Profile

_PROFILES: Final[Mapping[ProfileName, Profile]] = MappingProxyType(
    {ProfileName.CHAIN: chain, ProfileName.ROLLING: rolling, ProfileName.EPISODES: episodes}
)

assert set(_PROFILES) == set(ProfileName), "every profile that can be named is there"


def profile_of(name: ProfileName) -> Profile:
    return _PROFILES[name]
