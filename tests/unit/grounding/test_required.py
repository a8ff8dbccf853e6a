"""Identifiers of a source that are required: those that a reader could still need."""

from __future__ import annotations

import json

from abridged.service.grounding.required import REQUIRED_CHARS_MAX, REQUIRED_MAX, Named, required_identifiers
from abridged.service.text.identifiers import numerals


def spoken(*texts: str) -> list[Named]:
    return [Named(text, numerals(text)) for text in texts]


def raw(text: str) -> Named:
    return Named(text, numerals(text), raw=True)


def required(*source: Named) -> list[str]:
    return [found.text for found in required_identifiers(source)]


def test_what_only_one_raw_tool_result_names_is_not_required():
    """A result of five hundred rows asks for nothing; an identifier that somebody mentions is asked for."""
    rows = raw(json.dumps([{"id": f"ROW{n}X", "at": f"2024-05-{n % 28 + 1:02d}"} for n in range(500)]))

    assert required(rows) == [found for found in required(rows) if found.startswith("2024")]
    assert "ROW7X" in required(rows, *spoken("We take ROW7X."))
    assert "ROW8X" not in required(rows, *spoken("We take ROW7X."))


def test_what_a_tool_names_again_and_again_is_required():
    """Repetition speaks for it, though nobody said it."""
    assert required(raw("job J77A started"), raw("job J77A ended")) == ["J77A"]


def test_a_newer_value_of_the_same_thing_takes_the_place_of_the_older():
    """Unless the older one is spoken of again."""
    moved = spoken("The release version is v2.1.3.", "Deployed.", "The release version is v2.1.4.")

    assert required(*moved) == ["v2.1.4"]
    assert required(*moved, *spoken("Go back to v2.1.3!")) == ["v2.1.3", "v2.1.4"]
    assert set(required(*spoken("The release version is v2.1.3.", "The driver version is v0.9.1."))) == {
        *("v2.1.3", "v0.9.1"),
    }


def test_names_are_never_superseded():
    """Two bookings are two things."""
    assert set(required(*spoken("The booking is ZFA04Y.", "The booking is HQ2ND7."))) == {"ZFA04Y", "HQ2ND7"}


def test_quantities_times_and_secrets_are_not_required():
    """They mean nothing without their sentence, or must not be there at all."""
    assert required(*spoken("20 users, 0.25 of them at 11:52, password=hunter2secret9")) == []


def test_the_most_needed_fit_into_a_budget():
    """Recent, repeated, telling ones first; never more than a record has room for."""
    source = spoken(*(f"Now look at OPS-{n}." for n in range(1_000, 1_200)), "OPS-1001 again, and OPS-1001.")
    found = required(*source)

    assert found[0] == "OPS-1001"
    assert "OPS-1199" in found
    assert "OPS-1003" not in found
    assert len(found) == REQUIRED_MAX
    assert len("".join(required(*spoken(*(f"see /srv/{'x' * 90}/{n}.log" for n in range(50)))))) <= REQUIRED_CHARS_MAX
