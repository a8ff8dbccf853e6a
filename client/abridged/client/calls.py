"""Every RPC of a conversation, once: its request, and what its caller wants of the response.

`Conversations` and `AsyncConversations` carry the same calls out, one by threads and one on an event loop.
"""

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.duration_pb2 import Duration

from abridged.client.arguments import list_of, one_of, settings_of
from abridged.client.messages import message_of
from abridged.v1 import conversation_service_pb2, server_info_service_pb2, text_service_pb2
from abridged.v1.conversation_pb2 import Conversation, ConversationSettings, Summarization, TokenUsage
from abridged.v1.conversation_service_pb2 import (
    AppendMessagesResponse,
    ArchiveConversationsResponse,
    ContextMessage,
    DropRulesResponse,
    Episode,
    Erasure,
    ForkConversationResponse,
    GetContextResponse,
    GetSummaryResponse,
    HistoryTool,
    PinMessagesResponse,
    RedactMessagesResponse,
    Rendering,
    ReopenConversationResponse,
    RevokeSummaryResponse,
    RewindConversationResponse,
    SearchHistoryResponse,
    SearchMode,
    TooLargeMessage,
    UnpinMessagesResponse,
    UpdateConversationResponse,
)
from abridged.v1.message_pb2 import Message
from abridged.v1.server_info_service_pb2 import GetServerInfoResponse
from abridged.v1.summary_pb2 import MessageRange, Rating, Rule, SummaryRecord
from abridged.v1.text_service_pb2 import CountTokensResponse

RENDERINGS = ("anthropic", "ollama", "openai")
"""Names of the JSON forms of a context."""

FORMS = ("anthropic", "openai")
"""Names of the APIs whose messages an append takes."""

HISTORY_TOOLS = ("expand", "search")
"""Names of the tools by which a model reads what has left its window."""

SEARCH_MODES = ("both", "meaning", "words")
"""The ways to compare texts that a search may name."""

RATINGS = ("good", "bad")
"""The ratings that a record may get."""

PAGE_SIZE = 100

ERASURE_S = 60.0
"""Seconds that an erasure may take beyond a call's deadline: it waits for readers of the log's files."""

_pb = conversation_service_pb2


class Dumpable(Protocol):
    """A message as the libraries of chat APIs return it."""

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, Any]:
        """Return the object's JSON."""
        ...


R = TypeVar("R")


def method_signature(make: Callable[..., Any]) -> inspect.Signature:
    """The signature of a method that makes this call, for `help` and editors: with `self` before its parameters."""
    signature = inspect.signature(make)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    return signature.replace(parameters=[own, *signature.parameters.values()])


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A unary RPC, `Service/Method`. `wait_s` comes on top of the deadline; `answer` takes what is wanted of the
    response."""

    method: str
    request: Any
    answer: Callable[[Any], R]
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """A paged RPC; `items` are those of one page, of which at most `limit` are taken, 0 for all."""

    method: str
    request: Any
    items: Callable[[Any], Iterable[R]]
    limit: int = 0


def append(
    conversation_id: str,
    messages: Iterable[Message | Mapping[str, Any] | Dumpable],
    *,
    form: str = "",
    system: Any = None,
    settings: ConversationSettings | Mapping[str, Any] | None = None,
    request_id: str = "",
    expected_version: int | None = None,
    replace_after: int | None = None,
    rendering: str = "",
    cache_marks: bool = False,
    with_tools: Sequence[str] = (),
    with_ledger: bool = False,
    abort_on_failure: bool = False,
    wait_s: float = 0.0,
) -> Call[AppendMessagesResponse]:
    """Append messages; they are on disk when this returns.

    A message is the contract's, or a mapping with `role` (system, user, assistant, tool) and `content`. One without an
    id gets one for this call, under which its retries send it. `request_id`, the caller's, makes the same append after
    a crash append nothing twice. `settings`, which may be a mapping, count if the conversation is new. `replace_after`
    removes the messages after this number in the same commit.

    `rendering`, or another option of the window, has the response contain it, or say why not; without any of them its
    `context` is unset, and without `rendering` the `rendered_json` is empty. `wait_s` waits for a pass that is pending.

    `form`, one of FORMS, says that each message is what that API's requests have in `messages`, or what its library
    returned; all of it is kept. `system`, Anthropic's, becomes the system prompt, in place of the one before.
    """
    if form:
        request = _rendered_request(conversation_id, messages, form, system, settings, request_id or uuid.uuid4().hex)
    elif system is not None:
        raise ValueError("system is of the form anthropic; otherwise send a message, or settings.system_prompt")
    else:
        request = append_request(conversation_id, messages, settings, request_id=request_id)
    if expected_version is not None:
        request.expected_version = expected_version
    if replace_after is not None:
        request.replace_after = replace_after
    asked = _pb.ContextOptions(
        rendering=_rendering(rendering),
        cache_marks=cache_marks,
        with_tools=_history_tools(with_tools),
        with_ledger=with_ledger,
        abort_on_failure=abort_on_failure,
    )
    if asked.ByteSize():
        request.context.CopyFrom(asked)
    _set_duration(request, "wait", wait_s)
    return Call("ConversationService/AppendMessages", request, _whole, wait_s)


def _rendered_request(
    conversation_id: str,
    messages: Iterable[Any],
    form: str,
    system: Any,
    settings: ConversationSettings | Mapping[str, Any] | None,
    request_id: str,
) -> Any:
    """The request for an append of an API's own messages."""
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}")
    body: dict[str, Any] = {
        "messages": [_plain(message, form) for message in list_of("messages", "messages", messages)]
    }
    if system is not None:
        body["system"] = system
    rendered = _pb.RenderedMessages(rendering=_rendering(form), json=json.dumps(body))
    return _pb.AppendMessagesRequest(
        conversation_id=conversation_id, rendered=rendered, settings=settings_of(settings), request_id=request_id
    )


