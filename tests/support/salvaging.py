"""A log with every kind of content, and the judgement of a salvage of a damaged image of it."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from abridged.eventlog.errors import LogCorrupt
from abridged.eventlog.event import RecordedEvent
from abridged.eventlog.salvage import REMNANTS, VACANT, Salvaged
from abridged.service.bootstrap.log_salvage import salvaged
from abridged.service.codec.event_json import event_of_line
from abridged.service.config.sources import load
from abridged.v1 import conversation_service_pb2 as api
from tests.support.command import abridged
from tests.support.damage import Image, Whole, images
from tests.support.sidecar import ANY_DRAFT, Chat, Sidecar, said, sidecar
from tests.support.surviving import Oracle, events_in

FILE = "log.db"
NEW = "new.db"
CHATS = tuple(f"chat-{number:02d}" for number in range(1, 21))
FORKS = {"fork-of-01": "chat-01", "fork-of-02": "chat-02", "fork-of-fork": "fork-of-01"}
_MESSAGES = 12
_REQUEST_MESSAGES = 4
_LONG_CHARS = {3: 5_000, 7: 23_000}
"""Messages that do not fit on a page, by their numbers, and their sizes."""

SETTINGS: dict[str, Any] = ANY_DRAFT | {"log.path": "", "server.http_listen": ""}


async def built_log(folder: Path, *, killed: bool) -> Path:
    """A log of conversations, forks and records, with the keys of requests; stopped in good order, or `killed` with a
    part of it in the write-ahead log alone."""
    path = folder / FILE
    settings = SETTINGS | {"log.path": str(path)}
    async with sidecar(folder, settings) as s:
        for first in range(1, _MESSAGES, _REQUEST_MESSAGES):
            for name in CHATS[:-4] if killed else CHATS:
                await appended(chat_of(s, name), first)
        await s.idle()
        for number, (fork, parent) in enumerate(FORKS.items(), 101):
            await s.conversations.ForkConversation(api.ForkConversationRequest(conversation_id=parent, fork_id=fork))
            await chat_of(s, fork).append(said(number, f"{fork} goes its own way.", tokens=9), request_id=f"own-{fork}")
    if not killed:
        return path
    async with sidecar(folder, settings) as s:
        for first in range(1, _MESSAGES, _REQUEST_MESSAGES):
            for name in CHATS[-4:]:
                await appended(chat_of(s, name), first)
        for name in CHATS:
            await chat_of(s, name).update(["title"], title=f"Renamed {name}")
        await s.idle()
        (folder / "killed").mkdir()
        for of in ("", "-wal"):
            shutil.copyfile(folder / f"{FILE}{of}", folder / "killed" / f"{FILE}{of}")
    return folder / "killed" / FILE


def chat_of(s: Sidecar, name: str) -> Chat:
    """A conversation in which passes run."""
    return s.chat(name, context_length=1_200)


async def appended(chat: Chat, first: int) -> Any:
    """Append the messages of a request, which always are the same."""
    messages = [_message(chat.id, number) for number in range(first, first + _REQUEST_MESSAGES)]
    return await chat.append(*messages, request_id=f"request-{chat.id}-{first}")


def _message(name: str, number: int) -> Any:
    text = f"{name} reads table orders_{number} on host db-{number:02d}. "
    return said(number, (text * (_LONG_CHARS.get(number, 1) // len(text) + 1)), tokens=60)


async def served(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return a sidecar's answers for each conversation of a log: its state, window and originals, and the places of the
    messages that are sent to it again.
    """
    answers: dict[str, list[Any]] = {}
    async with sidecar(path.parent, SETTINGS | {"log.path": str(path)}) as s:
        for name in names:
            chat = chat_of(s, name)
            views = (await chat.state(), await chat.context(), await chat.context(view=api.CONTEXT_VIEW_ORIGINAL))
            answers[name] = [view.SerializeToString(deterministic=True) for view in views]
        for name in (name for name in names if name not in FORKS):
            for first in range(1, _MESSAGES, _REQUEST_MESSAGES):
                answer = await appended(chat_of(s, name), first)
                answers[name] += [(m.id, m.number, m.already_appended, m.position) for m in answer.messages]
        await s.idle()
    return answers


class Trial(NamedTuple):
    """A salvage of an image: why it is wrong, empty if it is not; how many events survived, are in the new log, and
    among its remnants; how many of those that are missing are named, and how many lie behind all that is told."""

    kind: str
    wrong: str = ""
    surviving: int = 0
    kept: int = 0
    remnants: int = 0
    named: int = 0
    untold: int = 0
    served: int = 0


Views = dict[str, list[Any]]
"""Answers of a sidecar, by conversation."""


