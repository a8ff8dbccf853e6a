"""Renders the settings table as docs/configuration.md; the page is never edited by hand."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from abridged.service.config.settings import Settings
from abridged.service.config.sources import Setting, known_settings

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

_HEAD = """\
# Configuration

Generated from the settings table in `service/config/settings.py` by `make config-docs`; a check fails if it differs.

A value comes from the first of these that sets it:

1. a flag: `abridged serve --set policy.trigger_token_ratio=0.75`;
2. the environment: the variable listed with each setting. Write lists with commas, or lists and tables as JSON.
   `OLLAMA_HOST`, `OLLAMA_API_KEY`, `OPENAI_BASE_URL`, `OPENAI_API_KEY`, `SUMMARY_MODEL` and `LLM_MODEL` are read too,
   after our own. The last two name a model of Ollama, or with its provider any other, `openai:gpt-4o-mini`; the first
   one wins. The standard `OTEL_*` variables configure traces;
3. a TOML file, named by `--config` or `ABRIDGED_CONFIG`, with a table for each group below;
4. the default.

`abridged config check` reports everything that is wrong with the values at once; if nothing is, it checks what they
name: the log's folder, scripts, the prompt file, and the form of hosts; `abridged doctor` checks whether they respond.
`abridged config show` prints each value with its origin and without secrets. To read a secret from a file, use the
setting of the same name with `_file`. Unknown names are refused.

```toml
[server]
listen = ["127.0.0.1:7420", "unix:/run/abridged/abridged.sock"]

[[server.tokens]]
token_file = "/run/secrets/abridged"
namespace = "shop"
scopes = ["append", "read"]

[policy]
trigger_token_ratio = 0.75
reset_token_ratio = 0.60

[policy_by_model."openai:gpt-*"]
preserve_recent = 12

[tokens.context_lengths]
"ollama:qwen2.5:*" = 32768
```

After a pass the trigger is armed again once the ratio has been below `reset_token_ratio`, or after `rearm_messages`
messages. If `rearm_messages` is at most `cooldown_messages`, the reset has no effect.

## Models

```toml
[summarizer]
models = ["openai:gpt-4o-mini", "ollama:qwen2.5:3b", "extractive"]

[openai]
url = "https://api.openai.com/v1"
api_key_file = "/run/secrets/openai"
```

The first model that exists makes the record, of whatever provider. One whose host is down, or refuses the key, is not
replaced by the next: the pass fails by its class, and `policy.fallback` says whether extraction stands in. `openai` is
any server with that API: OpenAI, vLLM, llama.cpp, LiteLLM. What it refuses of a request, such as a JSON schema, is left
out of the next one, with a warning.

With several `ollama.hosts` a call goes to one that has the model in memory, then to one with the fewest calls, and
moves on to the next until an answer has begun.

## Your own part of a record

With `summarizer.raw_schema_file` a record with facets has one more object, `context.raw`, by your JSON Schema:

```json
{"type": "object",
 "properties": {
   "topic": {"type": "string", "maxLength": 80, "description": "What the customer wants, in a few words."},
   "severity": {"type": "string", "enum": ["low", "high"]},
   "products": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 40}}}}
```

The prompt has the schema with its descriptions; a prompt of your own (`summarizer.prompt_file`) can say more. An answer
that does not follow it is refused like any bad answer, as is one with secrets, marks of chat templates, or identifiers
that the conversation does not have; listed values are your own and always allowed. `raw` is returned with the record
and is not part of the window. The next record is made with the `raw` before it in view.

## Scripted models

`summarizer.models = ["scripted:answers.json"]` reads answers from a file, for tests and demonstrations;
`scripted:default` makes a record from the source's own sentences. Call n returns step n, and the last step repeats:

```json
{"context_length": 8192,
 "steps": [{"default": true},
           {"record": {"summary": "..."}},
           {"text": "not JSON"},
           {"text": "{\\"summ", "finish_reason": "length"},
           {"error": "unavailable", "retry_after_s": 1},
           {"hang": true}]}
```

`record` leaves missing fields empty; `error` is one of `unavailable`, `missing`, `refused`, `truncated`, `looped`;
`hang` returns nothing until the deadline. `context_length` is optional. With `"repeat": false` a call after the last
step is refused: with `policy.fallback=never` the pass fails with the number of the call in its cause. An invalid
file is refused at start."""
_PLAIN_TYPES = {bool: "true or false", int: "integer", float: "number", str: "text", Path: "path", SecretStr: "secret"}


def page() -> str:
    """The whole page, ending in one newline."""
    lines = [_HEAD]
    group = None
    for setting in known_settings():
        head = setting.name.rpartition(".")[0]
        if head != group:
            group = head
            lines += _group_head(group)
        lines.append(_row(setting))
    return "\n".join(lines) + "\n"


def _group_head(group: str) -> list[str]:
    if not group:
        return ["", "## Top level", "", *_TABLE]
    model = Settings.model_fields[group].annotation
    assert model is not None
    return ["", f"## `[{group}]`", "", (model.__doc__ or "").strip(), "", *_TABLE]


_TABLE = ["| setting | type | default | what it does | environment |", "|---|---|---|---|---|"]


def _row(setting: Setting) -> str:
    field = setting.field
    kind = _field_type(field)
    cells = (f"`{setting.name}`", kind, f"`{_default(field)}`", field.description or "", f"`{setting.variable}`")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _field_type(field: FieldInfo) -> str:
    return _type(field.annotation) + _range(field.metadata)


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        inner = arguments[0]
        return (
            "list of tables" if isinstance(inner, type) and issubclass(inner, BaseModel) else f"list of {_type(inner)}"
        )
    if origin is Mapping:
        return "table"
    if type(None) in arguments:
        return _type(arguments[0])
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    return _PLAIN_TYPES[annotation]


def _range(metadata: list[Any]) -> str:
    found = ((name, getattr(m, name, None)) for m in metadata for name in ("ge", "gt", "le", "lt"))
    bounds = {name: bound for name, bound in found if bound is not None}
    match bounds:
        case {"ge": low, "le": high}:
            return f", {low:,} to {high:,}"
        case {"gt": low, "le": high}:
            return f", above {low:,} up to {high:,}"
        case {"ge": low, "lt": high}:
            return f", {low:,} up to below {high:,}"
        case {"gt": low, "lt": high}:
            return f", above {low:,} and below {high:,}"
        case _:
            return ""


def _default(field: FieldInfo) -> str:
    value = field.default
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, tuple):
        return json.dumps(value)
    return str(value)


def main(arguments: list[str]) -> int:
    """Write the page, or compare it; returns the exit status."""
    wanted = page()
    if arguments != ["--check"]:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    kept = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if kept == wanted:
        return 0
    diff = difflib.unified_diff(kept.splitlines(), wanted.splitlines(), "docs/configuration.md", "wanted", lineterm="")
    print("\n".join(diff))
    print("config_docs: the page drifted; run 'make config-docs'")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