def _plain(message: Any, form: str) -> Any:
    """A message as JSON has it: a mapping, or an object of the API's library, whose answers say more than requests."""
    if not hasattr(message, "model_dump"):
        return message
    plain = message.model_dump(mode="json", exclude_none=True)
    return {name: plain[name] for name in ("role", "content")} if form == "anthropic" else plain


def append_request(
    conversation_id: str,
    messages: Iterable[Message | Mapping[str, Any] | Dumpable],
    settings: ConversationSettings | Mapping[str, Any] | None = None,
    *,
    request_id: str = "",
) -> Any:
    """The request for an append of messages that all have ids, or of which the server makes them from `request_id`."""
    request = _pb.AppendMessagesRequest(
        conversation_id=conversation_id,
        messages=[
            message_of(place, message) for place, message in enumerate(list_of("messages", "messages", messages))
        ],
        settings=settings_of(settings),
        request_id=request_id,
    )
    if not request_id:
        for message in request.messages:
            message.id = message.id or uuid.uuid4().hex
    return request


def context(
    conversation_id: str,
    *,
    max_tokens: int = 0,
    clip: bool = False,
    original: bool = False,
    rendering: str = "",
    cache_marks: bool = False,
    with_tools: Sequence[str] = (),
    with_ledger: bool = False,
    abort_on_failure: bool = False,
    min_version: int = 0,
    wait_s: float = 0.0,
    with_notice: bool = False,
) -> Call[GetContextResponse]:
    """Return the window to send. `rendering` is one of RENDERINGS, whose JSON is `rendered_json` of the response; that
    is empty without it.

    The call returns a window over the budget with `over_limit` set; under `max_tokens` it fails instead, or with `clip`
    cuts long messages to excerpts. `original` ignores summaries. `min_version` and `wait_s` wait for messages and for a
    pending pass. `with_notice` asks for `pass_ahead`: the messages that the next pass would take out. `with_tools`, of
    HISTORY_TOOLS, asks for `tools_json`, and `with_ledger` for the ledger's entries. `abort_on_failure` has the call
    fail if the pass failed that it waited for.
    """
    request = _pb.GetContextRequest(
        conversation_id=conversation_id,
        max_tokens=max_tokens,
        clip=clip,
        view=_pb.CONTEXT_VIEW_ORIGINAL if original else _pb.CONTEXT_VIEW_COMPACTED,
        rendering=_rendering(rendering),
        cache_marks=cache_marks,
        with_tools=_history_tools(with_tools),
        with_ledger=with_ledger,
        abort_on_failure=abort_on_failure,
        min_version=min_version,
        with_notice=with_notice,
    )
    _set_duration(request, "wait", wait_s)
    return Call("ConversationService/GetContext", request, _whole, wait_s)


def update(
    conversation_id: str,
    settings: ConversationSettings | Mapping[str, Any],
    paths: Sequence[str],
    *,
    expected_version: int | None = None,
) -> Call[UpdateConversationResponse]:
    """Change the settings that `paths` name, such as `model` or `policy.enabled`; one that `settings` leaves unset gets
    its default back."""
    request = _pb.UpdateConversationRequest(
        conversation_id=conversation_id, settings=settings_of(settings), expected_version=expected_version
    )
    request.update_mask.paths.extend(list_of("names of settings", "paths", paths))
    return Call("ConversationService/UpdateConversation", request, _whole)