def trial(folder: Path, image: Image, oracle: Oracle, views: Views | None = None) -> Trial:
    """Salvage the image in a new folder, and compare with the oracle's knowledge; with `views`, the whole log's, also
    serve the new one.
    """
    damaged = image.put(folder / "damaged", FILE)
    before = _contents(damaged.parent)
    surviving = oracle.surviving(image)
    new = folder / NEW
    try:
        done = salvage(damaged, new)
    except LogCorrupt as error:
        left = [path.name for path in folder.iterdir() if not path.name.endswith(".lock")]
        wrong = f"{len(surviving)} events survive: {error}" if surviving else ""
        return Trial(image.kind, wrong or ("" if left == ["damaged"] else f"left behind: {left}"))
    if _contents(damaged.parent) != before:
        return Trial(image.kind, "the damaged files were changed")
    found = {event.position: event for event in events_in(new)}
    kept = {position: event for position, event in found.items() if event.stream.namespace != VACANT}
    remnants = {event.position: event for event in _remnants(new, done)}
    judged = _judged(
        Trial(image.kind, "", len(surviving), len(kept), len(remnants)), oracle, done, surviving, kept | remnants
    )
    if judged.wrong or views is None:
        return judged
    cut = {event.stream.name for position, event in oracle.events.items() if position not in kept}
    views = {name: answers for name, answers in views.items() if name not in cut}
    return judged._replace(wrong=_unserved(new, done, views), served=1)


def _unserved(new: Path, done: Salvaged, views: Views) -> str:
    """Why the new log is not served as the whole one was; empty if it is."""
    ran = abridged("log", "verify", str(new))
    if ran.code:
        return f"it is not whole: {ran.out} {ran.err}"
    answers = asyncio.run(served(new, list(views)))
    if done.is_same_log and done.has_key:
        return "".join(f"{name} is answered otherwise; " for name in views if answers[name] != views[name])
    return ""


def salvage(damaged: Path, new: Path) -> Salvaged:
    """Salvage as the command does."""
    settings = load({}, flags=SETTINGS | {"log.path": str(new)}).settings
    unread: list[Any] = []
    done = salvaged(
        settings,
        {},
        damaged,
        unread=lambda *each: unread.append(each),
        pages=lambda _done, _total: None,
        positions=lambda _done, _total: None,
    )
    assert not unread, unread
    return done


def _judged(
    trial: Trial, oracle: Oracle, done: Salvaged, surviving: set[int], proven: dict[int, RecordedEvent]
) -> Trial:
    if untrue := [position for position, event in proven.items() if oracle.events.get(position) != event]:
        return trial._replace(wrong=f"positions {untrue[:9]} are not what was written")
    if missed := sorted(surviving - proven.keys()):
        return trial._replace(wrong=f"positions {missed[:9]} survive and are not salvaged")
    last = max(proven)
    named = untold = 0
    for position in oracle.events.keys() - proven.keys():
        event = oracle.events[position]
        if _is_named(event, done):
            named += 1
        elif position > last:
            untold += 1
        else:
            return trial._replace(wrong=f"position {position} is missing and not named: {event[1:3]}")
    is_whole = not named and not untold and trial.kept == len(oracle.events)
    if done.is_whole and not (is_whole or untold):
        return trial._replace(wrong="it says that nothing is missing")
    return trial._replace(named=named, untold=untold)


def _is_named(event: RecordedEvent, done: Salvaged) -> bool:
    return event.position in done.unowned or any(
        event.position in lost.positions or (lost.stream == event.stream and event.version in lost.missing)
        for lost in done.lost
    )


def _remnants(new: Path, done: Salvaged) -> list[RecordedEvent]:
    path = new.with_name(new.name + REMNANTS)
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [event_of_line(line, log_id=done.log_id)[0] for line in lines]


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def trials(folder: Path, path: Path, *, seed: int, count: int, serve_each: int) -> tuple[list[str], str]:
    """Salvage `count` images of the log in `path`, and serve one in `serve_each` of the new logs: the faults, and the
    figures by kind of damage.
    """
    whole = Whole.read(path)
    oracle = Oracle(path, whole)
    views = asyncio.run(
        served(Image("none", whole.file, whole.wal or None).put(folder / "whole" / "log", FILE), (*CHATS, *FORKS))
    )
    wrong: list[str] = []
    figures: dict[str, Counter[str]] = {}
    for number, image in enumerate(images(whole, seed, count)):
        place = folder / f"{number}"
        done = trial(place, image, oracle, None if number % serve_each else views)
        shutil.rmtree(place)
        if done.wrong:
            wrong.append(f"image {number}, {image.kind}: {done.wrong}")
        of_kind = figures.setdefault(done.kind, Counter())
        of_kind["images"] += 1
        of_kind.update({name: figure for name, figure in done._asdict().items() if isinstance(figure, int)})
    return wrong, json.dumps({"events": len(oracle.events), **figures}, indent=1)
