"""`abridged protos`: writes the contract as any language's generator takes it, without the server's field rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from abridged.client.errors import DEFAULT_PATIENCE
from abridged.service.cli.terminal import say
from abridged.v1 import (
    conversation_service_pb2,
    event_log_service_pb2,
    server_info_service_pb2,
    text_service_pb2,
)

_PACKAGE = Path("abridged", "v1")
OPENAPI = "openapi.json"
_RULES = "(buf.validate."
_IMPORT = 'import "buf/validate/validate.proto";\n'
_STATEMENT = re.compile(r"^[ \t]*option \(buf\.validate\.", re.MULTILINE)
_GO_PACKAGE = re.compile(r'^option go_package = ".*";$', re.MULTILINE)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_CLOSING = {"[": "]", "{": "}", "(": ")"}
_MODULE = "version: v2\nmodules:\n  - path: .\n"


@click.command(short_help="Write the contract's .proto files for another language.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="The folder to write to.")
@click.option("--go-package", help="Import path of the generated Go code, such as `example.com/you/abridgedv1`.")
def protos(out: Path, go_package: str | None) -> None:
    """Write the contract's .proto files to a folder, with a buf.yaml, a service_config.json and an openapi.json beside
    them.

    They need no other project's files: rules of the fields, which the server checks, are left out. Generate with
    `protoc -I DIR` and your language's plug-ins, or with `buf generate DIR`. The OpenAPI page has the calls that are no
    streams, as `server.http_listen` takes them in JSON.
    """
    folder = out / _PACKAGE
    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted(files("abridged.v1").iterdir(), key=lambda file: file.name):
        if not source.name.endswith(".proto"):
            continue
        text = without_rules(source.read_text(encoding="utf-8"))
        if go_package:
            text = _GO_PACKAGE.sub(f'option go_package = "{go_package}";', text)
        (folder / source.name).write_text(text, encoding="utf-8")
        say(str(folder / source.name))
    (out / OPENAPI).write_bytes(files("abridged.v1").joinpath(OPENAPI).read_bytes())
    (out / "buf.yaml").write_text(_MODULE, encoding="utf-8")
    (out / "service_config.json").write_text(f"{json.dumps(service_config(), indent=2)}\n", encoding="utf-8")


def service_config() -> dict[str, Any]:
    """The retries of a gRPC client, in the form of a service config: of calls that change nothing when they are made
    again, which an append is by the ids of its messages.

    The pauses and their number are those of the Python client.
    """
    safe = [
        {"service": service.full_name, "method": method.name}
        for file in (conversation_service_pb2, event_log_service_pb2, server_info_service_pb2, text_service_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if (method.GetOptions().idempotency_level or method.name == "AppendMessages") and not method.server_streaming
    ]
    retries = {
        "maxAttempts": DEFAULT_PATIENCE.attempts_max,
        "initialBackoff": f"{DEFAULT_PATIENCE.pause_base_s}s",
        "maxBackoff": f"{DEFAULT_PATIENCE.pause_max_s:g}s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    return {"methodConfig": [{"name": safe, "retryPolicy": retries}]}


def without_rules(proto: str) -> str:
    """Return a .proto file's text without the import and the options of buf.validate; the rest is as written."""
    text = proto.replace(_IMPORT, "")
    while statement := _STATEMENT.search(text):
        text = text[: statement.start()] + text[_end(text, statement.end(), ";") + 2 :]
    return "".join(_without_field_rules(text))


def _without_field_rules(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        if text[at] == "[":
            end = _end(text, at + 1, "]")
            kept = [option for option in _divided(text[at + 1 : end]) if not option.lstrip().startswith(_RULES)]
            yield f" [{','.join(kept).lstrip()}]" if kept else ""
            at = end + 1
        elif text[at] == " " and text[at + 1 : at + 2] == "[":
            at += 1  # it belongs to the options
        else:
            end = _after_word(text, at)
            yield text[at:end]
            at = end


def _divided(options: str) -> Iterator[str]:
    begin = 0
    while begin < len(options):
        end = _end(options, begin, ",")
        yield options[begin:end]
        begin = end + 1


def _end(text: str, at: int, mark: str) -> int:
    """Return the place of the first `mark` from `at` on, outside of brackets, strings and comments; else the end."""
    while at < len(text) and text[at] != mark:
        at = _end(text, at + 1, _CLOSING[text[at]]) + 1 if text[at] in _CLOSING else _after_word(text, at)
    return at


def _after_word(text: str, at: int) -> int:
    """Return the place after the string, the comment or the character at `at`."""
    if text.startswith("//", at):
        end = text.find("\n", at)
        return len(text) if end < 0 else end
    if text[at] == '"':
        string = _STRING.match(text, at)
        assert string is not None, "the contract compiles"
        return string.end()
    return at + 1
