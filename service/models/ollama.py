"""A model that Ollama serves, on one host or several; the hosts are shared by all models of the process.

Invariants: a request goes to another host only while no byte of an answer came; a model's load is never cut short
by a call that gives up, because the load is a request of its own; every call uses the same window, for any other
would make the server load the model anew.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from service.models.breaker import CircuitBreaker
from service.models.deadline import Deadline, DeadlineOver
from service.models.model import (
    Completion,
    CompletionRequest,
    ModelDescription,
    ModelError,
    ModelMissing,
    ModelUnavailable,
    OnProgress,
    PromptTruncated,
)
from service.models.ollama_description import (
    DescriptionCache,
    Residence,
    Version,
    digest_of,
    parse_version,
    read_description,
    residence_of,
)
from service.models.ollama_errors import HostRefused
from service.models.ollama_host import OllamaHost
from service.models.ollama_settings import OllamaSettings
from service.models.ollama_wire import Answer, chat_body, check_prompt_was_whole, load_body

__all__ = ["OllamaModel"]

PROVIDER = "ollama"
FACTS_AGE_MAX_S = 60.0
DESCRIBE_S = 30.0

_TRUNCATE_SINCE: Version = (0, 12, 4)
_THINK_SINCE: Version = (0, 9, 0)
# 0.30.0 alone did not count the part of a prompt that its cache held, so its figure says nothing.
_COUNTS_WITHOUT_CACHE: Version = (0, 30, 0)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What one host says of the model, and when it said so."""

    version: Version | None
    description: ModelDescription
    num_ctx: int
    read_at: float

    @property
    def think(self) -> bool | None:
        """False where the model would think unless told not to; None where the server would not know the field."""
        old = self.version is not None and self.version < _THINK_SINCE
        return False if "thinking" in self.description.capabilities and not old else None


class OllamaModel:
    """`SummaryModel` over `hosts`. `clock` counts seconds. The hosts are closed by who opened them."""

    def __init__(
        self,
        model: str,
        hosts: Sequence[OllamaHost],
        settings: OllamaSettings,
        *,
        clock: Callable[[], float],
        descriptions: DescriptionCache,
    ) -> None:
        assert hosts, "a model needs a host"
        self._model = model
        self._hosts = tuple(hosts)
        self._settings = settings
        self._clock = clock
        self._facts: dict[str, _Facts] = {}
        self._reading = {host.label: asyncio.Lock() for host in hosts}
        self._descriptions = descriptions
        self._loads: dict[str, asyncio.Task[None]] = {}

    @property
    def name(self) -> str:
        """`ollama:model`."""
        return f"{PROVIDER}:{self._model}"

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """Ask the best host, and the next one while nothing came from it."""
        deadline = Deadline(deadline_s, clock=self._clock)
        failures: list[ModelError] = []
        for host, residence in await self._by_preference(deadline):
            answer = Answer(host.label)
            try:
                return await self._ask(host, residence, request, answer, deadline, on_progress)
            except DeadlineOver:
                raise
            except (ModelUnavailable, ModelMissing, HostRefused) as error:
                if answer.started:
                    raise
                failures.append(error)
        raise _foremost(failures)

    async def describe(self) -> ModelDescription:
        """What the first host that has the model says of it; `window` is what one call of ours can hold."""
        deadline = Deadline(DESCRIBE_S, clock=self._clock)
        failures: list[ModelError] = []
        for host in self._hosts:
            try:
                host.check_circuit()
                facts = await self._facts_of(host, deadline)
            except (ModelUnavailable, ModelMissing, HostRefused) as error:
                failures.append(error)
            else:
                return replace(facts.description, window=facts.num_ctx)
        raise _foremost(failures)

    async def close(self) -> None:
        """Stop loading; the hosts are shared and stay open."""
        loads = list(self._loads.values())
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)

    async def _by_preference(self, deadline: Deadline) -> list[tuple[OllamaHost, Residence]]:
        """Hosts with the model in memory first, then those with the fewest calls, then in the order given."""
        residences = await asyncio.gather(*(self._residence(host, deadline) for host in self._hosts))
        pairs = list(zip(self._hosts, residences, strict=True))
        return sorted(pairs, key=lambda pair: (not pair[1].loaded, pair[0].in_flight))

    async def _residence(self, host: OllamaHost, deadline: Deadline) -> Residence:
        if host.breaker.refusal_s() is not None:
            return Residence(False)
        known = self._facts.get(host.label)
        digest = known.description.digest if known is not None else ""
        try:
            return residence_of(await host.get("/api/ps", deadline), self._model, digest)
        except ModelError:
            # Only a matter of preference: what is wrong with the host shows when it is asked for an answer.
            return Residence(False)

    async def _ask(
        self,
        host: OllamaHost,
        residence: Residence,
        request: CompletionRequest,
        answer: Answer,
        deadline: Deadline,
        on_progress: OnProgress,
    ) -> Completion:
        async with host.place(deadline):
            host.check_circuit()
            started = self._clock()
            with _told(host.breaker):
                facts = await self._facts_of(host, deadline)
                await self._have_loaded(host, residence, facts.num_ctx, deadline)
                body = chat_body(request, model=self._model, num_ctx=facts.num_ctx, think=facts.think)
                await host.stream(
                    "/api/chat", body, answer, model=self._model, deadline=deadline, on_progress=on_progress
                )
                answer.check_complete()
                _check_prompt(answer, request, facts)
            return Completion(
                text=answer.text,
                model=self.name,
                finish_reason=answer.finish_reason,
                input_tokens=answer.input_tokens or 0,
                output_tokens=answer.output_tokens,
                duration_s=self._clock() - started,
            )

    async def _facts_of(self, host: OllamaHost, deadline: Deadline) -> _Facts:
        """What the host says of the model; who reads it reads it for all that ask meanwhile."""
        async with deadline.rest(host.label):
            await self._reading[host.label].acquire()
        try:
            known = self._facts.get(host.label)
            if known is None or self._clock() - known.read_at >= FACTS_AGE_MAX_S:
                known = self._facts[host.label] = await self._read_facts(host, deadline)
            return known
        finally:
            self._reading[host.label].release()

    async def _read_facts(self, host: OllamaHost, deadline: Deadline) -> _Facts:
        version = parse_version(await _optional(host, "/api/version", deadline))
        digest = digest_of(await _optional(host, "/api/tags", deadline), self._model)
        description = await asyncio.to_thread(self._descriptions.get, digest)
        if description is None:
            body = json.dumps({"model": self._model}).encode()
            show = await host.post(
                "/api/show", body, model=self._model, seconds=self._settings.probe_s, deadline=deadline
            )
            description = read_description(show, digest)
            await asyncio.to_thread(self._descriptions.put, description)
        num_ctx = min(self._settings.num_ctx, description.context_length or self._settings.num_ctx)
        return _Facts(version, description, num_ctx, self._clock())

    async def _have_loaded(self, host: OllamaHost, residence: Residence, num_ctx: int, deadline: Deadline) -> None:
        """Wait for the model to be in the host's memory; giving up leaves the load running for the next call."""
        load = self._loads.get(host.label)
        if load is None or load.done():
            if residence.serves(num_ctx):
                return
            load = asyncio.create_task(self._load(host, num_ctx))
            load.add_done_callback(_note_failure)
            self._loads[host.label] = load
        async with deadline.limit(self._settings.first_byte_s, host.label, "the model is still loading, not ready"):
            await asyncio.wait({load})
        if load.cancelled():
            raise ModelUnavailable(f"{host.label}: closed while the model was loading")
        load.result()

    async def _load(self, host: OllamaHost, num_ctx: int) -> None:
        patience = Deadline(self._settings.load_s, clock=self._clock)
        body = load_body(model=self._model, num_ctx=num_ctx)
        await host.post("/api/chat", body, model=self._model, seconds=math.inf, deadline=patience)
        host.breaker.succeeded()


