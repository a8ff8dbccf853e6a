"""Everything that can be set, once: name, type, range, default and help. `docs/configuration.md` is made from it.

The models are frozen and say nothing of where a value comes from (`service.config.sources` does). Ranges of single
fields are checked here; whether policy fields fit together is the domain's to say.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    ModelWrapValidatorHandler,
    SecretStr,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from abridged.eventlog.encryption.key_text import parsed_keys
from abridged.service.config.policy_fields import IN_LOWER_CASE, policy_fields
from abridged.service.domain.policy import CLIENT_FIELDS, SUMMARY_TOKENS_MIN, Policy, ProfileName, overridden
from abridged.service.domain.profiles.registry import profile_of
from abridged.service.models.ollama.provider import Ollama
from abridged.service.models.ollama.settings import OllamaGroup
from abridged.service.models.openai.provider import OpenAI
from abridged.service.models.openai.settings import OpenAIGroup
from abridged.service.models.provider import Provider
from abridged.service.models.scripted.provider import Scripted
from abridged.service.models.settings import OptionalPath, Seconds, Secret, SettingsGroup

EXTRACTIVE_PREFIX = "extractive"
"""Stands for a provider in the name of a summarizer that asks no model."""

PROVIDER_TYPES: tuple[type[Provider[Any]], ...] = (Ollama, OpenAI, Scripted)
"""The providers whose models the settings may name. A chat model without a known prefix is the first one's."""

# A model's name is checked where it stands, so that all errors come at once, and only the whole knows the providers.
_known_providers = ContextVar("known_providers", default=PROVIDER_TYPES)
_UNIX_PREFIX = "unix:"

NO_PIPE = "a log is a file, and no pipe; a file named '-' needs its folder: '/folder/-'"
"""Refuses the path that stands for standard input or output elsewhere."""

ARCHIVES_IN_CLEAR = "an archive is text in clear, which no key protects"
"""The reason for which an encrypted log keeps no archives."""

NAME_PATTERN = r"^[a-z0-9][a-z0-9-]{0,62}$"
"""Names of namespaces and of logs."""

DEFAULT_NAMESPACE = "default"
"""The namespace of callers without a token, and of tokens that name none."""


def is_local_address(address: str) -> bool:
    """Return whether only this machine can reach `address` (`unix:/path` or `host:port`)."""
    if address.startswith(_UNIX_PREFIX):
        return True
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen_address(value: str) -> str:
    if value.startswith(_UNIX_PREFIX):
        if not value.removeprefix(_UNIX_PREFIX).startswith("/"):
            raise PydanticCustomError("listen", "a unix socket is 'unix:/absolute/path'")
        return value
    host, colon, port = value.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise PydanticCustomError(
            "listen", "an address is 'host:port', with a port up to 65535, or 'unix:/absolute/path'"
        )
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise PydanticCustomError("listen", "an IPv6 host stands in brackets, '[::1]:7420'")
    return value


def _http_address(value: str) -> str:
    if value.startswith(_UNIX_PREFIX):
        raise PydanticCustomError("listen", "the HTTP port is 'host:port', or empty for none")
    return _listen_address(value) if value else value


def _web_origin(value: str) -> str:
    if not re.fullmatch(r"https?://[^/?#\s]+", value):
        raise PydanticCustomError("origin", "an origin is 'https://host' or 'http://host:port', without a path")
    return value


def _provider_model(value: str) -> str:
    prefix, _, model = value.partition(":")
    examples = {kind.name: kind.example for kind in _known_providers.get()} | {EXTRACTIVE_PREFIX: ""}
    if prefix not in examples:
        such = [f"'{name}:{example}'" for name, example in examples.items() if example]
        raise PydanticCustomError(
            "model",
            "a model is 'provider:model', such as {named}; the providers are {providers}",
            {"named": " or ".join(such), "providers": ", ".join(examples)},
        )
    if examples[prefix] and not model:
        named = f"{prefix}:{examples[prefix]}"
        raise PydanticCustomError("model", "a model needs its name, '{named}'", {"named": named})
    return f"{EXTRACTIVE_PREFIX}:default" if value == EXTRACTIVE_PREFIX else value


def _log_path(value: Path) -> Path:
    if str(value) == "-":
        raise PydanticCustomError("log", NO_PIPE)
    return value


