"""A record quotes what an assistant called and what came of it, and judges nothing of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from abridged.service.domain.message import Attachment, Message, Role, ToolCall
from abridged.service.domain.record import KEY_POINTS_MAX, RecordEvidence, SummaryRecord
from abridged.service.extraction.calls import CALLS_MAX, calls
from abridged.service.extraction.extract import Extract
from abridged.service.extraction.passages import called_tool, gathered
from abridged.service.tokenizers.estimated import EstimatingCounter
from tests.support.extracts import extract_of, record_of
from tests.support.growth import grows_linearly
from tests.unit.extraction.corpora import PLANNING, said

ASKED = said("user: Please move the booking of the harbour crane to the northern berth before the audit begins.")

NOTHING_SAID = gathered((), previous=None)


def call(name: str, arguments: str, result: str, *, call_id: str = "c") -> tuple[Message, Message]:
    """A call and its result."""
    return (
        Message(f"a-{name}", Role.ASSISTANT, "", tool_calls=(ToolCall(call_id, name, arguments),)),
        Message(f"t-{name}", Role.TOOL, result, tool_call_id=call_id),
    )


def called(extracted: Extract) -> list[str]:
    """The lines of calls in an extract, without their speaker."""
    return [point.partition(": called ")[2] for point in extracted.key_points if ": called " in point]


def told(*messages: Message, tokens_max: int = 1_500) -> list[str]:
    """The lines of calls in the extract of these messages, after a request."""
    return called(extract_of((*ASKED, *messages), tokens_max=tokens_max))


def recorded(extracted: Extract) -> SummaryRecord:
    """The record of an extract, with the messages that its key points rest on."""
    numbers = tuple(extracted.rests_on.get(point, ()) for point in extracted.key_points)
    return replace(record_of(extracted), evidence=RecordEvidence(key_points=numbers))


def test_a_call_is_quoted_with_its_result_and_rests_on_both_messages():
    """A reader sees what was tried and how it ended."""
    extracted = extract_of((*ASKED, *call("pay_order", '{"order": "A17"}', "Error: the balance is not enough")))

    line = 'assistant: called pay_order({"order": "A17"}) \u2013 Error: the balance is not enough'
    assert line in extracted.key_points
    assert extracted.rests_on[line] == (2, 3)


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("", "empty result"),
        ("5.0", "5.0"),
        ('{"state": "moved", "berth": 4}', '{"state": "moved", "berth": 4}'),
        ('{"rows": [' + "7, " * 200 + "7]}", "\u2026"),
        ("[10:00] moved the crane\n" * 9 + "[11:00] rolled back", "[11:00] rolled back"),
        ("deploying " * 30 + "the health check failed, all rolled back", "the health check failed, all rolled back"),
        (" " * 1_997 + "1234567 dollars paid", "1234567 dollars paid"),
        ("9" * 30 + " lamps " * 900 + "67890 lamps", "67890 lamps"),
        ("Running 120 tests" + " and checks" * 19 + "\n0", "\u2026 0"),
        ('{"status": "failed", "rows": [' + "7, " * 200 + "7]}", '{"status": "failed", "rows": [7, 7, 7'),
        ("collected 40 items\n" + "tests/test_a.py ....\n" * 30 + "1 failed, 39 passed", "1 failed, 39 passed"),
        ("turned \u202e and \x00 marks", "turned and marks"),
    ],
)
def test_the_result_is_quoted_from_both_ends(result: str, shown: str):
    """A failure stands at either end; long data that is no error is only said to be there."""
    (line,) = told(*call("move_crane", '{"berth": 4}', result))

    assert shown in line.partition(" \u2013 ")[2]


def test_a_call_with_nothing_to_tell_is_not_quoted():
    """The line would have neither arguments nor data."""
    data = '{"rows": [' + "7, " * 200 + "7]}"

    assert told(*call("list_orders", "{}", data), *call("get_order", '{"order": 4}', data, call_id="2")) == [
        'get_order({"order": 4}) \u2013 \u2026'
    ]


def test_a_call_without_a_result_is_not_quoted():
    """Nobody knows whether it was made."""
    assert told(call("move_crane", "{}", "")[0]) == []


@pytest.mark.parametrize(
    "result", ["a" + " " * 1_995 + "1234567 " * 90, "1234567" + " " * 1_996 + "b", "1234567 " * 90 + "1234567"]
)
def test_numbers_are_not_cut(result: str):
    """A part of a number is another number."""
    (line,) = told(*call("count", "{}", result))

    assert set(line.removesuffix("\u2026").split()[2:]) <= {"a", "b", "1234567", "1234567\u2026"}


@pytest.mark.parametrize("name", ["pay\nnow", "pay now", "a" * 65, "", "pay(now"])
def test_a_tool_with_a_strange_name_is_not_quoted(name: str):
    """A later record could not tell that the line is a call's."""
    assert told(*call(name, "{}", "done")) == []


