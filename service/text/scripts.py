"""The characters of scripts that put no spaces between words, each as a part of a class of characters."""

from __future__ import annotations

from typing import Final

SOUTHEAST: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Thai and Lao, Burmese, Khmer."""

EAST: Final = "\u2e80-\u9fff\uf900-\ufaff"
"""Chinese and Japanese with their punctuation."""

HIRAGANA: Final = "\u3041-\u309f"
"""Japanese grammar is written in it."""

LETTERS: Final = "\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Kana and ideographs without punctuation."""

HANGUL: Final = "\uac00-\ud7af"
"""Korean has spaces, but its particles stand at its words without any."""

RARE: Final = "\U00020000-\U0003ffff"
FULL_WIDTH: Final = "\uff00-\uffef"

EAST_BEGINS: Final = "\u2e80"
"""The first character of EAST, behind SOUTHEAST and most scripts with spaces."""
