"""The provider of scripted models."""

from __future__ import annotations

from abridged.service.models.model import SummaryModel
from abridged.service.models.provider import OpenProvider, Provider, Surroundings
from abridged.service.models.scripted.model import CONTEXT_LENGTH, PROVIDER, load_script
from abridged.service.models.settings import SettingsGroup


class Scripted(Provider[SettingsGroup]):
    """Models are paths of scripts, or `default`. The provider has no settings."""

    name = PROVIDER

    @property
    def window(self) -> int:
        return CONTEXT_LENGTH

    def open(self, around: Surroundings) -> OpenProvider:
        return _Scripts(around)

    def check_model(self, model: str) -> None:
        load_script(model or "default", clock=lambda: 0.0)


class _Scripts(OpenProvider):
    def __init__(self, around: Surroundings) -> None:
        self._clock = around.clock

    def model(self, name: str) -> SummaryModel:
        return load_script(name or "default", clock=self._clock)

    async def context_length(self, _name: str, /) -> int | None:
        return None

    async def close(self) -> None:
        pass
