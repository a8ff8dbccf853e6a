"""A provider: the models behind one prefix of names, with everything that depends on whose they are.

Each folder beside this file has one; `PROVIDER_TYPES` of the settings lists them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Generic, TypeVar

from abridged.service.models.breaker import BreakerState
from abridged.service.models.inventory import Inventory
from abridged.service.models.model import SummaryModel
from abridged.service.models.settings import SettingsGroup
from abridged.service.tokenizers.errors import VocabularyUnknown

Group = TypeVar("Group", bound=SettingsGroup)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The process around an open provider.

    Attributes:
        clock: Seconds, monotonic.
        cache_dir: Folder for what servers say of their models; None keeps it in memory.
        on_breaker: Called with a host's label and its breaker's new state.
        on_asked: Called with the name and the port of a host that is about to be asked, in the caller's own context.
        on_less: Called with a model and a description of what its requests contain from now on, after a refusal.
    """

    clock: Callable[[], float]
    cache_dir: Path | None = None
    on_breaker: Callable[[str, BreakerState], None] = lambda _host, _state: None
    on_asked: Callable[[str, int], None] = lambda _host, _port: None
    on_less: Callable[[str, str], None] = lambda _model, _sent: None


class OpenProvider(ABC):
    """A provider's models in this process. Models are named without the provider's prefix."""

    @abstractmethod
    def model(self, name: str) -> SummaryModel:
        """The model of that name, whether or not it exists. All models share the provider's connections and limits."""

    @abstractmethod
    async def context_length(self, name: str, /) -> int | None:
        """The context length of a chat model in tokens; None if unknown. Raises ModelError.

        Clients choose these names, so the implementation caches nothing by name.
        """

    async def tokenizer_json(self, name: str) -> str:
        """The model's own tokenizer. Raises VocabularyUnknown, or VocabularyAway if it can be asked for again."""
        raise VocabularyUnknown(f"the provider of {name} does not describe tokenizers")

    @abstractmethod
    async def close(self) -> None:
        """Release the connections."""


class Provider(ABC, Generic[Group]):
    """One provider by its settings, for those of its models that are named; `models` are without its prefix."""

    name: ClassVar[str]
    """The provider's prefix, and the name of its group of settings."""

    example: ClassVar[str] = ""
    """The name of a model for messages; empty if a model may have none."""

    variables: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Environment variables that other programs set too, and the setting of the group that each stands for."""

    group: ClassVar[type[SettingsGroup]] = SettingsGroup
    """The type of its settings."""

    def __init__(self, settings: Group, models: Sequence[str]) -> None:
        self.settings = settings
        self.models = tuple(models)

    @property
    @abstractmethod
    def window(self) -> int:
        """Tokens that prompt and answer of one call share where the model's own window is unknown."""

    @abstractmethod
    def open(self, around: Surroundings) -> OpenProvider:
        """Make its models callable. No model connects before the first call. Raises SettingUnusable."""

    def check_model(self, model: str) -> None:
        """Raise SettingUnusable for a model that this machine cannot open. No network is used."""

    def checks(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Settings that no type checks, each with a call that raises SettingUnusable without the network."""
        return iter(())

    def host_labels(self) -> tuple[str, ...]:
        """The names in metrics of the hosts that it may ask. Raises SettingUnusable."""
        return ()

    def unused(self) -> str:
        """A remark on settings that have no effect because no model is named; empty without any."""
        return ""

    async def inventory(self, *, timeout_s: float, clock: Callable[[], float]) -> Sequence[Inventory]:  # noqa: ARG002 -- for those that ask
        """Ask each host about itself and the models, `timeout_s` per request. Never raises ModelError."""
        return ()

    async def missing_remedy(self, *, clock: Callable[[], float]) -> str:  # noqa: ARG002 -- for those that ask
        """A remedy if its server does not have the first model, by asking the server; empty without one."""
        return ""
