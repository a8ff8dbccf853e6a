"""`abridged chat`: talk to an Ollama model in the terminal, with the sidecar keeping the context."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

import click

from abridged.client import AsyncConversations, SidecarError
from abridged.service.cli.failures import CommandFailed, Misconfigured, of_sidecar_error
from abridged.service.cli.figures import pass_line, record_line, usage_line
from abridged.service.cli.options import Invocation, sidecar_options
from abridged.service.cli.plain_json import word
from abridged.service.cli.sidecar import client_for, client_settings, configuration
from abridged.service.cli.terminal import is_interactive, say, say_text
from abridged.service.codec.values import message_to_proto
from abridged.service.config.settings import ClientSettings, Settings
from abridged.service.domain.message import Message, Role
from abridged.service.models.http.address import AddressError
from abridged.service.models.model import ModelError, ModelMissing
from abridged.service.models.ollama.chat import ChatAnswer, OllamaChat
from abridged.service.models.ollama.host import open_hosts
from abridged.service.models.ollama.settings import OllamaGroup
from abridged.v1.conversation_pb2 import ConversationSettings
from abridged.v1.conversation_service_pb2 import AppendMessagesResponse

PASS_WAIT_S = 120.0
ANSWER_SHARE = 8
"""The chat reserves an eighth of the context for the answer."""
INDENT = "  "
"""Precedes each line of a model's answer, so that it cannot pass for a line of this program."""
HELP = "/ratio  /summaries  /resummarize  /quit"


@click.command(short_help="Chat with an Ollama model through the sidecar.")
@click.option("--model", default="", help="The chat model; by default the first Ollama model of summarizer.models.")
@click.option("--conversation", default="", help="Continue this conversation; by default a new one.")
@sidecar_options
@click.pass_obj
def chat(invocation: Invocation, *, model: str, conversation: str) -> None:
    """Chat in the terminal: every turn goes through the sidecar and shows its ratio and passes.

    Commands: /ratio, /summaries, /resummarize (forces a pass), /quit.
    """
    found = configuration(invocation)
    settings, reached = found.settings, client_settings(found)
    name = _chat_model(settings, model)
    conversation = conversation or f"chat-{uuid.uuid4().hex[:12]}"
    with asyncio.Runner() as runner:
        try:
            talk = runner.run(_Chat.connected(settings, reached, name, conversation))
        except SidecarError as error:
            raise of_sidecar_error(error) from error
        try:
            _talk(runner, talk)
        finally:
            runner.run(talk.close())


def _talk(runner: asyncio.Runner, chat: _Chat) -> None:
    """Take turns until /quit, the end of the input, or Ctrl-C at the prompt."""
    while (line := _read_line()) is not None:
        text = line.strip()
        if text == "/quit":
            return
        if not text:
            continue
        try:
            runner.run(chat.take(text))
        except KeyboardInterrupt:
            say_text("\n(interrupted; your message is kept)")
        except SidecarError as error:
            of_sidecar_error(error).show()
        except ModelError as error:
            say()
            say(f"abridged: {error}; your message is kept, send another to try again", is_error=True)


