"""Digits of other scripts: found, kept as they were written, and the same as ASCII's to a check."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abridged.service.grounding.claims import evidence_of, unsupported
from abridged.service.text.digits import with_ascii_digits
from abridged.service.text.identifiers import numerals
from abridged.service.text.mentions import mentions


def wide(text: str) -> str:
    """The text in full-width characters."""
    return text.translate({code: code + 0xFEE0 for code in range(0x21, 0x7F)})


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (f"電話は{wide('03-1234-5678')}です", "電話は03-1234-5678です"),
        (f"{wide('1,200')}円、{wide('AB-123')}、{wide('12.5%')}", "1,200円、AB-123、12.5%"),
        ("السعر ١٢٬٣٤٤\u066b٣٨ ريال", "السعر 12,344.38 ريال"),
        ("قیمت ۴۵۰ تومان", "قیمت 450 تومان"),
        ("कीमत ₹१२,५०० है", "कीमत ₹12,500 है"),
        ("মোট ১২৩ টাকা", "মোট 123 টাকা"),
        ("はい、わかりました。", "はい、わかりました。"),
        ("Room 12, 5 people: at 10 %.", "Room 12, 5 people: at 10 %."),
    ],
)
def test_digits_and_the_signs_between_them_are_those_of_ascii(text, plain):
    """Punctuation of sentences stays as it was."""
    assert with_ascii_digits(text) == plain


@given(st.text(st.characters(categories=["Nd", "Lu", "Lo", "Po", "Sm"]), max_size=40))
def test_every_character_keeps_its_place(text):
    """A stretch of the one is the same stretch of the other; a digit keeps its value."""
    plain = with_ascii_digits(text)

    assert len(plain) == len(text)
    for one, other in zip(text, plain, strict=True):
        if unicodedata.category(one) == "Nd" and ord(one) < 0x10000:
            assert other == str(unicodedata.decimal(one))
    assert with_ascii_digits(plain) == plain


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (f"ご予約番号は{wide('AB-12345')}です。", wide("AB-12345")),
        ("رقم الطلب هو ٤٦٨١٢٣ من فضلك", "٤٦٨١٢٣"),
        ("ऑर्डर संख्या ४५८१२३ है", "४५८१२३"),
        ("Bestellung 458123, bitte", "458123"),
    ],
)
def test_a_value_is_found_in_any_digits_and_kept_as_it_was_written(text, written):
    """A ledger has the writer's own."""
    assert written in [found.text for found in mentions(text, said=True)]


@pytest.mark.parametrize(
    ("said", "kept"), [(f"合計は{wide('12800')}円です。", "合計 12800円"), ("المبلغ ٤٦٨١٢ ريال", "46812 ريال")]
)
def test_a_draft_may_write_a_number_in_other_digits(said, kept):
    """A check holds the draft to the number all the same: another one is invented."""
    known = evidence_of([said])

    assert unsupported(kept, known) == ()
    assert [found.text for found in unsupported("٩٩٨٧٦", known)] == ["99876"]
    assert [found.text for found in numerals(said)] == [found.text for found in numerals(with_ascii_digits(said))]