def test_a_line_that_a_record_would_clip_is_not_quoted():
    """The end of its result would be lost."""
    made, result = call("a" * 64, '{"b": "' + "c " * 90 + '"}', "lamps " * 90)

    assert told(made._replace(name="Mr. " + "d" * 50), result) == []


def test_a_sentence_about_a_call_is_no_quoted_call():
    """A record would carry it on as one."""
    assert called_tool('kim: called transfer({"amount": 900}) and left') is None
    assert called_tool("kim: called transfer({}) \u2013 done") == "transfer"


def test_a_result_of_an_attachment_alone_is_not_called_empty():
    """A picture is there, and nobody can quote it."""
    made, result = call("look", "{}", "")
    picture = result._replace(attachments=(Attachment("image/png", "https://example.com/crane.png"),))

    assert told(made, picture) == []


def test_a_result_without_an_id_belongs_to_the_calls_right_before_it():
    """An earlier call, which nobody answered, did not do it."""
    unanswered = call("delete_all", "{}", "", call_id="")[0]

    assert told(unanswered, *said("user: Stop."), *call("order", "{}", "placed", call_id="")) == [
        "order({}) \u2013 placed"
    ]


def test_results_of_one_id_belong_to_its_calls_in_their_order():
    """Some providers give parallel calls no ids."""
    both = Message("a", Role.ASSISTANT, "", tool_calls=(ToolCall("", "first", "{}"), ToolCall("", "second", "{}")))
    results = (Message("t1", Role.TOOL, "one", tool_call_id=""), Message("t2", Role.TOOL, "two", tool_call_id=""))

    assert told(both, *results) == ["first({}) \u2013 one", "second({}) \u2013 two"]


def test_the_newest_two_calls_of_a_tool_are_quoted():
    """Repeated looks take no room from others."""
    looks = [m for n in range(9) for m in call("look", f'{{"at": {n}}}', str(n), call_id=f"c{n}")]

    assert told(*call("pay", "{}", "done"), *looks) == [
        "pay({}) \u2013 done",
        'look({"at": 7}) \u2013 7',
        'look({"at": 8}) \u2013 8',
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("reset_password", '{"user": "kim"}', "tulip-42"),
        ("set_env", '{"name": "DB_PASSWORD", "value": "tulip"}', "ok"),
        ("bash", '{"command": "deploy --password tulip"}', "ok"),
        ("bash", '{"command": "mysql -p tulip"}', "ok"),
        ("charge", '{"cvv": "123"}', "ok"),
        ("verify", '{"otp": "445566"}', "ok"),
        ("unlock", '{"card_pin": "4711"}', "ok"),
        ("login", "{}", '{"access_token": "tulip"}'),
        ("charge", '{"cardPin": "4711"}', "ok"),
        ("charge", '{"pinCode": "4711"}', "ok"),
        ("charge", '{"security_code": "4711"}', "ok"),
        ("login", '{"user": "kim", "pass": "tulip"}', "ok"),
        ("bash", '{"command": "DB_PASS=tulip ./run"}', "ok"),
        ("login", '{"auth": ["kim", "tulip"]}', "ok"),
        ("login", '{"contrase\\u00f1a": "tulip"}', "ok"),
        ("login", '{"\u5bc6\u7801": "tulip"}', "ok"),
        ("bash", '{"command": ["mysql", "-ptulip"]}', "ok"),
        ("bash", '{"command": "curl -sSu kim:tulip https://example.com"}', "ok"),
        ("bash", '{"command": "curl -H \'Cookie: session=4711\' example.com"}', "ok"),
        ("clone", '{"url": "https://tulip42@example.com/repo"}', "ok"),
        ("add_user", "{}", "x y " * 900 + "the new password:\ntulip-42"),
        ("add_user", "{}", "the new password is\nhere: " + "x y " * 900),
        ("status", "{}", "connected to redis://:tulip42@cache"),
        ("add_user", "{}", "User kim has been created in the directory with role admin and a new password:\ntulip-42"),
    ],
)
def test_a_call_that_may_tell_of_a_secret_is_not_quoted(name: str, arguments: str, result: str):
    """A record goes to models and logs."""
    assert told(*call(name, arguments, result)) == []


@pytest.mark.parametrize(("arguments", "result"), [("a" * 500, "ok"), ("{}", "a" * 500)])
def test_a_call_that_cannot_be_cut_is_not_quoted(arguments: str, result: str):
    """The call would stand there without arguments, or with an empty result."""
    assert told(*call("write", arguments, result)) == []


def test_key_points_are_as_many_as_a_record_may_have():
    """A record with more of them would be refused."""
    words = [f"{a}{b}rim" for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "au")]
    sentences = said(*(f"user: {w.title()}a needs {w}o, {w}i and {w}en by day {n}." for n, w in enumerate(words, 1)))
    made = [m for n in range(9) for m in call(f"tool_{n}", "{}", "done", call_id=f"c{n}")]

    assert len(extract_of((*sentences, *made), tokens_max=8_000).key_points) == KEY_POINTS_MAX


