"""One flipped bit in a log, and whether anything that is answered from it is wrong.

A log is built through the product and stopped with a pass pending. Each trial serves a copy in which one bit is another
and asks every question of a client; the whole log's answers are the measure. The same answer is right, DATA_LOSS is
right, and so is a sidecar that does not start, or stops, and says that its log is damaged.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.rpc.code_pb2 import Code

from abridged.eventlog.errors import LogCorrupt, LogFailed, LogUnsafe
from abridged.service.api.rich_status import reason_of
from abridged.v1 import conversation_pb2 as conversation
from abridged.v1 import conversation_service_pb2 as api
from abridged.v1 import event_log_service_pb2 as log
from tests.support.below_grpc import BelowGrpc, RefusedCall, below_grpc
from tests.support.refusal import refusal_of
from tests.support.sidecar import ANY_DRAFT, Chat, Sidecar, said, script, sidecar

FILE = "abridged.db"
CONVERSATIONS = tuple(f"chat-{number}" for number in range(1, 5))
PENDING = "chat-pending"

_NOW_US = 1_800_000_000_000_000
_MESSAGES = 24
_REQUEST_MESSAGES = 8
_PAGE = 20
"""Small, so that lists read in pages have several."""

_SETTINGS: dict[str, Any] = ANY_DRAFT | {"server.http_listen": "", "server.shutdown_grace_s": 0.1}

_SCRIPTED = _SETTINGS | {"summarizer.models": ["scripted:default"], "summarizer.backoff_base_ms": 1}


class Flip(NamedTuple):
    """One bit of a log's file, or of the one beside it whose name ends in `of`."""

    offset: int
    bit: int
    of: str = ""


Served = Sidecar | BelowGrpc
Answers = dict[str, Any]
"""Answers by the names of their questions: a message as its bytes, or a refusal as its status and reason."""

DAMAGED = ("DATA_LOSS", "LOG_CORRUPT")
STOPPED = "the sidecar stopped, because its log is damaged"


async def built_log(folder: Path, *, killed: bool = False) -> Path:
    """A log with every kind of content, in the order in which it comes; one pass is pending.

    A log whose sidecar was `killed` has its last events in its write-ahead log.
    """
    async with _serving(folder) as s:
        for first in range(1, _MESSAGES + 1, _REQUEST_MESSAGES):
            for name in CONVERSATIONS:
                await _chat(s, name).append(*_messages(name, first), request_id=f"request-{name}-{first}")
            await s.idle()
        await _chat(s, CONVERSATIONS[0]).update(["title"], title="The importer")
    async with _serving(folder, script(folder, {"hang": True})) as s:
        pending = _messages(PENDING, 1) + _messages(PENDING, 1 + _REQUEST_MESSAGES)
        await _chat(s, PENDING).append(*pending, request_id="request-pending")
        for name in CONVERSATIONS if killed else ():
            await _chat(s, name).update(["title"], title="Renamed")
        if killed:
            flipped(folder / FILE, folder / "killed", None)
            return folder / "killed" / FILE
    _free_pages(folder / FILE)
    return folder / FILE


def head_of(path: Path) -> int:
    """The last position of a whole log."""
    return int(_asked_of(path, "SELECT max(position) FROM events")[0][0])


