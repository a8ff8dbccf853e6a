"""Plays the chats of a file to the sidecar as their speakers would have: in order, a few messages per call.

Invariant: a chat that breaks a rule is refused before its first message; playing a file again appends only what is
missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from abridged.client import AsyncConversations, SidecarError
from abridged.service.api.errors import InvalidRequest
from abridged.service.api.validation import Validation
from abridged.service.api.wire import messages_of
from abridged.service.cli.chat_file import Fault, FileChat
from abridged.service.cli.plain_json import word
from abridged.service.codec.values import message_to_proto, system_prompt_to_proto
from abridged.service.domain.errors import TooLarge
from abridged.service.domain.message import Message
from abridged.service.domain.profiles.profile import HeldBy
from abridged.v1.conversation_pb2 import ConversationSettings
from abridged.v1.conversation_service_pb2 import AppendMessagesRequest
from abridged.v1.server_info_service_pb2 import Limits

_PLACE = re.compile(r"messages\[(\d+)\]")
_KEPT_FIELDS = ("model", "context_length", "reserved_output_tokens", "overhead_tokens")
NOT_DUE = frozenset({HeldBy.MIN_MESSAGES, HeldBy.COOLDOWN, HeldBy.HYSTERESIS, HeldBy.FREES_LITTLE, HeldBy.CACHE_WARM})
"""Reasons that delay a live chat's next pass for a while, and a finished chat's for ever."""


@dataclass(frozen=True, slots=True)
class Playing:
    """The options of playing a file.

    Attributes:
        settings: The settings of the conversations that are new.
        prefix: Prepended to the conversation ids.
        batch: Messages per append.
        wait_s: Seconds that an append waits for the pass that it triggers.
        settle: True to force a pass if a chat ends over its trigger before the next one is due: no message will come
            to make it due.
        trigger_token_ratio: The server's trigger ratio, for conversations that do not override it.
    """

    settings: ConversationSettings
    prefix: str
    batch: int
    wait_s: float
    settle: bool
    trigger_token_ratio: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The state of a conversation after its last message.

    Attributes:
        conversation_id: The id with the prefix.
        appended: Messages that this run appended.
        known: Messages that an earlier run had appended.
        faults: The refusals, in the file or by the sidecar.
        messages: Messages in the conversation; 0 if none was ever appended.
        ratio: The token ratio of the window.
        depth: The live record's depth; 0 without one.
        passes: Passes so far, in any state.
        records: Passes that committed a record.
        failed: Passes that failed, in this run alone.
        errors: The classes of the failures, each once, as ErrorClass values, sorted.
        held_by: Why a window over its trigger stays there, as a HeldBy value; empty if nothing holds it.
        kept: A note on the settings that an existing conversation did not adopt; empty without any.
        is_over: True if the window is at or over its trigger ratio.
    """

    conversation_id: str
    appended: int
    known: int
    faults: tuple[Fault, ...]
    messages: int = 0
    ratio: float = 0.0
    depth: int = 0
    passes: int = 0
    records: int = 0
    failed: int = 0
    errors: tuple[str, ...] = ()
    held_by: str = ""
    kept: str = ""
    is_over: bool = False

    @property
    def is_well(self) -> bool:
        """True if there are messages, no pass of this run failed, and the window is below its trigger or cannot be
        compressed."""
        return self.messages > 0 and not self.failed and not self.is_stuck

    @property
    def is_stuck(self) -> bool:
        """True if the window is over its trigger although something in it can be compressed."""
        return self.is_over and self.held_by != HeldBy.IRREDUCIBLE


async def play(
    client: AsyncConversations, chat: FileChat, playing: Playing, *, on_messages: Callable[[int], None]
) -> Outcome:
    """Append the chat and return its outcome; calls `on_messages` with the number of messages of each append.

    Raises SidecarError for failures that are not about the chat: the sidecar is unreachable, or the token is wrong.
    """
    conversation_id = f"{playing.prefix}{chat.conversation_id}"
    faults = list(chat.faults) or _rule_faults(conversation_id, chat, playing, (await client.server_info()).limits)
    if faults:
        return Outcome(conversation_id, 0, 0, tuple(faults))
    settings = ConversationSettings(system_prompt=system_prompt_to_proto(chat.system_prompt))
    settings.MergeFrom(playing.settings)
    appended = known = 0
    before = await _passes_before(client, conversation_id)
    for start in range(0, len(chat.messages), playing.batch):
        batch = chat.messages[start : start + playing.batch]
        try:
            answer = await client.append(
                conversation_id, map(message_to_proto, batch), settings=settings, wait_s=playing.wait_s
            )
        except SidecarError as error:
            faults = _faults(error, batch, chat.line)
            if not faults:
                raise
            break
        repeated = sum(message.already_appended for message in answer.messages)
        appended += len(batch) - repeated
        known += repeated
        on_messages(len(batch))
    if not appended + known:
        return Outcome(conversation_id, 0, 0, tuple(faults))
    outcome = Outcome(conversation_id, appended, known, tuple(faults))
    outcome = await _outcome(client, conversation_id, playing, outcome, before=before)
    if playing.settle and outcome.is_stuck and outcome.held_by in NOT_DUE:
        await _settle(client, conversation_id, playing)
        outcome = await _outcome(client, conversation_id, playing, outcome, before=before)
    return outcome


