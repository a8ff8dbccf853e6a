"""The commands of a client, against a sidecar that `abridged serve` runs."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.command import ROOT, abridged, abridged_process, on_terminal, served
from tests.support.sidecar import ANY_DRAFT

SENTENCE = (
    "The invoice worker v2.14.3 in billing/invoice_worker/claim.py keeps its transaction open, ticket BILL-33{n:02}. "
)


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def cli(sidecar):
    """Run a command against the sidecar."""

    def run(command, *arguments, stdin=""):
        return abridged(command, *arguments, "--address", sidecar.address, stdin=stdin)

    return run


def chat_line(conversation: str, messages: int = 30) -> str:
    """A line of a file: a chat that needs a pass in 1,024 tokens."""
    return json.dumps(
        {
            "conversation_id": conversation,
            "messages": [
                {
                    "id": f"m{n}",
                    "role": "assistant" if n % 2 else "user",
                    "content": SENTENCE.format(n=n) * 2 + f"Step {n} is done.",
                }
                for n in range(messages)
            ],
        }
    )


@pytest.fixture(scope="module")
def summarized(sidecar, tmp_path_factory):
    """A conversation that has records."""
    path = tmp_path_factory.mktemp("chats") / "chat.jsonl"
    path.write_text(chat_line("summarized") + "\n")
    ran = abridged("append", "--file", str(path), "--context-length", "1024", "--address", sidecar.address)
    assert ran.code == 0, ran.err
    return "summarized"


def test_an_append_answers_number_and_ratio(cli):
    """A person reads all that matters after an append in two lines."""
    ran = cli("append", "first", "My invoice EU-118204 has no lines.", "--context-length", "1000")

    assert ran.code == 0
    assert re.fullmatch(r"message 1\nratio 0\.0\d \[\.{20}\] \d+ of 1,000 tokens\n", ran.out)


def test_a_repeated_id_appends_nothing(cli):
    """The same id with the same text is known; with another text it is refused."""
    cli("append", "repeats", "once", "--id", "m1")

    again = cli("append", "repeats", "once", "--id", "m1")
    other = cli("append", "repeats", "twice", "--id", "m1")

    assert again.out.startswith("message 1 (already known)\n")
    assert (other.code, other.err.splitlines()[0][:52]) == (1, "abridged: MESSAGE_ID_REUSED: the message id m1 was u")


def test_a_refused_field_stands_before_a_colon(cli):
    """The rules are clauses of their own, or go on after the field's name."""
    ran = cli("append", "tools", "41 C", "--role", "tool")

    assert ran.err.startswith("abridged: INVALID_FIELD: messages[0].tool_call_id: a tool message names the call")


def test_text_can_come_from_standard_input(cli):
    """`command | abridged append CONVERSATION`, with JSON for the next program."""
    ran = cli("append", "piped", "-", "--json", "--label", "team=billing", stdin="from a pipe\n")

    assert ran.code == 0
    assert json.loads(ran.out)["messages"][0]["number"] == "1"
    assert "from a pipe" in cli("context", "piped").out


def test_a_context_names_the_speakers_and_what_it_costs(cli, summarized):
    """The summary first, then the tail, then the ratio."""
    lines = cli("context", summarized).out.splitlines()

    assert "system summary-depth:" in lines[0]
    assert lines[-2].split()[2] == "assistant:"
    assert lines[-1].startswith("ratio 0.")


@pytest.mark.parametrize("rendering", ["openai", "anthropic", "ollama"])
def test_a_context_is_rendered_for_chat_apis(cli, summarized, rendering):
    """The output is the JSON that goes into the request."""
    ran = cli("context", summarized, "--render", rendering)

    assert ran.code == 0
    assert json.loads(ran.out)["messages"][-1]["content"]


def test_the_original_messages_are_never_lost(cli, summarized):
    """The view has all thirty, whatever the window holds."""
    original = json.loads(cli("context", summarized, "--original", "--json").out)

    assert [m["message"]["id"] for m in original["messages"]] == [f"m{n}" for n in range(30)]


def test_a_window_too_large_is_refused_or_clipped(cli, summarized):
    """The command drops nothing silently: the refusal says what to do."""
    tokens = json.loads(cli("context", summarized, "--json").out)["usage"]["windowTokens"]
    refused = cli("context", summarized, "--max-tokens", str(int(tokens) - 10))
    clipped = cli("context", summarized, "--max-tokens", str(int(tokens) - 10), "--clip")

    assert refused.code == 1
    assert "WINDOW_TOO_LARGE" in refused.err
    assert "--clip" in refused.err
    assert clipped.code == 0
    assert " clipped: " in clipped.out


