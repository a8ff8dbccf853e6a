"""`abridged append --file`: chats of a file, played into a real sidecar."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.command import abridged, on_terminal, served

LONG = "Deployment 4711 of billing/invoice_worker/claim.py at version v2.14.3 was rolled back to v2.14.2 by Jonas. "


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def play(sidecar, tmp_path):
    """Write lines into a file and play it."""

    def run(*lines, arguments=("--context-length", "1024")):
        path = tmp_path / "chats.jsonl"
        path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
        return abridged("append", "--file", str(path), *arguments, "--address", sidecar.address)

    return run


def chat(conversation: str, *contents: str, role: str = "user") -> dict[str, Any]:
    return {
        "conversation_id": conversation,
        "messages": [{"id": f"{conversation}-{n}", "role": role, "content": text} for n, text in enumerate(contents)],
    }


def long_chat(conversation: str, messages: int = 40) -> dict[str, Any]:
    return chat(conversation, *(f"{n}. {LONG * 2}" for n in range(messages)))


def test_a_file_ends_under_its_trigger_and_says_so(play):
    """A line for each conversation and one for all."""
    ran = play(long_chat("well"), chat("tiny", "hello"))
    first, second, total = ran.out.splitlines()

    assert ran.code == 0
    assert first.startswith("well: 40 messages (40 new), ratio 0.")
    assert first.endswith("below its trigger")
    assert second.startswith("tiny: 1 message (1 new), ratio 0.")
    assert second.endswith(", 0 passes, 0 records, below its trigger")
    assert total.startswith("total: 2 conversations, 41 messages, ")
    assert total.endswith("all well")


def test_a_file_played_again_appends_nothing(play):
    """Interrupted or not: ids make the second run a check."""
    play(long_chat("again", 20))

    longer = play(long_chat("again", 22))
    same = play(long_chat("again", 22))

    assert "again: 22 messages (2 new)" in longer.out
    assert "again: 22 messages (0 new)" in same.out


def test_messages_without_ids_are_found_again_too(play):
    """A message's place in the chat is its id."""
    nameless = {"conversation_id": "nameless", "messages": [{"role": "user", "content": text} for text in "abc"]}

    play(nameless)

    assert "nameless: 3 messages (0 new)" in play(nameless).out


def test_passes_come_while_the_chat_is_played_as_in_a_live_one(play):
    """Message by message, each pass awaited: the window never needs an emergency."""
    ran = play(long_chat("live"), arguments=("--context-length", "1024", "--json"))
    outcome = json.loads(ran.out)

    assert outcome["passes"] == outcome["records"] >= 3
    assert outcome["depth"] >= 0


def test_a_chat_with_a_message_that_is_refused_is_refused_whole(play, tmp_path):
    """File, line and id of each fault; nothing of such a chat is appended."""
    fine = {"id": "ok-1", "role": "user", "content": "hello"}
    formless = [{"id": "no-role", "role": "robot"}, {"id": "no-text", "role": "user", "content": {"type": "text"}}]
    calls = {"id": "calls", "role": "user", "content": "", "tool_calls": [{"id": "c", "name": "f", "arguments": {}}]}
    no_call = {"id": "no-call", "role": "tool", "content": "a result of nothing"}
    chats = [
        {"conversation_id": "formless", "messages": [fine, *formless]},
        {"conversation_id": "calls", "messages": [fine, calls]},
        {"conversation_id": "no-call", "messages": [fine, no_call]},
        {"conversation_id": "long", "messages": [fine, fine | {"id": "long", "content": "x" * 2_000_000}]},
        {"conversation_id": "no such id!", "messages": [fine]},
    ]

    ran = play("no JSON", {"messages": []}, *chats)
    place = str(tmp_path / "chats.jsonl")
    told = [line.removeprefix(place) for line in ran.err.splitlines() if line.startswith(place)]

    assert ran.code == 1
    assert [line[1:].split(": ", 2)[:2] for line in told[:-1]] == [
        ["1", "is not JSON"],
        ["2", "conversation_id is missing; skipped"],
        ["3", "no-role"],
        ["3", "no-text"],
        ["4", "calls"],
        ["5", "no-call"],
        ["6", "long"],
    ]
    assert told[5].startswith(":5: no-call: tool_call_id: a tool message names")
    assert told[-1].startswith(":7: conversation_id: must be 1 to 128 of")
    assert ran.out.count(": nothing appended\n") == len(chats)
    assert "abridged: chats.jsonl: 3 lines refused, 5 messages refused\n" in ran.err


