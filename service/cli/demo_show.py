"""Runs the demo's sidecar and shows the ratio climbing, each pass, the window as the model gets it, and the metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from abridged.client import AsyncConversations
from abridged.service.bootstrap import Running, logging_as_set, serve
from abridged.service.cli.chat_file import FileChat
from abridged.service.cli.context import context_line, message_text
from abridged.service.cli.demo_lines import end_lines, trigger_line, window_lines
from abridged.service.cli.figures import bar, short, usage_line
from abridged.service.cli.plain_json import word
from abridged.service.cli.sidecar import get
from abridged.service.cli.terminal import one_line, width
from abridged.service.cli.watch import event_text, progress_text
from abridged.service.codec.events import fact_of
from abridged.service.codec.values import message_to_proto
from abridged.service.config.settings import Settings
from abridged.service.domain.events import SummarizationCompleted, SummarizationFailed, SummarizationSkipped
from abridged.service.domain.message import Message
from abridged.v1.conversation_pb2 import ConversationSettings, Summarization
from abridged.v1.conversation_service_pb2 import AppendMessagesResponse, WatchConversationResponse
from abridged.v1.event_pb2 import Event
from abridged.v1.summary_pb2 import SummaryRecord

NEAR_FULL = 0.8
SHOWN_EVERY = 8
PINNED_ID = "demo-023"
"""The message of the chat that the demo pins: a decision."""
_SHOWN_BY_LINES: Final = frozenset({"summarization_requested", "summarization_started", "summarization_completed"})
"""Events of a pass whose content its own lines show."""

PROGRESS_EVERY_S = 1.0
HTTP_S = 5.0


async def show(
    sidecar: Running,
    chat: FileChat,
    *,
    context_length: int,
    reported_every_s: float,
    started_s: float,
    pause_s: float,
    program: str,
) -> list[str]:
    """Play `chat` through the sidecar, print everything, and return the causes of passes that failed.

    Raises SidecarError.

    Waits for the end of each pass, which the sidecar's clocks guarantee; reports silence every `reported_every_s`.
    `program` starts the commands that are printed for trying; empty if the sidecar does not keep running.
    """
    console = Console(highlight=False, soft_wrap=True, width=width())
    address = sidecar.grpc_addresses[0]
    console.print(f"Sidecar ready after {started_s:.2f} s: gRPC {address}, HTTP {sidecar.http_address}.")
    async with AsyncConversations(address) as client:
        stage = _Stage(client, chat.conversation_id, console, reported_every_s=reported_every_s)
        console.rule(f"{len(chat.messages)} messages into a context of {context_length:,} tokens")
        await stage.play(chat, context_length=context_length, pause_s=pause_s)
        await stage.show_window()
    status, text = await asyncio.to_thread(get, sidecar.http_address, "/metrics", timeout_s=HTTP_S)
    console.rule("success metrics")
    console.print("\n".join(success_figures(text) if status == 200 else [f"HTTP {status}"]), markup=False)
    if program:
        console.rule("talk to it")
        console.print(_invitation(sidecar, chat.conversation_id, program), markup=False)
    return stage.failures


@asynccontextmanager
async def own_sidecar(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[Running]:
    """Serve while the body runs. Raises what `serve` raises, also if the sidecar stops before the body ends."""
    undo_logs = logging_as_set(settings.telemetry)
    stop = asyncio.Event()
    ready: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(settings, environ, stop=stop, ready=ready.set_result))
    either: set[asyncio.Future[Any]] = {serving, ready}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await serving
        yield await ready
    finally:
        stop.set()
        try:
            await serving
        finally:
            undo_logs()


class _Stage:
    def __init__(
        self, client: AsyncConversations, conversation: str, console: Console, *, reported_every_s: float
    ) -> None:
        self._client = client
        self._conversation = conversation
        self._console = console
        self._reported_every_s = reported_every_s
        self._reported_at_s = 0.0
        self.failures: list[str] = []
        self._ended: set[str] = set()
        self._pass_ended = asyncio.Event()

    async def play(self, chat: FileChat, *, context_length: int, pause_s: float) -> None:
        """Append message by message, waiting for each pass as a chat would before its next prompt."""
        settings = ConversationSettings(context_length=context_length, title="INC-2291")
        watching: asyncio.Task[None] | None = None
        try:
            for number, message in enumerate(chat.messages, start=1):
                self._reported_at_s = time.monotonic()
                answer = await self._client.append(self._conversation, [message_to_proto(message)], settings=settings)
                watching = watching or asyncio.create_task(self._watch())
                triggered = answer.HasField("summarization")
                if triggered or number % SHOWN_EVERY == 0 or number == len(chat.messages):
                    self._print_message(answer, message)
                if message.id == PINNED_ID:
                    await self._client.pin(self._conversation, [number])
                    self._print_line(f"     message {number} is pinned: no pass takes it out of the window")
                if triggered:
                    await self._show_pass(answer, watching)
                await asyncio.sleep(pause_s)
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def show_window(self) -> None:
        """Print the window to send now, the whole summary in it, and its tokens beside those of all messages."""
        original = await self._client.context(self._conversation, original=True)
        context = await self._client.context(self._conversation)
        pinned = (await self._client.conversation(self._conversation)).pinned_numbers
        record = await self._record(context.summary_id)
        self._console.rule("what the model gets now: number, tokens, role, text")
        for line in window_lines(context, record, pinned, columns=self._console.width):
            self._print_line(line)
        self._print_line(usage_line(context.usage))
        everything, sent = original.usage.window_tokens, context.usage.window_tokens
        self._console.print(
            f"{everything:,} tokens of {len(original.messages)} messages became {sent:,}; all of them are in the log."
        )
        if record is not None:
            await self._show_evidence(record)

    async def _show_evidence(self, record: SummaryRecord) -> None:
        """Print a statement of the record that names its messages, and these messages as they were appended."""
        found = next((s for s in (*record.context.decisions, *record.key_points) if s.message_numbers), None)
        if found is None:
            return
        self._console.rule("what one statement of the record rests on")
        self._print_line(found.text, style="bold")
        async for message in self._client.originals(self._conversation, numbers=found.message_numbers):
            self._print_line(context_line(message, columns=self._console.width))

    def _print_line(self, line: str, *, style: str = "") -> None:
        self._console.print(Text(one_line(line), style=style))

    def _print_message(self, answer: AppendMessagesResponse, message: Message) -> None:
        ratio = answer.usage.ratio
        line = Text(f"{answer.message_version:>4} ")
        line.append(f"{bar(ratio, cells=24)} {ratio:.2f} ", style="yellow" if ratio >= NEAR_FULL else "green")
        calls = (call.name for call in message.tool_calls)
        line.append(
            message_text(
                (message.role, message.name), message.content, calls, chars_max=self._console.width - len(line)
            )
        )
        self._console.print(line)

    async def _show_pass(self, answer: AppendMessagesResponse, watching: asyncio.Task[None]) -> None:
        begun, before = answer.summarization, answer.usage
        while begun.id:
            self._print_line(f"     {trigger_line(begun)}", style="bold")
            await self._end_of(begun.id, watching)
            ended = await self._client.summarization(self._conversation, begun.id)
            context = await self._client.context(self._conversation)
            for line in end_lines(ended, await self._record(ended.summary_id), before, context.usage):
                self._print_line(f"     {line}")
            # If a pass was not enough, another follows.
            following, before = context.pending_summarization_id, context.usage
            begun = await self._client.summarization(self._conversation, following) if following else Summarization()

    async def _record(self, summary_id: str) -> SummaryRecord | None:
        return (await self._client.summary(self._conversation, summary_id)).summary if summary_id else None

    async def _end_of(self, pass_id: str, watching: asyncio.Task[None]) -> None:
        """Wait until the watcher reports the pass's end, printing a line now and then; raises what ends the watcher."""
        began_s = self._reported_at_s = time.monotonic()
        while pass_id not in self._ended:
            self._pass_ended.clear()
            hearing = asyncio.create_task(self._pass_ended.wait())
            await asyncio.wait({hearing, watching}, timeout=self._reported_every_s, return_when=asyncio.FIRST_COMPLETED)
            hearing.cancel()
            if watching.done():
                watching.result()
                raise AssertionError("the sidecar of this process ends its streams with an error or not at all")
            now_s = time.monotonic()
            if now_s - self._reported_at_s >= self._reported_every_s:
                self._reported_at_s = now_s
                says = f"pass {short(pass_id)} has been running for {now_s - began_s:.0f} s"
                self._print_line(f"     ~ {says}", style="dim")

    async def _watch(self) -> None:
        async for item in self._client.watch(self._conversation):
            if line := self._pass_line(item):
                self._print_line(f"     ~ {line}", style="dim")
            if item.HasField("event") and (ended := _pass_ended_by(item.event)):
                if item.event.HasField("summarization_failed"):
                    self.failures.append(f"{short(ended)}: {item.event.summarization_failed.cause}")
                self._ended.add(ended)
                self._pass_ended.set()

    def _pass_line(self, item: WatchConversationResponse) -> str:
        if item.HasField("event"):
            is_shown = (
                item.event.type.startswith("Summarization") and item.event.WhichOneof("body") not in _SHOWN_BY_LINES
            )
            return event_text(item.event, chars_max=100) if is_shown else ""
        if not item.HasField("progress") or word(item.progress, "stage") not in {"ATTEMPT", "PROGRESS"}:
            return ""
        if word(item.progress, "stage") == "PROGRESS":
            now_s = time.monotonic()
            if not item.progress.output_chars or now_s - self._reported_at_s < PROGRESS_EVERY_S:
                return ""
            self._reported_at_s = now_s
        return progress_text(item.progress)


