"""Text that goes to a terminal, and figures as lines of text."""

from __future__ import annotations

import json

import click
import pytest
from google.protobuf.json_format import Parse
from hypothesis import given
from hypothesis import strategies as st

from abridged.client import SidecarError
from abridged.service.cli.context import context_lines
from abridged.service.cli.demo_show import success_figures
from abridged.service.cli.failures import CommandFailed, of_config_error, of_sidecar_error
from abridged.service.cli.figures import bar, pass_line, record_line, short, usage_line
from abridged.service.cli.main import main
from abridged.service.cli.plain_json import as_json, json_text, word
from abridged.service.cli.terminal import excerpt, marked, printable, program_name, say, say_text
from abridged.service.cli.watch import fact_line
from abridged.service.config.sources import ConfigError, Origin, Problem
from abridged.v1 import (
    conversation_pb2,
    conversation_service_pb2,
    event_pb2,
    message_pb2,
    summary_pb2,
)

CODES = (
    *range(9),
    *range(11, 32),
    *range(127, 160),
    0x61C,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
)
FORBIDDEN = frozenset(map(chr, CODES))
HOSTILE = "a\x1b[31m\x9b2J\x07\x7f\u202eb\u2066\u061c"
"""ESC, C1's CSI, BEL, DEL, and characters that turn the direction of writing."""


@pytest.mark.parametrize(
    ("identifier", "shown"),
    [("summary-0123456789abcdef", "0123456789a"), ("a1234567890", "a1234567"), ("0123456789", "0123456789")],
)
def test_a_short_id_is_no_number_of_a_message(identifier, shown):
    """`abridged expand` takes either: an id is shown up to its first letter."""
    assert short(identifier) == shown


@given(st.text())
def test_nothing_that_steers_a_terminal_is_printable(text):
    """A conversation may hold any text."""
    assert not FORBIDDEN & set(printable(text))
    assert not FORBIDDEN & set(printable("".join(FORBIDDEN) + text))


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_that_is_shown_steers_no_terminal_and_says_the_same(value):
    """The text is escaped, not replaced: a program reads it as it was stored."""
    shown = json_text([value, HOSTILE])

    assert not FORBIDDEN & set(shown)
    assert json.loads(shown) == [value, HOSTILE]


def test_whatever_a_command_tells_steers_no_terminal(capsys):
    """Output, complaints, and errors with texts of a sidecar and of settings in them."""
    say(HOSTILE)
    say(HOSTILE, is_error=True)
    CommandFailed(HOSTILE, hint=HOSTILE).show()
    error = SidecarError("INVALID_ARGUMENT", "INVALID_FIELD", "", metadata={}, violations=((HOSTILE, HOSTILE),))
    of_sidecar_error(error).show()
    of_config_error(ConfigError((Problem(HOSTILE, Origin("flag", HOSTILE), HOSTILE),))).show()
    written = capsys.readouterr()

    assert not FORBIDDEN & set(written.out + written.err)
    assert written.err.count("a\ufffd[31m") == 8


def test_no_text_begins_a_line_that_a_command_did_not_begin(capsys):
    """Names, labels and a server's words may have line ends; a text of several lines stands behind its indent."""
    forged = "x\nok    log: writable\r\n\u2028record 1\x85\x0bpass\ty"
    say(forged)
    say(forged, is_error=True)
    say_text(f"  {forged}", indent="  ")
    CommandFailed(forged, details=[forged], hint=forged).show()
    of_sidecar_error(SidecarError("NOT_FOUND", "", forged, metadata={"error_id": forged})).show()
    of_config_error(ConfigError((Problem(forged, Origin("flag", forged), forged),))).show()
    written = capsys.readouterr()

    # The text's one line, and its lines behind the indent.
    assert [line[:3] for line in written.out.splitlines()] == ["x\ufffdo", "  x", "  o", "  \ufffd"]
    assert len(written.err.splitlines()) == 7


