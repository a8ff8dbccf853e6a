"""`abridged append`: append one message, or play the chats of a JSON-lines file."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from abridged.client import AsyncConversations, Patience, SidecarError
from abridged.service.cli.chat_file import Fault, FileChat, read_chats, read_document
from abridged.service.cli.configured import configuration
from abridged.service.cli.failures import CommandFailed
from abridged.service.cli.figures import pass_line, usage_line
from abridged.service.cli.file_report import FileReport
from abridged.service.cli.options import Invocation, labels_of, sidecar_options
from abridged.service.cli.plain_json import as_json
from abridged.service.cli.playback import Playing, kept_settings, play
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import say
from abridged.service.codec.values import message_to_proto
from abridged.service.domain.message import Message, Role
from abridged.service.domain.render_json import Rendering
from abridged.v1.conversation_pb2 import ConversationSettings
from abridged.v1.conversation_service_pb2 import AppendMessagesResponse

BATCH_MAX = 512
MESSAGE_OPTIONS = frozenset({"role", "name", "message_id", "tool_call_id", "replace_after"})
FILE_OPTIONS = frozenset({"prefix", "batch", "settle", "form"})
FILE_WAIT_S = 60.0
FILE_PATIENCE = Patience(attempts_max=10, pause_base_s=0.25, pause_max_s=10.0)
"""Retries for half a minute, so that playing a file survives a restart of the sidecar."""

FILE_FORM = """
\b
Each line of the file is one chat (wrapped here for reading):
  {"conversation_id": "demo-1", "messages": [
    {"id": "m1", "role": "user", "content": "What is the weather?"},
    {"role": "assistant", "tool_calls":
      [{"id": "call-1", "name": "weather", "arguments": {"city": "Bern"}}]},
    {"role": "tool", "tool_call_id": "call-1", "content": "14 C, rain"}]}