async def _passes_before(client: AsyncConversations, conversation_id: str) -> frozenset[str]:
    """Return the passes of earlier runs; empty if the conversation is new or the first append will refuse its id."""
    try:
        return frozenset([summarization.id async for summarization in client.summarizations(conversation_id)])
    except SidecarError as error:
        if error.code not in ("NOT_FOUND", "INVALID_ARGUMENT"):
            raise
        return frozenset()


async def _settle(client: AsyncConversations, conversation_id: str, playing: Playing) -> None:
    try:
        await client.summarize(conversation_id, wait_s=playing.wait_s)
    except SidecarError as error:
        # Nothing to compress, the chain is full, passes are off: the outcome says so.
        if error.code != "FAILED_PRECONDITION":
            raise


def _rule_faults(conversation_id: str, chat: FileChat, playing: Playing, limits: Limits) -> list[Fault]:
    """The rules that the chat breaks, found before any of it is appended."""
    new_ids, validation = count(), Validation()
    known: set[str] = set()
    for message in chat.messages:
        if message.id in known:
            return [Fault(chat.line, message.id, "the id is that of another message of the chat")]
        known.add(message.id)
    for start in range(0, len(chat.messages), playing.batch):
        batch = chat.messages[start : start + playing.batch]
        request = AppendMessagesRequest(
            conversation_id=conversation_id, messages=map(message_to_proto, batch), settings=playing.settings
        )
        try:
            validation.check(request, fields=lambda: 0)
            messages_of(
                request,
                new_id=lambda: str(next(new_ids)),
                message_bytes_max=limits.message_bytes_max,
                batch_messages_max=limits.append_messages_max,
                batch_bytes_max=limits.append_bytes_max,
            )
        except InvalidRequest as error:
            return _by_message(error.violations, batch, chat.line, "")
        except TooLarge as error:
            return _by_message(
                [(error.what, f"takes {error.size} bytes, the limit is {error.limit}")], batch, chat.line, "TOO_LARGE"
            )
    return []


def _faults(error: SidecarError, batch: Sequence[Message], line: int) -> list[Fault]:
    """The faults that ended the chat's playing; none if the failure is not about the chat."""
    if error.reason == "MESSAGE_ID_REUSED":
        reused = set(error.metadata.get("message_ids", "").split(","))
        what = "the id was reused with different content"
        return [Fault(line, message.id, what, error.reason) for message in batch if message.id in reused]
    found = _by_message(error.violations, batch, line, error.reason)
    return found or ([Fault(line, "", error.message, error.reason)] if error.code == "INVALID_ARGUMENT" else [])


def _by_message(violations: Iterable[tuple[str, str]], batch: Sequence[Message], line: int, reason: str) -> list[Fault]:
    """Each violation by the id of its message, or of the whole chat."""
    faults: dict[str, Fault] = {}
    for field, description in violations:
        found = _PLACE.match(field)
        message_id = batch[int(found[1])].id if found and int(found[1]) < len(batch) else ""
        inner = field[found.end() :].lstrip(".") if found else field
        what = f"{inner}: {description}" if inner else description
        faults.setdefault(message_id, Fault(line, message_id, what, reason))
    return list(faults.values())


async def _outcome(
    client: AsyncConversations, conversation_id: str, playing: Playing, so_far: Outcome, *, before: frozenset[str]
) -> Outcome:
    """The conversation's state once no pass is pending."""
    # Called only to wait.
    await client.context(conversation_id, wait_s=playing.wait_s)
    state = await client.conversation(conversation_id)
    passes = [one async for one in client.summarizations(conversation_id)]
    states = [word(summarization, "state") for summarization in passes]
    failed = [summarization for summarization in passes if summarization.error_class and summarization.id not in before]
    override = state.settings.policy
    trigger = override.trigger_token_ratio if override.HasField("trigger_token_ratio") else playing.trigger_token_ratio
    return replace(
        so_far,
        messages=state.message_version,
        ratio=state.usage.ratio,
        depth=state.depth,
        passes=len(states),
        records=states.count("COMPLETED"),
        failed=len(failed),
        errors=tuple(sorted({word(summarization, "error_class") for summarization in failed})),
        held_by=word(state, "held_by") if state.held_by else "",
        kept=kept_settings(playing.settings, state.settings),
        is_over=state.usage.ratio >= trigger,
    )


def kept_settings(asked: ConversationSettings, stands: ConversationSettings) -> str:
    """A note on which settings in `asked` differ from those the conversation has, `stands`; empty if none do."""
    kept = [
        f"--{field.replace('_', '-')} ({getattr(stands, field) or 'none'})"
        for field in _KEPT_FIELDS
        if getattr(asked, field) and getattr(asked, field) != getattr(stands, field)
    ]
    kept += [f"--label {key}" for key, value in asked.labels.items() if stands.labels.get(key) != value]
    return f"already exists and keeps its own {', '.join(kept)}" if kept else ""
