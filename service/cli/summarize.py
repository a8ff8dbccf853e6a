"""`abridged summarize`: a summary of a file or of standard input, which belongs to no conversation."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from abridged.client import AsyncConversations
from abridged.service.cli.failures import CommandFailed, Misconfigured
from abridged.service.cli.options import Invocation, sidecar_options
from abridged.service.cli.plain_json import as_json
from abridged.service.cli.sidecar import call
from abridged.service.cli.terminal import say, say_text
from abridged.v1.text_service_pb2 import SummarizeTextResponse

STANDARD_INPUT = "-"


@click.command(short_help="Summarize a text file, which joins no conversation.")
@click.argument("file", metavar="FILE|-")
@click.option("--max-tokens", type=click.IntRange(32, 100_000), help="Most tokens of the summary.")
@click.option("--json", "as_json_", is_flag=True, help="All of the answer as JSON.")
@sidecar_options
@click.pass_obj
def summarize(invocation: Invocation, file: str, *, max_tokens: int | None, as_json_: bool) -> None:
    """Summarize the text in FILE, or standard input for -, with the sidecar's model. No part of it is stored.

    The summary goes to standard output, progress to standard error. `abridged compress CONVERSATION` summarizes a
    conversation.
    """
    data = _read(file)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Misconfigured(f"{_name(file)} is no UTF-8 text: byte {error.start + 1} is invalid") from error

    async def work(client: AsyncConversations) -> SummarizeTextResponse:
        limit = (await client.server_info()).limits.request_bytes_max
        if limit and len(data) > limit:
            raise CommandFailed(
                f"{_name(file)} has {len(data)} bytes, the sidecar takes {limit}",
                hint="split it, or raise server.batch_bytes_max of the sidecar: a request may have twice as much",
            )
        answer = SummarizeTextResponse()
        shown = ""
        async for answer in client.summarize_text(text, max_tokens=max_tokens or 0):
            line = _progress(answer)
            if line and line != shown:
                say(line, is_error=True)
                shown = line
        return answer

    summary = call(
        invocation, work, hints={"SUMMARIZATION_FAILED": "see summarizer.models and policy.fallback"}
    ).summary
    if as_json_:
        say(as_json(summary))
    else:
        say_text(summary.text)


def _read(file: str) -> bytes:
    if file == STANDARD_INPUT:
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise Misconfigured(f"{file} cannot be read: {error.strerror or error}") from error


def _name(file: str) -> str:
    return "standard input" if file == STANDARD_INPUT else file


def _progress(answer: SummarizeTextResponse) -> str:
    if not answer.HasField("progress"):
        return ""
    progress = answer.progress
    model = f", {progress.model}" if progress.model else ""
    return f"summarizing: {progress.calls_done} of {progress.calls_total} calls done{model}"