@pytest.mark.parametrize("item", ["event", "unknown", "progress"])
def test_no_item_of_a_stream_steers_a_terminal(item, capsys):
    """Ids, names and types are texts of others too."""
    if item == "progress":
        hostile = conversation_service_pb2.PassProgress(summarization_id=HOSTILE, model=HOSTILE)
        answer = conversation_service_pb2.WatchConversationResponse(progress=hostile)
    else:
        opened = event_pb2.Event(type=HOSTILE, version=1)
        if item == "event":
            opened.type = "MessageAppended"
            message = message_pb2.Message(id=HOSTILE, name=HOSTILE, content=HOSTILE, role=message_pb2.ROLE_USER)
            opened.message_appended.message.CopyFrom(message)
            opened.schema_version = 1
        answer = conversation_service_pb2.WatchConversationResponse(event=opened)

    say(fact_line(answer, columns=200))
    say(as_json(answer))

    assert not FORBIDDEN & set(capsys.readouterr().out)


@pytest.mark.parametrize(("in_environment", "named"), [(True, "/bin dir/abridged'"), (False, "abridged")])
def test_a_program_of_a_virtual_environment_is_named_by_its_path(tmp_path, in_environment, named):
    """Another shell has not activated it; where it is installed for all, its name is enough."""
    script = tmp_path / "bin dir" / "abridged"
    script.parent.mkdir()
    script.touch()

    assert program_name(script, in_environment=in_environment).endswith(named)
    assert program_name(tmp_path / "none", in_environment=in_environment) == "abridged"


@given(st.text(), st.integers(1, 200))
def test_an_excerpt_is_one_line_within_its_width(text, chars_max):
    """Tables stay tables."""
    line = excerpt(text, chars_max=chars_max)

    assert len(line) <= chars_max
    assert "\n" not in line
    assert "\t" not in line


def test_an_excerpt_says_that_it_is_one():
    """Cut text ends in an ellipsis; whole text does not."""
    assert excerpt("one two three", chars_max=8) == "one two…"
    assert excerpt("one\n two", chars_max=8) == "one two"


@pytest.mark.parametrize(
    ("ratio", "drawn"), [(0.0, "[....]"), (0.5, "[##..]"), (1.0, "[####]"), (7.5, "[####]"), (-1.0, "[....]")]
)
def test_a_bar_is_full_at_one_and_never_longer(ratio, drawn):
    """Windows over their budget do not break the line."""
    assert bar(ratio, cells=4) == drawn


def test_usage_counts_what_the_caller_adds():
    """Window and overhead together fill the budget."""
    usage = conversation_pb2.TokenUsage(window_tokens=900, overhead_tokens=100, budget_tokens=2_000, ratio=0.5)

    assert usage_line(usage) == "ratio 0.50 [##########..........] 1,000 of 2,000 tokens"


def test_a_failed_pass_says_why():
    """Class and whether trying again helps."""
    failed = conversation_pb2.Summarization(
        id="abcdef0123456789",
        trigger=conversation_pb2.TRIGGER_EMERGENCY,
        state=conversation_pb2.SUMMARIZATION_STATE_FAILED,
        covered=[summary_pb2.MessageRange(first=1, last=9), summary_pb2.MessageRange(first=12, last=12)],
        token_ratio=1.25,
        error_class=conversation_pb2.ERROR_CLASS_TRANSPORT,
        retryable=True,
    )

    assert pass_line(failed) == (
        "pass abcdef01, failed, trigger emergency at 1.25, messages 1-9, 12, TRANSPORT, retryable"
    )


def test_a_skipped_pass_says_why():
    """The reason, in the contract's word."""
    skipped = conversation_pb2.Summarization(
        state=conversation_pb2.SUMMARIZATION_STATE_SKIPPED, skip_reason=conversation_pb2.SKIP_REASON_NO_GAIN
    )

    assert pass_line(skipped).endswith(", NO_GAIN")


def test_a_record_says_what_it_saved_and_who_made_it():
    """Ids without their prefix differ within eight characters."""
    record = summary_pb2.SummaryRecord(
        id="summary-abcdef0123",
        depth=2,
        covered=[summary_pb2.MessageRange(first=3, last=40)],
        tokens_before=2_500,
        tokens_after=400,
        provenance=summary_pb2.PROVENANCE_MODEL,
        model="ollama:qwen2.5:3b",
        attempts=1,
    )

    assert record_line(record) == (
        "record abcdef01: depth 2, messages 3-40, 2,500 -> 400 tokens, model, ollama:qwen2.5:3b, 1 model call"
    )


