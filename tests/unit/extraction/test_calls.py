"""The lines of an extract that say what an assistant called, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from abridged.service.domain.message import Message, Role, ToolCall
from abridged.service.domain.record import FormName, RecordEvidence, SummaryRecord
from abridged.service.extraction.calls import is_of_call
from abridged.service.extraction.extract import Extract
from abridged.service.grounding.support import concordance_of
from abridged.service.summarizer.forms import FORMS, ExtractSource
from abridged.service.summarizer.statements import judged
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.extracts import extract_of, record_of
from tests.support.growth import grows_linearly
from tests.support.summarizers import Heard, by_extraction, work_on
from tests.unit.extraction.corpora import PLANNING, said

ASKED = said("user: Please move the booking of the harbour crane to the northern berth before the audit begins.")
LOW = "Error: the balance is not enough"


def calls(*made: tuple[str, Mapping[str, object] | str, str]) -> list[Message]:
    """Messages that make these calls, given as name, arguments and result, after a request."""
    messages = list(ASKED)
    for number, (name, arguments, result) in enumerate(made, 1):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        messages += [
            Message(f"a{number}", Role.ASSISTANT, "", tool_calls=(ToolCall(f"c{number}", name, text),)),
            Message(f"t{number}", Role.TOOL, result, tool_call_id=f"c{number}"),
        ]
    return messages


def told(messages: list[Message], *, previous: SummaryRecord | None = None, tokens_max: int = 1_500) -> list[str]:
    """The lines of calls in the extract of these messages, without their speaker."""
    extracted = extract_of(
        messages,
        previous=previous,
        tokens_max=tokens_max,
        with_calls=True,
        numbers=range(101, 101 + len(messages)),
    )
    return [point.removeprefix("assistant: called ") for point in extracted.key_points if is_of_call(point)]


def recorded(extracted: Extract) -> SummaryRecord:
    """The record of an extract, with the messages that its key points rest on."""
    numbers = tuple(extracted.rests_on.get(point, ()) for point in extracted.key_points)
    return replace(record_of(extracted), evidence=RecordEvidence(key_points=numbers))


def test_a_call_is_told_with_what_came_of_it_and_its_messages():
    """The record's other texts say nothing of it."""
    messages = calls(("pay_order", {"order": "A17", "card": "gift_644"}, LOW))

    extracted = extract_of(messages, with_calls=True)

    line = "assistant: called pay_order(order=A17; card=gift_644): Error: the balance is not enough"
    assert line in extracted.key_points
    assert extracted.rests_on[line] == (2, 3)
    assert not any(map(is_of_call, extract_of(messages).key_points))


def test_without_calls_an_extract_is_the_same():
    """The room for calls is free for sentences."""
    assert extract_of(PLANNING, with_calls=True) == extract_of(PLANNING)


@pytest.mark.parametrize(
    ("name", "arguments", "is_told"),
    [
        ("get_order", {"order": "A17"}, False),
        ("getOrder", {"order": "A17"}, False),
        ("mcp__shop__search_orders", {"text": "crane"}, False),
        ("shop.read", {"order": "A17"}, False),
        ("buscar_pedido", {"order": "A17"}, False),
        ("zeige_bestellung", {"order": "A17"}, False),
        ("bash", {"command": "grep -rn crane src"}, False),
        ("shell", {"command": ["bash", "-lc", "ls -la src"]}, False),
        ("bash", {"command": "cat a.txt > b.txt"}, True),
        ("bash", {"command": "ls src && rm src/a.py"}, True),
        ("bash", {"command": "rm src/a.py"}, True),
        ("query", {"sql": "SELECT name FROM orders"}, False),
        ("query", {"sql": "DELETE FROM orders"}, True),
        ("cancel_order", {"order": "A17"}, True),
        ("getaway", {"order": "A17"}, True),
    ],
)
def test_a_call_that_only_looks_and_succeeds_is_left_out(name, arguments, is_told):
    """The first word of the tool's own name says so, or that of a shell's simple command."""
    assert bool(told(calls((name, arguments, "fine")))) is is_told