def _database_url(value: SecretStr | None) -> SecretStr | None:
    if value is None or value.get_secret_value().startswith(("postgresql://", "postgres://")):
        return value
    raise PydanticCustomError("url", "a database is 'postgresql://user:password@host/database'")


def _embedder(value: str) -> str:
    if value in ("multilingual", "wordllama") or value.removeprefix("ollama:") not in ("", value):
        return value
    raise PydanticCustomError("embedder", "an embedder is 'multilingual', 'wordllama' or 'ollama:NAME'")


DatabaseUrl = Annotated[Secret, AfterValidator(_database_url)]
ListenAddress = Annotated[str, AfterValidator(_listen_address)]
HttpAddress = Annotated[str, AfterValidator(_http_address)]
WebOrigin = Annotated[str, AfterValidator(_web_origin)]
ProviderModel = Annotated[str, AfterValidator(_provider_model)]
Scope = Literal["append", "read", "read-all", "erase", "admin"]


class TokenGrant(SettingsGroup):
    """A bearer token and what it may do. Give the token itself or the file that holds it."""

    token: Secret = None
    token_file: Path | None = None
    namespace: Annotated[str, Field(pattern=NAME_PATTERN)] = DEFAULT_NAMESPACE
    scopes: tuple[Scope, ...] = ("append", "read")

    @model_validator(mode="after")
    def _has_a_token(self) -> Self:
        if self.token is None:
            raise PydanticCustomError("token", "give token or token_file", {"field": "token"})
        return self


class ServerSettings(SettingsGroup):
    """Addresses that the sidecar listens at, and limits on what it accepts."""

    listen: Annotated[tuple[ListenAddress, ...], Field(min_length=1)] = Field(
        default=("127.0.0.1:7420",),
        description="gRPC addresses, `host:port` or `unix:/path`. An address beyond loopback requires a token.",
    )
    http_listen: HttpAddress = Field(
        default="127.0.0.1:7421",
        description="Address of `/livez /readyz /startupz /metrics`, which expose no text, and of calls by Connect and "
        "gRPC-Web, which an address beyond loopback takes only with tokens; empty disables them.",
    )
    http_origins: tuple[WebOrigin, ...] = Field(
        default=(),
        description="Pages that may call `http_listen`, by origin, `https://host:port`. Without their origin here "
        "browsers are refused.",
    )
    tokens: tuple[TokenGrant, ...] = Field(
        default=(),
        description="Tables of `token` or `token_file`, `namespace` and `scopes` (append, read, read-all, erase, "
        "admin). Without tokens, anyone who can connect uses namespace `default`.",
    )
    concurrent_rpcs_max: int = Field(
        default=1_000,
        ge=1,
        le=100_000,
        description="Concurrent unary calls; more are refused. If tokens name several namespaces, none gets more than "
        "is left free of this, `waits_max`, `streams_max` and `answer_bytes_max`: a single busy namespace gets half.",
    )
    waits_max: int = Field(
        default=1_000,
        ge=1,
        le=100_000,
        description="Concurrently waiting calls, mostly for a pass; more return at once with what there is, or are "
        "refused if they would wait for a `min_version`.",
    )
    streams_max: int = Field(default=256, ge=1, le=100_000, description="Concurrent streams; more are refused.")
    ingest_window: int = Field(
        default=64,
        ge=1,
        le=1_024,
        description="Appends of one IngestMessages under way; while there are as many, no more are read from it.",
    )
    answer_bytes_max: int = Field(
        default=33_554_432,
        ge=4_194_304,
        le=8_589_934_592,
        description="Bytes of responses that are being built or that callers have not received yet; past it, calls "
        "that read are refused. They use about three times as much memory.",
    )
    message_bytes_max: int = Field(default=262_144, ge=1_024, le=1_000_000, description="Largest message, in bytes.")
    batch_messages_max: int = Field(default=512, ge=1, le=512, description="Most messages in one append.")
    batch_bytes_max: int = Field(default=1_048_576, ge=1_024, le=3_145_728, description="Largest append, in bytes.")
    shutdown_grace_s: Seconds = Field(
        default=4.0, description="How long calls and a running pass may take to finish after SIGTERM, in seconds."
    )

    @property
    def takes_http_calls(self) -> bool:
        """True if calls are taken at `http_listen`: only this machine reaches it, or callers need a token."""
        return bool(self.tokens) or is_local_address(self.http_listen)

    @property
    def is_multi_tenant(self) -> bool:
        """True if tokens know more than one namespace."""
        return len({grant.namespace for grant in self.tokens}) > 1

    @model_validator(mode="after")
    def _open_addresses_need_a_token(self) -> Self:
        open_addresses = [address for address in self.listen if not is_local_address(address)]
        if open_addresses and not self.tokens:
            raise PydanticCustomError(
                "open_listen",
                "'{address}' can be reached from other machines; set server.tokens, or listen on loopback",
                {"address": open_addresses[0], "field": "listen"},
            )
        return self


