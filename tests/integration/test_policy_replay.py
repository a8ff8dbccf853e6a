"""`abridged log replay`: conversations without a sidecar, and the passes that another policy would have made.

Set REPLAYED_CHATS for more random chats.
"""

from __future__ import annotations

import json
import os
import random
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from abridged.client import Conversations, start_local
from abridged.v1.message_pb2 import Message, Role
from tests.support.command import PROGRAM, abridged

CHATS = int(os.environ.get("REPLAYED_CHATS", "8"))

COMMAND = (sys.executable, "-c", PROGRAM)

POLICIES: dict[str, dict[str, str | float]] = {
    "early": {
        "policy.min_freed_token_ratio": 0,
        "policy.trigger_token_ratio": 0.55,
        "policy.reset_token_ratio": 0.45,
        "policy.tail_token_ratio": 0.2,
        "tokens.default_context_length": 1_024,
    },
    "rolling": {
        "policy.profile": "rolling",
        "tokens.default_context_length": 1_024,
    },
    "episodes": {
        "policy.profile": "episodes",
        "tokens.default_context_length": 2_048,
    },
}

SEEN = ("state", "trigger", "covered", "depth", "tokenRatio", "attempts")
"""Fields that say which pass it was; ids and times are left out."""


def random_chats(count: int, seed: int = 21) -> dict[str, list[dict[str, Any]]]:
    """Chats of people and of agents with tools, each of 5 to 60 messages of 1 to 120 words."""
    rng = random.Random(seed)
    return {f"chat-{number}": _random_chat(rng, rng.randrange(5, 61)) for number in range(count)}


