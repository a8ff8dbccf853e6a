"""`abridged chat`: talk to a model in the terminal, with the sidecar keeping the context."""

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
from abridged.service.cli.configured import configuration
from abridged.service.cli.failures import CommandFailed, Misconfigured, of_sidecar_error
from abridged.service.cli.figures import pass_line, record_line, usage_line
from abridged.service.cli.options import Invocation, sidecar_options
from abridged.service.cli.plain_json import word
from abridged.service.cli.sidecar import client_for, client_settings
from abridged.service.cli.terminal import is_interactive, say, say_text
from abridged.service.codec.values import message_to_proto
from abridged.service.config.settings import ClientSettings, Settings
from abridged.service.domain.message import Message, Role
from abridged.service.models.chat import ChatAnswer, ChatModel
from abridged.service.models.http.address import AddressError
from abridged.service.models.model import ModelError, ModelMissing
from abridged.service.models.ollama import model as ollama
from abridged.service.models.ollama.chat import OllamaChat
from abridged.service.models.ollama.host import open_hosts
from abridged.service.models.openai import model as openai
from abridged.service.models.openai.chat import OpenAIChat
from abridged.v1.conversation_pb2 import ConversationSettings
from abridged.v1.conversation_service_pb2 import AppendMessagesResponse

PASS_WAIT_S = 120.0
ANSWER_SHARE = 8
"""The chat reserves an eighth of the context for the answer."""
INDENT = "  "
"""Precedes each line of a model's answer, so that it cannot pass for a line of this program."""
HELP = "/ratio  /summaries  /resummarize  /quit"


@click.command(short_help="Chat with a model through the sidecar.")
@click.option(
    "--model",
    default="",
    help="`ollama:NAME` or `openai:NAME`; by default the first of summarizer.models.",
)
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
        self, client: AsyncConversations, model: ChatModel, conversation: str, resources: AsyncExitStack
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
            model=model.name,
            context_length=model.context_length,
            reserved_output_tokens=model.context_length // ANSWER_SHARE,
        )

    @classmethod
    async def connected(cls, settings: Settings, reached: ClientSettings, name: str, conversation: str) -> _Chat:
        """Connect to the sidecar and to the model. Raises SidecarError and CommandFailed."""
        async with AsyncExitStack() as resources:
            client = await resources.enter_async_context(client_for(reached))
            await client.server_info()
            model = _model(settings, name)
            resources.push_async_callback(model.close)
            await _open(model)
            say(f"{conversation} with {model.name}, context length {model.context_length:,}. {HELP}")
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
        appended = await self._append(Role.USER, text, rendering=self._model.rendering, wait_s=PASS_WAIT_S)
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
    """`provider:model`; a name without a provider is Ollama's."""
    if asked:
        return asked if asked.partition(":")[0] in _PROVIDERS else f"{ollama.PROVIDER}:{asked}"
    for model in settings.summarizer.models:
        if model.partition(":")[0] in _PROVIDERS:
            return model
    raise click.UsageError("summarizer.models has no model to chat with; name one: --model ollama:NAME or openai:NAME")


def _model(settings: Settings, name: str) -> ChatModel:
    provider, _, model = name.partition(":")
    try:
        return _PROVIDERS[provider](settings, model)
    except AddressError as error:
        field = "ollama.hosts" if provider == ollama.PROVIDER else "openai.url"
        raise Misconfigured(f"{field}: {error}") from error


def _of_ollama(settings: Settings, model: str) -> ChatModel:
    group = settings.ollama
    (host,) = open_hosts([group.address(group.hosts[0])], group.calls(), clock=time.monotonic)
    return OllamaChat(model, host, group.calls(), clock=time.monotonic)


def _of_openai(settings: Settings, model: str) -> ChatModel:
    group = settings.openai
    return OpenAIChat(model, group.address(), group.calls(), clock=time.monotonic)


_PROVIDERS: Mapping[str, Callable[[Settings, str], ChatModel]] = {
    ollama.PROVIDER: _of_ollama,
    openai.PROVIDER: _of_openai,
}


async def _open(model: ChatModel) -> None:
    provider, _, name = model.name.partition(":")
    try:
        await model.open()
    except ModelMissing as error:
        hint = f"pull it with `ollama pull {name}`" if provider == ollama.PROVIDER else "check the name of the model"
        raise CommandFailed(f"{model.where}: {error}", hint=hint) from error
    except ModelError as error:
        hint = "start Ollama, set OLLAMA_HOST to its address, or name an openai: model"
        if provider == openai.PROVIDER:
            hint = "set openai.url and openai.api_key (OPENAI_BASE_URL, OPENAI_API_KEY)"
        raise CommandFailed(f"{model.where}: {error}", hint=hint) from error