class LogSettings(SettingsGroup):
    """The event log: a file, a PostgreSQL database, or memory."""

    backend: Literal["sqlite", "memory"] = Field(
        default="sqlite", description="Without `log.url`. `memory` loses everything at exit."
    )
    path: Annotated[Path, AfterValidator(_log_path)] = Field(
        default=Path("abridged.db"), description="The log's file, created 0600. It holds message text."
    )
    url: DatabaseUrl = Field(
        default=None,
        description="A PostgreSQL database instead of a file, for several sidecars on one log: "
        "`postgresql://user:password@host/database`. It needs the package extra `postgres`.",
    )
    url_file: Path | None = Field(default=None, description="File that contains the URL.")
    listen_url: DatabaseUrl = Field(
        default=None,
        description="The same database without a pooler, where `log.url` goes through one that gives a transaction a "
        "session: commits of other sidecars are heard of there at once.",
    )
    listen_url_file: Path | None = Field(default=None, description="File that contains that URL.")
    name: Annotated[str, Field(pattern=NAME_PATTERN)] = Field(
        default="default",
        description="The log's name in its database, which may hold several. A sidecar serves one.",
    )

    time_to_live_s: Annotated[float, Field(ge=0)] = Field(
        default=0.0,
        description="Seconds without an event after which a conversation is erased for good, its forks too; 0 for "
        "never. Retries of a pass that fails do not count. The sidecar looks once an hour.",
    )
    archive_dir: OptionalPath = Field(
        default=None,
        description="The folder for archives, made with mode 0700 unless it is there: one file with all text of each "
        "archived conversation. Each sidecar of a database needs the same one.",
    )
    archive_after_s: Annotated[float, Field(ge=0)] = Field(
        default=0.0,
        description="Seconds without an event after which a closed conversation's content moves from the log into a "
        "file of `log.archive_dir`; 0 for never. The sidecar looks once an hour.",
    )

    @property
    def file(self) -> Path | None:
        """The log's file; None for a log that has none."""
        return self.path if self.backend == "sqlite" and self.url is None else None

    @model_validator(mode="after")
    def _may_archive(self) -> Self:
        if self.archive_after_s and self.archive_dir is None:
            raise PydanticCustomError("archive", "needs a folder; set log.archive_dir", {"field": "archive_after_s"})
        return self

    @model_validator(mode="after")
    def _is_in_one_place(self) -> Self:
        if self.url is not None and (other := self.model_fields_set & {"backend", "path"}):
            raise PydanticCustomError(
                "place",
                "a log is in one place: give either log.url or log.{other}",
                {"other": min(other), "field": "url"},
            )
        if self.url is None and self.listen_url is not None:
            raise PydanticCustomError("place", "nothing is heard of a log without log.url", {"field": "listen_url"})
        if self.url is None and self.name != "default":
            raise PydanticCustomError(
                "place", "a file has one log, without a name: set log.url, or leave it out", {"field": "name"}
            )
        return self


def _operator_keys(value: SecretStr | None) -> SecretStr | None:
    try:
        if value is not None:
            parsed_keys(value.get_secret_value())
    except ValueError as error:
        raise PydanticCustomError("key", "{why}", {"why": str(error)}) from None
    return value


class EncryptionSettings(SettingsGroup):
    """Encryption of the log's contents, with a data key for each conversation: erasing the key erases every copy."""

    key: Annotated[Secret, AfterValidator(_operator_keys)] = Field(
        default=None,
        description="The operator's key, 32 bytes in base64, which wraps the data keys; it turns encryption on, and "
        "needs the package extra `encryption`. Of several, with spaces between, `abridged log rewrap` wraps with the "
        "first; the others unwrap what it has not reached.",
    )
    key_file: Path | None = Field(
        default=None,
        description="File that contains the key, or one a line. It is read anew when `abridged log rewrap` has "
        "wrapped with a new one, without a restart.",
    )
    keys_path: OptionalPath = Field(
        default=None,
        description="The file of the wrapped data keys, by default `<log.path>.keys`. Without it nothing that is "
        "encrypted can be read; whoever has it, the key and an old backup can read what was erased since.",
    )
    keys_url: DatabaseUrl = Field(
        default=None,
        description="A PostgreSQL database for them instead, another one than `log.url`, which needs it.",
    )
    keys_url_file: Path | None = Field(default=None, description="File that contains that URL.")

    @property
    def is_on(self) -> bool:
        """True if there is a key."""
        return self.key is not None


