"""Finds tokens that somebody else could guess or read: too short, a word, or in a file that others may open."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from abridged.service.config.settings import ServerSettings, TokenGrant

CHARS_MIN: Final = 16
"""96 bits of base64, which nobody guesses over a network."""

_WORDS: Final = ("changeme", "password", "secret", "token", "abridged", "example", "test")
_MOUNTED: Final = ("..data", "secrets")
"""Folders of secrets that Kubernetes and Docker mount, where any mode is normal: only the container sees them."""

HINT: Final = "make one with `openssl rand -hex 32`"


def weak_tokens(server: ServerSettings) -> Iterator[tuple[str, str]]:
    """Yield the field of each weak token and the fault of it, never a part of the token."""
    for index, grant in enumerate(server.tokens):
        field = f"server.tokens[{index}]"
        text = grant.token.get_secret_value() if grant.token else ""
        if len(text) < CHARS_MIN:
            yield _field(field, grant), f"has {len(text)} characters, fewer than {CHARS_MIN}: {HINT}"
        elif len(set(text)) < CHARS_MIN // 2 or text.lower().strip("0123456789-_.!") in _WORDS:
            yield _field(field, grant), f"is easily guessed: {HINT}"
        if grant.token_file is not None and (problem := _open_to(grant.token_file)):
            yield f"{field}.token_file", f"{problem}: run `chmod 600 {grant.token_file}`"


def _field(field: str, grant: TokenGrant) -> str:
    return f"{field}.{'token' if grant.token_file is None else 'token_file'}"


def _open_to(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        is_mounted = not {*path.absolute().parts, *path.resolve().parts}.isdisjoint(_MOUNTED)
    except OSError:
        return ""
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be written by others"
    return "can be read by others" if mode & stat.S_IROTH and not is_mounted else ""
