"""An Ollama host's description of a model: reads /api/tags, /api/show, /api/ps and /api/version into our own terms.

Every reader accepts the JSON of any server version, and of servers that only resemble Ollama: a missing or odd field
means "unknown", never an error.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abridged.service.models.http.fields import NotAnObject, count_of, name_of, read_object
from abridged.service.models.model import ModelDescription
from abridged.service.whole_file import whole_file

Version = tuple[int, int, int]

DESCRIPTIONS_MAX = 64
CAPABILITIES_MAX = 64

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{12,64})")
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class Residence:
    """The presence of a model in a host's memory.

    Attributes:
        loaded: True if the model is there.
        num_ctx: The window it was loaded with; None if unknown.
    """

    loaded: bool
    num_ctx: int | None = None

    def serves(self, num_ctx: int) -> bool:
        """Return whether a call with this window can use the loaded model; another window makes the server reload
        it."""
        return self.loaded and self.num_ctx in {None, num_ctx}


def canonical_name(name: str) -> str:
    """The name as Ollama compares names: lower case, without the default namespace, with tag `latest` by default."""
    lowered = name.strip().lower().removeprefix("library/")
    return lowered if ":" in lowered.rpartition("/")[2] else f"{lowered}:latest"


def digest_of(tags: dict[str, Any], model: str) -> str:
    """The model's digest from /api/tags, without its algorithm; empty if it is not listed."""
    return next((digest for entry in _entries(tags, model) if (digest := _digest(entry))), "")


def names_of(tags: dict[str, Any]) -> tuple[str, ...]:
    """The names in /api/tags, in its order, newest first."""
    names = (name_of(entry.get("name") or entry.get("model")) for entry in _models(tags))
    return tuple(name for name in names if name)


def residence_of(loaded: dict[str, Any], model: str, digest: str = "") -> Residence:
    """The model's residence by /api/ps, looked up by name or by digest: the server lists only the first of two names
    for one blob."""
    for entry in (*_entries(loaded, model), *_entries_of_digest(loaded, digest)):
        return Residence(True, count_of(entry.get("context_length")) or None)
    return Residence(False)


def read_description(show: dict[str, Any], digest: str) -> ModelDescription:
    """The description in /api/show: the trained context length and the capabilities."""
    info = show.get("model_info")
    return ModelDescription(
        context_length=_context_length(info) if isinstance(info, dict) else None,
        capabilities=_names_in(show.get("capabilities")),
        digest=digest,
    )


def parse_version(answer: dict[str, Any]) -> Version | None:
    """The version from /api/version; None if it is unknown (a proxy, a build from source)."""
    found = _VERSION.match(str(answer.get("version", "")))
    if found is None or found[0].startswith("0.0"):
        return None
    return int(found[1]), int(found[2]), int(found[3] or 0)


class DescriptionCache:
    """Caches descriptions by digest, in memory and, with a directory, on disk. A digest's description never changes.

    Memory keeps the `DESCRIPTIONS_MAX` used last; files are private to their owner. Thread-safe: racing calls write the
    same content.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._known: dict[str, ModelDescription] = {}

    def get(self, digest: str) -> ModelDescription | None:
        """The description of a digest; None if it is not cached."""
        if not digest:
            return None
        found = self._known.pop(digest, None) or self._saved(digest)
        if found is not None:
            self._remember(found)
        return found

    def put(self, description: ModelDescription) -> None:
        """Cache a description; if the disk cannot be written, the next start costs one more request."""
        if not description.digest:
            return
        self._remember(description)
        if self._directory is None:
            return
        text = json.dumps(
            {"context_length": description.context_length, "capabilities": sorted(description.capabilities)}
        )
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with whole_file(self._directory / f"{description.digest}.json") as file:
                file.write(text.encode())
        except OSError:
            return

    def _remember(self, description: ModelDescription) -> None:
        self._known[description.digest] = description
        for oldest in list(self._known)[:-DESCRIPTIONS_MAX]:
            self._known.pop(oldest, None)

    def _saved(self, digest: str) -> ModelDescription | None:
        if self._directory is None:
            return None
        try:
            saved = read_object((self._directory / f"{digest}.json").read_bytes())
            return ModelDescription(count_of(saved["context_length"]) or None, _names_in(saved["capabilities"]), digest)
        except (OSError, NotAnObject, KeyError):
            # An unreadable cache is an empty cache: the host is asked again.
            return None


def _entries(answer: dict[str, Any], model: str) -> list[dict[str, Any]]:
    wanted = canonical_name(model)
    return [
        entry
        for entry in _models(answer)
        if wanted in {canonical_name(str(entry.get(key))) for key in ("name", "model") if entry.get(key)}
    ]


def _entries_of_digest(answer: dict[str, Any], digest: str) -> list[dict[str, Any]]:
    return [entry for entry in _models(answer) if digest and _digest(entry) == digest]


def _models(answer: dict[str, Any]) -> list[dict[str, Any]]:
    models = answer.get("models")
    return [entry for entry in (models if isinstance(models, list) else []) if isinstance(entry, dict)]


def _digest(entry: dict[str, Any]) -> str:
    """A listed model's digest without its algorithm; empty if it is invalid."""
    found = _DIGEST.fullmatch(str(entry.get("digest", "")))
    return found[1] if found is not None else ""


def _context_length(info: dict[str, Any]) -> int | None:
    return count_of(info.get(f"{info.get('general.architecture')}.context_length")) or None


def _names_in(values: object) -> frozenset[str]:
    """The first CAPABILITIES_MAX names of a list; empty if it is not a list."""
    listed = values[:CAPABILITIES_MAX] if isinstance(values, list) else []
    return frozenset(name for value in listed if (name := name_of(value)))
