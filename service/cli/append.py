"""`abridged append`: one message, or the chats of a JSON-lines file."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from service.cli.chat_file import Fault, read_chats
from service.cli.failures import CommandFailed
from service.cli.figures import pass_line, usage_line
from service.cli.options import Invocation, sidecar_options
from service.cli.plain_json import as_json
from service.cli.playback import Outcome, Playing, play
from service.cli.sidecar import call, configuration
from service.client import AppendMessagesResponse, ConversationSettings, Patience, SidecarClient
from service.domain.message import Message, Role

__all__ = ["append"]

BATCH_MAX = 512
FILE_WAIT_S = 60.0
FILE_PATIENCE = Patience(attempts_max=10, pause_base_s=0.25, pause_max_s=10.0)
"""Half a minute at most: long enough for a sidecar that is restarted under a file being played."""


@click.command(short_help="Append a message, or chats of a file.")
@click.argument("conversation", required=False)
@click.argument("text", required=False)
@click.option("--role", type=click.Choice([role.value for role in Role]), default="user", show_default=True)
@click.option("--name", default="", help="The speaker's name.")
@click.option("--id", "message_id", default="", help="The message's id; the same id again appends nothing.")
@click.option("--tool-call-id", default="", help="The call that a tool message answers.")
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="JSON lines, a chat a line.")
@click.option("--prefix", default="", help="Stands before the conversation ids of the file.")
@click.option("--batch", type=click.IntRange(1, BATCH_MAX), default=1, show_default=True, help="Messages a call.")
@click.option("--wait", "wait_s", type=click.FloatRange(0, 3600), metavar="SECONDS", help="For a pass; files wait 60.")
@click.option(
    "--settle/--no-settle",
    default=True,
    show_default=True,
    help="Force a last pass where a chat of the file ends over its trigger before the next one is due.",
)
@click.option("--model", default="", help="The chat model, for a new conversation.")
@click.option("--context-length", type=click.IntRange(0), default=0, help="Its context length, in tokens.")
@click.option("--reserved-output-tokens", type=click.IntRange(0), default=0, help="Tokens kept for the answer.")
@click.option("--overhead-tokens", type=click.IntRange(0), default=0, help="Tokens of prompt and tools not appended.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label; repeatable.")
@click.option("--json", "as_json_", is_flag=True, help="Answer as JSON.")
@sidecar_options
@click.pass_obj
def append(
    invocation: Invocation,
    conversation: str | None,
    text: str | None,
    *,
    role: str,
    name: str,
    message_id: str,
    tool_call_id: str,
    file: Path | None,
    prefix: str,
    batch: int,
    wait_s: float | None,
    settle: bool,
    model: str,
    context_length: int,
    reserved_output_tokens: int,
    overhead_tokens: int,
    labels: tuple[str, ...],
    as_json_: bool,
) -> None:
    """Append TEXT (or standard input) to CONVERSATION, or play the chats of --file.

    A file is played as it was spoken: a message a call, waiting for each pass. It can be interrupted and played again:
    what is known is not appended twice. Exit code 1 when a message was refused, or when a conversation ends over its
    trigger although something in it could still be compressed.
    """
    settings = ConversationSettings(
        model=model,
        context_length=context_length,
        reserved_output_tokens=reserved_output_tokens,
        overhead_tokens=overhead_tokens,
        labels=dict(_label(label) for label in labels),
    )
    if file is not None:
        if conversation is not None:
            raise click.UsageError("--file names its conversations itself; leave CONVERSATION out")
        policy = configuration(invocation).settings.policy_for(model)
        playing = Playing(
            settings,
            prefix,
            batch,
            FILE_WAIT_S if wait_s is None else wait_s,
            settle=settle,
            trigger_token_ratio=policy.trigger_token_ratio,
        )
        _append_file(invocation, file, playing, as_json_=as_json_)
        return
    if conversation is None:
        raise click.UsageError("say which CONVERSATION, or give a --file")
    if text is None or text == "-":
        text = sys.stdin.read().rstrip("\n")
    message = Message(
        id=message_id or f"msg-{uuid.uuid4().hex}", role=Role(role), content=text, name=name, tool_call_id=tool_call_id
    )
    answer = call(
        invocation, lambda client: client.append(conversation, [message], settings=settings, wait_s=wait_s or 0.0)
    )
    if as_json_:
        click.echo(as_json(answer))
    else:
        _show_appended(answer)


def _show_appended(answer: AppendMessagesResponse) -> None:
    appended = answer.messages[0]
    click.echo(f"message {appended.number}{' (known already)' if appended.already_appended else ''}")
    click.echo(usage_line(answer.usage))
    if answer.HasField("summarization"):
        click.echo(pass_line(answer.summarization))


def _append_file(invocation: Invocation, path: Path, playing: Playing, *, as_json_: bool) -> None:
    show = _Shown(path, as_json_)

    async def work(client: SidecarClient) -> None:
        with path.open(encoding="utf-8", errors="replace") as lines, _progress(path) as on_messages:
            for chat in read_chats(lines):
                if isinstance(chat, Fault):
                    show.fault(chat)
                else:
                    show.outcome(await play(client, chat, playing, on_messages=on_messages))

    call(invocation, work, patience=FILE_PATIENCE)
    show.total()
    if show.unwell:
        raise CommandFailed(f"{show.unwell} of {path.name} not well", hint="the lines above say what and why")


class _Shown:
    """Tells each conversation when it is over, and counts."""

    def __init__(self, path: Path, as_json_: bool) -> None:
        self._path = path
        self._as_json = as_json_
        self._conversations = self._messages = self._passes = self._records = 0
        self._faults = self._over = 0

    @property
    def unwell(self) -> str:
        """What ended badly, empty when nothing did."""
        counted = ((self._faults, "message(s) refused"), (self._over, "conversation(s) over the trigger"))
        return ", ".join(f"{count} {what}" for count, what in counted if count)

    def fault(self, fault: Fault) -> None:
        self._faults += 1
        place = f"{self._path}:{fault.line}"
        click.echo(f"{place}: {fault.message_id or 'line'}: {fault.what}; left out", err=True)

    def outcome(self, outcome: Outcome) -> None:
        for fault in outcome.faults:
            self.fault(fault)
        self._conversations += 1
        self._messages += outcome.messages
        self._passes += outcome.passes
        self._records += outcome.records
        self._over += not outcome.is_well
        if self._as_json:
            click.echo(json.dumps(asdict(outcome) | {"is_well": outcome.is_well}, ensure_ascii=False))
            return
        click.echo(
            f"{outcome.conversation_id}: {outcome.messages} messages ({outcome.appended} new), "
            f"ratio {outcome.ratio:.2f}, {outcome.passes} passes, {outcome.records} records, "
            f"depth {outcome.depth}, {_standing(outcome)}"
        )

    def total(self) -> None:
        if not self._as_json:
            click.echo(
                f"total: {self._conversations} conversations, {self._messages} messages, {self._passes} passes, "
                f"{self._records} records; {self.unwell or 'all well'}"
            )


def _standing(outcome: Outcome) -> str:
    if not outcome.is_over:
        return "under its trigger"
    if outcome.is_well:
        return "over its trigger, irreducible: what is left must stay verbatim"
    return f"OVER its trigger ({outcome.held_by or 'a pass is due'})"


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"'{text}' is not KEY=VALUE", param_hint="--label")
    return key, value


@contextmanager
def _progress(path: Path) -> Iterator[Callable[[int], None]]:
    """A bar over all messages of the file, where somebody watches."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    with path.open(encoding="utf-8", errors="replace") as lines:
        total = sum(len(chat.messages) for chat in read_chats(lines) if not isinstance(chat, Fault))
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)
