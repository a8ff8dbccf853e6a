"""`abridged protos`: the contract without the server's rules is the contract, to any compiler."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message

from abridged.client.errors import DEFAULT_PATIENCE
from abridged.service.cli.main import main
from abridged.service.cli.protos import without_rules

PROTO = Path(__file__).parents[3] / "proto"


def compiled(folder: Path, out: Path) -> dict[str, FileDescriptorProto]:
    """The contract's files in `folder`, as protoc reads them, by name."""
    names = sorted(str(path.relative_to(folder)) for path in (folder / "abridged").rglob("*.proto"))
    command = (sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={out}", *names)
    subprocess.run(command, check=True)
    return {file.name: file for file in FileDescriptorSet.FromString(out.read_bytes()).file}


def cleared(message: Message) -> None:
    """Take the rules out of a descriptor: the options that it does not know."""
    message.DiscardUnknownFields()
    for field, value in list(message.ListFields()):
        if field.message_type is not None:
            parts = list(value) if field.is_repeated else [value]
            for part in parts:
                cleared(part)
            if not field.is_repeated and field.name == "options" and not value.ListFields():
                message.ClearField(field.name)


def test_the_files_say_what_the_contract_says_but_its_rules(tmp_path: Path) -> None:
    """Message by message, with every name, number and option of another kind."""
    ran = CliRunner().invoke(main, ["protos", "--out", str(tmp_path / "out")])
    written = compiled(tmp_path / "out", tmp_path / "written.pb")
    contract = compiled(PROTO, tmp_path / "contract.pb")
    assert any(b"\xbaH" in file.SerializeToString() for file in contract.values()), "the contract has rules"

    assert ran.exit_code == 0
    assert len(ran.stdout.splitlines()) == len(written)
    for file in contract.values():
        cleared(file)
        file.dependency[:] = [name for name in file.dependency if not name.startswith("buf/")]
    assert written == contract
    assert (tmp_path / "out" / "buf.yaml").read_text().startswith("version: v2\n")


def test_the_service_config_retries_what_may_be_made_again(tmp_path: Path) -> None:
    """A gRPC channel takes it, and no call that forces or revokes something is in it."""
    CliRunner().invoke(main, ["protos", "--out", str(tmp_path)])
    text = (tmp_path / "service_config.json").read_text()
    (config,) = json.loads(text)["methodConfig"]
    methods = {name["method"] for name in config["name"]}

    grpc.insecure_channel("127.0.0.1:9", options=[("grpc.service_config", text)]).close()
    assert {"AppendMessages", "GetContext", "PinMessages", "ReadEvents", "CountTokens"} <= methods
    assert not methods & {"SummarizeConversation", "RevokeSummary", "IngestMessages", "WatchConversation"}
    assert config["retryPolicy"]["maxAttempts"] == DEFAULT_PATIENCE.attempts_max


def test_a_go_package_is_the_callers_own(tmp_path: Path) -> None:
    """Generated Go code lies in a module that nobody else has."""
    CliRunner().invoke(main, ["protos", "--out", str(tmp_path), "--go-package", "example.com/chat/abridgedv1"])

    files = compiled(tmp_path, tmp_path / "files.pb").values()
    assert {file.options.go_package for file in files} == {"example.com/chat/abridgedv1"}
    assert {file.options.java_package for file in files} == {"io.abridged.v1"}
    assert {file.options.csharp_namespace for file in files} == {"Abridged.V1"}


@pytest.mark.parametrize(
    ("field", "left"),
    [
        ("string a = 1 [(buf.validate.field).string.max_len = 2];", "string a = 1;"),
        (
            'string a = 1 [(buf.validate.field).string.in = "]", packed = true];',
            "string a = 1 [packed = true];",
        ),
        (
            "string a = 1 [packed = true, (buf.validate.field).x = {in: [1, 2]}];",
            "string a = 1 [packed = true];",
        ),
        ("// a [note]\nstring a = 1;", "// a [note]\nstring a = 1;"),
    ],
)
def test_only_rules_are_left_out(field: str, left: str) -> None:
    """Brackets in strings and comments, and options of another kind, stay."""
    assert without_rules(field) == left