_PolicyFields: Any = create_model("_PolicyFields", __base__=SettingsGroup, **policy_fields())


class PolicySettings(_PolicyFields):  # type: ignore[misc]  # its fields are made from the domain's
    """Rules by which a conversation is summarized. Defaults are those of profile CHAIN."""


def _room_for_an_answer(tokens: int) -> int:
    if 0 < tokens < SUMMARY_TOKENS_MIN:
        raise ValueError(f"must be 0 or at least {SUMMARY_TOKENS_MIN}: no summary fits less")
    return tokens


class SummarizerSettings(SettingsGroup):
    """The calls that passes make to models."""

    models: Annotated[tuple[ProviderModel, ...], Field(min_length=1, max_length=16)] = Field(
        default=("ollama:qwen2.5:3b",),
        description="`ollama:NAME`, `openai:NAME`, `extractive:default` (calls no model) or `scripted:FILE`, in order "
        "of preference; the next one is used if a model is missing, not if its host is down (`policy.fallback` is for "
        "that).",
    )
    prompt_file: Path | None = Field(
        default=None,
        description="File with your own prompt: system text, a line `--- user ---`, user text, with the placeholders "
        "`{{meta}} {{previous}} {{transcript}} {{statements}} {{summary_tokens_max}}`. An invalid one is refused at "
        "start.",
    )
    text_prompt_file: Path | None = Field(
        default=None, description="The same for records in plain text (`policy.record_form` text)."
    )
    raw_schema_file: Path | None = Field(
        default=None,
        description="File with a JSON Schema of your own: records with facets then have an object by it, "
        "`context.raw`. Types are object, array, string, integer, number and boolean; every string needs `maxLength` "
        "or `enum`, every array `maxItems`, and every property is required. One without a bound is refused at start.",
    )
    after_chat: bool = Field(
        default=False,
        description="Ask a chat's own model after the chat's own messages, as they were last sent, so that its server "
        "has them in its cache. For chats with the first of `models` on the same server; with Ollama, `ollama.num_ctx` "
        "must be the chat's. Best for chats without tools, whose definitions the pass does not send. The messages are "
        "not framed as quotations.",
    )
    temperature: float = Field(default=0.2, ge=0, le=2, description="Sampling temperature.")
    num_predict: Annotated[int, AfterValidator(_room_for_an_answer)] = Field(
        default=0,
        ge=0,
        le=100_000,
        description="Most tokens of an answer, at least 128; no summary is asked to be longer. 0 is one and a half "
        "times the tokens that are asked for, in the model's own.",
    )
    seed: int = Field(
        default=7, ge=0, le=2_147_483_647, description="First seed; a repair or a redone range uses others."
    )
    repeat_penalty: float = Field(
        default=1.1,
        ge=1,
        le=2,
        description="How much words that were just written are penalized where the server takes it, as Ollama and "
        "llama.cpp do; 1 disables it. Small models loop without it.",
    )
    deadline_s: Seconds = Field(
        default=600.0,
        description="Limit on all of a pass's calls to a model, in seconds. The wait for a place at a host does not "
        "count, nor does an answer that has begun and keeps coming.",
    )
    retries: int = Field(default=1, ge=0, le=10, description="Retries after a transport error.")
    backoff_base_ms: int = Field(
        default=250, ge=1, le=60_000, description="Delay before the first retry, in milliseconds."
    )
    concurrent_passes: int = Field(default=2, ge=1, le=64, description="Passes that run concurrently.")
    concurrent_texts: int = Field(
        default=4, ge=1, le=256, description="SummarizeText calls that run concurrently; more are refused."
    )
    queue_max: int = Field(
        default=256, ge=1, le=100_000, description="Pending passes per namespace; past it, forced ones are refused."
    )


