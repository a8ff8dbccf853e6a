"""Credentials are masked wherever they stand; ordinary ids are not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.text import secrets
from abridged.service.text.secrets import MASK, contains_secret, mask_secrets
from tests.support.growth import grows_linearly

# Built from parts, so that no scanner takes this file for a leak.
ISSUED = [
    "sk-" + "proj-4fK9aZ2" * 4,
    "ghp_" + "a1B2c3D4e5F6" * 3,
    "xoxb-" + "123456789012-abcdefABCDEF",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "hf_" + "abcdefghijABCDEFGHIJ0123",
    "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVPmB92K27uhb",
    "wJalrXUtnFEMI/K7MDENG+bPxRfiCY3k9Zq8Lm2Vt5",
]
NAMED = [
    ("password={}", "hunter2"),
    ("DB_PASSWORD = '{}'", "correct-horse"),
    ("the password is {}", "Tr0ub4dor!"),
    ('{{"api_key": "{}"}}', "a8f7d6e5c4b3"),
    ("AWS_SECRET_ACCESS_KEY={}", "wJalrXUtnFEMIK7MDENG"),
    ("Authorization: Bearer {}", "abcDEF0123456789xyz"),
    ("postgres://bob:{}@db.local/app", "s3cr3t"),
]
INNOCENT = [
    "max_tokens=4096 and token_count: 512 with tokenizer=cl100k_base",
    "Password: must be changed every month",
    "the secret: never give up; she was the bearer of bad news everywhere",
    "commit 9b1d5c0aa3f4e6b7c8d9e0f1a2b3c4d5e6f70819",
    "3f2b8c1e-77aa-4d0c-9be2-5f0a1c9d7e44",
    "/usr/local/lib/python3/site-packages/OpenSSL/CryptoBackend/Interfaces",
    "booking ZFA04Y of user mia_li_3668",
]


@pytest.mark.parametrize("token", ISSUED)
def test_a_key_of_a_known_form_is_a_secret(token: str) -> None:
    """The forms that issuers give their keys are known, alone and within text."""
    assert mask_secrets(token) == MASK
    assert mask_secrets(f"use {token} for it") == f"use {MASK} for it"


@pytest.mark.parametrize(("text", "value"), NAMED)
def test_a_value_named_as_a_credential_is_masked(text: str, value: str) -> None:
    """A value that is called a password is one; its name stays."""
    assert mask_secrets(text.format(value)) == text.format(MASK)


@pytest.mark.parametrize("text", INNOCENT)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """Hashes, UUIDs, ids, settings and sentences are no secrets."""
    assert not contains_secret(text)


def test_a_private_key_block_is_masked_whole() -> None:
    """The mask reaches from the block's first line to its last; without a last line, to the end."""
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAK\n-----END RSA PRIVATE KEY-----"

    assert mask_secrets(f"a\n{block}\nb") == f"a\n{MASK}\nb"
    assert mask_secrets(f"a\n{block[:50]}") == f"a\n{MASK}"


@given(st.text(max_size=300))
def test_masking_twice_changes_nothing_more(text: str) -> None:
    """A masked text holds no secret."""
    assert not contains_secret(mask_secrets(text))


@pytest.mark.parametrize(
    "motif",
    ["a", "password ", "passwd:=", "eyJ", "-eyJ", "eyJaaaaaaaa.", "sk-", "aA1", "://a:", "token: ", "bearer  ", "\n"],
)
def test_a_hostile_text_is_masked_in_linear_time(motif: str) -> None:
    """No text makes a pattern explode."""
    assert grows_linearly(mask_secrets, lambda size: motif * (size // len(motif)), size=200_000)


_PIECES = (
    *("pass", "PassWord", "pwd", "=", ":", " is ", "token", "refresh_", "access-", "id", "client ", "secret", "_key"),
    *("api", "signing_", "bearer ", "Basic  ", "credentials", "hunter2!!", "Ab1" * 8, "\n", " ", "'", "\u017fecret"),
)


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map("".join))
def test_what_a_text_names_is_masked_as_if_every_character_were_tried(text: str) -> None:
    """Named values are looked for near their names alone, so that a text without names costs little."""
    everywhere = [place for match in secrets._NAMED_RE.finditer(text) for place in secrets._value(match)]

    assert secrets._without(text, secrets._named(text)) == secrets._without(text, everywhere)


_TOKEN_PIECES = ("eyJ", "eyJhbGciOi", "-", "_", ".", "a", "abcdefghijkl", "\u00e9", " ", "9", "eyJ12345678.abcdefgh")


@given(st.lists(st.sampled_from(_TOKEN_PIECES), max_size=14).map("".join))
def test_web_tokens_are_masked_as_if_every_character_were_tried(text: str) -> None:
    """They are looked for before dots alone."""
    everywhere = re.sub(rf"(?<![A-Za-z0-9]){secrets._WEB_TOKEN_RE.pattern}", MASK, text, flags=re.ASCII)

    assert secrets._without(text, secrets._web_tokens(text)) == everywhere


@pytest.mark.parametrize("digits", ["\u0660\u0661\u0662\u0663", "\uff10\uff11\uff12\uff13", "\u0966\u0967\u0968\u0969"])
def test_a_credential_is_one_in_the_digits_of_any_script(digits):
    """A message without one stays as it was written."""
    assert digits * 2 not in mask_secrets(f"My password is {digits * 2}.")
    assert "0123" not in mask_secrets(f"My password is {digits * 2}.")
    assert mask_secrets(f"The order is {digits * 2}.") == f"The order is {digits * 2}."
    assert contains_secret(f"My password is {digits * 2}.")