def _pass_ended_by(event: Event) -> str:
    """Return the id of the pass that an event ends; empty if no pass ends with it."""
    match fact_of(event):
        case SummarizationCompleted(pass_id=pass_id) | SummarizationFailed(pass_id=pass_id):
            return pass_id
        case SummarizationSkipped(pass_id=pass_id):
            return pass_id
        case _:
            return ""


def success_figures(exposition: str) -> list[str]:
    """Return the non-zero pass counters of a /metrics text, and the success ratio that follows."""
    counted: dict[str, float] = {}
    lines: list[str] = []
    for line in exposition.splitlines():
        series, _, value = line.rpartition(" ")
        if not series.startswith("abridged_summarizations_total{") or float(value) == 0:
            continue
        lines.append(f"{series} {float(value):g}")
        outcome = series.partition('outcome="')[2].partition('"')[0]
        counted[outcome] = counted.get(outcome, 0.0) + float(value)
    finished = sum(counted.get(outcome, 0.0) for outcome in ("success", "fallback", "error"))
    if finished:
        ratio = f"success ratio {counted.get('success', 0.0) / finished:.2f} of {finished:g} finished passes"
        made = counted.get("fallback", 0.0)
        lines.append(f"{ratio}; {made:g} by extraction, which does not count as a success" if made else ratio)
    return lines or ["no pass has ended"]


def _invitation(sidecar: Running, conversation: str, program: str) -> str:
    address = sidecar.grpc_addresses[0]
    return "\n".join(
        (
            f"{program} append --address {address} {conversation} 'What did we decide about 0042?'",
            f"{program} context --address {address} {conversation}",
            f"{program} watch --address {address} {conversation}",
            f"{program} summaries --address {address} {conversation}",
            f"curl http://{sidecar.http_address}/metrics",
        )
    )