def test_the_extract_behind_a_models_draft_tells_of_no_calls():
    """The model reads them itself, and tells of them in its own words."""
    numbered = tuple(enumerate(calls(("pay_order", {"order": "A17"}, LOW)), 1))
    earlier = recorded(extract_of([message for _, message in numbered], with_calls=True))
    source = ExtractSource(numbered, earlier)

    behind, by_itself = (
        FORMS[FormName.FACETS].extracted(one, 800, EstimatingCounter().count).draft
        for one in (source, source._replace(with_calls=True))
    )

    assert "called pay_order" not in behind.model_dump_json()
    assert "called pay_order" in by_itself.model_dump_json()


def test_a_call_that_only_looks_counts_if_it_failed_last():
    """An agent would look there again."""
    failed = ("get_order", {"order": "A17"}, "Error: no such order")

    assert told(calls(failed)) == ["get_order(order=A17): Error: no such order"]
    assert told(calls(failed, ("get_order", {"order": "A17"}, "fine"))) == []
    assert told(calls(failed, ("get_order", {"order": "B18"}, "fine"))) == [
        "get_order(order=A17): Error: no such order"
    ]


def test_a_failure_that_a_later_call_overcame_is_left_out():
    """A later call of the same tool with the same first argument counts; one before it does not."""
    failed = ("pay_order", {"order": "A17", "card": "gift_644"}, LOW)
    paid = ("pay_order", {"order": "A17", "card": "visa_9725"}, "paid")

    assert told(calls(failed, paid)) == ["pay_order(order=A17; card=visa_9725): paid"]
    assert len(told(calls(paid, failed))) == 2
    assert len(told(calls(failed, ("pay_order", {"order": "B18", "card": "visa_9725"}, "paid")))) == 2


def test_calls_that_differ_in_one_argument_share_a_line():
    """They have one outcome."""
    one, other = {"order": "A17", "card": "gift_644"}, {"order": "A17", "card": "gift_709"}

    assert told(calls(("pay_order", one, LOW), ("pay_order", other, LOW))) == [
        "pay_order(order=A17; card=gift_644, gift_709): Error: the balance is not enough"
    ]
    assert len(told(calls(("pay_order", one, LOW), ("pay_order", other, "Error: the card is blocked")))) == 2
    assert len(told(calls(("pay_order", one, LOW), ("pay_order", {"order": "B18", "card": "gift_709"}, LOW)))) == 2


def test_a_line_of_several_calls_varies_in_one_argument_alone():
    """A second one would tell of calls that nobody made."""
    made = [({"order": "A17", "card": "visa"}), ({"order": "A17", "card": "gift"}), ({"order": "B18", "card": "visa"})]

    assert told(calls(*(("pay_order", arguments, LOW) for arguments in made))) == [
        f"pay_order(order=A17; card=visa, gift): {LOW}",
        f"pay_order(order=B18; card=visa): {LOW}",
    ]


def test_lists_are_no_calls_that_differ():
    """Two ways of three stops are not one way of six."""
    moved = [("move_crane", {"crane": "17", "stops": stops}, "moved") for stops in (["A1", "B2"], ["A1", "C3"])]

    assert len(told(calls(*moved))) == 2


def test_of_equal_calls_the_last_one_counts():
    """The earlier outcome holds no more."""
    made = [("run_tests", {"folder": "tests"}, result) for result in ("3 of 9 passed", "8 of 9 passed")]

    assert told(calls(*made)) == ["run_tests(folder=tests): 8 of 9 passed"]


def test_a_result_belongs_to_the_nearest_call_of_its_id():
    """Ids may be used again."""
    messages = calls(("pay_order", {"order": "A17"}, LOW), ("pay_order", {"order": "B18"}, "paid"))
    reused = [
        m._replace(
            tool_calls=tuple(replace(call, id="c") for call in m.tool_calls), tool_call_id=m.tool_call_id and "c"
        )
        for m in messages
    ]

    assert told(reused) == told(messages)
    assert len(told(reused)) == 2
    assert told([*reused[:2], *reused[3:]]) == ["pay_order(order=A17): no output", "pay_order(order=B18): paid"]


