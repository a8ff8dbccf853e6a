"""A fake server with an OpenAI-compatible API: the real wire over real HTTP, with chosen ways and faults.

A test says:    async with FakeOpenAI(quirks=QUIRKS["objects-only"]) as server: ... server.url ...
A shell says:   python -m tests.support.openai_server --port 8000 --quirks strict-openai --key secret

Held to llama.cpp's own server by tests/llm/test_openai_fake.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from tests.support.ollama_http import HttpReply, HttpRequest, HttpServer
from tests.support.ollama_responder import Ask, AskRefused, Piece, Responder, count_tokens, honest_answer, spoken
from tests.support.openai_quirks import QUIRKS, Quirks, openai_error
from tests.support.patience import PATIENCE_S

FAKE_MODEL = "gpt-fake"
CONTEXT_LENGTH = 4_096
TEMPLATE_TOKENS = 8
_LIMITS = ("max_tokens", "max_completion_tokens")


@dataclass(slots=True)
class _Stream:
    """One answer on its way, with the common parts of its events."""

    reply: HttpReply
    model: str
    quirks: Quirks

    async def event(self, **fields: Any) -> None:
        """Send one event."""
        event = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": self.model,
            "system_fingerprint": "fp_fake",
        }
        await self.reply.write(b"data: " + json.dumps(event | fields, ensure_ascii=False).encode() + b"\n\n")

    async def delta(self, delta: dict[str, Any], finish: str | None = None) -> None:
        """Send one event with a choice."""
        await self.event(choices=[{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])


class FakeOpenAI:
    """The server. `quirks` may be replaced while it runs; `working_most` is the most answers that ran at once."""

    def __init__(
        self,
        *,
        quirks: Quirks | None = None,
        responder: Responder | None = None,
        models: tuple[str, ...] = (FAKE_MODEL,),
    ) -> None:
        self.quirks = quirks or Quirks()
        self.responder = responder or spoken(honest_answer)
        self.models = models
        self.requests: list[HttpRequest] = []
        self.left = 0
        self.working = 0
        self.working_most = 0
        self._inferences = 0
        self._changed = asyncio.Condition()
        self._http = HttpServer(self._handle)

    async def __aenter__(self) -> FakeOpenAI:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.stop()

    async def start(self, port: int = 0) -> None:
        """Listen on loopback."""
        await self._http.start(port)

    @property
    def url(self) -> str:
        """The base address of its API."""
        return f"http://127.0.0.1:{self._http.port}/v1"

    def asked(self) -> list[dict[str, Any]]:
        """The bodies of requests for inference."""
        return [request.json for request in self.requests if request.path == "/v1/chat/completions"]

    async def until(self, condition: Callable[[FakeOpenAI], bool]) -> None:
        """Wait for something to have happened here; TimeoutError when it does not."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    async def _happened(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _handle(self, request: HttpRequest, reply: HttpReply) -> None:
        self.requests.append(request)
        await self._happened()
        try:
            await self._route(request, reply)
        except (ConnectionError, asyncio.CancelledError):
            self.left += 1
            await self._happened()
            raise

    async def _route(self, request: HttpRequest, reply: HttpReply) -> None:
        quirks = self.quirks
        if quirks.key and request.headers.get("authorization") != f"Bearer {quirks.key}":
            refusal = openai_error(401, "Incorrect API key provided", code="invalid_api_key")
            await reply.full(401, refusal.body, refusal.content_type)
            return
        match (request.method, request.path):
            case ("GET", "/v1/models") if quirks.lists_models:
                entries = [{"id": name, "object": "model", "owned_by": "fake", **quirks.listed} for name in self.models]
                await reply.json(200, {"object": "list", "data": entries})
            case ("POST", "/v1/chat/completions"):
                await self._infer(request, reply)
            case _:
                await reply.json(404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}})

    async def _infer(self, request: HttpRequest, reply: HttpReply) -> None:
        quirks = self._quirks_now()
        if quirks.hang:
            await asyncio.Event().wait()
        if quirks.wire:
            await reply.raw(quirks.wire)
            reply.abort()
            return
        body = request.json
        refusal = quirks.refusal or self._refusal(body, quirks)
        if refusal is not None:
            await reply.full(refusal.status, refusal.body, refusal.content_type, refusal.headers)
            return
        self.working += 1
        self.working_most = max(self.working, self.working_most)
        try:
            await self._answer(body, reply, quirks)
        finally:
            self.working -= 1

    def _quirks_now(self) -> Quirks:
        self._inferences += 1
        limit = self.quirks.requests
        return self.quirks if limit is None or self._inferences <= limit else Quirks()

    def _refusal(self, body: dict[str, Any], quirks: Quirks) -> Any:
        if body["model"] not in self.models:
            return openai_error(404, f"The model `{body['model']}` does not exist", code="model_not_found")
        for name in quirks.refused_fields & set(body):
            return openai_error(400, f"Unsupported parameter: '{name}'", param=name, code="unsupported_parameter")
        for name in _LIMITS:
            if quirks.limit and name in body and name != quirks.limit:
                text = (
                    f"Unsupported parameter: '{name}' is not supported with this model. Use '{quirks.limit}' instead."
                )
                return openai_error(400, text, param=name, code="unsupported_parameter")
        form = body.get("response_format", {"type": "text"})
        if form["type"] != "text" and form["type"] not in quirks.formats:
            return openai_error(400, f"response_format type {form['type']} is unavailable", param="response_format")
        if form["type"] == "json_schema" and not quirks.lengths and "maxLength" in json.dumps(form):
            text = "Invalid schema for response_format 'answer': In context=(), 'maxLength' is not permitted."
            return openai_error(400, text, param="response_format")
        tokens = _prompt_tokens(body)
        if tokens > CONTEXT_LENGTH:
            text = f"This model's maximum context length is {CONTEXT_LENGTH} tokens, your messages have {tokens}"
            return openai_error(400, text, code="context_length_exceeded")
        return None

    async def _answer(self, body: dict[str, Any], reply: HttpReply, quirks: Quirks) -> None:
        reply.piece_bytes = quirks.piece_bytes
        pieces = self.responder(_ask_of(body, quirks))
        try:
            first = await anext(pieces)
        except AskRefused as refused:
            await reply.full(refused.status, refused.text.encode(), "application/json; charset=utf-8")
            return
        await reply.start(200, "text/event-stream")
        stream = _Stream(reply, quirks.says_model or body["model"], quirks)
        if quirks.ping_after == 0:
            await reply.ping(quirks.ping, times=quirks.pings, every_s=quirks.ping_s)
        await stream.delta({"role": "assistant", "content": None})
        sent, last = 0, first
        if quirks.thinking_only:
            await stream.delta({"reasoning_content": "Let me see."})
        said = [first] if first.content else []
        said += [piece async for piece in pieces]
        for piece in said:
            if await self._deviated(stream, sent):
                return
            last = piece
            if piece.content and not quirks.thinking_only:
                if quirks.comments:
                    await reply.write(b": ping\n\nevent: message\nid: 7\n")
                await stream.delta({"refusal": piece.content} if quirks.model_refuses else {"content": piece.content})
                sent += 1
        number = 0
        while quirks.endless:
            number += 1
            await stream.delta({"content": f"again {number} "})
        await self._end(body, stream, last, sent)

    async def _deviated(self, stream: _Stream, sent: int) -> bool:
        """Perform the fault that is due after `sent` pieces; whether that was the end."""
        quirks, reply = stream.quirks, stream.reply
        if sent and sent == quirks.ping_after:
            await reply.ping(quirks.ping, times=quirks.pings, every_s=quirks.ping_s)
        if sent == quirks.error_after:
            await reply.write(b"data: " + json.dumps({"error": quirks.error}).encode() + b"\n\n")
            await reply.finish()
            return True
        if sent == quirks.eof_after:
            await reply.finish()
            return True
        if sent == quirks.abort_after:
            reply.abort()
            return True
        if sent == quirks.garbage_after:
            await reply.write(b"\xff\xfe<html>not an event</html>\n\n")
            return True
        if sent == quirks.stall_after:
            await asyncio.Event().wait()
        return False

    async def _end(self, body: dict[str, Any], stream: _Stream, last: Piece, sent: int) -> None:
        quirks = stream.quirks
        await stream.delta({}, quirks.finish or last.done_reason or "stop")
        if quirks.usage and body.get("stream_options", {}).get("include_usage"):
            prompt = (
                quirks.prompt_tokens if quirks.prompt_tokens is not None else last.prompt_tokens or _prompt_tokens(body)
            )
            written = last.output_tokens or sent
            usage = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
            await stream.event(choices=[], usage=usage)
        if quirks.done:
            await stream.reply.write(b"data: [DONE]\n\n")
        await stream.reply.finish()


