"""Whole names in texts: their bounds, in any script, and the growth of the work."""

from __future__ import annotations

import pytest

from abridged.service.text.naming import Names
from tests.support.growth import grows_linearly


def named(name: str, text: str) -> bool:
    return Names([name.casefold()]).of([text]) == {name.casefold()}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("INV-204417-B", "see inv-204417-b."),
        ("INV-204417-B", "(INV-204417-B)"),
        ("64,20 €", "it costs 64,20 €, not more"),
        ("#1187", "ticket #1187 is open"),
        ("60時間", "約60時間です"),
        ("改到", "会议改到星期五"),
        ("app.py", "in src/app.py and elsewhere"),
        ("/etc/hosts", "edit /etc/hosts."),
        ("v1.2", "runs v1.2."),
        ("Straße-7", "die STRASSE-7 ist zu"),
        ("شقة-12", "في شقة-12 الآن"),
        ("€€", "a €€ restaurant"),
    ],
)
def test_a_name_is_found_as_a_whole(name, text):
    """The name is found in any case, script and punctuation around it; a file in a longer path, too."""
    assert named(name, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("INV-204417", "see INV-204417-B"),
        ("204417", "see INV-204417-B"),
        ("v1.2", "runs v1.2.3"),
        ("1.2.3", "runs v1.1.2.3"),
        ("64", "it costs 64,20 €"),
        ("AB-2026", "file AB-2026/0917-C"),
        ("max", "set max_conns"),
        ("12", "at 12:30"),
        ("#118", "ticket #1187"),
        ("cat", "concatenate"),
        ("self.key_field", "call self.key_field._bind()"),
    ],
)
def test_a_part_of_a_longer_name_is_none(name, text):
    """A part would claim a name that the text does not have."""
    assert not named(name, text)


def test_every_name_of_a_text_is_found_at_once():
    """One of the names may begin as another does."""
    names = Names(["a-1", "a-1-x", "b 2"])

    assert names.of(["a-1-x and b 2", "A-1"]) == {"a-1", "a-1-x", "b 2"}


def test_the_work_is_linear_in_names_and_text():
    """Names that begin alike, in a text of nothing else."""

    def material(size: int) -> tuple[list[str], str]:
        names = [f"10.0.{n // 250}.{n % 250}" for n in range(size)]
        return names, " ".join(names)

    assert grows_linearly(lambda m: Names(m[0]).of([m[1]]), material, size=20_000)


def test_the_work_is_linear_in_a_text_without_spaces():
    """Base64 is such a text."""
    assert grows_linearly(lambda text: Names(["10.0.0.1", "aaaa", "=="]).of([text]), lambda n: "Qa/+" * n, size=200_000)
