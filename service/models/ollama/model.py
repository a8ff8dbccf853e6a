"""A model that Ollama serves, on one or several hosts, which all models of the process share.

Invariants: a request moves to another host only before the first byte of an answer; a call that gives up never cancels
a model's load, because the load is a separate request; every call uses the same window, because any other would make
the server reload the model; a call's deadline runs only while it holds a place at a host.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from abridged.service.models.deadline import Deadline, DeadlineOver
from abridged.service.models.figures import RecentHigh, TokenFactor
from abridged.service.models.http.errors import HostRefused
from abridged.service.models.http.host import Place, reporting_to
from abridged.service.models.model import (
    Completion,
    CompletionRequest,
    ModelDescription,
    ModelError,
    ModelMissing,
    ModelUnavailable,
    OnProgress,
    PromptTruncated,
)
from abridged.service.models.ollama.description import (
    DescriptionCache,
    Residence,
    Version,
    digest_of,
    parse_version,
    read_description,
    residence_of,
)
from abridged.service.models.ollama.host import OllamaHost
from abridged.service.models.ollama.settings import OllamaSettings
from abridged.service.models.ollama.wire import Answer, chat_body, check_prompt_was_whole, load_body

PROVIDER = "ollama"
FACTS_AGE_MAX_S = 60.0
DESCRIBE_S = 30.0

_TRUNCATE_SINCE: Version = (0, 12, 4)
_THINK_SINCE: Version = (0, 9, 0)
# Only 0.30.0 did not count the cached part of a prompt, so its figure means nothing.
_COUNTS_WITHOUT_CACHE: Version = (0, 30, 0)


@dataclass(frozen=True, slots=True)
class _Facts:
    """One host's description of the model.

    Attributes:
        version: Ollama's version; None if unknown.
        num_ctx: The window of every call: ours, at most the model's.
        read_at: The time of the reading, by the model's clock.
    """

    version: Version | None
    description: ModelDescription
    num_ctx: int
    read_at: float

    @property
    def think(self) -> bool | None:
        """False if the model thinks unless forbidden to; None if it never thinks, or the server lacks the field."""
        old = self.version is not None and self.version < _THINK_SINCE
        return False if "thinking" in self.description.capabilities and not old else None

    @property
    def counts_whole_prompts(self) -> bool:
        """True if the host is known to count the cached part of a prompt."""
        return self.version not in {None, _COUNTS_WITHOUT_CACHE}


class OllamaModel:
    """`SummaryModel` over `hosts`, which stay open on `close`. `clock` returns seconds."""

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
        self._factor = TokenFactor()
        self._prefill_s_per_token = {host.label: RecentHigh() for host in hosts}

    @property
    def name(self) -> str:
        """`ollama:model`."""
        return f"{PROVIDER}:{self._model}"

    async def complete(self, request: CompletionRequest, *, deadline_s: float, on_progress: OnProgress) -> Completion:
        """Ask the best host, and move on to the next one as long as no answer has started.

        The deadline starts when the call gets a place at a host, pauses while it waits for one, and ends with the first
        byte of the answer; ModelHost.stream says what bounds the answer from there. Raises ModelError.
        """
        deadline = Deadline(deadline_s, clock=self._clock)
        try:
            return await self._ask_in_turn(request, deadline, on_progress)
        except ModelError as error:
            error.queued_s = deadline.paused_s
            raise

    async def describe(self) -> ModelDescription:
        """The description from the first host that has the model; `window` is what one of our calls can hold."""
        deadline = Deadline(DESCRIBE_S, clock=self._clock)
        failures: list[ModelError] = []
        for host in self._hosts:
            try:
                host.check_circuit()
                facts = await self._facts_of(host, deadline)
            except (ModelUnavailable, ModelMissing, HostRefused) as error:
                failures.append(error)
            else:
                return replace(facts.description, window=facts.num_ctx, token_factor=self._factor.value)
        raise _foremost(failures)

    async def idle(self) -> bool:
        """Return whether a host can be asked, and every such host seems unused."""
        if any(not load.done() for load in self._loads.values()):
            return False
        idle = await asyncio.gather(*(host.idle() for host in self._hosts))
        return True in idle and False not in idle

    async def close(self) -> None:
        """Cancel loads. The hosts are shared and stay open."""
        loads = list(self._loads.values())
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)

    async def _ask_in_turn(self, request: CompletionRequest, deadline: Deadline, on_progress: OnProgress) -> Completion:
        with deadline.paused():
            ranked = await self._by_preference(deadline)
        failures: list[ModelError] = []
        for host, residence in ranked:
            answer = Answer(host.label, tokens_max=request.output_tokens_max)
            try:
                return await self._ask(host, residence, request, answer, deadline, on_progress)
            except DeadlineOver:
                raise
            except (ModelUnavailable, ModelMissing, HostRefused) as error:
                if answer.started:
                    raise
                failures.append(error)
        raise _foremost(failures)

    async def _by_preference(self, deadline: Deadline) -> list[tuple[OllamaHost, Residence]]:
        """The hosts by preference: no abandoned prompt first, then the model in memory, then the fewest calls, then the
        given order.
        """
        residences = await asyncio.gather(*(self._residence(host, deadline) for host in self._hosts))
        pairs = list(zip(self._hosts, residences, strict=True))
        return sorted(pairs, key=lambda pair: (pair[0].reads_abandoned_prompt, not pair[1].loaded, pair[0].in_flight))

    async def _residence(self, host: OllamaHost, deadline: Deadline) -> Residence:
        if host.breaker.refusal_s() is not None:
            return Residence(False)
        known = self._facts.get(host.label)
        digest = known.description.digest if known is not None else ""
        try:
            return residence_of(await host.get("/api/ps", deadline), self._model, digest)
        except ModelError:
            # This only decides the order: a problem with the host shows when it is asked.
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
        async with host.place(deadline) as place:
            host.check_circuit()
            started = self._clock()
            with reporting_to(host.breaker):
                with _before_the_prompt():
                    if place.waited:
                        residence = await self._residence(host, deadline)
                    facts = await self._facts_of(host, deadline)
                    await self._have_loaded(host, residence, facts.num_ctx, deadline)
                place.prefill_s = self._prefill_s(host, request)
                await self._stream(host, place, facts, request, answer, deadline, on_progress)
                answer.check_complete()
                self._learn(host, request, answer, facts)
            return answer.completion(self.name, duration_s=self._clock() - started)

    async def _stream(
        self,
        host: OllamaHost,
        place: Place,
        facts: _Facts,
        request: CompletionRequest,
        answer: Answer,
        deadline: Deadline,
        on_progress: OnProgress,
    ) -> None:
        body = chat_body(request, model=self._model, num_ctx=facts.num_ctx, think=facts.think)
        try:
            await host.stream(
                "/api/chat", body, answer, model=self._model, place=place, deadline=deadline, on_progress=on_progress
            )
        except PromptTruncated as refusal:
            refusal.context = refusal.context or facts.num_ctx
            if refusal.prompt_tokens is not None:
                self._factor.learn(counted=request.prompt_tokens, tokens=refusal.prompt_tokens)
            else:
                self._factor.learn_at_least(counted=request.prompt_tokens, tokens=refusal.context)
            raise

    def _learn(self, host: OllamaHost, request: CompletionRequest, answer: Answer, facts: _Facts) -> None:
        """Learn from a whole prompt its tokens and how fast it was read. Raises PromptTruncated if it was cut."""
        try:
            _check_prompt(answer, request, facts, self._factor.value)
        except PromptTruncated as cut:
            if cut.context is not None:
                self._factor.learn_at_least(counted=request.prompt_tokens, tokens=cut.context)
            raise
        if answer.input_tokens is None:
            return
        if facts.counts_whole_prompts:
            self._factor.learn(counted=request.prompt_tokens, tokens=answer.input_tokens)
        else:
            self._factor.learn_at_least(counted=request.prompt_tokens, tokens=answer.input_tokens)
        if answer.prefill_s is not None:
            # Too low if part of the prompt was cached, which is why the figure is a recent high.
            self._prefill_s_per_token[host.label].see(answer.prefill_s / answer.input_tokens)

    def _prefill_s(self, host: OllamaHost, request: CompletionRequest) -> float | None:
        per_token = self._prefill_s_per_token[host.label].value
        return None if per_token is None else per_token * request.prompt_tokens * self._factor.value

    async def _facts_of(self, host: OllamaHost, deadline: Deadline) -> _Facts:
        """The host's description of the model; concurrent calls share one reading."""
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
        """Wait until the host has loaded the model; if the wait is given up, the load continues for the next call."""
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
def _before_the_prompt() -> Iterator[None]:
    """Mark errors from the body as raised before the prompt was sent."""
    try:
        yield
    except ModelError as error:
        error.asked = False
        raise


