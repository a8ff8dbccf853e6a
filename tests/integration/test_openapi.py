"""The OpenAPI page of the contract: valid, and true of what the calls take and answer over HTTP."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from google.protobuf.json_format import MessageToJson
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from tests.integration.test_web_calls import NOW_US, UNARY, script
from tests.support.command import abridged
from tests.support.sidecar import sidecar
from tests.support.web_calls import web_client

PAGE: dict[str, Any] = json.loads(files("abridged.v1").joinpath("openapi.json").read_text(encoding="utf-8"))


def closed(value: Any) -> Any:
    """The schemas without room for members that they do not name: the page leaves that to later versions."""
    if isinstance(value, dict):
        more = {"additionalProperties": False} if "properties" in value and "@type" not in value["properties"] else {}
        return {**{key: closed(each) for key, each in value.items()}, **more}
    return [closed(each) for each in value] if isinstance(value, list) else value


CLOSED = closed(PAGE["components"])


def faults(schema: dict[str, Any], value: Any) -> list[str]:
    """Return the places where a value breaks a schema of the page."""
    found = Draft202012Validator({**schema, "components": CLOSED}).iter_errors(value)
    return [f"{error.json_path}: {error.message}" for error in found]


def schema_of(content: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = content["content"]["application/json"]["schema"]
    return schema


def test_the_page_is_valid_and_has_every_unary_call():
    """Any tool of OpenAPI 3.1 reads it; streams are not in it."""
    validate(PAGE)

    assert sorted(PAGE["paths"]) == [f"/{name}" for name in UNARY]
    assert all(path["post"]["description"] for path in PAGE["paths"].values())


async def test_the_page_says_what_calls_take_and_answer(tmp_path):
    """Requests and answers of a whole chat, errors too: no member that the page does not have, none of another type."""
    answered: list[int] = []
    async with sidecar(tmp_path, now_us=lambda: NOW_US) as served, web_client(served.http_address) as client:
        for name, request in script():
            path, body = PAGE["paths"][f"/{name}"]["post"], MessageToJson(request)
            response = await client.post(f"/{name}", content=body, headers={"content-type": "application/json"})
            answer = schema_of(path["responses"].get(str(response.status_code), path["responses"]["default"]))

            assert faults(answer, response.json()) == [], name
            if response.status_code == 200:
                assert faults(schema_of(path["requestBody"]), json.loads(body)) == [], name
            answered.append(response.status_code)

    assert 20 < answered.count(200) < len(answered) - 20


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ({"role": "ROLE_USER", "content": 5}, "$.messages[0].content"),
        ({"role": "ROLE_KING"}, "$.messages[0].role"),
        ({"id": "-", "role": "ROLE_USER"}, "$.messages[0].id"),
        ({"role": "ROLE_USER", "createTime": 5}, "$.messages[0].createTime"),
        ({"role": "ROLE_USER", "toolCalls": [{"id": "x" * 300}]}, "$.messages[0].toolCalls[0].id"),
        ({"role": "ROLE_USER", "tokenCount": -1}, "$.messages[0].tokenCount"),
        ({"role": "ROLE_USER", "text": "hello"}, "$.messages[0]"),
    ],
)
async def test_a_request_that_breaks_the_page_is_refused(tmp_path, message, wrong):
    """The page has the contract's field rules: the sidecar refuses requests that it forbids, misspelt members too."""
    body = {"conversationId": "c1", "messages": [message]}
    request = schema_of(PAGE["paths"]["/abridged.v1.ConversationService/AppendMessages"]["post"]["requestBody"])
    async with sidecar(tmp_path) as served, web_client(served.http_address) as client:
        refused = await client.post("/abridged.v1.ConversationService/AppendMessages", json=body)

    assert [fault.split(": ")[0] for fault in faults(request, body)] == [wrong]
    assert refused.status_code == 400


def test_the_page_is_written_beside_the_protos(tmp_path):
    """`abridged protos` brings it along."""
    assert abridged("protos", "--out", str(tmp_path)).code == 0

    assert json.loads((tmp_path / "openapi.json").read_text(encoding="utf-8")) == PAGE