def _random_chat(rng: random.Random, length: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if rng.random() < 0.5:
        messages.append({"id": "m0", "role": "system", "content": _text(rng, 20)})
    while len(messages) < length:
        number = len(messages)
        messages.append({"id": f"m{number}", "role": "user", "content": _text(rng, 120)})
        if rng.random() < 0.3:
            call = {"id": f"call-{number}", "name": rng.choice(("search", "read")), "arguments": '{"n": 1}'}
            messages.append({"id": f"c{number}", "role": "assistant", "content": "", "tool_calls": [call]})
            found = {"id": f"t{number}", "role": "tool", "content": _text(rng, 120), "tool_call_id": call["id"]}
            messages.append(found)
        messages.append({"id": f"a{number}", "role": "assistant", "content": _text(rng, 80)})
    return messages


def _text(rng: random.Random, words_max: int) -> str:
    words = ("order", "table", "host", "import", "queue", "ticket", "invoice", "release", "was", "is", "not", "the")
    said = [
        f"{rng.choice(words)}{rng.choice(('', '', f'-{rng.randrange(900)}'))}" for _ in range(rng.randrange(words_max))
    ]
    return " ".join(said).capitalize() + rng.choice((".", "?", "!", ""))


def written(folder: Path, chats: dict[str, list[dict[str, Any]]]) -> Path:
    path = folder / "chats.jsonl"
    lines = [json.dumps({"conversation_id": name, "messages": messages}) for name, messages in chats.items()]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def policy_file(folder: Path, name: str) -> Path:
    path = folder / f"{name}.toml"
    groups = ((*key.rpartition("."), json.dumps(value)) for key, value in POLICIES[name].items())
    lines = [f"{group}.{key} = {value}\n" for group, _, key, value in groups]
    path.write_text("".join((*lines, 'summarizer.models = ["scripted:default"]\n')), encoding="utf-8")
    return path


def seen(passes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The passes until a fallback record is made again: that comes when the host is idle, not with a message."""
    until_remade = takewhile(lambda one: one["trigger"] != "TRIGGER_REMAKE", passes)
    return [{name: one.get(name) for name in SEEN} for one in until_remade]


def live_passes(name: str, chats: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The passes of a sidecar with this policy, to which the messages come one at a time."""
    passes = {}
    settings = {key: str(value) for key, value in POLICIES[name].items()}
    with start_local(settings=settings, command=COMMAND) as address, Conversations(address) as client:
        for chat, messages in chats.items():
            for message in messages:
                client.append(chat, [_message(message)])
                client.wait_idle(chat, wait_s=30)
            found = reversed(list(client.summarizations(chat)))
            passes[chat] = [MessageToDict(one, always_print_fields_with_no_presence=True) for one in found]
    return passes


def _message(raw: dict[str, Any]) -> Message:
    message = Message(id=raw["id"], role=Role.Value(f"ROLE_{raw['role'].upper()}"), content=raw["content"])
    message.tool_call_id = raw.get("tool_call_id", "")
    for call in raw.get("tool_calls", ()):
        message.tool_calls.add(id=call["id"], name=call["name"], arguments=call["arguments"])
    return message


@pytest.mark.parametrize("name", POLICIES)
def test_a_replay_makes_the_passes_that_a_sidecar_makes(tmp_path, name):
    """The same messages have the same passes, with their triggers, ranges and ratios."""
    chats = random_chats(CHATS)
    ran = abridged(
        "log", "replay", str(written(tmp_path, chats)), "--policy", str(policy_file(tmp_path, name)), "--json"
    )

    assert (ran.code, ran.err) == (0, "")
    replayed = json.loads(ran.out)["summarizations"]
    live = live_passes(name, chats)
    compared = {chat: seen(passes) for chat, passes in live.items()}
    assert {chat: seen(passes) for chat, passes in replayed.items()} == compared
    assert sum(map(len, compared.values())) > 0.8 * sum(map(len, live.values())) > CHATS / 2


def test_policies_are_compared_in_a_table(tmp_path):
    """A line for each policy: the smaller window costs more passes; no line of a log is between them."""
    chats = written(tmp_path, random_chats(2))
    policies = [str(policy_file(tmp_path, name)) for name in ("early", "rolling")]

    ran = abridged("log", "replay", str(chats), "--policy", policies[0], "--policy", policies[1])

    assert (ran.code, ran.err) == (0, "")
    rows = [line.split() for line in ran.out.splitlines()]
    assert rows[0][0] == "POLICY"
    assert [row[0] for row in rows[1:]] == ["early", "rolling"]
    assert {len(row) for row in rows} == {len(rows[0])}


def test_the_settings_without_a_file_are_a_policy_too(tmp_path):
    """The policy `default` makes the passes of a sidecar without settings; an error names a missing file."""
    chats = str(written(tmp_path, random_chats(1)))
    (tmp_path / "empty.toml").write_text("", encoding="utf-8")

    default, empty = (
        abridged("log", "replay", chats, "--policy", policy) for policy in ("default", str(tmp_path / "empty.toml"))
    )
    missing = abridged("log", "replay", chats, "--policy", "nowhere.toml")

    assert default.out.splitlines()[1].split()[1:] == empty.out.splitlines()[1].split()[1:]
    assert (missing.code, "there is no file nowhere.toml" in missing.err) == (2, True)


def test_a_log_is_replayed_like_the_chats_that_it_was_made_of(tmp_path):
    """An export holds the messages and the context length; its own passes have no part in a replay."""
    chats = random_chats(2)
    policy, other = policy_file(tmp_path, "early"), POLICIES["rolling"]
    settings = {key: str(value) for key, value in other.items()} | {"tokens.default_context_length": "1024"}
    with (
        start_local(tmp_path / "a.db", settings=settings, command=COMMAND) as address,
        Conversations(address) as client,
    ):
        for chat, messages in chats.items():
            client.append(chat, [_message(message) for message in messages])
    (tmp_path / "log.jsonl").write_text(abridged("log", "export", str(tmp_path / "a.db")).out, encoding="utf-8")

    of_chats, of_log = (
        json.loads(abridged("log", "replay", str(file), "--policy", str(policy), "--json").out)
        for file in (written(tmp_path, chats), tmp_path / "log.jsonl")
    )

    passes = {f"default/{chat}": seen(made) for chat, made in of_chats.pop("summarizations").items()}
    assert {chat: seen(made) for chat, made in of_log.pop("summarizations").items()} == passes
    assert of_log == of_chats


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('{"conversation_id": "a", "messages": [{"id": "m"}]}', "line 1: m role is missing"),
        ('{"conversation_id": "a", "messages": []}\nnot json', "line 2: "),
        ('{"format": "abridged-log-1", "logId": "a", "events": 3}\n', "line 1: the last of 0 events"),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path, text, cause):
    """The command replays nothing of a file with a broken line."""
    (tmp_path / "broken.jsonl").write_text(text, encoding="utf-8")

    ran = abridged("log", "replay", str(tmp_path / "broken.jsonl"), "--policy", str(policy_file(tmp_path, "early")))

    assert ran.code == 1
    assert cause in ran.err
    assert ran.out == ""


def test_the_same_conversation_in_two_files_is_refused(tmp_path):
    """The messages of both would be one chat, or the second would be left out; one file is the same."""
    chats = str(written(tmp_path, random_chats(1)))

    policy = str(policy_file(tmp_path, "early"))
    (tmp_path / "twice.jsonl").write_text(f"{Path(chats).read_text()}\n{Path(chats).read_text()}\n", encoding="utf-8")
    ran = abridged("log", "replay", chats, chats, "--policy", policy)
    assert abridged("log", "replay", str(tmp_path / "twice.jsonl"), "--policy", policy).err == ran.err

    assert (ran.code, ran.out) == (1, "")
    assert "chat-0 is there twice" in ran.err


def test_a_chat_of_which_nothing_is_left_has_no_part(tmp_path):
    """One that was rewound to its beginning is no reason to replay nothing."""
    with start_local(record=tmp_path / "log.jsonl", command=COMMAND) as address, Conversations(address) as client:
        for name in ("emptied", "kept"):
            client.append(name, [_message(message) for message in random_chats(1)["chat-0"]])
        client.rewind("emptied", to_version=0)

    ran = abridged("log", "replay", str(tmp_path / "log.jsonl"), "--policy", "default", "--json")

    assert (ran.code, ran.err) == (0, "")
    assert list(json.loads(ran.out)["summarizations"]) == ["default/kept"]