def _check_prompt(answer: Answer, request: CompletionRequest, facts: _Facts, factor: float) -> None:
    """Raise PromptTruncated unless the evaluated prompt is plausible, or the server never truncates."""
    refuses_to_cut = facts.version is None or facts.version >= _TRUNCATE_SINCE
    if answer.input_tokens is None:
        if not refuses_to_cut:
            raise PromptTruncated(f"{answer.host}: the host does not report how many prompt tokens it evaluated")
        return
    if facts.version != _COUNTS_WITHOUT_CACHE:
        check_prompt_was_whole(
            answer.host,
            evaluated=answer.input_tokens,
            words=len(request.system.split()) + len(request.user.split()),
            expected=request.prompt_tokens * factor,
            num_ctx=facts.num_ctx,
        )


async def _optional(host: OllamaHost, path: str, deadline: Deadline) -> dict[str, object]:
    """The response to a request that a proxy may forbid; empty if it does."""
    try:
        return await host.get(path, deadline)
    except (HostRefused, ModelMissing):
        return {}


def _foremost(failures: Sequence[ModelError]) -> ModelError:
    """The most informative failure: a host that may recover, then one that refuses, then one without the model.

    A failure of a host that was asked comes first among equals.
    """
    for kind in (ModelUnavailable, HostRefused, ModelMissing):
        for failure in sorted(failures, key=lambda failure: (not failure.asked, not failure.call_made)):
            if isinstance(failure, kind):
                return failure
    raise AssertionError("every host is asked, so there is a failure")


def _note_failure(load: asyncio.Task[None]) -> None:
    # Otherwise an abandoned load that fails logs "exception was never retrieved".
    if not load.cancelled():
        load.exception()
