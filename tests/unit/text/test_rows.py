"""Data as rows that say what each value belongs to."""

from __future__ import annotations

import json

import pytest

from abridged.service.text.identifiers import IdentifierKind
from abridged.service.text.mentions import mentions
from abridged.service.text.rows import as_rows, label_of, without_labels
from tests.support.growth import grows_linearly

FLIGHTS = """{"reservation_id": "8C8K4E", "insurance": true,
 "flights": [{"flight_number": "HAT193", "price": 1906}, {"flight_number": "HAT247", "price": 904.50}],
 "address": {"city": "Denver", "zip": "92125"}, "seats": ["12A", "12B"], "note": null}"""


def test_each_value_of_an_object_stands_behind_its_name():
    """Numbers stay as they were written; what names an object names the objects in it."""
    assert (as_rows(FLIGHTS) or "").replace("\x1f", "") == "\n".join(
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


def test_objects_of_one_name_in_a_list_have_a_second_one():
    """A reader could not tell their values apart; another list, and a name that one of them has, are as before."""
    stock = [{"shelf": "A-11", "lot": "KM29", "qty": 40}, {"shelf": "A-11", "lot": "KM28", "qty": 17}]
    rows = (as_rows(json.dumps({"stock": [*stock, {"shelf": "B-1", "lot": "KM27", "qty": 2}]})) or "").splitlines()

    assert [row.replace("\x1f", "") for row in rows if "qty" in row] == [
        "A-11 KM29 > qty=40",
        "A-11 KM28 > qty=17",
        "B-1 > qty=2",
    ]


def states(value: object) -> list[str]:
    """The states that a message of data names."""
    return [found.text for found in mentions(json.dumps(value), said=True) if found.kind is IdentifierKind.STATE]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"id": "8C8K4E", "status": "cancelled"}, "8C8K4E > status=cancelled"),
        ({"order": "TB-1", "paymentStatus": "partially refunded"}, ""),
        ([{"order": "TB-1", "paymentStatus": "partially refunded"}], "TB-1 > paymentStatus=partially refunded"),
        ({"id": "a1", "job": {"deploy_phase": "rolled_back"}}, "a1 > job > deploy_phase=rolled_back"),
        ([{"订单": "TB-1", "状态": "完成"}], "TB-1 > 状态=完成"),
        ({"status": "success", "count": 7}, ""),
        ({"id": "a1", "status": "It was cancelled by the user, who had found a cheaper one."}, ""),
        ({"id": "a1", "estate": "large", "restated": "yes"}, ""),
        ([{"shelf": "A1", "status": "free"}, {"shelf": "A1", "status": "full"}], "A1 > status=full"),
        ({"id": "a1", "api_key": {"status": "active"}}, ""),
    ],
)
def test_the_state_of_an_object_is_named_with_it(value, named):
    """A thing without a name has none, nor one whose story is told. No state tells things of one name apart."""
    assert states(value)[-1:] == ([named] if named else [])


def test_values_that_a_key_calls_secret_are_left_out():
    """The same holds for all that stands below the key, and for what only decoding brings to light."""
    named = repr(
        [
            list(mentions(text, said=True))
            for text in (
                '{"password": "hunter22x", "db": {"api_key": {"value": "hunter22x"}, "port": 5432}}',
                '{"password": ["hunter22x"], "secrets": [{"name": "hunter22x"}]}',
                '[{"password": "hunter22x", "host": "db-1.example.com"}, {"api_key": "hunter22x", "port": 54321}]',
                '{"url": "https:\\/\\/ann:hunter22x@db.example.com\\/x"}',
                '{"body": "{\\"password\\": \\"hunter22x\\"}"}',
            )
        ]
    )

    assert "5432" in named
    assert "hunter22x" not in named


def test_no_key_or_value_forges_a_label():
    """Marks of labels, line ends and halves of surrogate pairs are taken out of them."""
    rows = as_rows(
        '{"x\\nHAT9 > price": "25100", "id": "a=b", "u": "https://a.example/o?id=8C8K4E", "k\\ud800\\u2028": "AB"}'
    )

    assert rows is not None
    assert rows.encode()
    assert len(rows.splitlines()) == 4
    (order,) = mentions('["https://a.example/orders?id=8C8K4E"]')
    assert order.text == "https://a.example/orders?id=8C8K4E"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The price is 5 EUR, or 6, or 7.\nBring bread, milk and eggs.\nCall Ann, Bob and Cem.",
        '{"cut": "off", "at":',
        "[" * 5_000,
        "model,sold\nKX-18B,412\nKX-15A,305",
    ],
)
def test_other_text_has_no_rows(text):
    """Prose, a cut object and a table are read as text."""
    assert as_rows(text) is None


def test_a_label_is_told_from_a_value():
    """Values keep their places where labels are taken out."""
    rows = as_rows('{"id": "8C8K4E", "seat": "12A", "text": "plain\\nline"}')
    assert rows is not None
    read = without_labels(rows)

    assert (len(read), read.index("12A")) == (len(rows), rows.index("12A"))
    assert "seat" not in read
    assert label_of(rows, rows.index("12A")) == "8C8K4E > seat="
    assert label_of(rows, rows.index("2A")) == label_of(rows, rows.index("line")) == ""


def test_what_labels_a_value_is_no_mention_of_its_own():
    """Each name is mentioned where its object says it."""
    named = [(one.text, one.words.name) for one in mentions(FLIGHTS, said=True)]

    assert ("904.50", "8C8K4E > HAT247 > price=") in named
    assert [name for text, name in named if text == "8C8K4E"] == ["reservation_id="]


def test_rows_are_written_in_time_in_proportion():
    """Objects and lists take time by their length, those with long keys, too."""
    assert grows_linearly(as_rows, lambda size: json.dumps([{"id": f"A-{i}", "n": i} for i in range(size)]), size=2_000)
    assert grows_linearly(as_rows, lambda size: json.dumps({"k" * size: ["A-1"] * size}), size=2_000)
