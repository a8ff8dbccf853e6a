"""Every instrument of the service: one method records one fact in all the instruments that it moves.

Invariant: at most 600 series, whatever callers send. Every label value comes from a list that is fixed at
construction; any other value counts under `_OTHER`, so sums stay exact. Conversation ids, error texts and peer
addresses are never labels.
"""

from __future__ import annotations

import math
import platform
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from abridged.observability.facts import (
    ConversationsCounted,
    LogMeasured,
    PassEnded,
    PassOutcome,
    PreparationOutcome,
    RecallMeasured,
    RecordCommitted,
    RewriteCause,
    SearchMode,
    TitleOutcome,
)
from abridged.observability.labels import (
    CALL_SERIES_MAX,
    GRPC_CODES,
    HOSTS_NAMED_MAX,
    MODELS_NAMED_MAX,
    OTHER,
    MetricLabels,
)

NOT_BEGUN = "none"
"""The trigger label of a skip before any pass began."""
BREAKER_VALUES: Mapping[str, int] = {"closed": 0, "half_open": 1, "open": 2}
"""Gauge values by breaker state: worse is higher, so the maximum over hosts is the worst."""
_PASS_SECONDS = (0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 300)
_COMMIT_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
_COMMIT_EVENTS = (1, 4, 16, 64, 256, 1_000)
_ATTEMPTS = (1, 2, 3, 5)
_COMPACTION = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
_SURVIVAL = (0.5, 0.8, 0.9, 0.95, 0.99, 1)
_SEARCH_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
_RPC_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The boundaries that the RPC conventions (1.44) give for rpc.server.call.duration."""
_OPENMETRICS = "application/openmetrics-text;version=1.0.0"

Instrument = TypeVar("Instrument", bound=MetricWrapperBase)


class Metrics:
    """The instruments. Methods are thread-safe and cost a few microseconds."""

    def __init__(self, *, version: str, labels: MetricLabels) -> None:
        self._registry = CollectorRegistry()
        self._open_passes(labels)
        self._open_pass_costs()
        self._open_records()
        self._open_log(labels)
        self._open_calls(labels)
        self._open_prompts()
        self._open_scraped(labels)
        self._open_recall()
        self._open_models(labels)
        codes = self._counter(
            "abridged_ingested_appends", "How many appends of IngestMessages ended, and with which status?", "code"
        )
        self._ingested = _Series(codes, GRPC_CODES)
        build = Info("abridged_build", "Which build is running, and on which Python?", registry=self._registry)
        build.info({"version": version, "python": platform.python_version()})
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def pass_ended(self, fact: PassEnded) -> None:
        """Count a pass that ended or was skipped."""
        exemplar = _exemplar(fact.trace_id)
        if fact.trigger is None:
            passes = self._not_begun
        else:
            trigger = fact.trigger if fact.trigger in self._triggers else OTHER
            model = fact.model if fact.model in self._models else OTHER
            passes = self._passes.labels(fact.outcome, trigger, model)
        passes.inc(1, exemplar)
        if fact.error_class is not None:
            self._failures[fact.error_class].inc(1, exemplar)
        if fact.skip_reason is not None:
            self._skips[fact.skip_reason].inc(1, exemplar)
        if fact.duration_s is not None:
            self._pass_seconds.observe(fact.duration_s, exemplar)
            self._attempts.observe(fact.attempts, exemplar)
            self._tokens["in"].inc(fact.tokens_in, exemplar)
            self._tokens["out"].inc(fact.tokens_out, exemplar)
        if fact.record is not None:
            self._record_committed(fact.record, exemplar)

    def _record_committed(self, record: RecordCommitted, exemplar: dict[str, str] | None) -> None:
        self._tokens["saved"].inc(max(0, record.tokens_before - record.tokens_after), exemplar)
        if record.tokens_before > 0:
            self._compaction.observe(record.tokens_after / record.tokens_before, exemplar)
        self._survival.observe(record.identifier_survival, exemplar)
        claims, statements = record.unsupported_claims, record.unsupported_statements
        self._unsupported_claims.inc(claims, exemplar if claims else None)
        self._unsupported_statements.inc(statements, exemplar if statements else None)

    def passes_pending(self, count: int, *, oldest_timestamp_s: float = 0.0) -> None:
        """Set how many passes wait or run, and since when the oldest does (seconds since the epoch; 0 without one)."""
        self._pending.set(count)
        self._oldest_pending.set(oldest_timestamp_s)

    def preparation_ended(self, outcome: PreparationOutcome) -> None:
        """Count a record that was prepared before its trigger."""
        self._preparations[outcome].inc()

    def title_ended(self, outcome: TitleOutcome) -> None:
        """Count a title that a model was asked for."""
        self._titles[outcome].inc()

    def breaker_changed(self, host: str, state: str) -> None:
        """Set a model host's breaker state, a key of `BREAKER_VALUES`. Ignores hosts without a series."""
        if host in self._breakers:
            self._breakers[host].set(BREAKER_VALUES[state])

    def window_rewritten(self, cause: RewriteCause) -> None:
        """Count a window that changed elsewhere than at its end."""
        self._rewrites[cause].inc()

    def prompt_reported(self, prompt_tokens: int, *, cached_tokens: int) -> None:
        """Count a prompt that a chat model has read; `cached_tokens` of it came from the provider's cache."""
        self._prompt_tokens["hit"].inc(cached_tokens)
        self._prompt_tokens["miss"].inc(prompt_tokens - cached_tokens)

    def commit(self, event_types: Sequence[str], *, seconds: float, trace_id: str = "") -> None:
        """Count one transaction of the log: the types of its events, and how long it took."""
        exemplar = _exemplar(trace_id)
        for name, count in Tally(event_types).items():
            self._appended[name].inc(count, exemplar)
        self._commit_events.observe(len(event_types), exemplar)
        self._commit_seconds.observe(seconds, exemplar)

    def conversations_counted(self, fact: ConversationsCounted | None) -> None:
        """Set the counts of conversations; None means unknown.

        An unknown value is NaN: a 0 would be good news, and NaN makes no alert's comparison true.
        """
        self._over_budget.set(math.nan if fact is None else fact.over_budget)
        for reason, gauge in self._conversations_held.items():
            gauge.set(math.nan if fact is None else fact.held.get(reason, 0))

    def log_measured(self, fact: LogMeasured | None) -> None:
        """Set the log's size and free space; None, for unknown or a log without a file, sets NaN."""
        self._log_size.set(math.nan if fact is None else fact.size_bytes)
        self._log_free.set(math.nan if fact is None else fact.free_bytes)

    def searched(self, mode: SearchMode, *, seconds: float) -> None:
        """Count a search that was answered."""
        self._searches[mode].inc()
        self._search_seconds.observe(seconds)

    def recall_measured(self, fact: RecallMeasured) -> None:
        """Set how far the search index is."""
        self._behind["words"].set(fact.words_behind)
        self._behind["vectors"].set(fact.vectors_behind)
        self._indexed["words"].set(fact.words_position)
        self._indexed["vectors"].set(fact.vectors_position)
        self._recall_stopped.set(fact.stopped)

    def subscriber_opened(self) -> None:
        """Count an event stream that opened."""
        self._subscribers.inc()

    def subscriber_closed(self) -> None:
        """Count an event stream that closed."""
        self._subscribers.dec()

    def rpc_ended(self, method: str, code: str, *, seconds: float, trace_id: str = "") -> None:
        """Count a call that ended. `method` and `code` may be anything; an unserved method counts as `_OTHER`."""
        exemplar = _exemplar(trace_id)
        calls = self._calls_by_pair.get((method, code)) or self._open_pair(method, code)
        calls.inc(1, exemplar)
        self._call_seconds[method].observe(seconds, exemplar)

    def append_ingested(self, code: str) -> None:
        """Count an append of IngestMessages that ended with this status."""
        self._ingested[code].inc()

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Body and content type of a scrape: OpenMetrics with exemplars if `accept` asks, otherwise the text format."""
        encode, content_type = choose_encoder(_OPENMETRICS if _takes_openmetrics(accept) else "")
        return encode(_WithoutCreated(self._registry)), content_type

    def collect(self) -> Iterable[Metric]:
        """Yield every family as it is exposed, for tests."""
        return _WithoutCreated(self._registry).collect()

    def _counter(self, name: str, question: str, *labels: str) -> Counter:
        return Counter(name, question, labels, registry=self._registry)

    def _gauge(self, name: str, question: str, *labels: str) -> Gauge:
        return Gauge(name, question, labels, registry=self._registry)

    def _histogram(self, name: str, question: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, question, labels, buckets=buckets, registry=self._registry)

    def _open_passes(self, labels: MetricLabels) -> None:
        self._models = frozenset(labels.models[:MODELS_NAMED_MAX])
        self._triggers = frozenset(labels.triggers)
        self._passes = self._counter(
            "abridged_summarizations",
            "How many passes ended, how, what triggered them, and which configured model was asked?",
            "outcome",
            "trigger",
            "model",
        )
        for values in product(PassOutcome, labels.triggers, (*labels.models[:MODELS_NAMED_MAX], OTHER)):
            self._passes.labels(*values)
        # One series, not one per outcome and model: only a skip can precede a pass, and it asks no model.
        self._not_begun = self._passes.labels(PassOutcome.SKIPPED, NOT_BEGUN, OTHER)
        failures = self._counter(
            "abridged_summarization_failures", "Why did models not make the record?", "error_class"
        )
        self._failures = _Series(failures, labels.error_classes)
        skips = self._counter(
            "abridged_summarization_skips", "Why was nothing compressed although a pass was due?", "reason"
        )
        self._skips = _Series(skips, labels.skip_reasons)

    def _open_pass_costs(self) -> None:
        tokens = self._counter(
            "abridged_summarizer_tokens",
            "How many tokens did models read (in) and write (out), and how many did records save (saved)?",
            "direction",
        )
        self._tokens = _Series(tokens, ("in", "out", "saved"))
        self._pass_seconds = self._histogram(
            "abridged_summarization_duration_seconds",
            "How long does a pass take from claim to commit?",
            _PASS_SECONDS,
        )
        self._attempts = self._histogram(
            "abridged_summarization_attempts", "How often does a pass try to reach a model?", _ATTEMPTS
        )
        self._pending = self._gauge("abridged_summarizations_pending", "How many passes are waiting or running?")
        self._oldest_pending = self._gauge(
            "abridged_oldest_pending_timestamp_seconds",
            "When did the oldest pending pass begin to wait? 0: none is pending.",
        )

    def _open_records(self) -> None:
        self._compaction = self._histogram(
            "abridged_compaction_ratio",
            "How large is a record, as a share of the tokens that it replaces?",
            _COMPACTION,
        )
        self._survival = self._histogram(
            "abridged_identifier_survival_ratio",
            "Which share of the required identifiers of its source does a record keep?",
            _SURVIVAL,
        )
        self._unsupported_claims = self._counter(
            "abridged_unsupported_claims",
            "How many invented identifiers were removed from drafts before their records were committed?",
        )
        self._unsupported_statements = self._counter(
            "abridged_unsupported_statements",
            "How many statements of the drafts of committed records is no message near?",
        )

    def _open_log(self, labels: MetricLabels) -> None:
        appended = self._counter(
            "abridged_events_appended", "How many events of each type have been written since the start?", "type"
        )
        self._appended = _Series(appended, (OTHER, *labels.event_types))
        self._commit_events = self._histogram(
            "abridged_commit_batch_events", "How many events share one transaction?", _COMMIT_EVENTS
        )
        self._commit_seconds = self._histogram(
            "abridged_commit_duration_seconds",
            "How long does a transaction of the log take, flush included?",
            _COMMIT_SECONDS,
        )
        self._subscribers = self._gauge("abridged_subscribers", "How many event streams are open to clients?")

    def _open_calls(self, labels: MetricLabels) -> None:
        """Every method exists with `OK` from the start, and every code with `_OTHER`; other pairs are added when they
        first occur. All pairs from the start would be 40 by 17 series, nearly all of them 0 for ever.
        """
        self._methods = frozenset(labels.methods)
        self._calls = self._counter(
            "abridged_grpc_server_calls",
            "How many calls of each method ended, and with which status?",
            "method",
            "code",
        )
        pairs = [(method, "OK") for method in labels.methods] + [(OTHER, code) for code in GRPC_CODES]
        self._calls_by_pair = {pair: self._calls.labels(*pair) for pair in pairs}
        seconds = self._histogram(
            "abridged_grpc_server_call_duration_seconds",
            "How long does a call take from its arrival to its status?",
            _RPC_SECONDS,
            "method",
        )
        self._call_seconds = _Series(seconds, (OTHER, *labels.timed_methods))

    def _open_pair(self, method: str, code: str) -> Counter:
        code = code if code in GRPC_CODES else "UNKNOWN"
        pair = (method if method in self._methods else OTHER, code)
        if pair not in self._calls_by_pair:
            if len(self._calls_by_pair) >= CALL_SERIES_MAX:
                pair = (OTHER, code)
            else:
                self._calls_by_pair[pair] = self._calls.labels(*pair)
        return self._calls_by_pair[pair]

    def _open_prompts(self) -> None:
        rewrites = self._counter(
            "abridged_window_rewrites", "How often did a window change elsewhere than at its end, and why?", "cause"
        )
        self._rewrites = _Series(rewrites, RewriteCause)
        tokens = self._counter(
            "abridged_prompt_tokens",
            "How many prompt tokens were reported, with (hit) and without (miss) coming from the provider's cache?",
            "cache",
        )
        self._prompt_tokens = _Series(tokens, ("hit", "miss"))

    def _open_scraped(self, labels: MetricLabels) -> None:
        """Gauges that each scrape computes; 0 until they are first set."""
        self._over_budget = self._gauge(
            "abridged_conversations_over_budget", "How many conversations have a window over their budget?"
        )
        held = self._gauge(
            "abridged_conversations_held",
            "How many windows past their trigger did their last event leave as they are, and why?",
            "held_by",
        )
        self._conversations_held = _Series(held, labels.held_by)
        self._log_size = self._gauge(
            "abridged_log_size_bytes", "How large is the log's file, write-ahead log included?"
        )
        self._log_free = self._gauge("abridged_log_free_bytes", "How much may still be written on the log's volume?")

    def _open_recall(self) -> None:
        """Searches, and gauges that each scrape computes; all are 0 where the index is off."""
        searches = self._counter("abridged_searches", "How many searches were answered, by what they compared?", "mode")
        self._searches = _Series(searches, SearchMode)
        self._search_seconds = self._histogram(
            "abridged_search_duration_seconds",
            "How long does a search take, its query's vector included?",
            _SEARCH_SECONDS,
        )
        behind = self._gauge(
            "abridged_recall_behind_events",
            "How many positions of the log are not in the search index yet?",
            "index",
        )
        self._behind = _Series(behind, ("words", "vectors"))
        indexed = self._gauge("abridged_recall_position", "Up to which position of the log is it indexed?", "index")
        self._indexed = _Series(indexed, ("words", "vectors"))
        self._recall_stopped = self._gauge(
            "abridged_recall_stopped", "Does the search index follow the log no longer? 1: yes."
        )

    def _open_models(self, labels: MetricLabels) -> None:
        breakers = self._gauge(
            "abridged_breaker_state",
            "Is a model host called? 0: closed, yes. 1: half open, one trial. 2: open, no.",
            "host",
        )
        self._breakers = _Series(breakers, labels.hosts[:HOSTS_NAMED_MAX])
        preparations = self._counter(
            "abridged_preparations", "What became of records that were prepared before their trigger?", "outcome"
        )
        self._preparations = _Series(preparations, PreparationOutcome)
        titles = self._counter("abridged_titles", "What came of asking a model for a title?", "outcome")
        self._titles = _Series(titles, TitleOutcome)


class _Series(dict[str, Instrument]):
    """The series of an instrument with one label. All exist from the start, so that ratios and alerts see zeros; any
    value outside the list counts under `_OTHER`."""

    def __init__(self, instrument: Instrument, values: Iterable[str]) -> None:
        super().__init__((value, instrument.labels(value)) for value in values)
        self._instrument = instrument

    def __missing__(self, value: str) -> Instrument:
        return self._instrument.labels(OTHER)


class _WithoutCreated(Collector):
    """A registry without its `_created` samples, which are a third more series and unused here.

    The library's own switch is global to the process; this one is not.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


def _takes_openmetrics(accept: str) -> bool:
    """Return whether `accept` asks for OpenMetrics, in the version that we serve or in any.

    The library accepts versions that it cannot write, and raises on those that are not numbers.
    """
    served, _, version = _OPENMETRICS.partition(";version=")
    for asked in accept.split(","):
        kind, *parameters = (part.strip() for part in asked.split(";"))
        versions = {part.partition("=")[2].strip() for part in parameters if part.startswith("version")}
        if kind == served and versions <= {version}:
            return True
    return False


def _exemplar(trace_id: str) -> dict[str, str] | None:
    return {"trace_id": trace_id} if trace_id else None
