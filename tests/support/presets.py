"""The preset files as settings by their dotted names, to start a sidecar of a test with."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

PRESETS = Path(__file__).parents[2] / "presets"


def preset(name: str, *groups: str) -> dict[str, Any]:
    """Return the settings of `presets/<name>.toml` in these groups."""
    tables = tomllib.loads((PRESETS / f"{name}.toml").read_text(encoding="utf-8"))
    return {f"{group}.{field}": value for group in groups for field, value in tables[group].items()}