def test_a_chat_that_is_wrapped_over_lines_is_told_the_form_once(play):
    """Each line has its fault, and what a line has to be stands at the end; one bad chat of many is not that."""
    wrapped = play(json.dumps(chat("wrapped", "hello"), indent=1))
    first = play("no JSON", chat("first", "hello"))

    assert wrapped.code == first.code == 1
    assert wrapped.err.count(": is not JSON: ") > 2
    assert wrapped.err.count("each line holds one chat") == 1
    assert "each line" not in first.err


@pytest.fixture
def to(sidecar):
    return ("--address", sidecar.address)


def test_what_context_prints_plays_back_whole(to, tmp_path):
    """The chat comes as JSON for an API, with all that the API knows, and as the contract's JSON."""
    call = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two", "x": [1]}]},
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t1", "content": "found", "vendor": {"score": 1.5}},
    ]
    source = tmp_path / "chat.json"
    source.write_text(json.dumps({"messages": messages}, indent=2))

    played = abridged("append", "played", "--file", str(source), *to)
    for name, form in (("back-rendered", "--render=openai"), ("back-json", "--json")):
        printed = tmp_path / f"{name}.json"
        printed.write_text(abridged("context", "played", "--original", form, *to).out)
        assert abridged("append", name, "--file", str(printed), *to).code == 0

    assert played.code == 0, played.err
    for name in ("played", "back-rendered", "back-json"):
        rendered = abridged("context", name, "--original", "--render", "openai", *to).out
        assert json.loads(rendered) == {"messages": messages}, name


def test_a_chat_of_anthropic_is_played_with_its_system_prompt(to, tmp_path):
    """The chat's blocks show its form, or --form does where a line has none."""
    thinking = [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, {"type": "text", "text": "Hello."}]
    chat = {
        "conversation_id": "told",
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": thinking}],
    }
    lines = tmp_path / "lines.jsonl"
    lines.write_text(json.dumps(chat))

    assert abridged("append", "--file", str(lines), *to).code == 0
    assert abridged("append", "--file", str(lines), "--form", "anthropic", "--prefix", "p-", *to).code == 0

    for name in ("told", "p-told"):
        rendered = json.loads(abridged("context", name, "--original", "--render", "anthropic", *to).out)
        assert rendered == {"system": chat["system"], "messages": chat["messages"]}


@pytest.mark.parametrize("path", ["/proc/self/mem", "/proc/self"])
def test_a_file_that_cannot_be_read_is_told_without_a_traceback(sidecar, path):
    """The path is a folder, or fails while it is read."""
    ran = abridged("append", "--file", path, "--address", sidecar.address)

    assert ran.code in (1, 2)
    assert "cannot be read: Input/output error" in ran.err or "is a directory" in ran.err


def test_lines_that_nobody_can_read_are_refused_one_by_one(sidecar, tmp_path):
    """Nesting, halves of characters, endless numbers, other encodings: each line by its number, the rest is played."""
    text = '{"conversation_id": "odd", "messages": [{"id": "%s", "role": "user", "content": %s}]}'
    bad = ("[" * 5_000, '"\\ud800"', "9" * 5_000, '"\xff"')
    lines = [*(text % (f"bad-{n}", value) for n, value in enumerate(bad)), text % ("good", '"hello"')]
    (tmp_path / "odd.jsonl").write_bytes("\n".join(lines).encode("latin-1"))

    ran = abridged("append", "--file", str(tmp_path / "odd.jsonl"), "--address", sidecar.address)

    assert [line.split(":")[1] for line in ran.err.splitlines() if ".jsonl:" in line and line[0] == "/"] == list("1234")
    assert "odd: 1 message (1 new)" in ran.out
    assert "abridged: odd.jsonl: 4 lines refused\n" in ran.err


def test_one_refusal_is_one(play):
    """Numbers agree with their nouns, and a chat that is refused has no depth, no ratio and no success."""
    robot = {"conversation_id": "robot", "messages": [{"role": "robot", "content": "?"}]}

    ran = play(robot)
    as_json = json.loads(play(robot, arguments=("--json",)).out)

    assert ran.code == 1
    assert ran.out == (
        "robot: nothing appended\ntotal: 1 conversation, 0 messages, 0 passes, 0 records; 1 message refused\n"
    )
    assert ran.err.splitlines()[-2] == "abridged: chats.jsonl: 1 message refused"
    assert not as_json["is_well"]


@pytest.mark.parametrize(
    ("lines", "says"),
    [((), "contains no chat"), (("", " "), "contains no chat"), ((chat("mute"),), "without a message")],
)
def test_a_file_with_nothing_in_it_is_not_well(play, lines, says):
    """The user who made the file expected otherwise."""
    ran = play(*lines)

    assert ran.code == 1
    assert says in ran.err
    assert "all well" not in ran.out