@contextmanager
def _told(breaker: CircuitBreaker) -> Iterator[None]:
    """Tell the breaker how the body ends; an end without outcome, such as a cancellation, leaves it as it is."""
    settle = breaker.abandoned
    breaker.began()
    try:
        yield
        settle = breaker.succeeded
    except DeadlineOver:
        raise
    except (ModelUnavailable, HostRefused):
        settle = breaker.failed
        raise
    except ModelError:
        settle = breaker.succeeded
        raise
    finally:
        settle()


def _check_prompt(answer: Answer, request: CompletionRequest, facts: _Facts) -> None:
    """Raise PromptTruncated unless the evaluated prompt is plausible, or the server keeps it whole by itself."""
    refuses_to_cut = facts.version is None or facts.version >= _TRUNCATE_SINCE
    if answer.input_tokens is None:
        if not refuses_to_cut:
            raise PromptTruncated(f"{answer.host}: the host does not say how many prompt tokens it evaluated")
        return
    if facts.version != _COUNTS_WITHOUT_CACHE:
        check_prompt_was_whole(
            answer.host, evaluated=answer.input_tokens, expected=request.prompt_tokens, num_ctx=facts.num_ctx
        )


async def _optional(host: OllamaHost, path: str, deadline: Deadline) -> dict[str, object]:
    """The answer to a question that a proxy may forbid; nothing when it does."""
    try:
        return await host.get(path, deadline)
    except (HostRefused, ModelMissing):
        return {}


def _foremost(failures: Sequence[ModelError]) -> ModelError:
    """The failure that tells most: a host that may recover, then one that refuses, then one without the model."""
    for kind in (ModelUnavailable, HostRefused, ModelMissing):
        for failure in failures:
            if isinstance(failure, kind):
                return failure
    raise AssertionError("every host is asked, so there is a failure")


def _note_failure(load: asyncio.Task[None]) -> None:
    # A load that nobody waits for any more must not end as "exception was never retrieved".
    if not load.cancelled():
        load.exception()
