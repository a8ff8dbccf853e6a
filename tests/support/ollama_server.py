"""A fake Ollama that speaks the real wire over real HTTP, in the manner of a chosen version, with chosen faults.

In a test:      async with FakeOllama(behaviour=BEHAVIOURS["stall"]) as server: ... server.url ...
As a process:   python -m tests.support.ollama_server --port 11434 --behaviour hang --version 0.24.0

Invariants: one model request is worked on at a time for each of `parallel` slots; a client that leaves while its
model loads aborts that load; inference answers 200 only with the first chunk, as Ollama does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from tests.support.ollama_answer import AnswerShape, OllamaAnswer
from tests.support.ollama_behaviour import BEHAVIOURS, NORMAL, Behaviour
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_http import HttpReply, HttpRequest, HttpServer
from tests.support.ollama_manner import NEWEST, Manner
from tests.support.ollama_responder import (
    TEMPLATE_TOKENS,
    Ask,
    AskRefused,
    Piece,
    Responder,
    count_tokens,
    schema_answer,
    spoken,
)
from tests.support.patience import PATIENCE_S

__all__ = ["FakeOllama"]

SILENT_ERRORS = (ConnectionError, asyncio.CancelledError)


class FakeOllama:
    """The server. `behaviour`, `manner` and `models` may be replaced while it runs.

    `loaded` says whether the models are in memory at the start; `load_gate`, when not set, keeps loads waiting;
    `load_error` fails them; `hidden_paths` answer 403, as a proxy may do.
    """

    def __init__(
        self,
        *,
        models: Sequence[FakeModel] = (FakeModel(),),
        manner: Manner = NEWEST,
        behaviour: Behaviour = NORMAL,
        responder: Responder | None = None,
        loaded: bool = True,
        load_s: float = 0.0,
        parallel: int = 1,
    ) -> None:
        self.models = list(models)
        self.manner = manner
        self.behaviour = behaviour
        self.responder = responder or spoken(schema_answer)
        self.load_s = load_s
        self.load_error = ""
        self.hidden_paths: set[str] = set()
        self.load_gate = asyncio.Event()
        self.load_gate.set()
        self.requests: list[HttpRequest] = []
        self.resident: dict[str, int] = {m.name: manner.default_context for m in models} if loaded else {}
        self.loads_begun = 0
        self.loads_aborted = 0
        self.reloads = 0
        self.left = 0
        self.working = 0
        self.working_most = 0
        self._adopts_context = loaded
        self._inferences = 0
        self._slots = asyncio.Semaphore(parallel)
        self._loading = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._http = HttpServer(self._handle)
        self._routes: dict[tuple[str, str], Callable[[HttpRequest, HttpReply], Any]] = {
            ("GET", "/"): self._banner,
            ("HEAD", "/"): self._banner,
            ("GET", "/api/version"): self._version,
            ("GET", "/api/tags"): self._tags,
            ("GET", "/api/ps"): self._ps,
            ("POST", "/api/show"): self._show,
            ("POST", "/api/chat"): self._infer,
            ("POST", "/api/generate"): self._infer,
            ("POST", "/api/embed"): self._embed,
        }

    async def __aenter__(self) -> FakeOllama:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen on loopback."""
        await self._http.start(port)

    async def stop(self) -> None:
        """Drop everything."""
        await self._http.stop()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._http.port

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def asked(self, path: str = "/api/chat") -> list[dict[str, Any]]:
        """The bodies of requests for inference, without those that only load."""
        bodies = [request.json for request in self.requests if request.path == path]
        return [body for body in bodies if body.get("messages") or body.get("prompt")]

    async def until(self, condition: Callable[[FakeOllama], bool]) -> None:
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
            if self.behaviour.everywhere:
                await self._refuse(reply, self.behaviour)
                return
            route = self._routes.get((request.method, request.path))
            if request.path in self.hidden_paths:
                await reply.json(403, {"error": "forbidden"})
            elif route is not None:
                await route(request, reply)
            elif any(path == request.path for _, path in self._routes):
                await reply.full(405, b"405 method not allowed", "text/plain")
            else:
                await reply.full(404, b"404 page not found", "text/plain")
        except SILENT_ERRORS:
            self.left += 1
            await self._happened()
            raise

    async def _refuse(self, reply: HttpReply, behaviour: Behaviour) -> None:
        if behaviour.hang:
            await asyncio.Event().wait()
        refusal = behaviour.refusal
        assert refusal is not None
        await reply.full(refusal.status, refusal.body, refusal.content_type, refusal.headers)

    async def _banner(self, request: HttpRequest, reply: HttpReply) -> None:
        await reply.full(200, b"" if request.method == "HEAD" else b"Ollama is running", "text/plain; charset=utf-8")

    async def _version(self, _request: HttpRequest, reply: HttpReply) -> None:
        await reply.json(200, {"version": self.manner.version})

    async def _tags(self, _request: HttpRequest, reply: HttpReply) -> None:
        await reply.json(200, {"models": [model.tag() for model in self.models]})

    async def _ps(self, _request: HttpRequest, reply: HttpReply) -> None:
        models = [model for model in self.models if model.name in self.resident]
        await reply.json(200, {"models": [model.resident(self.resident[model.name], self.manner) for model in models]})

    async def _show(self, request: HttpRequest, reply: HttpReply) -> None:
        model = await self._find(request, reply)
        if model is not None:
            await reply.json(200, model.show(self.manner, verbose=bool(request.json.get("verbose"))))

    async def _embed(self, request: HttpRequest, reply: HttpReply) -> None:
        model = await self._find(request, reply)
        if model is None:
            return
        given = request.json.get("input", [])
        texts = [given] if isinstance(given, str) else given
        tokens = sum(count_tokens(text) for text in texts)
        if tokens > self.manner.default_context and request.json.get("truncate") is False:
            await reply.json(400, {"error": "the input length exceeds the context length"})
            return
        vectors = [[len(text) / 1_000, count_tokens(text) / 100, 1.0] for text in texts]
        await reply.json(200, {"model": model.name, "embeddings": vectors, "prompt_eval_count": tokens})

    async def _find(self, request: HttpRequest, reply: HttpReply) -> FakeModel | None:
        """The model that the request names; replies with the error when there is none."""
        if not request.body:
            await reply.json(400, {"error": "missing request body"})
            return None
        name = str(request.json.get("model") or request.json.get("name") or "")
        if not name:
            await reply.json(400, {"error": "model is required"})
            return None
        for model in self.models:
            if model.name.lower() in {name.lower(), f"{name.lower()}:latest"}:
                return model
        await reply.json(404, {"error": self.manner.missing_error(name)})
        return None

    async def _infer(self, request: HttpRequest, reply: HttpReply) -> None:
        """/api/chat and /api/generate: check, load, and stream or answer whole."""
        model = await self._find(request, reply)
        if model is None:
            return
        body = request.json
        messages = body.get("messages") or ([{"role": "user", "content": body["prompt"]}] if body.get("prompt") else [])
        if not messages:
            if self.load_error:
                await reply.json(500, {"error": self.load_error})
                return
            await self._have_loaded(model, body)
            await reply.json(200, AnswerShape.of(request).line(Piece(done_reason="load"), counted=False))
            return
        behaviour = self._behaviour_now()
        if behaviour.refusal is not None or behaviour.hang:
            await self._refuse(reply, behaviour)
            return
        if await self._refused_as_wrong(model, body, reply):
            return
        async with self._slots:
            self.working += 1
            self.working_most = max(self.working_most, self.working)
            try:
                await self._work(request, reply, model, messages, behaviour)
            finally:
                self.working -= 1

    def _behaviour_now(self) -> Behaviour:
        self._inferences += 1
        limit = self.behaviour.requests
        return self.behaviour if limit is None or self._inferences <= limit else NORMAL

    async def _refused_as_wrong(self, model: FakeModel, body: dict[str, Any], reply: HttpReply) -> bool:
        """Ollama's own checks: the ability to think, the kind of `format`, the type of `num_ctx`."""
        if body.get("think") and not model.thinks and self.manner.knows_think:
            await reply.json(400, {"error": f'"{model.name}" does not support thinking'})
        elif body.get("format") not in (None, "", "json") and not isinstance(body["format"], dict):
            text = 'expected "json" or a valid JSON Schema object'
            await reply.json(500, {"error": f"invalid format: {json.dumps(body['format'])}; {text}"})
        elif not isinstance(body.get("options", {}).get("num_ctx", 0), int):
            await reply.json(500, {"error": 'option "num_ctx" must be of type integer'})
        else:
            return False
        return True

    async def _have_loaded(self, model: FakeModel, body: dict[str, Any]) -> int:
        """Load the model unless it is there with the wanted window; a client that leaves aborts the load."""
        wanted = min(int(body.get("options", {}).get("num_ctx") or self.manner.default_context), model.context_length)
        if self._adopts_context and model.name in self.resident:
            # A test that starts with a loaded model means: loaded with the window that will be asked for.
            self.resident[model.name] = wanted
        async with self._loading:
            if self.resident.get(model.name) == wanted:
                return wanted
            self.reloads += model.name in self.resident
            self.resident.pop(model.name, None)
            self.loads_begun += 1
            await self._happened()
            try:
                await self.load_gate.wait()
                await asyncio.sleep(self.load_s)
            except asyncio.CancelledError:
                self.loads_aborted += 1
                raise
            self.resident[model.name] = wanted
        await self._happened()
        return wanted

    async def _work(
        self,
        request: HttpRequest,
        reply: HttpReply,
        model: FakeModel,
        messages: list[dict[str, Any]],
        behaviour: Behaviour,
    ) -> None:
        body = request.json
        num_ctx = await self._have_loaded(model, body)
        self._adopts_context = False
        prompt_tokens = sum(count_tokens(str(m.get("content", ""))) + TEMPLATE_TOKENS for m in messages)
        if prompt_tokens > num_ctx:
            refuses = body.get("truncate") is False and self.manner.knows_truncate
            if refuses and not behaviour.silent_cut:
                await reply.json(400, {"error": self.manner.overflow_error(prompt_tokens, num_ctx)})
                return
            prompt_tokens = self.manner.kept_tokens(num_ctx)
        elif behaviour.silent_cut:
            prompt_tokens //= 3
        ask = Ask(
            model=model.name,
            messages=tuple(messages),
            format=self._format(model, body),
            options=body.get("options", {}),
            thinks=self._thinks(model, body),
        )
        answer = OllamaAnswer(AnswerShape.of(request), reply, behaviour, prompt_tokens=prompt_tokens)
        await asyncio.sleep(behaviour.headers_delay_s)
        send = answer.send_whole if body.get("stream") is False else answer.send_lines
        try:
            await send(self.responder(ask))
        except AskRefused as refused:
            await reply.json(refused.status, {"error": refused.text})

    def _thinks(self, model: FakeModel, body: dict[str, Any]) -> bool:
        return model.thinks and self.manner.knows_think and body.get("think") is not False

    def _format(self, model: FakeModel, body: dict[str, Any]) -> Any:
        ignored = (
            model.thinks
            and body.get("think") is False
            and self.manner.knows_think
            and not self.manner.obeys_format_without_thinking
        )
        return None if ignored else body.get("format")


async def _serve(arguments: argparse.Namespace) -> None:
    server = FakeOllama(
        models=[FakeModel(name=name) for name in arguments.model],
        manner=Manner(arguments.version),
        behaviour=BEHAVIOURS[arguments.behaviour],
        loaded=not arguments.not_loaded,
        load_s=arguments.load_s,
    )
    await server.start(arguments.port)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until interrupted; the address is the first line printed."""
    parser = argparse.ArgumentParser(prog="ollama_server", description="A fake Ollama for tests.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--behaviour", choices=sorted(BEHAVIOURS), default="normal")
    parser.add_argument("--version", default=NEWEST.version)
    parser.add_argument("--model", nargs="+", default=[FakeModel().name])
    parser.add_argument("--not-loaded", action="store_true")
    parser.add_argument("--load-s", type=float, default=0.0)
    try:
        asyncio.run(_serve(parser.parse_args(argv)))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