def test_a_window_that_clipping_does_not_save_is_not_told_to_clip(cli, summarized):
    """The hint is about the option that was typed."""
    ran = cli("context", summarized, "--max-tokens", "5", "--clip")

    assert ran.code == 1
    assert "WINDOW_TOO_LARGE" in ran.err
    assert "--clip" not in ran.err
    assert "allow more tokens" in ran.err


def test_settings_that_a_conversation_does_not_take_are_named(cli):
    """The conversation keeps the settings of its first append; a setting that is the same is no news."""
    cli("append", "keeps", "first", "--context-length", "2000", "--model", "ollama:a", "--label", "team=billing")

    same = cli("append", "keeps", "second", "--context-length", "2000", "--label", "team=billing")
    other = cli("append", "keeps", "third", "--context-length", "4000", "--model", "b", "--label", "team=x", "--json")

    assert same.err == ""
    assert other.err == (
        "note: keeps already exists and keeps its own --model (ollama:a), --context-length (2000), --label team\n"
    )
    assert json.loads(other.out)["messages"][0]["number"] == "3"


@pytest.mark.parametrize(
    "option",
    [("--role", "user"), ("--name", "Jonas"), ("--id", "m1"), ("--tool-call-id", "call-1")],
)
def test_what_is_said_of_one_message_is_refused_with_a_file(cli, tmp_path, option):
    """The option would count for none of the file's messages, not even for those that have its value by default."""
    path = tmp_path / "chats.jsonl"
    path.write_text(chat_line("unplayed", 1) + "\n")

    ran = cli("append", "--file", str(path), *option)

    assert ran.code == 2
    assert f"{option[0]}: not allowed with --file" in ran.err
    assert cli("context", "unplayed").code == 1


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        (("--prefix", "run-"), "--prefix"),
        (("--batch", "1"), "--batch"),
        (("--settle",), "--settle/--no-settle"),
        (("--no-settle",), "--settle/--no-settle"),
    ],
)
def test_what_is_said_of_a_file_is_refused_without_one(cli, option, shown):
    """A prefix that is silently left out is a message in the wrong conversation."""
    ran = cli("append", "unprefixed", "hello", *option)

    assert ran.code == 2
    assert f"{shown}: only with --file" in ran.err
    assert cli("context", "unprefixed").code == 1


@pytest.mark.parametrize("arguments", [("",), (" \n",), ("-",), ()])
def test_nothing_is_not_appended(cli, arguments):
    """An empty pipe is a mistake of whoever made it, and the conversation is not opened."""
    ran = cli("append", "nothing", *arguments)

    assert ran.code == 2
    assert "nothing to append" in ran.err
    assert cli("context", "nothing").code == 1


def test_the_http_port_is_told_from_nobody(sidecar):
    """The two ports are neighbours, and easily mixed up."""
    ran = abridged("context", "c", "--address", sidecar.http_address)

    assert ran.code == 1
    assert f"{sidecar.http_address} is an HTTP port" in ran.err
    assert "server.listen" in ran.err
    assert "abridged serve" not in ran.err


def test_records_are_shown_and_printed_as_json(cli, summarized):
    """A person sees the tokens saved, and a program sees every field."""
    shown = cli("summaries", summarized)
    records = [json.loads(line) for line in cli("summaries", summarized, "--json").out.splitlines()]

    assert re.search(r"record \w{8,}: depth \d, messages .*, [\d,]+ -> \d+ tokens, extractive", shown.out)
    assert len(records) >= 1
    assert int(records[0]["tokensAfter"]) < int(records[0]["tokensBefore"])
    assert records[0]["context"]["participants"]


def test_a_conversation_without_records_says_so(cli):
    """An empty answer is no silence."""
    cli("append", "short", "hello")

    assert cli("summaries", "short").out == "no records yet\n"


def test_what_happened_is_told_event_by_event(cli, summarized):
    """Lines go from the opening over trigger, pass and record to the last message."""
    lines = cli("watch", summarized, "--no-follow").out.splitlines()

    assert lines[0].split(maxsplit=1)[1].startswith("opened: context length 1,024")
    assert any("requested: ratio at 0." in line for line in lines)
    assert any("completed: record" in line for line in lines)
    assert lines[-1].strip() == "= caught up"


