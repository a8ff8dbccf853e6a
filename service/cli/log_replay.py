"""`abridged log replay`: folds exported logs, or appends chats once more under other policies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from abridged.service.api import wire
from abridged.service.api.folded_log import FoldedLog, folded_log
from abridged.service.bootstrap import logging_as_set
from abridged.service.bootstrap.policy_replay import Chat, Outcome, replayed
from abridged.service.cli.chat_file import FileChat, read_chats
from abridged.service.cli.configured import configuration
from abridged.service.cli.conversations import HEADINGS, conversation_row
from abridged.service.cli.failures import CommandFailed, Misconfigured
from abridged.service.cli.options import Invocation
from abridged.service.cli.plain_json import json_text
from abridged.service.cli.prerequisites import check_prerequisites
from abridged.service.cli.terminal import say, width
from abridged.service.config.settings import Settings
from abridged.service.config.sources import environment
from abridged.service.conversations.log_copy import FORMAT, LogLinesRefused, Walked
from abridged.service.domain.errors import DomainError
from abridged.service.domain.events import Settings as ChatSettings

_ROW = "{:<24} {:>7} {:>7} {:>6} {:>8} {:>12} {:>7} {:>12} {:>12} {:>6}"
_DEFAULT = Path("default")
_HEADINGS = ("POLICY", "PASSES", "CLEARED", "CALLS", "PROMPTS", "TOKENS", "STABLE", "SUMMARIZER", "COST", "OVER")


def print_folds(invocation: Invocation, files: Sequence[BufferedReader], walked: Walked, *, as_json: bool) -> None:
    """Print every conversation of exported logs. Raises CommandFailed."""
    settings = configuration(invocation).settings
    for file in files:
        found = _folded(settings, file, walked)
        if file is files[0] and not as_json:
            say(HEADINGS)
        for key, folded in found.items():
            if not as_json:
                say(conversation_row(folded.conversation, columns=width()))
                continue
            parts = {
                "conversation": _plain(folded.conversation),
                "context": _plain(folded.context),
                "summarizations": [_plain(each) for each in folded.summarizations],
            }
            say(json_text({"namespace": key.namespace, **parts}))


def print_policies(
    invocation: Invocation,
    files: Sequence[BufferedReader],
    policies: Sequence[Path],
    progress: Callable[[str], Walked],
    *,
    as_json: bool,
) -> None:
    """Print the result of the chats of all files under each policy; `progress` reports a walk over things of a noun.

    Raises CommandFailed and Misconfigured.
    """
    files_of = {path: None if path == _DEFAULT else path for path in policies}
    if missing := [str(path) for path in files_of.values() if path is not None and not path.is_file()]:
        raise Misconfigured(f"there is no file {missing[0]}", hint="name a settings file, or `default`")
    found = {path: configuration(replace(invocation, config_path=file)) for path, file in files_of.items()}
    for each in found.values():
        check_prerequisites(each)
    chats = [chat for file in files for chat in _chats(configuration(invocation).settings, file, progress("events"))]
    counts = Counter(chat.id for chat in chats)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise CommandFailed(f"conversation {min(twice)} is there twice", hint="replay each of them by itself")
    if not as_json:
        say(_ROW.format(*_HEADINGS))
    for path, each in found.items():
        undo_logs = logging_as_set(each.settings.telemetry.model_copy(update={"log_level": "error"}))
        try:
            outcome = asyncio.run(replayed(each.settings, environment(), chats, progress("messages")))
        except DomainError as error:
            raise CommandFailed(f"{path}: {error}") from error
        finally:
            undo_logs()
        say(json_text(_plain_outcome(path, outcome)) if as_json else _line(path, outcome))


def _folded(settings: Settings, file: BufferedReader, walked: Walked) -> FoldedLog:
    try:
        return folded_log(settings, file, walked)
    except LogLinesRefused as error:
        raise CommandFailed(
            f"{file.name}: {error}", hint="name a log that `abridged log export` wrote; --policy takes chats, too"
        ) from error


def _chats(settings: Settings, file: BufferedReader, walked: Walked) -> Iterator[Chat]:
    """The chats of a file: a log's conversations with their context length, or a line of JSON each."""
    if FORMAT.encode() in file.peek(len(FORMAT) + 64)[: len(FORMAT) + 64]:
        for key, folded in _folded(settings, file, walked).items():
            yield Chat(f"{key.namespace}/{key.name}", folded.messages(), folded.settings)
        return
    for chat in read_chats(file):
        faults = chat.faults if isinstance(chat, FileChat) else (chat,)
        if not isinstance(chat, FileChat) or faults:
            subject = " ".join(filter(None, (faults[0].message_id, faults[0].what)))
            raise CommandFailed(f"{file.name}: line {faults[0].line}: {subject}")
        yield Chat(chat.conversation_id, chat.messages, ChatSettings(system_prompt=chat.system_prompt))


def _line(path: Path, outcome: Outcome) -> str:
    bill, passes = outcome.bill, [each for passes in outcome.passes.values() for each in passes]
    return _ROW.format(
        path.stem,
        sum(bool(each.record_id) for each in passes),
        sum(each.cleared for each in passes),
        outcome.calls,
        f"{bill.prompts:,}",
        f"{bill.tokens:,}",
        f"{bill.stable / max(1, bill.tokens):.0%}",
        f"{bill.summarizer:,}",
        f"{bill.cost():,.0f}",
        bill.over,
    )


def _plain_outcome(path: Path, outcome: Outcome) -> dict[str, Any]:
    bill = outcome.bill
    return {
        "policy": path.stem,
        "chats": len(outcome.passes),
        "calls": outcome.calls,
        "prompts": bill.prompts,
        "promptTokens": bill.tokens,
        "stableTokens": bill.stable,
        "summarizerTokens": bill.summarizer,
        "cost": round(bill.cost()),
        "windowsOverBudget": bill.over,
        "summarizations": {
            name: [_plain(wire.ended_pass(each)) for each in passes] for name, passes in outcome.passes.items()
        },
    }


def _plain(message: Any) -> dict[str, Any]:
    return MessageToDict(message, always_print_fields_with_no_presence=True)