def test_the_form_that_the_help_shows_can_be_played(play):
    """The example is one of the tests."""
    shown = abridged("append", "--help").out
    example = shown[shown.index('{"conversation_id"') : shown.index("A message without")]

    ran = play(json.dumps(json.loads(example)))

    assert ran.code == 0, ran.err
    assert ran.out.startswith("demo-1: 3 messages (3 new)")


def test_a_file_played_with_other_settings_says_which_are_kept(play):
    """A second run with a larger context is no larger context."""
    play(chat("kept", "hello"))

    ran = play(chat("kept", "hello"), arguments=("--context-length", "4096"))

    assert ran.code == 0
    assert ran.err == "note: kept already exists and keeps its own --context-length (1024)\n"


def test_ids_and_texts_of_a_file_steer_no_terminal(play):
    """A file is somebody's text too."""
    hostile = "c\x1b[31m\x9b2J\u202e"
    bad = {"conversation_id": "bad", "messages": [{"id": hostile, "role": "robot"}, {"id": hostile, "role": "user"}]}

    for arguments in ((), ("--json",)):
        ran = play(chat(hostile, "hello"), bad, arguments=arguments)
        assert ran.code == 1
        assert not set("\x1b\x9b\u202e") & set(ran.out + ran.err)


def test_an_id_with_other_content_ends_its_chat(play):
    """The log keeps its version; the file's other one, and the messages behind it, are refused."""
    play(chat("changed", "first", "second"))

    ran = play(chat("changed", "first", "SECOND", "third"))

    assert ran.code == 1
    assert ":1: changed-1: the id was reused with different content" in ran.err
    assert "changed: 2 messages (0 new)" in ran.out


def test_what_cannot_be_compressed_is_irreducible_and_said_so(play):
    """A window of system messages is nobody's failure."""
    ran = play(chat("rules", *(LONG * 8 for _ in range(6)), role="system"))

    assert ran.code == 0
    assert "over its trigger, irreducible" in ran.out


def test_a_chat_that_ends_over_its_trigger_settles_and_fails_unsettled(play):
    """A live chat is well between its trigger and the next due pass; a finished one gets no more turns."""
    few = chat("few", *(f"{n}. {LONG * 3}" for n in range(9)))

    open_end = play(few, arguments=("--context-length", "1024", "--no-settle"))
    settled = play(few)

    assert open_end.code == 1
    assert "OVER its trigger (MIN_MESSAGES)" in open_end.out
    assert settled.code == 0
    assert "1 pass, 1 record, depth 0" in settled.out


def test_failed_passes_of_a_file_are_counted_by_class_and_fail_the_command(tmp_path):
    """A ROLLING window is below every ratio while its passes fail: nobody else would say so. A second run that causes
    no pass repeats no failure."""
    (tmp_path / "away.json").write_text('{"steps": [{"error": "refused"}]}')
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps(chat("rolling", *(f"{n}. {LONG}" for n in range(15)))) + "\n")
    rolling = ("policy.profile=rolling", "policy.threshold_messages=12", "policy.min_new_messages=4")

    with served(tmp_path, f"summarizer.models=scripted:{tmp_path / 'away.json'}", *rolling) as s:
        command = ("append", "--file", str(path), "--context-length", "100000", "--address", s.address)
        first, again = abridged(*command), abridged(*command)
        as_json = json.loads(abridged(*command, "--prefix", "other-", "--json").out)

    assert (first.code, again.code) == (1, 0), first.out
    assert "1 pass, 0 records, 1 pass FAILED (MODEL_REFUSED), below its trigger" in first.out
    assert "abridged: chats.jsonl: 1 pass FAILED (MODEL_REFUSED)\n" in first.err
    assert "`abridged summaries CONVERSATION` says why" in first.err
    assert again.out.endswith("all well\n")
    assert (as_json["failed"], as_json["errors"], as_json["is_well"]) == (1, ["MODEL_REFUSED"], False)


def test_a_terminal_sees_how_far_a_file_is(sidecar, tmp_path):
    """A bar with all messages of the file counted, gone when it is done."""
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps(long_chat("watched", 30)) + "\n")

    with on_terminal("append", "--file", str(path), "--address", sidecar.address) as terminal:
        screen = terminal.read_until("all well")

    assert "/30" in screen


def test_a_prefix_keeps_runs_apart(play):
    """The same file as another conversation."""
    ran = play(chat("one", "hello"), arguments=("--prefix", "second-run-"))

    assert ran.out.startswith("second-run-one: 1 message (1 new)")


def test_labels_and_settings_go_to_new_conversations(play, sidecar):
    """The options set them; the context shows the budget that they leave."""
    play(chat("settings", "hello"), arguments=("--context-length", "2000", "--reserved-output-tokens", "500"))

    assert "of 1,500 tokens" in abridged("context", "settings", "--address", sidecar.address).out
