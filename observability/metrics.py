"""Every instrument of the service.

Invariant: at most `SERIES_MAX` series, whatever callers send. Every label value comes from a list that is fixed at
construction; any other value is counted under `_OTHER`, so sums stay exact. Conversation ids, error texts and peer
addresses are never labels.
"""

from __future__ import annotations

import platform
from collections import Counter as Tally
from collections.abc import Iterable, Sequence

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
from prometheus_client.metrics_core import Metric

from observability.exposition import OPENMETRICS, WithoutCreated, takes_openmetrics
from observability.facts import (
    BREAKER_VALUES,
    BreakerState,
    ConversationsCounted,
    ErrorClass,
    LogMeasured,
    PassEnded,
    PassOutcome,
    PassTrigger,
    PreparationOutcome,
    RecallMeasured,
    RecordCommitted,
    RewriteCause,
    SearchMode,
    SkipReason,
    TitleOutcome,
)
from observability.ingesting import ingest_counters
from observability.labels import (
    CALL_SERIES_MAX,
    GRPC_CODES,
    HOSTS_NAMED_MAX,
    MODELS_NAMED_MAX,
    OTHER,
    MetricLabels,
)
from observability.preparing import preparation_counters
from observability.prompts import PromptInstruments
from observability.searching import RecallInstruments
from observability.standing import StandingInstruments
from observability.titling import title_counters

__all__ = ["NOT_BEGUN", "SERIES_MAX", "Metrics"]