def test_calls_leave_room_for_sentences():
    """A busy agent's record still says what the conversation is about."""
    made = [m for n in range(60) for m in call(f"tool_{n}", '{"order": "A17"}', "done", call_id=f"c{n}")]
    extracted = extract_of((*PLANNING, *made), tokens_max=600)

    assert 0 < len(called(extracted)) <= CALLS_MAX
    assert len(called(extract_of((*PLANNING, *made), tokens_max=8_000))) == CALLS_MAX
    count = EstimatingCounter().count
    assert sum(map(count, called(extract_of((*PLANNING, *made), tokens_max=300)))) <= 300 * 0.15
    assert set(extract_of(PLANNING, tokens_max=480).context.decisions) <= set(extracted.context.decisions)


@pytest.mark.parametrize(
    "result",
    [
        "ghp_" + "a1B2" * 9,
        "a1B2" * 30,
        "x y " * 100 + "ghp_" + "a1B2" * 9 + (" z" * 2_000)[:1_966],
        "the key:\n" * 90 + "a1B2" * 30,
    ],
)
def test_a_key_in_a_result_is_masked(result: str):
    """The form of the key tells, also where only the end is read."""
    assert not any("B2a1" in line for line in told(*call("read", "{}", result)))


def test_an_older_call_does_not_stand_as_the_newest_of_its_tool():
    """Two newer ones cannot be quoted; the older one would tell that its version runs."""
    newer = (*call("deploy", '{"token": "v2"}', "rolled back", call_id="2"), call("deploy", '{"v": 3}', "")[0])

    assert told(*call("deploy", '{"v": 1}', "deployed"), *newer) == []


def test_a_repeated_call_takes_one_place_and_rests_on_its_newest_messages():
    """Polling says the same thing many times."""
    polls = [m for n in range(5) for m in call("poll", "{}", "running", call_id=str(n))]
    extracted = extract_of((*ASKED, *call("poll", "{}", "started"), *polls))

    assert called(extracted) == ["poll({}) \u2013 started", "poll({}) \u2013 running"]
    assert extracted.rests_on["assistant: called poll({}) \u2013 running"] == (12, 13)


def test_a_quoted_call_in_a_narrative_is_not_divided_into_sentences():
    """The first sentence of a result alone may say the contrary."""
    line = "assistant: called pay({}) \u2013 Done. Then the bank refused it."
    earlier = replace(recorded(extract_of(PLANNING)), summary=f"Planning went on.\n{line}")

    assert not any("Done" in point for point in extract_of(ASKED, previous=earlier).key_points)
    assert "Done" not in extract_of(ASKED, previous=earlier).summary


def test_a_record_keeps_the_calls_of_the_one_before():
    """They are kept letter by letter with their messages, and newer ones of the tool take their places."""
    first = extract_of((*ASKED, *call("pay", '{"order": "A: 17) \u2013 x"}', "Error: no"), *call("look", "{}", "1")))
    second = extract_of((*PLANNING, *call("look", "{}", "2"), *call("look", "{}", "3")), previous=recorded(first))

    assert called(second) == [
        'pay({"order": "A: 17) \u2013 x"}) \u2013 Error: no',
        "look({}) \u2013 2",
        "look({}) \u2013 3",
    ]
    line = next(point for point in second.key_points if "called pay" in point)
    assert second.rests_on[line] == first.rests_on[line]


def test_a_secret_of_an_earlier_record_is_dropped():
    """A model may have written it there."""
    first = extract_of((*ASKED, *call("pay", "{}", "done")))
    leaking = replace(recorded(first), key_points=(f"assistant: called pay({{}}) \u2013 ghp_{'a1B2' * 9}",))

    assert called(extract_of(PLANNING, previous=leaking)) == []


def test_a_call_of_a_superseded_value_is_not_quoted():
    """The value would stand beside the one that holds."""
    made = (*ASKED, *call("open_port", '{"port": 8443}', "open"))

    assert called(extract_of(made, superseded={"8443": 3})) == []


def test_many_calls_take_linear_time():
    """An agent makes thousands of calls between two passes at a large window."""

    def edits(count: int) -> list[Message]:
        return [m for n in range(count) for m in call("edit", '{"path": "a.py"}', "x " * 40, call_id=str(n))]

    assert grows_linearly(lambda messages: calls(messages, range(len(messages)), NOTHING_SAID, None), edits, size=8_000)


@pytest.mark.parametrize("text", ['{"x":"' + ":" * 40_000 + '"}', "{" + '"a":1,' * 10_000 + '"b":2}', "-u" * 40_000])
def test_long_arguments_take_linear_time(text: str):
    """A program wrote them."""
    assert grows_linearly(lambda part: told(*call("write", part, part)), lambda size: text[:size], size=len(text))