def conversation(conversation_id: str) -> Call[Conversation]:
    """Return state and settings."""
    request = _pb.GetConversationRequest(conversation_id=conversation_id)
    return Call("ConversationService/GetConversation", request, _conversation)


def conversations(
    *, limit: int = 0, labels: Mapping[str, str] | None = None, min_ratio: float = 0.0, closed: bool | None = None
) -> Listing[Conversation]:
    """The first `limit` conversations (0: all), last changed first: those that have all `labels`, at least `min_ratio`,
    and are closed or not; None for both."""
    request = _pb.ListConversationsRequest(
        page_size=min(limit or PAGE_SIZE, PAGE_SIZE), labels=labels, min_ratio=min_ratio, closed=closed
    )
    return Listing("ConversationService/ListConversations", request, lambda page: page.conversations, limit)


def summary(conversation_id: str, summary_id: str, *, with_message_ids: bool = False) -> Call[GetSummaryResponse]:
    """Return a record, and with its message ids those of what it covers."""
    request = _pb.GetSummaryRequest(
        conversation_id=conversation_id, summary_id=summary_id, with_message_ids=with_message_ids
    )
    return Call("ConversationService/GetSummary", request, _whole)


def summaries(conversation_id: str) -> Listing[SummaryRecord]:
    """All records, newest first."""
    request = _pb.ListSummariesRequest(conversation_id=conversation_id, page_size=PAGE_SIZE)
    return Listing("ConversationService/ListSummaries", request, lambda page: page.summaries)


def revoked_summary_ids(conversation_id: str) -> Listing[str]:
    """The ids of the records that are out of use: revoked, made from a revoked one, or rewound."""
    request = _pb.ListSummariesRequest(conversation_id=conversation_id, page_size=PAGE_SIZE)
    return Listing("ConversationService/ListSummaries", request, lambda page: page.revoked_summary_ids)


def episodes(conversation_id: str) -> Listing[Episode]:
    """All episodes, newest first."""
    request = _pb.ListEpisodesRequest(conversation_id=conversation_id, page_size=PAGE_SIZE)
    return Listing("ConversationService/ListEpisodes", request, lambda page: page.episodes)


def rules(conversation_id: str) -> Listing[Rule]:
    """All standing rules, newest first, also those that were taken back or dropped."""
    request = _pb.ListRulesRequest(conversation_id=conversation_id, page_size=PAGE_SIZE)
    return Listing("ConversationService/ListRules", request, lambda page: page.rules)


def summarization(conversation_id: str, summarization_id: str) -> Call[Summarization]:
    """Return a pass."""
    request = _pb.GetSummarizationRequest(conversation_id=conversation_id, summarization_id=summarization_id)
    return Call("ConversationService/GetSummarization", request, _summarization)


def summarizations(conversation_id: str) -> Listing[Summarization]:
    """All passes, newest first."""
    request = _pb.ListSummarizationsRequest(conversation_id=conversation_id, page_size=PAGE_SIZE)
    return Listing("ConversationService/ListSummarizations", request, lambda page: page.summarizations)


def originals(
    conversation_id: str,
    *,
    summary_id: str = "",
    numbers: Sequence[int] = (),
    first: int = 0,
    last: int = 0,
    max_tokens: int = 0,
) -> Listing[ContextMessage | TooLargeMessage]:
    """The messages that a record covers, with these numbers, or from `first` to `last`, in order; `max_tokens` bounds
    each page of them. One that does not fit even excerpted is only named."""
    request = _pb.ExpandSummaryRequest(conversation_id=conversation_id, page_size=PAGE_SIZE, max_tokens=max_tokens)
    if summary_id:
        request.summary_id = summary_id
    elif numbers:
        request.numbers.numbers.extend(_numbers(numbers))
    else:
        request.messages.CopyFrom(MessageRange(first=first, last=last))
    return Listing("ConversationService/ExpandSummary", request, lambda page: (*page.too_large, *page.messages))


def search(
    conversation_id: str, query: str, *, mode: str = "", limit: int = 0, max_tokens: int = 0
) -> Call[SearchHistoryResponse]:
    """Return the best exchanges and records for the query, best first; an empty id searches all conversations. `mode`
    is one of SEARCH_MODES. `max_tokens` gives them passages to read, as many as fit; without it and `limit` there are
    ten."""
    request = _pb.SearchHistoryRequest(
        conversation_id=conversation_id,
        query=query,
        mode=SearchMode.Value(f"SEARCH_MODE_{one_of('mode', mode, SEARCH_MODES) if mode else 'UNSPECIFIED'}"),
        page_size=limit,
        max_tokens=max_tokens,
    )
    return Call("ConversationService/SearchHistory", request, _whole)


