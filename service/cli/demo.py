"""`abridged demo`: the main job from end to end, on a temporary log, with a bundled conversation."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import time
import uuid
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

import click

from abridged.service.cli.chat_file import Fault, FileChat, read_chats
from abridged.service.cli.configured import configuration
from abridged.service.cli.failures import CommandFailed
from abridged.service.cli.options import Invocation, settings_options
from abridged.service.cli.prerequisites import check_prerequisites
from abridged.service.cli.serve import explained
from abridged.service.cli.sidecar import run
from abridged.service.cli.speed import longest_prompt, patience, speed_line
from abridged.service.cli.terminal import is_interactive, program_name, say, say_text
from abridged.service.config.settings import Settings
from abridged.service.config.sources import environment
from abridged.service.models.model import ModelError
from abridged.service.models.ollama.inventory import inventory_of, missing_remedy, speed_of
from abridged.service.models.settings import text_of
from abridged.service.summarizer.summarizer import EXTRACTIVE

CONTEXT_LENGTH = 4_096
"""Tokens; the context length of the imagined chat model."""

WITHOUT_HOST = "start Ollama with `ollama serve`, or set OLLAMA_HOST to its address"
UNANSWERED = "check `ollama ps` and the host's log, then try again"
PAUSE_S = 0.06
"""Seconds between two messages on a terminal: slow enough to see the ratio climb."""

REPORT_SHARE = 0.05
"""Interval of the reports during a silent wait, as a share of the longest wait for a first byte: 15 s of 300."""


@click.command(short_help="See the main job end to end.")
@settings_options
@click.pass_obj
def demo(invocation: Invocation) -> None:
    """Start a sidecar on a temporary log, play a conversation through it, and show what the model gets.

    An Ollama model makes the records if it is available and answers a small question, otherwise the extractive
    summarizer does. Waits for a slow model as long as its measured speed demands. The sidecar keeps running on a
    terminal until Ctrl-C, for you to try. Ends with 1 if a pass failed.
    """
    with tempfile.TemporaryDirectory(prefix="abridged-demo-") as folder:
        forced = _forced(Path(folder))
        found = configuration(invocation, forced)
        check_prerequisites(found)
        settings = found.settings
        try:
            summarizer = asyncio.run(_summarizer(settings))
            settings = configuration(invocation, forced | summarizer).settings
            with explained(settings.log):
                run(_play(settings, found.settings.ollama.first_byte_timeout_s * REPORT_SHARE))
        except asyncio.CancelledError as error:
            raise click.Abort from error


def bundled_conversation() -> FileChat:
    """The conversation that ships with the command."""
    # A document of many lines, with line breaks only between its tokens.
    document = files("abridged.service.cli").joinpath("demo_conversation.json").read_bytes()
    (chat,) = read_chats(BytesIO(document.replace(b"\n", b" ")))
    assert not isinstance(chat, Fault), "the shipped file is in order"
    return chat


def _forced(folder: Path) -> dict[str, Any]:
    """Settings of a demonstration: nothing is kept, nothing collides, and log lines do not drown the output."""
    return {
        "log.backend": "sqlite",
        "log.path": str(folder / "demo.db"),
        "server.listen": ["127.0.0.1:0"],
        "server.http_listen": "127.0.0.1:0",
        "server.tokens": [],
        "telemetry.log_level": "error",
    }


async def _summarizer(settings: Settings) -> dict[str, Any]:
    """The settings that select the summarizer; prints which one it is, its speed, and how to get another."""
    _end_on_sigterm()
    first = settings.summarizer.models[0]
    if not first.startswith("ollama:"):
        say(f"Summaries by {first}, as configured.")
        return {}
    model = first.removeprefix("ollama:")
    group = settings.ollama
    address, token = group.address(group.hosts[0]), text_of(group.api_key)
    found = await inventory_of(address, [model], token=token, timeout_s=group.connect_timeout_s, clock=time.monotonic)
    if found.has_all:
        limit_s = group.first_byte_timeout_s
        say(f"Ollama {found.version} is running at {found.host}.")
        say(f"Measuring the speed of {model} with a small question, for at most {limit_s:g} s ...")
        try:
            speed = await speed_of(
                address, found.models[0], group.calls(), clock=time.monotonic, nonce=uuid.uuid4().hex
            )
        except ModelError as error:
            return _extractive(f"{model} did not answer: {error}.", UNANSWERED)
        tokens = longest_prompt(settings, source_tokens_max=CONTEXT_LENGTH)
        raised = patience(speed, settings, prompt_tokens=tokens)
        found_line = f"Summaries by {model}, which {speed_line(speed, settings, prompt_tokens=tokens)}"
        say_text("; ".join((found_line, *(f"here it is {seconds}" for seconds in sorted(set(raised.values()))))) + ".")
        return dict(raised)
    problem = found.problem or found.models[0].problem
    is_missing = not found.problem and found.models[0].is_missing
    return _extractive(f"Ollama {problem}.", missing_remedy(model, found.others) if is_missing else WITHOUT_HOST)


def _extractive(says: str, remedy: str) -> dict[str, Any]:
    say(says)
    say(f"Summaries by {EXTRACTIVE}, which needs no model.")
    say(f"To use a model: {remedy}.")
    return {"summarizer.models": [EXTRACTIVE]}


def _end_on_sigterm() -> None:
    """Make SIGTERM cancel the running task, so that the temporary folder is removed."""
    task = asyncio.current_task()
    assert task is not None, "this runs as a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def _play(settings: Settings, reported_every_s: float) -> None:
    """Play the conversation, and on a terminal keep the sidecar running."""
    _end_on_sigterm()
    # Imported late: it loads the whole server.
    from abridged.service.cli.demo_show import own_sidecar, show

    started = time.monotonic()
    async with own_sidecar(settings, environment()) as sidecar:
        interactive = is_interactive()
        program = program_name(Path(sys.argv[0]), in_environment=sys.prefix != sys.base_prefix)
        failures = await show(
            sidecar,
            bundled_conversation(),
            context_length=CONTEXT_LENGTH,
            reported_every_s=reported_every_s,
            started_s=time.monotonic() - started,
            pause_s=PAUSE_S if interactive else 0.0,
            program=program if interactive else "",
        )
        if interactive:
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            say_text("\nThe sidecar keeps running until Ctrl-C.")
            await stop.wait()
        else:
            say_text("\nThe sidecar stops here; on a terminal it keeps running for you to try.")
    if failures:
        raise CommandFailed("a pass failed:", details=failures)