def test_what_happened_is_told_to_programs_with_payloads(cli, summarized):
    """JSON lines hold the stored payloads as objects, from the version that was asked for."""
    items = [json.loads(line) for line in cli("watch", summarized, "--no-follow", "--json").out.splitlines()]
    events = [item["event"] for item in items if "event" in item]
    later = cli("watch", summarized, "--no-follow", "--json", "--after", str(len(events) - 1)).out.splitlines()

    assert [int(event["version"]) for event in events] == list(range(1, len(events) + 1))
    assert events[1]["messageAppended"]["message"]["id"] == "m0"
    assert json.loads(later[0])["event"]["version"] == str(len(events))


def test_an_unknown_conversation_is_a_line_with_advice(cli):
    """The line has the reason first, then the remedy; no traceback."""
    for command in ("context", "summaries", "watch"):
        ran = cli(command, "nobody-ever")
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("abridged: CONVERSATION_NOT_FOUND: ")
        assert len(ran.err.splitlines()) == 2


def test_a_field_that_breaks_a_rule_is_named(cli):
    """The contract's own words, with the field."""
    ran = cli("append", "c", "text", "--role", "tool")

    assert ran.code == 1
    assert "INVALID_FIELD: messages[0]" in ran.err


def test_nobody_at_the_address_says_how_to_start_one():
    """The most frequent mistake gets the most useful line."""
    ran = abridged("context", "c", "--address", "127.0.0.1:1")

    assert ran.code == 1
    assert "127.0.0.1:1: nobody answers" in ran.err
    assert "abridged serve" in ran.err


def test_text_of_a_conversation_does_not_steer_the_terminal(cli):
    """Escape sequences and direction marks come out as marks."""
    hostile = "red \x1b[31m alert \x07 \x9b2J \u202e backwards"
    cli("append", "escape", hostile, "--name", "eve")

    for command in (
        ("context", "escape"),
        ("context", "escape", "--json"),
        ("context", "escape", "--render", "openai"),
        ("watch", "escape", "--no-follow"),
        ("watch", "escape", "--no-follow", "--json"),
        ("context", hostile),
        ("summaries", hostile),
        ("append", hostile, "text"),
        ("append", "escape", "text", "--name", hostile),
        ("append", "escape", "text", "--label", hostile),
        ("context", "escape", "--set", hostile),
        ("context", "escape", "--set", f"{hostile}=1"),
    ):
        ran = cli(*command)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", ran.out + ran.err), command


def test_a_record_of_a_model_cannot_forge_a_line(tmp_path):
    """Lines that a model wrote stand behind its mark, however many they are."""
    forged = "told\nrecord forged: depth none\r\nok    forged"
    record = {"summary": forged, "key_points": [forged], "decisions": [forged]}
    (tmp_path / "script.json").write_text(json.dumps({"context_length": 8_192, "steps": [{"record": record}]}))
    floors = (f"{name}={value}" for name, value in ANY_DRAFT.items())
    with served(tmp_path, f"summarizer.models=scripted:{tmp_path / 'script.json'}", *floors) as sidecar:
        (tmp_path / "chat.jsonl").write_text(chat_line("forged"))
        abridged(
            "append",
            "--file",
            str(tmp_path / "chat.jsonl"),
            "--context-length",
            "1024",
            "--address",
            sidecar.address,
        )
        lines = abridged("summaries", "forged", "--address", sidecar.address).out.splitlines()

    assert {"  told", "  ok    forged"} <= set(lines)
    assert not [line for line in lines if line.startswith(("record forged", "ok"))]


def test_the_text_of_json_is_escaped_and_not_lost(cli):
    """A program reads exactly the text that was appended."""
    cli("append", "exact", "\x1b[31m\x9b2J\u202e")

    (entry,) = json.loads(cli("context", "exact", "--json").out)["messages"]

    assert entry["message"]["content"] == "\x1b[31m\x9b2J\u202e"


@pytest.mark.parametrize(
    "arguments",
    [
        ("append",),
        ("append", "c", "text", "--file", __file__),
        ("append", "c", "text", "--label", "nothing"),
        ("context", "c", "--clip"),
        ("context",),
        ("chat", "--set", "summarizer.models=extractive:default"),
        ("nonsense",),
        ("--set", "nonsense", "config", "check"),
        ("context", "c", "--set", "policy.trigger_token_ratio=0.5"),
    ],
)
def test_wrong_usage_ends_with_two(arguments):
    """Scripts can tell misuse from failure."""
    assert abridged(*arguments).code == 2