def summarize(conversation_id: str, *, wait_s: float = 0.0) -> Call[Summarization]:
    """Force a pass, or join the one under way."""
    request = _pb.SummarizeConversationRequest(conversation_id=conversation_id)
    _set_duration(request, "wait", wait_s)
    return Call("ConversationService/SummarizeConversation", request, _summarization, wait_s)


def report_usage(
    conversation_id: str, sent: GetContextResponse, *, prompt_tokens: int, cached_tokens: int | None = None
) -> Call[TokenUsage]:
    """Report what the chat model's API counted for the context `sent`, and how much of it came from its cache."""
    request = _pb.ReportUsageRequest(
        conversation_id=conversation_id,
        message_version=sent.message_version,
        summary_id=sent.summary_id,
        epoch=sent.epoch,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
    )
    return Call("ConversationService/ReportUsage", request, lambda answer: answer.usage)


def revoke(conversation_id: str, summary_id: str) -> Call[RevokeSummaryResponse]:
    """Take a record out of use."""
    request = _pb.RevokeSummaryRequest(conversation_id=conversation_id, summary_id=summary_id)
    return Call("ConversationService/RevokeSummary", request, _whole)


def rate(conversation_id: str, summary_id: str, rating: str, *, comment: str = "") -> Call[None]:
    """Rate a record `good` or `bad`."""
    request = _pb.RateSummaryRequest(
        conversation_id=conversation_id,
        summary_id=summary_id,
        rating=Rating.Value(f"RATING_{one_of('rating', rating, RATINGS)}"),
        comment=comment,
    )
    return Call("ConversationService/RateSummary", request, lambda _: None)


def pin(conversation_id: str, numbers: Sequence[int]) -> Call[PinMessagesResponse]:
    """Keep messages in the window for good."""
    request = _pb.PinMessagesRequest(conversation_id=conversation_id, numbers=_numbers(numbers))
    return Call("ConversationService/PinMessages", request, _whole)


def unpin(conversation_id: str, numbers: Sequence[int]) -> Call[UnpinMessagesResponse]:
    """Let passes cover messages again."""
    request = _pb.UnpinMessagesRequest(conversation_id=conversation_id, numbers=_numbers(numbers))
    return Call("ConversationService/UnpinMessages", request, _whole)


def drop_rules(conversation_id: str, number: int, *, text: str = "") -> Call[DropRulesResponse]:
    """Drop the standing rules of a message: the one that reads `text`, or all of them."""
    request = _pb.DropRulesRequest(conversation_id=conversation_id, number=number, text=text)
    return Call("ConversationService/DropRules", request, _whole)


def rewind(conversation_id: str, to_version: int) -> Call[RewindConversationResponse]:
    """Remove the messages after the one with the number `to_version`, which stays; 0 removes all."""
    request = _pb.RewindConversationRequest(conversation_id=conversation_id, to_version=to_version)
    return Call("ConversationService/RewindConversation", request, _whole)


def fork(conversation_id: str, fork_id: str, *, to_version: int | None = None) -> Call[ForkConversationResponse]:
    """Begin `fork_id` as the conversation stands, or stood when its newest message was the one with the number
    `to_version`."""
    request = _pb.ForkConversationRequest(conversation_id=conversation_id, fork_id=fork_id, to_version=to_version)
    return Call("ConversationService/ForkConversation", request, _whole)


def close_conversation(conversation_id: str) -> Call[Conversation]:
    """End a conversation: it takes no messages and no passes, and stays readable."""
    request = _pb.CloseConversationRequest(conversation_id=conversation_id)
    return Call("ConversationService/CloseConversation", request, _conversation)


def reopen_conversation(conversation_id: str) -> Call[ReopenConversationResponse]:
    """Let a closed conversation take messages and passes again."""
    request = _pb.ReopenConversationRequest(conversation_id=conversation_id)
    return Call("ConversationService/ReopenConversation", request, _whole)


def erase(conversation_id: str, *, forks: bool = False, dry_run: bool = False) -> Call[Erasure]:
    """Erase a conversation for good, and with `forks` what was forked from it; or only count. Waits until no byte is
    left in the log's files."""
    request = _pb.EraseConversationRequest(conversation_id=conversation_id, forks=forks, dry_run=dry_run)
    return Call("ConversationService/EraseConversation", request, _erasure, wait_s=ERASURE_S)