class TitleSettings(SettingsGroup):
    """Titles of conversations, made by a model after a pass. A title that the client sets comes before them."""

    enabled: bool = Field(default=False, description="Ask for a title after each pass: one call, nothing waits for it.")
    models: Annotated[tuple[ProviderModel, ...], Field(max_length=16)] = Field(
        default=(), description="As `summarizer.models`; empty for those."
    )
    prompt_file: Path | None = Field(
        default=None, description="Your own prompt, as `summarizer.prompt_file`; `{{transcript}}` is the summaries."
    )
    deadline_s: Seconds = Field(default=60.0, description="Limit on the call, in seconds.")


class TokenSettings(SettingsGroup):
    """The count of tokens when the caller does not count them."""

    counter: Literal["estimate", "bpe"] = Field(
        default="estimate",
        description="For models whose own tokenizer cannot be had: `estimate` by the vocabulary that a model's name "
        "stands for, or the embedded `bpe` (package extra `bpe`): OpenAI's o200k.",
    )
    exact: bool = Field(
        default=True,
        description="Count with each chat model's own tokenizer where it can be had: OpenAI's (package extra `bpe`), "
        "or rebuilt from Ollama's description of the model (package extra `exact`).",
    )
    tokenizer_files: Mapping[str, Path] = Field(
        default={},
        description="Table from a glob on the chat model's name to its `tokenizer.json` (package extra `exact`); it "
        "comes before the others.",
    )
    default_context_length: int = Field(
        default=8_192, ge=512, le=16_777_216, description="Used if the model's own is unknown."
    )
    context_lengths: Mapping[str, Annotated[int, Field(ge=512, le=16_777_216)]] = Field(
        default={}, description="Table from a glob on the model's name to its context length."
    )

    @property
    def counter_name(self) -> str:
        """The counter as events name it, with its vocabulary."""
        return f"{self.counter}:o200k"


class RecallSettings(SettingsGroup):
    """SearchHistory and its index."""

    index: Literal["off", "words", "both"] = Field(
        default="words",
        description="What is indexed: nothing, `words`, or `both` words and meaning, which needs the package extra "
        "`recall`.",
    )
    path: OptionalPath = Field(
        default=None,
        description="The index's file, of one sidecar alone; by default `<log.path>-recall`. It has words of messages, "
        "and can be deleted while no sidecar runs. With `log.url` or encryption there is no index unless this is set.",
    )
    embedder: Annotated[str, AfterValidator(_embedder)] = Field(
        default="multilingual",
        description="What makes vectors: `multilingual` (embedded, for 15 languages), `wordllama` (embedded, for "
        "English, some fifty times as fast), or `ollama:NAME` on `ollama.hosts`. After a change run "
        "`abridged log reindex`.",
    )
    dimension: int = Field(default=256, ge=64, le=256, multiple_of=64, description="Numbers of a `wordllama` vector.")
    embed_timeout_s: Seconds = Field(default=10.0, description="Timeout of a call to Ollama for vectors, in seconds.")


class TelemetrySettings(SettingsGroup):
    """Logs. Traces and their exporter are set by the standard `OTEL_*` variables."""

    log_level: Annotated[Literal["debug", "info", "warning", "error"], IN_LOWER_CASE] = Field(
        default="info", description="Lowest level that is logged."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`auto`: console on a terminal, otherwise JSON."
    )
    log_content: bool = Field(
        default=False,
        description="Log the first 200 characters of a bad model output at debug level. This is user text.",
    )
    slow_call_s: Seconds = Field(
        default=2.0,
        description="A call that took this many seconds is logged as `rpc.slow` with its stages. What it asked to wait "
        "for a pass or a message does not count.",
    )


class ClientSettings(SettingsGroup):
    """The sidecar that the `abridged` commands call."""

    address: ListenAddress = Field(
        default="127.0.0.1:7420",
        description="The sidecar's gRPC address. Unless it is set, commands go where server.listen points.",
    )
    token: Secret = Field(default=None, description="Bearer token to send.")
    token_file: Path | None = Field(default=None, description="File that contains the token.")
    deadline_s: Seconds = Field(default=30.0, description="Deadline of a unary call, in seconds.")