A message without an id gets its index as one. Roles are system, user, assistant and tool; "name" is the speaker.
Messages of OpenAI's and Anthropic's APIs are taken too, Anthropic's with "system" beside them.
"""


@click.command(short_help="Append a message, or the chats of a file.", epilog=FILE_FORM)
@click.argument("conversation", required=False)
@click.argument("text", required=False)
@click.option("--role", type=click.Choice([role.value for role in Role]), default="user", show_default=True)
@click.option("--name", default="", help="The speaker's name.")
@click.option("--id", "message_id", default="", help="The message's id; appending it again does nothing.")
@click.option("--tool-call-id", default="", help="The call that a tool message answers.")
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="JSON lines, one chat each.")
@click.option("--prefix", default="", help="Prefix for the file's conversation ids.")
@click.option(
    "--form",
    type=click.Choice([Rendering.OPENAI.value, Rendering.ANTHROPIC.value]),
    help="The API whose messages the file has, kept with all that they say.",
)
@click.option("--batch", type=click.IntRange(1, BATCH_MAX), default=1, show_default=True, help="Messages per call.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0, 3600), metavar="SECONDS", help="Wait for a pass; 60 for files."
)
@click.option(
    "--settle/--no-settle",
    default=True,
    show_default=True,
    help="Force a last pass if a chat of the file ends over its trigger before the next one is due.",
)
@click.option("--model", default="", help="The chat model.")
@click.option("--context-length", type=click.IntRange(0), default=0, help="Its context length, in tokens.")
@click.option("--reserved-output-tokens", type=click.IntRange(0), default=0, help="Tokens reserved for the answer.")
@click.option(
    "--overhead-tokens", type=click.IntRange(0), default=0, help="Tokens of prompt and tools sent in addition."
)
@click.option(
    "--replace-after", type=click.IntRange(0), metavar="NUMBER", help="Remove the messages after this one first."
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label; repeatable.")
@click.option("--json", "as_json_", is_flag=True, help="Print the response as JSON.")
@sidecar_options
@click.pass_context
def append(
    context: click.Context,
    /,
    conversation: str | None,
    text: str | None,
    *,
    role: str,
    name: str,
    message_id: str,
    tool_call_id: str,
    file: Path | None,
    prefix: str,
    form: str | None,
    batch: int,
    wait_s: float | None,
    settle: bool,
    replace_after: int | None,
    labels: tuple[str, ...],
    as_json_: bool,
    **opening: Any,
) -> None:
    """Append TEXT (or standard input) to CONVERSATION, or play the chats of --file.

    The --file of a CONVERSATION is one JSON document with the messages of that conversation, such as `abridged context
    --render` prints.

    The first append creates the conversation, with --model, --context-length, --reserved-output-tokens,
    --overhead-tokens and --label. Later appends do not change them.

    A file is played like a live chat: one message per call, waiting for each pass. A chat is played whole, or refused
    before its first message. You can interrupt it and play it again: known messages are not appended twice. The exit
    code is 1 if something was refused, if a pass of this run failed (its class is printed), or if a conversation ends
    over its trigger although something in it could still be compressed.
    """
    invocation: Invocation = context.obj
    settings = ConversationSettings(**opening, labels=labels_of(labels))
    if file is not None:
        if text is not None:
            raise click.UsageError("--file has the messages; omit TEXT")
        _refuse(context, MESSAGE_OPTIONS, "not allowed with --file, whose messages have their own")
        playing = Playing(
            settings=settings,
            prefix=prefix,
            batch=batch,
            wait_s=FILE_WAIT_S if wait_s is None else wait_s,
            settle=settle,
            trigger_token_ratio=configuration(invocation).settings.policy_for(settings.model).trigger_token_ratio,
        )
        chats = _Chats(file, conversation, Rendering(form) if form else None)
        _append_file(invocation, chats, playing, as_json_=as_json_)
        return
    if conversation is None:
        raise click.UsageError("name a CONVERSATION, or use --file")
    _refuse(context, FILE_OPTIONS, "only with --file")
    message = Message(
        id=message_id or f"msg-{uuid.uuid4().hex}",
        role=Role(role),
        content=_content(text, role=Role(role)),
        name=name,
        tool_call_id=tool_call_id,
    )
    options = {"settings": settings, "wait_s": wait_s or 0.0, "replace_after": replace_after}
    _append_one(invocation, conversation, message, options, as_json_=as_json_)


def _refuse(context: click.Context, names: frozenset[str], why: str) -> None:
    """Raise UsageError for options that would be ignored, even if they repeat a default."""
    given = [
        "/".join((*option.opts, *option.secondary_opts))
        for option in context.command.params
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)}: {why}")


def _content(text: str | None, *, role: Role) -> str:
    """TEXT, or standard input. Only a tool result may be empty."""
    if text is None or text == "-":
        text = sys.stdin.read().rstrip("\n")
    if not text.strip() and role is not Role.TOOL:
        raise click.UsageError("nothing to append: TEXT, or standard input, is empty")
    return text


def _append_one(
    invocation: Invocation, conversation: str, message: Message, options: Mapping[str, Any], *, as_json_: bool
) -> None:
    settings: ConversationSettings = options["settings"]

    async def work(client: AsyncConversations) -> tuple[AppendMessagesResponse, str]:
        """Return the response, and a note on which of `settings` the conversation did not adopt."""
        answer = await client.append(conversation, [message_to_proto(message)], **options)
        is_first = answer.messages[0].number == 1 and not answer.messages[0].already_appended
        if is_first or settings == ConversationSettings():
            return answer, ""
        try:
            return answer, kept_settings(settings, (await client.conversation(conversation)).settings)
        except SidecarError:
            # The message is appended, even if this token may not read.
            return answer, "already exists and keeps its own settings"

    answer, kept = call(invocation, work)
    if kept:
        say(f"note: {conversation} {kept}", is_error=True, mark="yellow")
    if as_json_:
        say(as_json(answer))
        return
    appended = answer.messages[0]
    say(f"message {appended.number}{' (already known)' if appended.already_appended else ''}")
    say(usage_line(answer.usage))
    if answer.HasField("summarization"):
        say(pass_line(answer.summarization))


@dataclass(frozen=True, slots=True)
class _Chats:
    """The chats of a file: those of its lines, or the one that it is."""

    path: Path
    conversation: str | None
    form: Rendering | None

    def read(self) -> Iterator[FileChat | Fault]:
        with self.path.open("rb") as file:
            if self.conversation is None:
                yield from read_chats(file, self.form)
            else:
                yield read_document(file, self.conversation, self.form)


def _append_file(invocation: Invocation, chats: _Chats, playing: Playing, *, as_json_: bool) -> None:
    path = chats.path
    show = FileReport(path, as_json_)

    async def work(client: AsyncConversations) -> None:
        with _progress(chats) as on_messages:
            for chat in chats.read():
                if isinstance(chat, Fault):
                    show.fault(chat)
                else:
                    show.outcome(await play(client, chat, playing, on_messages=on_messages))

    try:
        call(invocation, work, patience=FILE_PATIENCE)
    except OSError as error:
        raise CommandFailed(f"{path.name} cannot be read: {error.strerror}") from error
    show.total()
    if show.problems:
        raise CommandFailed(f"{path.name}: {show.problems}", hint=show.advice)
    if show.is_empty:
        raise CommandFailed(f"{path.name} contains no chat", hint="`abridged append --help` shows the format of a line")


@contextmanager
def _progress(chats: _Chats) -> Iterator[Callable[[int], None]]:
    """A progress bar over all messages of the file, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    total = sum(len(chat.messages) for chat in chats.read() if not isinstance(chat, Fault))
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)
