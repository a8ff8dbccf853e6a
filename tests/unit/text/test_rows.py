"""Data as rows that say what each value belongs to."""

from __future__ import annotations

import json

import pytest

from abridged.service.text.mentions import mentions
from abridged.service.text.rows import as_rows, label_of, without_labels
from tests.support.growth import grows_linearly

FLIGHTS = """{"reservation_id": "8C8K4E", "insurance": true,
 "flights": [{"flight_number": "HAT193", "price": 1906}, {"flight_number": "HAT247", "price": 904.50}],
 "address": {"city": "Denver", "zip": "92125"}, "seats": ["12A", "12B"], "note": null}"""


def test_each_value_of_an_object_stands_behind_its_name():
    """Numbers stay as they were written; what names an object names the objects in it."""
    assert as_rows(FLIGHTS) == "\n".join(
        [
            "reservation_id=8C8K4E",
            "8C8K4E > insurance=true",
            "8C8K4E > flight_number=HAT193",
            "8C8K4E > HAT193 > price=1906",
            "8C8K4E > flight_number=HAT247",
            "8C8K4E > HAT247 > price=904.50",
            "8C8K4E > address > city=Denver",
            "8C8K4E > address > zip=92125",
            "8C8K4E > seats=12A",
            "8C8K4E > seats=12B",
        ]
    )


@pytest.mark.parametrize(
    "table",
    [
        "model,sold,margin\nKX-18B,412,40.2%\nKX-15A,305,32.0%",
        "| model | sold | margin |\n|---|---|---|\n| KX-18B | 412 | 40.2% |\n| KX-15A | 305 | 32.0% |",
        "model\tsold\tmargin\nKX-18B\t412\t40.2%\nKX-15A\t305\t32.0%",
    ],
)
def test_a_table_is_written_like_a_list_of_objects(table):
    """The first row names the columns; other lines stay as they are."""
    assert as_rows(f"Sales\n{table}\nend") == "\n".join(
        [
            "Sales",
            "model=KX-18B",
            "KX-18B > sold=412",
            "KX-18B > margin=40.2%",
            "model=KX-15A",
            "KX-15A > sold=305",
            "KX-15A > margin=32.0%",
            "end",
        ]
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The price is 5 EUR, or 6, or 7.\nBring bread, milk, and eggs.\nCall Ann, Bob, and Cem.".replace(
            ", and", " and"
        ),
        '{"cut": "off", "at":',
        "[" * 5_000,
        "12,5,7\n1,2,3\n4,5,6",
    ],
)
def test_other_text_has_no_rows(text):
    """Prose with commas, a cut object and numbers without names are read as text."""
    assert as_rows(text) is None


def test_a_label_is_told_from_a_value():
    """Values keep their places where labels are taken out."""
    rows = "8C8K4E > seat=12A\nplain line"
    read = without_labels(rows)

    assert (len(read), read.index("12A")) == (len(rows), rows.index("12A"))
    assert "8C8K4E" not in read
    assert label_of(rows, rows.index("12A")) == "8C8K4E > seat="
    assert label_of(rows, rows.index("2A")) == label_of(rows, rows.index("line")) == ""


def test_what_labels_a_value_is_no_mention_of_its_own():
    """Each name is mentioned where its object says it."""
    named = [(one.text, one.words.name) for one in mentions(FLIGHTS, said=True)]

    assert ("904.50", "8C8K4E > HAT247 > price=") in named
    assert [name for text, name in named if text == "8C8K4E"] == ["reservation_id="]


def test_rows_are_written_in_time_in_proportion():
    """Objects, lists and tables take time by their length."""
    assert grows_linearly(as_rows, lambda size: json.dumps([{"id": f"A-{i}", "n": i} for i in range(size)]), size=2_000)
    assert grows_linearly(as_rows, lambda size: "a,b,c\n" + "x-1,2,3\n" * size, size=2_000)
