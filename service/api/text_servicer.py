"""TextService: works on texts that belong to no conversation, and stores nothing of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from abridged.service.api.admission import Admission
from abridged.service.api.auth import current_caller
from abridged.service.api.errors import InvalidRequest, ServerStopping
from abridged.service.codec.enums import ERROR_CLASSES, FALLBACKS, PROVENANCES, TOKEN_SOURCES
from abridged.service.codec.records import QUALITY, context_to_proto, statements_to_proto
from abridged.service.codec.values import message_from_proto
from abridged.service.conversations.chat_models import ChatModels
from abridged.service.conversations.counting import Counting
from abridged.service.conversations.policies import Policies
from abridged.service.domain.errors import InvalidPolicy
from abridged.service.domain.events import Settings
from abridged.service.domain.policy import Policy
from abridged.service.domain.tokens import TokenCount, TokenSource, calibrated_tokens
from abridged.service.models.model import Completion
from abridged.v1 import conversation_pb2, text_service_pb2, text_service_pb2_grpc

if TYPE_CHECKING:
    from abridged.service.summarizer.texts import TextSummarizer, TextSummary

_pb = text_service_pb2
_NO_ERROR = conversation_pb2.ERROR_CLASS_UNSPECIFIED
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""Characters that a text may not have. Terminal output has colours, so escape is allowed; so are form feeds."""


class TextServicer(text_service_pb2_grpc.TextServiceServicer):
    """See the contract: every method's promise is written there.

    `texts` returns the summarizer of texts, `reason` says why a model is not counted by its own tokenizer.
    """

    def __init__(
        self,
        *,
        texts: Callable[[], TextSummarizer],
        counting: Counting,
        reason: Callable[[str], str],
        policies: Policies,
        models: ChatModels,
        admission: Admission,
        stopping: asyncio.Event,
    ) -> None:
        self._texts = texts
        self._counting = counting
        self._reason = reason
        self._policies = policies
        self._models = models
        self._admission = admission
        self._stopping = stopping

    async def SummarizeText(
        self, request: _pb.SummarizeTextRequest, context: Any
    ) -> AsyncGenerator[_pb.SummarizeTextResponse, None]:
        with self._admission.of(current_caller().namespace).text():
            async with aclosing(self._summarized(request)) as responses:
                async for response in responses:
                    yield response

    async def _summarized(self, request: _pb.SummarizeTextRequest) -> AsyncGenerator[_pb.SummarizeTextResponse, None]:
        """The responses; when they are over, nothing works on the text any more."""
        _require_text(request.text)
        policy = self._policy(request)
        heard = _Heard()
        work = asyncio.create_task(
            self._texts().summarize(request.text, max_tokens=request.max_tokens, policy=policy, observer=heard)
        )
        stop = asyncio.create_task(self._stopping.wait())
        try:
            while True:
                news = asyncio.create_task(heard.news.wait())
                try:
                    await asyncio.wait({work, stop, news}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    news.cancel()
                if heard.news.is_set():
                    yield _pb.SummarizeTextResponse(progress=heard.taken())
                elif work.done():
                    yield _pb.SummarizeTextResponse(summary=_summary(work.result()))
                    return
                else:
                    raise ServerStopping
        finally:
            work.cancel()
            stop.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)

    async def CountTokens(self, request: _pb.CountTokensRequest, context: Any) -> _pb.CountTokensResponse:
        if not request.texts and not request.messages:
            raise InvalidRequest((("texts", "must not be empty if there are no messages"),))
        model = request.model
        counter = self._counting.by_model(model)
        texts = await self._counting.texts(request.texts, model)
        messages = await self._counting.counted([message_from_proto(message) for message in request.messages], model)
        credited = await self._counting.credited(messages, model)
        factor = self._models.opening(current_caller().namespace, Settings(model=model)).calibration_factor
        of_texts = [_count(count, factor) for count in texts]
        of_messages = [_count(counted.cost, factor) for counted in credited]
        return _pb.CountTokensResponse(
            texts=of_texts,
            messages=of_messages,
            total_tokens=sum(count.tokens for count in (*of_texts, *of_messages)),
            counter=counter.name,
            calibration_factor=factor,
            estimate_reason=self._reason(model) if model and counter.source_for(model) is TokenSource.ESTIMATE else "",
        )

    def _policy(self, request: _pb.SummarizeTextRequest) -> Policy:
        overrides = {"fallback": FALLBACKS.to_domain(request.fallback)} if request.fallback else {}
        try:
            return self._policies.accepted(Settings(policy=overrides))
        except InvalidPolicy as error:
            raise InvalidRequest(((error.field, error.reason),)) from error


class _Heard:
    """The newest progress of one text. Untaken progress is replaced, so a slow reader delays nothing."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self._progress = _pb.TextProgress()

    def taken(self) -> _pb.TextProgress:
        """The progress so far."""
        self.news.clear()
        return self._progress

    def attempt(self, number: int, model: str) -> None:
        """See Observer."""
        self._changed(attempt=number, model=model, output_chars=0)

    def output(self, chars: int) -> None:
        """See Observer."""
        self._changed(output_chars=chars)

    def answered(self, completion: Completion) -> None:
        """See Observer. The model that answered is not always the preferred one."""
        self._changed(model=completion.model)

    def calls(self, done: int, total: int) -> None:
        """See Observer."""
        self._changed(calls_done=done, calls_total=total)

    def _changed(self, **fields: Any) -> None:
        changed = _pb.TextProgress()
        changed.CopyFrom(self._progress)
        for name, value in fields.items():
            setattr(changed, name, value)
        self._progress = changed
        self.news.set()


def _require_text(text: str) -> None:
    if not text.strip():
        raise InvalidRequest((("text", "must not be blank"),))
    if (found := _CONTROL.search(text)) is not None:
        what = f"is no text: it has the control character U+{ord(found[0]):04X} at character {found.start() + 1}"
        raise InvalidRequest((("text", what),))


def _summary(made: TextSummary) -> _pb.TextSummary:
    summary = made.summary
    draft = summary.draft
    return _pb.TextSummary(
        text=made.text,
        summary=draft.summary,
        key_points=statements_to_proto(draft.highlights, summary.evidence.key_points),
        context=context_to_proto(draft.context, summary.evidence),
        tokens_before=made.tokens_before,
        tokens_after=made.tokens_after,
        model=summary.model,
        provenance=PROVENANCES.to_proto(summary.provenance),
        attempts=summary.attempts,
        quality=QUALITY.to_proto(summary.quality),
        clipped=made.clipped,
        error_class=ERROR_CLASSES.to_proto(made.failure.error_class) if made.failure else _NO_ERROR,
        prompt_name=summary.template.name,
        prompt_version=summary.template.version,
    )


def _count(count: TokenCount, factor: float) -> _pb.TokenCount:
    tokens = calibrated_tokens(count.tokens, factor) if count.source is TokenSource.ESTIMATE else count.tokens
    return _pb.TokenCount(tokens=tokens, source=TOKEN_SOURCES.to_proto(count.source))