class Settings(SettingsGroup):
    """All settings. Components get their own group, never the whole."""

    provider_types: ClassVar[tuple[type[Provider[Any]], ...]] = PROVIDER_TYPES

    policy_by_model: Mapping[str, PolicySettings] = Field(
        default={},
        description="Table from a glob on `provider:model` to the policy fields that differ; the first match applies.",
    )
    client_policy_fields: tuple[str, ...] = Field(
        default=tuple(sorted(CLIENT_FIELDS)), description="Policy fields that a client may set for its conversation."
    )
    server: ServerSettings = ServerSettings()
    log: LogSettings = LogSettings()
    encryption: EncryptionSettings = EncryptionSettings()
    policy: PolicySettings = PolicySettings()
    summarizer: SummarizerSettings = SummarizerSettings()
    titles: TitleSettings = TitleSettings()
    ollama: OllamaGroup = OllamaGroup()
    openai: OpenAIGroup = OpenAIGroup()
    tokens: TokenSettings = TokenSettings()
    recall: RecallSettings = RecallSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    client: ClientSettings = ClientSettings()

    @model_validator(mode="after")
    def _client_fields_exist(self) -> Self:
        unknown = [name for name in self.client_policy_fields if name not in PolicySettings.model_fields]
        if unknown:
            raise PydanticCustomError(
                "policy_field", "'{name}' is no policy field", {"name": unknown[0], "field": "client_policy_fields"}
            )
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _with_its_providers(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        known = _known_providers.set(cls.provider_types)
        try:
            return handler(values)
        finally:
            _known_providers.reset(known)

    @property
    def providers(self) -> list[Provider[Any]]:
        """Every provider, with those of its models that any setting names."""
        return self.providers_of((*self.summarizer.models, *self.titles.models))

    def providers_of(self, models: Sequence[str]) -> list[Provider[Any]]:
        """Every provider, with those of `models` that are its own."""
        own = {kind.name: list[str]() for kind in self.provider_types}
        for provider, _, model in (name.partition(":") for name in models):
            own.get(provider, []).append(model)
        # One without settings has no group.
        return [kind(getattr(self, kind.name, kind.group()), own[kind.name]) for kind in self.provider_types]

    @property
    def title_models(self) -> tuple[str, ...]:
        """The models that are asked for titles, in order of preference."""
        return self.titles.models or self.summarizer.models

    @model_validator(mode="after")
    def _keys_are_apart(self) -> Self:
        keys, log = self.encryption, self.log
        if keys.keys_url is not None and keys.keys_path is not None:
            raise PydanticCustomError(
                "keys", "the data keys are in one place: give either it or keys_path", {"field": "encryption.keys_url"}
            )
        if keys.is_on and log.url is not None and keys.keys_url is None:
            raise PydanticCustomError(
                "keys",
                "a log in a database needs it: another database, for its data keys",
                {"field": "encryption.keys_url"},
            )
        if keys.is_on and log.archive_dir is not None:
            raise PydanticCustomError(
                "keys",
                f"{ARCHIVES_IN_CLEAR}: unset it, or encryption.key",
                {"field": "log.archive_dir"},
            )
        if keys.keys_url is not None and keys.keys_url == log.url:
            raise PydanticCustomError(
                "keys",
                "the log's own backups would have the keys: name another database",
                {"field": "encryption.keys_url"},
            )
        return self

    @model_validator(mode="after")
    def _titles_need_a_model(self) -> Self:
        if self.titles.enabled and self.title_models[0].partition(":")[0] == EXTRACTIVE_PREFIX:
            raise PydanticCustomError("titles", "titles need a model, not extraction", {"field": "titles.models"})
        return self

    def policy_for(self, model: str, profile: ProfileName | None = None) -> Policy:
        """The server's policy for conversations with `model` (`provider:model`): the first matching glob decides.

        `profile` is the one that a conversation already has, instead of the one that the settings name.
        """
        matching = (pattern for pattern in self.policy_by_model if fnmatch.fnmatchcase(model, pattern))
        return self.policy_of(next(matching, None), profile)

    def policy_of(self, pattern: str | None, profile: ProfileName | None = None) -> Policy:
        """The policy of one row of `policy_by_model`, or the default for None: its profile's, with what is set.

        Raises InvalidPolicy if its fields do not fit together; `service.config.sources` has asked for every row at
        start.
        """
        changes = self.policy.model_dump(exclude_unset=True)
        if pattern is not None:
            changes |= self.policy_by_model[pattern].model_dump(exclude_unset=True)
        if profile is not None:
            changes["profile"] = profile
        return overridden(profile_of(changes.get("profile", Policy().profile)).defaults(), changes)