class _Chat:
    """One conversation with one model."""

    def __init__(
        self, client: AsyncConversations, model: OllamaChat, conversation: str, resources: AsyncExitStack
    ) -> None:
        self._resources = resources
        self._client = client
        self._model = model
        self._conversation = conversation
        self._summary_id = ""
        self._commands: Mapping[str, Callable[[], Awaitable[None]]] = {
            "/ratio": self._ratio,
            "/summaries": self._summaries,
            "/resummarize": self._resummarize,
        }
        self._settings = ConversationSettings(
            model=f"ollama:{model.model}",
            context_length=model.num_ctx,
            reserved_output_tokens=model.num_ctx // ANSWER_SHARE,
        )

    @classmethod
    async def connected(cls, settings: Settings, reached: ClientSettings, name: str, conversation: str) -> _Chat:
        """Connect to the sidecar and to Ollama. Raises SidecarError and CommandFailed."""
        async with AsyncExitStack() as resources:
            client = await resources.enter_async_context(client_for(reached))
            await client.server_info()
            model = _model(settings.ollama, name)
            resources.push_async_callback(model.close)
            await _open(model)
            say(f"{conversation} with {name}, context length {model.num_ctx:,}. {HELP}")
            return cls(client, model, conversation, resources.pop_all())

    async def close(self) -> None:
        await self._resources.aclose()

    async def take(self, text: str) -> None:
        """Run a command, or take a turn."""
        if text.startswith("/"):
            await self._commands.get(text, _unknown)()
        else:
            await self._turn(text)

    async def _turn(self, text: str) -> None:
        appended = await self._append(Role.USER, text, rendering="ollama", wait_s=PASS_WAIT_S)
        context, failure = appended.context, appended.context_failure
        if appended.HasField("context_failure"):
            say(f"abridged: {word(failure, 'reason')}: {failure.message}; your message is kept", is_error=True)
            return
        if context.summary_id != self._summary_id:
            self._summary_id = context.summary_id
            records = [record async for record in self._client.summaries(self._conversation)]
            say(f"({record_line(records[0])})")
        say_text(INDENT, newline=False)
        answer: ChatAnswer = await self._model.answer(
            json.loads(context.rendered_json)["messages"],
            on_text=lambda piece: say_text(piece, indent=INDENT, newline=False),
        )
        say()
        if answer.prompt_tokens:
            await self._client.report_usage(self._conversation, context, prompt_tokens=answer.prompt_tokens)
        await self._append(Role.ASSISTANT, answer.text)

    async def _append(
        self, role: Role, text: str, *, rendering: str = "", wait_s: float = 0.0
    ) -> AppendMessagesResponse:
        message = Message(id=f"msg-{uuid.uuid4().hex}", role=role, content=text)
        answer = await self._client.append(
            self._conversation, [message_to_proto(message)], settings=self._settings, rendering=rendering, wait_s=wait_s
        )
        if role is Role.ASSISTANT:
            say(f"({usage_line(answer.usage)})")
        if answer.HasField("summarization"):
            say(f"({pass_line(answer.summarization)})")
        return answer

    async def _ratio(self) -> None:
        state = await self._client.conversation(self._conversation)
        say(usage_line(state.usage))
        say(f"{state.window_messages} of {state.message_version} messages verbatim, {state.summary_count} records")
        if state.held_by:
            say(f"over its trigger, held by {word(state, 'held_by')}")

    async def _summaries(self) -> None:
        async for record in self._client.summaries(self._conversation):
            say(record_line(record))
            say_text(f"{INDENT}{record.summary}", indent=INDENT)

    async def _resummarize(self) -> None:
        say(pass_line(await self._client.summarize(self._conversation, wait_s=PASS_WAIT_S)))
        await self._ratio()


async def _unknown() -> None:
    say(f"commands: {HELP}")


def _read_line() -> str | None:
    """The next line, or None at the end of the input."""
    try:
        return input("> ") if is_interactive() else sys.stdin.readline() or None
    except (EOFError, KeyboardInterrupt):
        say()
        return None


def _chat_model(settings: Settings, asked: str) -> str:
    if asked:
        return asked.removeprefix("ollama:")
    for model in settings.summarizer.models:
        if model.startswith("ollama:"):
            return model.removeprefix("ollama:")
    raise click.UsageError("summarizer.models has no Ollama model; name one with --model")


def _model(group: OllamaGroup, model: str) -> OllamaChat:
    settings = group.calls()
    try:
        address = group.address(group.hosts[0])
    except AddressError as error:
        raise Misconfigured(f"ollama.hosts: {error}") from error
    (host,) = open_hosts([address], settings, clock=time.monotonic)
    return OllamaChat(model, host, settings, clock=time.monotonic)


async def _open(model: OllamaChat) -> None:
    try:
        await model.open()
    except ModelMissing as error:
        raise CommandFailed(str(error), hint=f"pull it with `ollama pull {model.model}`") from error
    except ModelError as error:
        raise CommandFailed(str(error), hint="start Ollama, or set OLLAMA_HOST to its address") from error