def test_a_setting_of_the_sidecar_changes_nothing_in_a_call_and_is_refused(cli):
    """The settings by which a command reaches a sidecar are taken."""
    cli("append", "set", "Why?")

    refused = cli("context", "set", "--set", "policy.trigger_token_ratio=0.5")
    taken = cli("context", "set", "--set", "client.deadline_s=9")

    assert (refused.code, taken.code) == (2, 0)
    assert "--set policy.trigger_token_ratio changes nothing here: the sidecar has its own settings" in refused.err


def test_a_pass_that_finds_too_little_says_how_much_it_takes(cli):
    """The message of the call alone reads as if the window were empty."""
    cli("append", "little", "Why?")

    ran = cli("compress", "little")

    assert ran.code == 1
    assert "policy.min_range_tokens" in ran.err


def test_a_history_branches_from_the_command_line(cli):
    """Another answer in one call, and a way of its own from an earlier message."""
    cli("append", "tree", "Why?")
    cli("append", "tree", "Because.", "--role", "assistant")
    cli("append", "tree", "It depends.", "--role", "assistant", "--replace-after", "1")

    assert cli("fork", "tree", "branch", "--at", "2").out.startswith("forked at message 2\n")
    assert cli("fork", "tree", "branch").out.startswith("branch was forked before, and is at message 2\n")
    assert "Because." in cli("context", "branch").out
    assert "Because." not in cli("context", "tree").out
    assert "CONVERSATION_EXISTS" in cli("fork", "branch", "tree").err
    assert "forked from tree at message 2" in cli("watch", "branch", "--no-follow").out


def test_a_window_is_repaired_from_the_command_line(cli, summarized):
    """Summaries are named as `summaries` prints them, or as ids begin; messages by their numbers."""
    (*_, record) = re.findall(r"record (\w+):", cli("summaries", summarized).out)

    assert re.match(r" +1 +\d+  user: The invoice worker", cli("expand", summarized, record).out)
    assert cli("expand", summarized, f"summary-{record}").out == cli("expand", summarized, record).out
    assert "SUMMARY_NOT_FOUND" in cli("expand", summarized, f"summary-{record[:-1]}").err
    assert cli("expand", summarized, "3-4").out.count("\n") == 2
    assert re.match(
        r" +3 +\d+  \(too large for a page\)\n +4 ", cli("expand", summarized, "3-4", "--max-tokens", "1").out
    )
    assert cli("rate", summarized, f"summary-{record}", "good").out == "rated good\n"
    assert cli("rate", summarized, record, "bad", "--comment", "no ticket").out == "rated bad\n"
    assert cli("pin", summarized, "2").out.startswith("pinned: 2\n")
    assert cli("pin", summarized, "2", "--remove").out.startswith("pinned: none\n")
    assert cli("revoke", summarized, record).out.startswith(f"revoked {record}")
    assert re.search(rf"record {record}: .*, revoked\n", cli("summaries", summarized).out)
    assert record not in cli("summaries", summarized, "--json").out
    assert cli("rewind", summarized, "10").out.startswith("rewound to message 10: 20 messages removed\n")
    assert cli("rewind", summarized, "9").out.startswith("rewound to message 9: 1 message removed\n")
    assert cli("rewind", summarized, "9").out.startswith("rewound to message 9: 0 messages removed\n")
    assert cli("rewind", summarized, "31").code == 1
    assert cli("close", summarized).out.startswith("closed\n")
    assert "closed" in cli("pin", summarized, "2").err
    assert cli("reopen", summarized).out.startswith("reopened\n")


def test_standing_rules_are_listed_and_dropped(cli):
    """A conversation without any says so."""
    rule = "Please never send the customers a mail without asking me first."
    cli("append", "rules", rule)
    cli("append", "rules", "Understood.", "--role", "assistant")

    assert cli("rules", "rules").out == f"message 1: standing, in the window\n  {rule}\n"
    assert '"number": "1"' in cli("rules", "rules", "--json").out
    assert cli("rules", "rules", "--drop", "1").out == f"message 1: dropped\n  {rule}\n"
    assert cli("rules", "rules").out == f"message 1: dropped\n  {rule}\n"
    assert "RULE_NOT_FOUND" in cli("rules", "rules", "--drop", "2").err
    cli("append", "no-rules", "Hello.")
    assert cli("rules", "no-rules").out == "no rules yet\n"