def test_a_first_word_is_coloured_on_a_terminal_alone(capsys):
    """A pipe gets the words; so does a terminal whose user wants no colour."""
    say("FAIL  sidecar", mark="red")

    assert capsys.readouterr().out == "FAIL  sidecar\n"
    assert marked("FAIL  sidecar", "red") == "\x1b[31mFAIL\x1b[0m  sidecar"
    assert marked("\x1b[2J x", "red") == "\x1b[31m\ufffd[2J\x1b[0m x"


def test_json_is_that_of_any_protobuf_library():
    """Canonical names and 64-bit numbers, with the fields that are empty, without those that are absent."""
    answer = conversation_service_pb2.GetContextResponse(
        messages=[conversation_service_pb2.ContextMessage(number=1, tokens=1 << 40)],
    )
    answer.messages[0].message.role = message_pb2.ROLE_ASSISTANT
    answer.messages[0].message.labels["team"] = "billing"
    answer.messages[0].message.create_time.FromJsonString("2026-03-12T14:07:00Z")

    plain = json.loads(as_json(answer))

    assert plain["messages"][0]["tokens"] == str(1 << 40)
    assert plain["messages"][0]["message"]["role"] == "ROLE_ASSISTANT"
    assert plain["messages"][0]["message"]["labels"] == {"team": "billing"}
    assert plain["messages"][0]["message"]["createTime"] == "2026-03-12T14:07:00Z"
    assert "tokenCount" not in plain["messages"][0]["message"]
    assert "usage" not in plain
    assert plain["summaryId"] == ""
    assert Parse(as_json(answer), type(answer)()) == answer


@pytest.mark.parametrize(
    ("over_limit", "held_by", "told"),
    [
        (True, conversation_pb2.HELD_BY_IRREDUCIBLE, "over its budget, held by IRREDUCIBLE"),
        (True, None, "over its budget"),
        (False, conversation_pb2.HELD_BY_COOLDOWN, "over its trigger, held by COOLDOWN"),
    ],
)
def test_a_window_that_is_too_full_says_so_below_it(over_limit, held_by, told):
    """The line below says which mark the window is over, and what holds it there."""
    answer = conversation_service_pb2.GetContextResponse(over_limit=over_limit, held_by=held_by)

    assert context_lines(answer, columns=80)[-1] == told


def test_an_enum_value_of_a_newer_version_is_a_number():
    """A newer sidecar does not break an older command line."""
    state = conversation_pb2.Summarization.FromString(b"\x18\x63")

    assert word(state, "state") == "99"
    assert json.loads(as_json(state))["state"] == 99


def test_success_figures_leave_skips_and_zeros_out():
    """The ratio is the one of the recording rule: success / (success + fallback + error)."""
    exposition = """\
# HELP abridged_summarizations_total passes
abridged_summarizations_total{outcome="success",trigger="ratio",model="m"} 3.0
abridged_summarizations_total{outcome="fallback",trigger="ratio",model="m"} 1.0
abridged_summarizations_total{outcome="skipped",trigger="ratio",model="m"} 5.0
abridged_summarizations_total{outcome="error",trigger="ratio",model="m"} 0.0
abridged_summarizations_pending 0.0
"""
    lines = success_figures(exposition)

    assert len(lines) == 4
    told = "success ratio 0.75 of 4 finished passes; 1 by extraction, which does not count as a success"
    assert lines[-1] == told
    assert success_figures("") == ["no pass has ended"]


OWN_OUTPUT = {
    "serve": "runs; its log may be JSON",
    "chat": "is for a person",
    "demo": "is for a person",
    "bench": "writes its figures to a file",
    "protos": "writes files",
    "log": "works on files while no sidecar runs; its export is JSON",
}
"""Commands without `--json`, and why."""


def test_every_command_that_answers_a_question_answers_programs_too():
    """`--json` everywhere but where a line says why not."""
    context = click.Context(main)
    without = {
        name
        for name in main.list_commands(context)
        if (command := main.get_command(context, name)) is not None
        for each in (command.commands.values() if isinstance(command, click.Group) else [command])
        if not any("--json" in parameter.opts for parameter in each.params)
    }

    assert without == OWN_OUTPUT.keys()