def _prompt_tokens(body: dict[str, Any]) -> int:
    return sum(count_tokens(str(message["content"])) + TEMPLATE_TOKENS for message in body["messages"])


def _ask_of(body: dict[str, Any], quirks: Quirks) -> Ask:
    """The request as a responder knows it: Ollama's names for the same things."""
    form = body.get("response_format", {"type": "text"})
    options = {
        "num_predict": body.get("max_tokens", body.get("max_completion_tokens", -1)),
        "temperature": body.get("temperature", 0.8),
        "seed": body.get("seed", -1),
    }
    return Ask(body["model"], tuple(body["messages"]), None if quirks.ignores_schema else _format_of(form), options)


def _format_of(form: dict[str, Any]) -> Any:
    match form["type"]:
        case "json_schema":
            return form["json_schema"]["schema"]
        case "json_object":
            return "json"
    return None


async def _serve(arguments: argparse.Namespace) -> None:
    server = FakeOpenAI(quirks=replace(QUIRKS[arguments.quirks], key=arguments.key), models=tuple(arguments.model))
    await server.start(arguments.port)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until interrupted; the base address is the first line printed."""
    parser = argparse.ArgumentParser(prog="openai_server", description="A fake OpenAI-compatible server for tests.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--quirks", choices=sorted(QUIRKS), default="normal")
    parser.add_argument("--key", default="")
    parser.add_argument("--model", nargs="+", default=[FAKE_MODEL])
    try:
        asyncio.run(_serve(parser.parse_args(argv)))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
