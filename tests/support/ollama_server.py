"""A fake Ollama that speaks the real wire over real HTTP, in the manner of a chosen version, with chosen faults.

A test says:    async with FakeOllama(behaviour=BEHAVIOURS["stall"]) as server: ... server.url ...
A shell says:   python -m tests.support.ollama_server --port 11434 --prefill-s 200 --tokens-per-s 8 (README.md)

Invariants: one model request is worked on at a time for each of `parallel` slots; a client that leaves while its
model loads aborts that load; inference answers 200 only with the first chunk, as Ollama does.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

from tests.support.ollama_answer import AnswerShape, OllamaAnswer
from tests.support.ollama_behaviour import BEHAVIOURS, NORMAL, Behaviour, Refusal
from tests.support.ollama_catalogue import FakeModel
from tests.support.ollama_checks import body_refusal, host_refusal, request_refusal
from tests.support.ollama_hostile import ATTACK_PATH, HOSTILE
from tests.support.ollama_http import HttpReply, HttpRequest, HttpServer
from tests.support.ollama_inference import ask_of, kept_tokens, refusal_of, run_of
from tests.support.ollama_manner import CRASH_TEXT, NEWEST, Manner
from tests.support.ollama_pace import AT_ONCE, Pace
from tests.support.ollama_responder import (
    AskRefused,
    Piece,
    Responder,
    count_tokens,
    honest_answer,
    prompt_of,
    spoken,
)
from tests.support.ollama_runner import Runner, Slot
from tests.support.patience import PATIENCE_S

SILENT_ERRORS = (ConnectionError, asyncio.CancelledError)


class FakeOllama:
    """The server. `behaviour`, `manner` and `models` may be replaced while it runs.

    `loaded` says whether the models are in memory at the start; `load_gate`, when not set, keeps loads waiting;
    `load_error` fails them; `on_embedding` hears how many texts are to become vectors and may drop the connection, by
    raising ConnectionError; `hidden_paths` answer 403, as a proxy may.
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
        pace: Pace = AT_ONCE,
    ) -> None:
        self.models = list(models)
        self.manner = manner
        self.behaviour = behaviour
        self.responder = responder or spoken(honest_answer)
        self.load_s = load_s
        self.load_error = ""
        self.embedding_numbers = 3
        self.on_embedding: Callable[[int], None] = lambda _texts: None
        self.hidden_paths: set[str] = set()
        self.load_gate = asyncio.Event()
        self.load_gate.set()
        self.requests: list[HttpRequest] = []
        self.resident: dict[str, int] = {m.name: manner.default_context for m in models} if loaded else {}
        self.loads_begun = 0
        self.loads_aborted = 0
        self.reloads = 0
        self.left = self.pumped = 0
        self.runner = Runner(parallel=parallel, pace=pace, on_change=self._happened)
        self._shifts: dict[str, bool] = {}
        self._adopts_context = loaded
        self._inferences = 0
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
            ("GET", ATTACK_PATH): self._attack,
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
        await self.runner.stop()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._http.port

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def working(self) -> int:
        """Slots that are occupied."""
        return self.runner.working

    @property
    def working_most(self) -> int:
        """The most requests that had a slot at once."""
        return self.runner.working_most

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
            await self._route(request, reply)
        except SILENT_ERRORS:
            self.left += 1
            await self._happened()
            raise

    async def _route(self, request: HttpRequest, reply: HttpReply) -> None:
        if self.behaviour.everywhere:
            await self._misbehave(reply, self.behaviour)
            return
        route = self._routes.get((request.method, request.path))
        allowed = sorted(method for method, path in self._routes if path == request.path)
        if refusal := host_refusal(request.headers.get("host", "")):
            await _refuse(reply, refusal)
        elif request.path in self.hidden_paths:
            await reply.json(403, {"error": "forbidden"})
        elif route is not None:
            await route(request, reply)
        elif allowed:
            await reply.full(405, b"405 method not allowed", "text/plain", {"allow": ", ".join(allowed)})
        else:
            await reply.full(404, b"404 page not found", "text/plain")

    async def _misbehave(self, reply: HttpReply, behaviour: Behaviour) -> None:
        if behaviour.hang:
            await asyncio.Event().wait()
        if behaviour.wire or behaviour.wire_again:
            await self._pump(reply, behaviour)
            return
        assert behaviour.refusal is not None
        await _refuse(reply, behaviour.refusal)

    async def _pump(self, reply: HttpReply, behaviour: Behaviour) -> None:
        if behaviour.wire:
            await reply.raw(behaviour.wire)
        if not behaviour.wire_again:
            return
        for _ in range(behaviour.wire_again_max):
            await reply.raw(behaviour.wire_again)
            self.pumped += len(behaviour.wire_again)
        reply.abort()

    async def _banner(self, request: HttpRequest, reply: HttpReply) -> None:
        await reply.full(200, b"" if request.method == "HEAD" else b"Ollama is running", "text/plain; charset=utf-8")

    async def _version(self, _request: HttpRequest, reply: HttpReply) -> None:
        await reply.json(200, {"version": self.manner.version})

    async def _attack(self, _request: HttpRequest, reply: HttpReply) -> None:
        await reply.json(200, {"asked": self._inferences, "pumped_bytes": self.pumped})

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
        self.on_embedding(len(texts))
        padding = [1.0] * (self.embedding_numbers - 2)
        vectors = [[len(text) / 1_000, count_tokens(text) / 100, *padding] for text in texts]
        await reply.json(200, {"model": model.name, "embeddings": vectors, "prompt_eval_count": tokens})

    async def _find(self, request: HttpRequest, reply: HttpReply) -> FakeModel | None:
        """The model that the request names; replies with an error, and returns None, if it names no known one."""
        if refusal := body_refusal(request.body):
            await _refuse(reply, refusal)
            return None
        name = str(request.json.get("model") or request.json.get("name"))
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
            await self._load_or_unload(request, reply, model)
            return
        behaviour = self._behaviour_now()
        if behaviour.refusal is not None or behaviour.hang or behaviour.wire or behaviour.wire_again:
            await self._misbehave(reply, behaviour)
            return
        if refusal := request_refusal(model, body, self.manner):
            await _refuse(reply, refusal)
            return
        async with self.runner.slot(finishes_left_prefill=self.manner.finishes_left_prefill) as slot:
            await self._work(request, reply, model, messages, behaviour, slot)

    async def _load_or_unload(self, request: HttpRequest, reply: HttpReply, model: FakeModel) -> None:
        """An empty request: the model is loaded, or with `keep_alive: 0` freed."""
        body = request.json
        unloads = body.get("keep_alive") == 0
        if unloads:
            self._unload(model)
        elif self.load_error:
            await reply.json(500, {"error": self.load_error})
            return
        else:
            await self._have_loaded(model, body)
        await reply.json(200, AnswerShape.of(request).line(Piece(done_reason="unload" if unloads else "load")))

    def _behaviour_now(self) -> Behaviour:
        self._inferences += 1
        limit = self.behaviour.requests
        return self.behaviour if limit is None or self._inferences <= limit else NORMAL

    def _name_in_memory(self, model: FakeModel) -> str:
        """The name that a model has in memory: one blob is there once, under the name that was loaded first."""
        same = (known.name for known in self.models if known.digest == model.digest and known.name in self.resident)
        return next(same, model.name)

    def _unload(self, model: FakeModel) -> None:
        self.resident.pop(self._name_in_memory(model), None)
        self.runner.forget()

    async def _have_loaded(self, model: FakeModel, body: dict[str, Any]) -> int:
        """Load the model unless it is there with the wanted options; a client that leaves aborts the load."""
        wanted = min(int(body.get("options", {}).get("num_ctx") or self.manner.default_context), model.context_length)
        shift = body.get("shift") is not False
        name = self._name_in_memory(model)
        if self._adopts_context and name in self.resident:
            # A test that starts with a loaded model means: loaded with the window that will be asked for.
            self.resident[name] = wanted
        async with self._loading:
            same_shift = self._shifts.setdefault(name, shift) == shift or not self.manner.reloads_on_shift
            if self.resident.get(name) == wanted and same_shift:
                return wanted
            self.reloads += name in self.resident
            self._unload(model)
            self.loads_begun += 1
            await self._happened()
            try:
                await self.load_gate.wait()
                await asyncio.sleep(self.load_s)
            except asyncio.CancelledError:
                self.loads_aborted += 1
                raise
            self.resident[model.name] = wanted
            self._shifts[model.name] = shift
        await self._happened()
        return wanted

    async def _work(
        self,
        request: HttpRequest,
        reply: HttpReply,
        model: FakeModel,
        messages: list[dict[str, Any]],
        behaviour: Behaviour,
        slot: Slot,
    ) -> None:
        body = request.json
        num_ctx = await self._have_loaded(model, body)
        self._adopts_context = False
        prompt = prompt_of(messages)
        tokens = model.tokens(len(prompt))
        refusal = refusal_of(body, self.manner, behaviour, tokens=tokens, num_ctx=num_ctx)
        if refusal is not None:
            if CRASH_TEXT.encode() in refusal.body:
                self._unload(model)
            await _refuse(reply, replace(refusal, chunked=body.get("stream") is not False))
            return
        evaluation = await slot.evaluated(prompt, kept_tokens(tokens, num_ctx, self.manner, behaviour))
        ask = ask_of(model, body, messages, self.manner)
        run = run_of(body, self.manner, evaluation, num_ctx=num_ctx, token_s=self.runner.pace.token_s)
        answer = OllamaAnswer(AnswerShape.of(request), reply, behaviour, run)
        await asyncio.sleep(behaviour.headers_delay_s)
        send = answer.send_whole if body.get("stream") is False else answer.send_lines
        try:
            await send(self.responder(ask))
        except AskRefused as refused:
            await reply.json(refused.status, {"error": refused.text})