def test_a_call_whose_result_says_nothing_has_no_output():
    """An empty message has nothing that a record could need, and does not come with its call."""
    messages = calls(("remove_file", {"path": "src/a.py"}, ""))

    assert told(messages[:-1]) == ["remove_file(path=src/a.py): no output"]


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ('{"error": {"code": 7, "message": "the berth is taken"}}', "failed: the berth is taken"),
        ('{"success": false}', "failed"),
        ('[{"type": "text", "text": "Error: the berth is taken"}]', "Error: the berth is taken"),
        ('{"booking_id": "ZX81", "crane": 17, "rows": [1, 2]}', "booking_id=ZX81"),
        ('{"order": "A17", "status": "moved"}', "status=moved"),
        ('{"order_id": "A17", "weight": 12}', "done"),
        ('{"crane": 17}', "done"),
        ("\n---\n  Moved to the northern berth.\nAll is well.", "Moved to the northern berth."),
        ("Traceback (most recent call last):\n  File 'a.py'\nValueError: no berth", "ValueError: no berth"),
        ("collected 3 tests\nexit code: 1", "exit code: 1"),
        ('{"order": "A17", "rows": [{"crane": 17}, {"cra', "done"),
        ("[File: src/a.py (10 lines)]", "[File: src/a.py (10 lines)]"),
    ],
)
def test_the_outcome_is_the_first_telling_line(result, outcome):
    """JSON tells by its texts or its name, and of an error by what says why."""
    assert told(calls(("move_crane", {"order": "A17"}, result))) == [f"move_crane(order=A17): {outcome}"]


def test_arguments_are_told_by_their_values_the_short_ones_first():
    """The first argument stays the first, and nothing of JSON is left."""
    arguments = {
        "order": "A17",
        "note": "the crane waits " * 9,
        "stops": [{"at": "B2", "day": "Mon"}, "C3"],
        "fast": True,
    }

    assert told(calls(("move_crane", arguments, "moved"))) == [
        "move_crane(order=A17; stops=B2 Mon, C3; fast=true; note=the crane waits the crane waits the…): moved"
    ]
    made: tuple[tuple[str, Mapping[str, object] | str, str], ...]
    made = (("move_crane", {}, "moved"), ("lift", "crane 17", "lifted"), ("lower", '{"crane": "17', "lowered"))
    assert told(calls(*made)) == ["move_crane: moved", "lift(crane 17): lifted", "lower: lowered"]


def test_a_value_after_a_long_one_is_told():
    """A file's path may come after its text."""
    messages = calls(("write_file", {"text": "crane 17 waits. " * 999, "path": "src/QX17Z.py"}, "written"))

    assert "path=src/QX17Z.py" in told(messages)[0]


def test_secrets_of_calls_are_not_told():
    """The name of an argument shows one, or the form of a value, or a command."""
    arguments = {"user": "mia", "password": "harbour", "login": {"api_key": "k"}, "note": "sk-" + "A1b2C3d4" * 5}

    line = told(calls(("log_in", arguments, "password=hunter22 is accepted")))[0]

    assert line == "log_in(user=mia; note=[secret]): password=[secret] is accepted"
    assert told(calls(("bash", {"command": "mysql -u root -phunter22 shop"}, "fine"))) == ["bash: fine"]
    assert told(calls(("bash", {"command": "mysql shop"}, "try mysql -u root -phunter22"))) == [
        "bash(command=mysql shop): done"
    ]


def test_a_line_that_no_record_may_have_is_left_out():
    """An extract that had it would fail its checks, and the pass with it."""
    schema = '"properties": {"crane": 17}, "additionalProperties": false'

    assert told(calls(("post", {"title": "form", "body": schema.replace("; ", ", ")}, "posted"))) == []


async def test_a_value_that_json_writes_otherwise_does_not_count_as_invented():
    r"""`\u0031` is a 1 that no text of the message has."""
    escaped = calls(("move_crane", r'{"berth": "QX\u0031\u0037Z", "day": "Mon"}', "moved"))
    plain = calls(("move_crane", '{"berth": "QX17Z", "day": "Mon"}', "moved"))

    made = [await by_extraction().summarize(work_on(messages), Heard()) for messages in (escaped, plain)]

    assert [any(map(is_of_call, one.draft.key_points)) for one in made] == [False, True]
    assert [one.quality.unsupported_claims for one in made] == [0, 0]