@pytest.mark.parametrize("named", ["summary-depth:1", "summary-0123", "nothing"])
def test_an_unknown_summary_says_which_ids_there_are_and_where_to_see_them(cli, summarized, named):
    """The mark `summary-depth:1` of a context looks like an id without being one."""
    expanded = cli("expand", summarized, named)
    rated = cli("rate", summarized, named, "good")
    revoked = cli("revoke", summarized, named)

    assert (expanded.code, rated.code, revoked.code) == (1, 1, 1)
    for ran in (expanded, rated, revoked):
        assert f"  name a summary by the id that `abridged summaries {summarized}` prints after `record`" in ran.err
    assert ", or messages by their numbers, such as 12 or 12-20" in expanded.err
    assert "messages by their numbers" not in rated.err + revoked.err


def test_an_unknown_message_number_says_where_to_see_the_numbers(cli, summarized):
    """A hint follows the refusal."""
    ran = cli("expand", summarized, "900")

    assert (ran.code, "MESSAGE_NOT_FOUND" in ran.err) == (1, True)
    assert f"  `abridged context {summarized} --original` shows the numbers" in ran.err


def test_a_range_past_the_newest_message_shows_those_that_exist(cli):
    """The command says where the range ends, and refuses one that begins past that."""
    for text in ("one", "two"):
        cli("append", "range", text)
    ran = cli("expand", "range", "1-9")
    beyond = cli("expand", "range", "3-9")

    assert (ran.code, ran.err) == (0, "(2 is the newest message of range that is left up to 9)\n")
    assert [text in ran.out for text in ("one", "two")] == [True, True]
    assert (beyond.code, "MESSAGE_NOT_FOUND" in beyond.err) == (1, True)


@pytest.mark.parametrize(
    ("typed", "meant"), [("contxt", "context"), ("serv", "serve"), ("conversation", "conversations")]
)
def test_a_command_that_is_nearly_one_is_named(cli, typed, meant):
    """One that is like none is not guessed."""
    ran = cli(typed)
    other = cli("xyzzy")

    assert (ran.code, f"No such command '{typed}'; did you mean {meant}?" in ran.err) == (2, True)
    assert "did you mean" not in other.err


def test_a_shell_completes_commands():
    """The commands are those of docs/first-steps.md."""
    script = abridged_process(environ={"_ABRIDGED_COMPLETE": "bash_source"})
    asked = {"_ABRIDGED_COMPLETE": "bash_complete", "COMP_WORDS": "abridged con", "COMP_CWORD": "1"}
    found = abridged_process(environ=asked)

    assert "_abridged_completion" in script.out
    assert found.out.splitlines() == ["plain,conversations", "plain,context", "plain,config"]
    assert "_ABRIDGED_COMPLETE=bash_source" in (ROOT / "docs" / "first-steps.md").read_text(encoding="utf-8")


def test_a_message_that_is_too_large_says_the_next_step(sidecar, cli, tmp_path):
    """Alone, from a file, and as a call of many; the limits are the sidecar's settings."""
    alone = cli("append", "large", "-", stdin="x" * 300_000)
    path = tmp_path / "large.jsonl"
    messages = [{"role": "user", "content": "x" * size} for size in (300_000, *(250_000,) * 5)]
    path.write_text(json.dumps({"conversation_id": "large-file", "messages": messages[:1]}) + "\n")
    filed = cli("append", "--file", str(path))
    path.write_text(json.dumps({"conversation_id": "large-call", "messages": messages[1:]}) + "\n")
    together = cli("append", "--file", str(path), "--batch", "5")

    for ran in (alone, filed, together):
        assert ran.code == 1
        assert "the limit is" in ran.err
        assert "server.message_bytes_max (one message)" in ran.err
        assert "--batch" in ran.err


def test_an_expanded_message_is_whole_for_a_pipe_and_says_on_a_terminal_that_it_is_cut(sidecar, cli):
    """A line of a terminal has no room for it; a file has."""
    text = f"{'word ' * 60}\nthe last line"
    cli("append", "long-text", text)

    piped = cli("expand", "long-text", "1").out
    with on_terminal("expand", "long-text", "1", "--address", sidecar.address) as terminal:
        screen = terminal.read_until("--json, or a pipe, shows all")

    assert "word \n  the last line\n" in piped
    assert "(1 cut; " in screen
    assert "last line" not in screen