async def _refuse(reply: HttpReply, refusal: Refusal) -> None:
    if not refusal.chunked:
        await reply.full(refusal.status, refusal.body, refusal.content_type, refusal.headers)
        return
    await reply.start(refusal.status, "application/json", refusal.headers)
    await reply.write(refusal.body)
    await reply.finish()


async def _serve(arguments: argparse.Namespace) -> None:
    pace = Pace(arguments.prefill_s, arguments.prefill_tokens_per_s, arguments.tokens_per_s)
    server = FakeOllama(
        models=[FakeModel(name=name, token_ratio=arguments.token_ratio) for name in arguments.model],
        manner=Manner(arguments.version),
        behaviour=(BEHAVIOURS | HOSTILE)[arguments.behaviour],
        loaded=not arguments.not_loaded,
        load_s=arguments.load_s * arguments.time_scale,
        parallel=arguments.parallel,
        pace=pace.scaled(arguments.time_scale),
    )
    await server.start(arguments.port)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until interrupted; the address is the first line printed."""
    parser = argparse.ArgumentParser(prog="ollama_server", description="A fake Ollama for tests.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--behaviour", choices=sorted(BEHAVIOURS | HOSTILE), default="normal")
    parser.add_argument("--version", default=NEWEST.version)
    parser.add_argument("--model", nargs="+", default=[FakeModel().name])
    parser.add_argument("--not-loaded", action="store_true")
    parser.add_argument("--load-s", type=float, default=0.0)
    parser.add_argument("--prefill-s", type=float, default=0.0, help="seconds before each answer, whatever the prompt")
    parser.add_argument("--prefill-tokens-per-s", type=float, default=0.0, help="0 for at once")
    parser.add_argument("--tokens-per-s", type=float, default=0.0, help="of the answer; 0 for at once")
    parser.add_argument("--time-scale", type=float, default=1.0, help="seconds that one of its seconds takes")
    parser.add_argument("--token-ratio", type=float, default=1.0, help="tokens of the model for one word or mark")
    parser.add_argument("--parallel", type=int, default=1)
    try:
        asyncio.run(_serve(parser.parse_args(argv)))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