def erase_matching(
    *, labels: Mapping[str, str] | None = None, user_id: str = "", dry_run: bool = False
) -> Call[Erasure]:
    """Erase the conversations that have all the labels and, if one is named, a message of the user; or only count."""
    request = _pb.EraseConversationsRequest(labels=labels, user_id=user_id, dry_run=dry_run)
    return Call("ConversationService/EraseConversations", request, _erasure, wait_s=ERASURE_S)


def redact(
    conversation_id: str, numbers: Sequence[int], *, forks: bool = False, dry_run: bool = False
) -> Call[RedactMessagesResponse]:
    """Take the texts of messages away for good, and with `forks` also in what was forked since; or only count. Waits
    until no byte is left in the log's files."""
    request = _pb.RedactMessagesRequest(
        conversation_id=conversation_id, numbers=_numbers(numbers), forks=forks, dry_run=dry_run
    )
    return Call("ConversationService/RedactMessages", request, _whole, wait_s=ERASURE_S)


def archive(conversation_id: str, *, dry_run: bool = False) -> Call[ArchiveConversationsResponse]:
    """Move the content of a closed conversation from the log into a file; or only count."""
    request = _pb.ArchiveConversationsRequest(conversation_id=conversation_id, dry_run=dry_run)
    return Call("ConversationService/ArchiveConversations", request, _whole, wait_s=ERASURE_S)


def archive_closed(*, closed_for_s: float, dry_run: bool = False) -> Call[ArchiveConversationsResponse]:
    """Archive the conversations that are closed and have not changed for a time; or only count."""
    request = _pb.ArchiveConversationsRequest(dry_run=dry_run)
    request.closed_for.FromNanoseconds(round(closed_for_s * 1e9))
    return Call("ConversationService/ArchiveConversations", request, _whole, wait_s=ERASURE_S)


def unarchive(conversation_id: str) -> Call[Conversation]:
    """Put the content of an archived conversation back into the log, as it was."""
    request = _pb.UnarchiveConversationRequest(conversation_id=conversation_id)
    return Call("ConversationService/UnarchiveConversation", request, _conversation, wait_s=ERASURE_S)


def count_tokens(model: str, texts: Sequence[str]) -> Call[CountTokensResponse]:
    """Count the tokens of texts, as the sidecar counts those of this model's messages."""
    request = text_service_pb2.CountTokensRequest(model=model, texts=list_of("texts", "texts", texts))
    return Call("TextService/CountTokens", request, _whole)


def wait_idle(conversation_id: str = "", *, wait_s: float) -> Call[bool]:
    """Wait until no pass is pending, in a conversation or in all; whether that came within `wait_s`."""
    request = server_info_service_pb2.WaitIdleRequest(conversation_id=conversation_id or None)
    _set_duration(request, "timeout", wait_s)
    return Call("ServerInfoService/WaitIdle", request, lambda answer: bool(answer.idle), wait_s)


def server_info() -> Call[GetServerInfoResponse]:
    """Return version, limits and state of the server."""
    return Call("ServerInfoService/GetServerInfo", server_info_service_pb2.GetServerInfoRequest(), _whole)


def _history_tools(names: Sequence[str]) -> list[HistoryTool.ValueType]:
    listed = list_of(", ".join(HISTORY_TOOLS), "with_tools", names)
    return [
        HistoryTool.Value(f"HISTORY_TOOL_{one_of(f'with_tools[{place}]', name, HISTORY_TOOLS)}")
        for place, name in enumerate(listed)
    ]


def _numbers(numbers: Iterable[int]) -> Iterable[int]:
    return list_of("numbers", "numbers", numbers)


def _rendering(name: str) -> Rendering.ValueType:
    return Rendering.Value(f"RENDERING_{one_of('rendering', name, RENDERINGS) if name else 'UNSPECIFIED'}")


def _set_duration(request: Any, field: str, seconds: float) -> None:
    if seconds:
        duration: Duration = getattr(request, field)
        duration.FromNanoseconds(round(seconds * 1e9))


def _whole(answer: R) -> R:
    return answer


def _summarization(answer: Any) -> Summarization:
    made: Summarization = answer.summarization
    return made


def _erasure(answer: Any) -> Erasure:
    erasure: Erasure = answer.erasure
    return erasure


def _conversation(answer: Any) -> Conversation:
    found: Conversation = answer.conversation
    return found
