"""Names of spans, attributes and span events, each spelled only here.

RPC names follow the OpenTelemetry semantic conventions 1.44, GenAI names those of the conventions' own repository
(status Development, no release so far). Names that no convention covers begin with `abridged.`.
"""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The schema of the resource, of calls and of commits."""

GEN_AI_SCHEMA_URL = "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev"
"""The schema of passes and model calls: the URL in model/manifest.yaml of semantic-conventions-genai."""

SPAN_COMMIT = "commit batch"
SPAN_SUMMARIZE = "summarize"
SPAN_PREPARE = "prepare summary"
SPANS_OF_RECORDS = frozenset({SPAN_SUMMARIZE, SPAN_PREPARE})
EVENT_TRIGGERED = "abridged.summarization.triggered"
EVENT_COMMITTED = "abridged.summarization.committed"

ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

RPC_SYSTEM_NAME = "rpc.system.name"
RPC_METHOD = "rpc.method"
RPC_RESPONSE_STATUS_CODE = "rpc.response.status_code"
RPC_SYSTEM_GRPC = "grpc"
RPC_SERVER_ERRORS = frozenset({"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"})
"""Status codes that are the server's fault; only these make a server span an error (gRPC conventions, 1.44)."""

GEN_AI_PROVIDER_NAME = "gen_ai.provider.name"
GEN_AI_OPERATION_NAME = "gen_ai.operation.name"
GEN_AI_REQUEST_MODEL = "gen_ai.request.model"
GEN_AI_REQUEST_TEMPERATURE = "gen_ai.request.temperature"
GEN_AI_REQUEST_SEED = "gen_ai.request.seed"
GEN_AI_REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
GEN_AI_RESPONSE_MODEL = "gen_ai.response.model"
GEN_AI_RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
GEN_AI_USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
GEN_AI_CONVERSATION_ID = "gen_ai.conversation.id"
GEN_AI_CONVERSATION_COMPACTED = "gen_ai.conversation.compacted"
GEN_AI_PROMPT_NAME = "gen_ai.prompt.name"
GEN_AI_PROMPT_VERSION = "gen_ai.prompt.version"
OPERATION_CHAT = "chat"

ABRIDGED_SUMMARIZATION_ID = "abridged.summarization.id"
ABRIDGED_TRIGGER = "abridged.summarization.trigger"
ABRIDGED_OUTCOME = "abridged.summarization.outcome"
ABRIDGED_SKIP_REASON = "abridged.summarization.skip_reason"
ABRIDGED_DEPTH = "abridged.summarization.depth"
ABRIDGED_RATIO = "abridged.summarization.ratio"
ABRIDGED_RATIO_AFTER = "abridged.summarization.ratio_after"
ABRIDGED_TOKENS_BEFORE = "abridged.summarization.tokens_before"
ABRIDGED_TOKENS_AFTER = "abridged.summarization.tokens_after"
ABRIDGED_MESSAGES = "abridged.summarization.messages"
ABRIDGED_IDENTIFIER_SURVIVAL = "abridged.summarization.identifier_survival"
ABRIDGED_ATTEMPT = "abridged.summarization.attempt"
ABRIDGED_COMMIT_EVENTS = "abridged.commit.events"
ABRIDGED_ERROR_REASON = "abridged.error.reason"
"""The reason in the ErrorInfo that a caller got: more specific than the status, and set for callers' mistakes too."""