def _free_pages(path: Path) -> None:
    """Leave pages that nothing uses, as a log has them whose conversations once had longer rows."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE passing (text TEXT)")
        database.executemany("INSERT INTO passing VALUES (?)", [("x" * 3_000,)] * 8)
        database.execute("DROP TABLE passing")
        database.commit()


def _asked_of(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


def flipped(whole: Path, folder: Path, flip: Flip | None) -> None:
    """Copy the log `whole`, and the files beside it, to the new `folder`, with one bit flipped if one is given."""
    folder.mkdir(parents=True)
    for path in (whole, whole.with_name(f"{FILE}-wal")):
        if path.exists():
            shutil.copyfile(path, folder / path.name)
    if flip is None:
        return
    with (folder / (FILE + flip.of)).open("r+b") as file:
        file.seek(flip.offset)
        (byte,) = file.read(1)
        file.seek(flip.offset)
        file.write(bytes([byte ^ (1 << flip.bit)]))


async def answers_of(folder: Path, *, head: int, over_grpc: bool = True) -> Answers:
    """Every question about the log in `folder`, with its answer.

    `head` is the last position of the log as it was built: later writes depend on the damage.
    """
    answers: Answers = {}
    try:
        if over_grpc:
            async with _serving(folder) as s:
                await _ask(s, answers, head)
        else:
            async with below_grpc(folder, _SCRIPTED, now_us=lambda: _NOW_US) as below:
                await _ask(below, answers, head)
                if below.failed:
                    answers[STOPPED] = DAMAGED
    except LogFailed as error:
        if not isinstance(error.__cause__, LogCorrupt):
            raise
        answers[STOPPED] = DAMAGED
    except (LogCorrupt, LogUnsafe):
        answers[STOPPED] = DAMAGED
    return answers


def wrong_answers(answers: Answers, whole: Answers) -> list[str]:
    """Return the answers that are neither the whole log's nor a refusal for damage. Questions that were not asked
    depend on a refused one.

    A pass that cannot be committed is no answer, so the window that it was to shorten may be as it was appended. A
    window whose predecessor was refused begins with nothing that its caller has.
    """
    right = (DAMAGED, *_GONE) if STOPPED in answers else (DAMAGED,)
    if STOPPED in answers:
        answers.pop("pending", None)  # its pass ends in the next process
    if answers.get("pending") == _AS_APPENDED:
        answers.pop("pending")
    for name in CONVERSATIONS:
        if answers.get(f"{name} window") in right and f"{name} {_NEXT_WINDOW}" in whole:
            whole = {**whole, f"{name} {_NEXT_WINDOW}": _sent_first(whole[f"{name} {_NEXT_WINDOW}"])}
    return [
        f"{asked}: {str(answer)[:300]}" for asked, answer in answers.items() if answer not in (whole.get(asked), *right)
    ]


def _sent_first(window: bytes) -> bytes:
    """A response of GetContext as it is when it is the first that is sent."""
    context = api.GetContextResponse.FromString(window)
    context.ClearField("stable_messages")
    context.ClearField("stable_tokens")
    return context.SerializeToString(deterministic=True)


_NEXT_WINDOW = "window behind it"


_GONE = (("UNAVAILABLE", "SERVER_STOPPING"), ("UNAVAILABLE", ""), ("CANCELLED", ""))
"""Ends of calls that are under way, or arrive, when the sidecar stops."""


@asynccontextmanager
async def _serving(folder: Path, settings: Mapping[str, Any] | None = None) -> AsyncIterator[Sidecar]:
    async with sidecar(folder, {**_SETTINGS, **(settings or {})}, now_us=lambda: _NOW_US) as s:
        yield s


def _chat(s: Any, name: str) -> Chat:
    team = "importers" if name < "chat-3" else "others"
    return Chat(s, name, conversation.ConversationSettings(context_length=1_200, labels={"team": team}))


def _messages(name: str, first: int) -> list[Any]:
    numbers = range(first, first + _REQUEST_MESSAGES)
    return [said(n, f"{name} reads table orders_{n} on host db-{n:02d}, row {n * 977}.", tokens=60) for n in numbers]


_AS_APPENDED = [False, *(m.content for first in (1, 1 + _REQUEST_MESSAGES) for m in _messages(PENDING, first))]


async def _ask(s: Served, answers: Answers, head: int) -> None:
    async def ask(asked: str, call: Awaitable[Any]) -> None:
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)
            answers[asked] = (refusal.code, refusal.reason)
        except RefusedCall as error:
            answers[asked] = (Code.Name(error.status.code), reason_of(error.status))
        else:
            answers[asked] = answer if isinstance(answer, list) else answer.SerializeToString(deterministic=True)

    await ask("pending", _after_its_pass(s))
    for name in CONVERSATIONS:
        chat = _chat(s, name)
        await ask(f"{name} state", chat.state())
        await ask(f"{name} window", chat.context())
        await ask(f"{name} originals", chat.context(view=api.CONTEXT_VIEW_ORIGINAL))
        await ask(f"{name} events", _events(s, name))
        await ask(f"{name} events backward", _events(s, name, backward=True))
    await ask("all events", _events(s, "", head=head))
    await ask("list", _listed(s))
    await ask("list by label", _listed(s, labels={"team": "others"}))
    await ask("list by ratio", _listed(s, min_ratio=0.3))
    for name in CONVERSATIONS:
        chat = _chat(s, name)
        for first in range(1, _MESSAGES + 1, _REQUEST_MESSAGES):
            repeated, by_id = _messages(name, first), f"request-{name}-{first}"
            await ask(f"{by_id} again", _places(chat, head, *repeated, request_id=by_id))
        await ask(f"{name} again without a request id", _places(chat, head, *_messages(name, 1)))
        await ask(f"{name} next message", _places(chat, head, said(_MESSAGES + 1, "Go on.", tokens=1)))
        if isinstance(answers[f"{name} next message"], list):
            await ask(f"{name} {_NEXT_WINDOW}", chat.context())
    await ask("a new conversation", _places(_chat(s, "chat-new"), head, *_messages("chat-new", 1)))
    if isinstance(answers["a new conversation"], list):
        await ask("its window", _chat(s, "chat-new").context())


async def _after_its_pass(s: Served) -> list[Any]:
    """The window of the pending conversation, once its pass has run; to read it is all that it takes."""
    await _chat(s, PENDING).context()
    await s.idle()
    context = await _chat(s, PENDING).context()
    return [context.compacted, *(m.message.content for m in context.messages)]


async def _places(chat: Chat, head: int, *messages: Any, **fields: Any) -> list[Any]:
    """Return an append's answer, without the places behind the head, which are only as they should be."""
    answer = await chat.append(*messages, **fields)
    placed = [(m.id, m.number, m.already_appended, not m.position or m.position > head) for m in answer.messages]
    return [answer.message_version, answer.usage.window_tokens, *placed]


async def _events(s: Served, conversation_id: str, *, head: int = 0, backward: bool = False) -> list[bytes]:
    """The stored events, up to the position `head` unless that is 0, page by page."""
    found: list[Any] = []
    after, end = 0, False
    while not end:
        request = log.ReadEventsRequest(conversation_id=conversation_id, after=after, limit=_PAGE, backward=backward)
        page = await s.event_log.ReadEvents(request)
        found += page.events
        after, end = page.next_after, page.end
    return [event.SerializeToString(deterministic=True) for event in found if not head or event.position <= head]


async def _listed(s: Served, **matching: Any) -> list[bytes]:
    """The listed conversations, page by page; of the one whose pass may have run since, the name alone."""
    found: list[Any] = []
    token, more = "", True
    while more:
        request = api.ListConversationsRequest(page_size=3, page_token=token, **matching)
        page = await s.conversations.ListConversations(request)
        found += page.conversations
        token = page.next_page_token
        more = bool(token)
    listed = [each.id.encode() if each.id == PENDING else each.SerializeToString(deterministic=True) for each in found]
    return sorted(listed)
