"""Parses the text of the operator's keys, for the settings too, which use no key."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Final

KEY_BYTES: Final = 32


def parsed_keys(text: str) -> list[bytes]:
    """The keys of a text, which white space separates; the first is current. Raises ValueError for any other text."""
    try:
        keys = [b64decode(word, validate=True) for word in text.split()]
    except binascii.Error:
        keys = []
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise ValueError("a key is 32 bytes in base64, as `openssl rand -base64 32` prints them")
    return keys