SERIES_MAX = 600
NOT_BEGUN = "none"
"""The trigger label of a skip before any pass began."""
_PASS_SECONDS = (0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 300)
_COMMIT_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
_COMMIT_EVENTS = (1, 4, 16, 64, 256, 1_000)
_ATTEMPTS = (1, 2, 3, 5)
_COMPACTION = (0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
_SURVIVAL = (0.5, 0.8, 0.9, 0.95, 0.99, 1)
_RPC_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The boundaries that the RPC conventions (1.44) give for rpc.server.call.duration."""


class Metrics:
    """The instruments. Methods take facts, are thread-safe, and cost a few microseconds."""

    def __init__(self, *, version: str, labels: MetricLabels) -> None:
        self._registry = CollectorRegistry()
        self._passes = _PassInstruments(self._registry, tuple(labels.models[:MODELS_NAMED_MAX]))
        self._log = _LogInstruments(self._registry, labels.event_types)
        self._rpcs = _RpcInstruments(self._registry, labels)
        self._prompts = PromptInstruments(self._registry)
        self._standing = StandingInstruments(self._registry)
        self._recall = RecallInstruments(self._registry)
        self._breakers = _breakers(self._registry, labels.hosts[:HOSTS_NAMED_MAX])
        self._preparations = preparation_counters(self._registry)
        self._titles = title_counters(self._registry)
        self._ingested = ingest_counters(self._registry)
        build = Info("abridged_build", "Which build is running, and on which Python?", registry=self._registry)
        build.info({"version": version, "python": platform.python_version()})
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def pass_ended(self, fact: PassEnded) -> None:
        """Count a pass that ended or was skipped."""
        self._passes.ended(fact)

    def passes_pending(self, count: int, *, oldest_timestamp_s: float = 0.0) -> None:
        """Set how many passes wait or run, and since when the oldest does (seconds since the epoch; 0 if none)."""
        self._passes.pending.set(count)
        self._passes.oldest_pending.set(oldest_timestamp_s)

    def preparation_ended(self, outcome: PreparationOutcome) -> None:
        """Count a record that was prepared before its trigger."""
        self._preparations[outcome].inc()

    def title_ended(self, outcome: TitleOutcome) -> None:
        """Count a title that a model was asked for."""
        self._titles[outcome].inc()

    def breaker_changed(self, host: str, state: BreakerState) -> None:
        """Set a model host's breaker state. Ignores hosts without a series."""
        if host in self._breakers:
            self._breakers[host].set(BREAKER_VALUES[state])

    def window_rewritten(self, cause: RewriteCause) -> None:
        """Count a window that changed elsewhere than at its end."""
        self._prompts.rewritten(cause)

    def prompt_reported(self, prompt_tokens: int, *, cached_tokens: int) -> None:
        """Count a prompt that a chat model has read; `cached_tokens` of it came from the provider's cache."""
        self._prompts.reported(prompt_tokens, cached_tokens)

    def commit(self, event_types: Sequence[str], *, seconds: float, trace_id: str = "") -> None:
        """Count one transaction of the log: the types of its events, and how long it took."""
        self._log.committed(event_types, seconds=seconds, trace_id=trace_id)

    def conversations_counted(self, fact: ConversationsCounted | None) -> None:
        """Set the counts of conversations; None if they are unknown."""
        self._standing.conversations(fact)

    def log_measured(self, fact: LogMeasured | None) -> None:
        """Set the log's size and free space; None if they are unknown, or there is no file."""
        self._standing.log(fact)

    def searched(self, mode: SearchMode, *, seconds: float) -> None:
        """Count a search that was answered."""
        self._recall.searched(mode, seconds)

    def recall_measured(self, fact: RecallMeasured) -> None:
        """Set how far the search index is."""
        self._recall.measured(fact)

    def subscriber_opened(self) -> None:
        """Count an event stream that opened."""
        self._log.subscribers.inc()

    def subscriber_closed(self) -> None:
        """Count an event stream that closed."""
        self._log.subscribers.dec()

    def rpc_ended(self, method: str, code: str, *, seconds: float, trace_id: str = "") -> None:
        """Count a call that ended. `method` and `code` may be anything; an unserved method counts as `_OTHER`."""
        self._rpcs.ended(method, code, seconds=seconds, trace_id=trace_id)

    def append_ingested(self, code: str) -> None:
        """Count an append of IngestMessages that ended with this status."""
        self._ingested[code].inc()

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Body and content type of a scrape: OpenMetrics with exemplars if `accept` asks, otherwise the text format."""
        encode, content_type = choose_encoder(OPENMETRICS if takes_openmetrics(accept) else "")
        return encode(WithoutCreated(self._registry)), content_type

    def collect(self) -> Iterable[Metric]:
        """Yield every family as it is exposed, for tests."""
        return WithoutCreated(self._registry).collect()


class _PassInstruments:
    """What passes did: outcomes, cost and quality."""

    def __init__(self, registry: CollectorRegistry, models: tuple[str, ...]) -> None:
        ended = Counter(
            "abridged_summarizations",
            "How many passes ended, how, what triggered them, and which configured model was asked?",
            ("outcome", "trigger", "model"),
            registry=registry,
        )
        names = (*models, OTHER)
        self._ended = {
            (o, t, m): ended.labels(o.value, t.value, m) for o in PassOutcome for t in PassTrigger for m in names
        }
        # One series, not one per outcome and model: only a skip can precede a pass, and it asks no model.
        self._not_begun = ended.labels(PassOutcome.SKIPPED.value, NOT_BEGUN, OTHER)
        self._models = frozenset(models)
        failures = Counter(
            "abridged_summarization_failures",
            "Why did models not make the record?",
            ("error_class",),
            registry=registry,
        )
        self._failures = {c: failures.labels(c.value) for c in ErrorClass}
        skips = Counter(
            "abridged_summarization_skips",
            "Why was nothing compressed although a pass was due?",
            ("reason",),
            registry=registry,
        )
        self._skips = {r: skips.labels(r.value) for r in SkipReason}
        tokens = Counter(
            "abridged_summarizer_tokens",
            "How many tokens did models read (in) and write (out), and how many have records saved in windows (saved)?",
            ("direction",),
            registry=registry,
        )
        self._tokens = {d: tokens.labels(d) for d in ("in", "out", "saved")}
        self._open_costs(registry)
        self._open_quality(registry)

    def _open_costs(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "abridged_summarization_duration_seconds",
            "How long does a pass take from claim to commit?",
            buckets=_PASS_SECONDS,
            registry=registry,
        )
        self._attempts = Histogram(
            "abridged_summarization_attempts",
            "How often does a pass try to reach a model?",
            buckets=_ATTEMPTS,
            registry=registry,
        )
        self.pending = Gauge(
            "abridged_summarizations_pending", "How many passes are waiting or running?", registry=registry
        )
        self.oldest_pending = Gauge(
            "abridged_oldest_pending_timestamp_seconds",
            "When did the oldest pending pass begin to wait? 0: none is pending.",
            registry=registry,
        )

    def _open_quality(self, registry: CollectorRegistry) -> None:
        self._compaction = Histogram(
            "abridged_compaction_ratio",
            "How large is a record, as a share of the tokens that it replaces?",
            buckets=_COMPACTION,
            registry=registry,
        )
        self._survival = Histogram(
            "abridged_identifier_survival_ratio",
            "Which share of the required identifiers of its source does a record keep?",
            buckets=_SURVIVAL,
            registry=registry,
        )
        self._unsupported = Counter(
            "abridged_unsupported_claims",
            "How many invented identifiers were removed from drafts before their records were committed?",
            registry=registry,
        )
        self._unsupported_statements = Counter(
            "abridged_unsupported_statements",
            "How many statements of the drafts of committed records rest on no message?",
            registry=registry,
        )

    def ended(self, fact: PassEnded) -> None:
        exemplar = _exemplar(fact.trace_id)
        model = fact.model if fact.model in self._models else OTHER
        counted = self._not_begun if fact.trigger is None else self._ended[fact.outcome, fact.trigger, model]
        counted.inc(1, exemplar)
        if fact.error_class is not None:
            self._failures[fact.error_class].inc(1, exemplar)
        if fact.skip_reason is not None:
            self._skips[fact.skip_reason].inc(1, exemplar)
        if fact.duration_s is not None:
            self._seconds.observe(fact.duration_s, exemplar)
            self._attempts.observe(fact.attempts, exemplar)
            self._tokens["in"].inc(fact.tokens_in, exemplar)
            self._tokens["out"].inc(fact.tokens_out, exemplar)
        if fact.record is not None:
            self._committed(fact.record, exemplar)

    def _committed(self, record: RecordCommitted, exemplar: dict[str, str] | None) -> None:
        self._tokens["saved"].inc(max(0, record.tokens_before - record.tokens_after), exemplar)
        if record.tokens_before > 0:
            self._compaction.observe(record.tokens_after / record.tokens_before, exemplar)
        self._survival.observe(record.identifier_survival, exemplar)
        self._unsupported.inc(record.unsupported_claims, exemplar if record.unsupported_claims else None)
        statements = record.unsupported_statements
        self._unsupported_statements.inc(statements, exemplar if statements else None)


class _LogInstruments:
    """What the event log did."""

    def __init__(self, registry: CollectorRegistry, event_types: Sequence[str]) -> None:
        appended = Counter(
            "abridged_events_appended",
            "How many events of each type have been written since the start?",
            ("type",),
            registry=registry,
        )
        self._other = appended.labels(OTHER)
        self._appended = {name: appended.labels(name) for name in event_types}
        self._batch = Histogram(
            "abridged_commit_batch_events",
            "How many events share one transaction?",
            buckets=_COMMIT_EVENTS,
            registry=registry,
        )
        self._seconds = Histogram(
            "abridged_commit_duration_seconds",
            "How long does a transaction of the log take, flush included?",
            buckets=_COMMIT_SECONDS,
            registry=registry,
        )
        self.subscribers = Gauge(
            "abridged_subscribers", "How many event streams are open to clients?", registry=registry
        )

    def committed(self, event_types: Sequence[str], *, seconds: float, trace_id: str) -> None:
        exemplar = _exemplar(trace_id)
        for name, count in Tally(event_types).items():
            self._appended.get(name, self._other).inc(count, exemplar)
        self._batch.observe(len(event_types), exemplar)
        self._seconds.observe(seconds, exemplar)


class _RpcInstruments:
    """Calls and their statuses.

    Every method exists with `OK` from the start, and every code with `_OTHER`; other pairs are added when they first
    occur. All pairs from the start would be 40 by 17 series, nearly all of them 0 for ever.
    """

    def __init__(self, registry: CollectorRegistry, labels: MetricLabels) -> None:
        self._calls = Counter(
            "abridged_grpc_server_calls",
            "How many calls of each method ended, and with which status?",
            ("method", "code"),
            registry=registry,
        )
        seconds = Histogram(
            "abridged_grpc_server_call_duration_seconds",
            "How long does a call take from its arrival to its status?",
            ("method",),
            buckets=_RPC_SECONDS,
            registry=registry,
        )
        self._methods = frozenset(labels.methods)
        first = [(method, "OK") for method in labels.methods] + [(OTHER, code) for code in GRPC_CODES]
        self._pairs = {pair: self._calls.labels(*pair) for pair in first}
        self._seconds_other = seconds.labels(OTHER)
        self._seconds = {method: seconds.labels(method) for method in labels.timed_methods}

    def ended(self, method: str, code: str, *, seconds: float, trace_id: str) -> None:
        exemplar = _exemplar(trace_id)
        pair = self._pairs.get((method, code)) or self._open(method, code)
        pair.inc(1, exemplar)
        self._seconds.get(method, self._seconds_other).observe(seconds, exemplar)

    def _open(self, method: str, code: str) -> Counter:
        code = code if code in GRPC_CODES else "UNKNOWN"
        method = method if method in self._methods else OTHER
        pair = (method, code)
        if pair not in self._pairs:
            if len(self._pairs) >= CALL_SERIES_MAX:
                pair = (OTHER, code)
            else:
                self._pairs[pair] = self._calls.labels(*pair)
        return self._pairs[pair]


def _breakers(registry: CollectorRegistry, hosts: Sequence[str]) -> dict[str, Gauge]:
    state = Gauge(
        "abridged_breaker_state",
        "Is a model host called? 0: closed, yes. 1: half open, one trial. 2: open, no.",
        ("host",),
        registry=registry,
    )
    return {host: state.labels(host) for host in hosts}


def _exemplar(trace_id: str) -> dict[str, str] | None:
    return {"trace_id": trace_id} if trace_id else None