async def test_lines_of_calls_pass_the_checks_of_a_record_and_the_next_one_carries_them_on():
    """The line keeps its messages, and is no sentence of the next narrative."""
    first = await by_extraction().summarize(work_on(calls(("pay_order", {"order": "A17"}, LOW))), Heard())
    point = next(filter(is_of_call, first.draft.key_points))
    at = first.draft.key_points.index(point)
    record = replace(
        record_of(Extract(first.draft.summary, tuple(first.draft.key_points), first.draft.context)),
        evidence=first.evidence,
    )

    second = await by_extraction().summarize(replace(work_on(PLANNING), previous=record), Heard())

    assert first.evidence.key_points[at] == (2, 3)
    assert second.draft.key_points.count(point) == 1
    assert second.evidence.key_points[second.draft.key_points.index(point)] == (2, 3)
    assert "called pay_order" not in second.draft.summary


def test_a_later_pass_leaves_out_a_failure_that_was_overcome():
    """The earlier record's line is read again."""
    earlier = recorded(extract_of(calls(("pay_order", {"order": "A17"}, LOW)), with_calls=True))

    assert told(list(PLANNING), previous=earlier) == [f"pay_order(order=A17): {LOW}"]
    assert told(calls(("pay_order", {"order": "A17"}, "paid")), previous=earlier) == ["pay_order(order=A17): paid"]


def test_where_room_is_short_the_newest_call_that_changes_something_is_told():
    """Old lines of an earlier record go first, and lines of calls never take most of the room."""
    looked = ("get_order", {"order": "Z99"}, "Error: no such order")
    made = [(f"pay_order_{n}", {"order": f"A{n}", "note": "the crane waits for it"}, LOW) for n in range(10, 30)]
    earlier = recorded(extract_of(calls(*made[:10]), with_calls=True, tokens_max=3_000))
    messages = calls(*made[10:], looked)
    numbers = [told(messages, previous=earlier, tokens_max=size) for size in (60, 300, 20_000)]

    assert numbers[0] == []
    assert [line.partition("(")[0] for line in numbers[1]] == ["pay_order_28", "pay_order_29"]
    assert len(numbers[2]) > 12
    assert f"get_order(order=Z99): {looked[2]}" in numbers[2]


def test_lines_of_calls_take_the_room_of_sentences():
    """A record with them is as large as one without."""
    text = "user: The alpha{0} and beta{0} reach gamma{0} near delta{0} and leave epsilon{0} to the zeta{0}."
    made = calls(*((f"pay_order_{n}", {"order": f"A{n}"}, LOW) for n in range(9)))

    def tokens(*, with_calls: bool) -> int:
        found = extract_of([*said(*map(text.format, range(99))), *made], tokens_max=600, with_calls=with_calls)
        return sum(map(EstimatingCounter().count, (found.summary, *found.key_points)))

    assert tokens(with_calls=True) <= tokens(with_calls=False)


def test_a_call_stays_told_when_its_value_holds_no_more():
    """The berth was closed on that day, whichever is to be used now."""
    line = "assistant: called move_crane(berth=B2): Error: closed on 2024-05-13"
    other = "The crane moves on 2024-05-13."
    messages = calls(("move_crane", {"berth": "B2"}, "Error: closed on 2024-05-13"))
    concordance = concordance_of(enumerate(messages, 1))

    found = judged({"key_points": [line, other]}, concordance, {line: (2, 3), other: (1,)}, {"2024-05-13": 3})

    assert found.outdated["key_points"] == {other}


def test_the_work_for_calls_grows_with_them_and_no_faster():
    """The calls may be many, or one of any length."""

    def made(size: int) -> list[Message]:
        return calls(*((f"pay_{n % 9}", {"order": f"A{n}", "card": f"c{n % 7}"}, LOW) for n in range(size // 400)))

    assert grows_linearly(told, made, size=400_000)
    assert grows_linearly(
        told, lambda size: calls(("pay", {"a": "(x; y): " * (size // 8)}, "]): " * size)), size=400_000
    )
