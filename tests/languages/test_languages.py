"""The contract of `abridged protos` in other languages: stubs by their usual tools, compiled, against a sidecar.

Each program appends a message, fetches the window and reads the reason of a refusal. The tools fetch packages, so these
tests run by `make test-languages`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pytest

from tests.support.command import PROGRAM, served

pytestmark = [pytest.mark.languages, pytest.mark.timeout(1_800)]

HERE = Path(__file__).parent
PROTOC = (sys.executable, "-m", "grpc_tools.protoc", "-Icontract")
CONTRACT = "abridged/v1"
GOOGLE = str(files("google.rpc").joinpath(".."))
"""google.rpc has no generator of its own in every language."""

STEPS: dict[str, Sequence[Sequence[str]]] = {
    "cpp": (
        ("mkdir", "gen"),
        (
            "/usr/bin/protoc",
            "-Icontract",
            f"-I{GOOGLE}/..",
            "--cpp_out=gen",
            "--grpc_out=gen",
            "--plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin",
            "*.proto",
            "google/rpc/status.proto",
            "google/rpc/error_details.proto",
        ),
        (
            "sh",
            "-c",
            (
                "g++ -std=c++17 -O0 -Igen -o client main.cc $(find gen -name '*.cc')"
                " $(pkg-config --cflags --libs grpc++ protobuf)"
            ),
        ),
    ),
    "go": (
        ("go", "install", "google.golang.org/protobuf/cmd/protoc-gen-go@latest"),
        ("go", "install", "google.golang.org/grpc/cmd/protoc-gen-go-grpc@latest"),
        (
            *PROTOC,
            "--go_out=.",
            "--go_opt=module=example.com/client",
            "--go-grpc_out=.",
            "--go-grpc_opt=module=example.com/client",
            "*.proto",
        ),
        ("go", "mod", "tidy"),
        ("go", "build", "-o", "client", "."),
    ),
    "java": (("mvn", "-q", "-B", "compile"),),
    "rust": (("cargo", "build", "-q"),),
    "typescript": (
        ("mkdir", "gen"),
        (
            *PROTOC,
            f"-I{GOOGLE}/..",
            "--plugin=node_modules/.bin/protoc-gen-ts_proto",
            "--ts_proto_out=gen",
            "--ts_proto_opt=outputServices=grpc-js,esModuleInterop=true",
            "*.proto",
            "google/rpc/status.proto",
            "google/rpc/error_details.proto",
        ),
        ("node_modules/.bin/tsc",),
    ),
}
"""Commands by language; `*.proto` stands for the files of the contract."""

FETCHES: dict[str, Sequence[Sequence[str]]] = {
    "cpp": (),
    "go": (("go", "mod", "init", "example.com/client"), ("go", "get", "google.golang.org/grpc@latest")),
    "java": (("mvn", "-q", "-B", "dependency:go-offline"),),
    "rust": (("cargo", "fetch", "-q"),),
    "typescript": (("npm", "install", "--silent", "--no-audit", "--no-fund"),),
}
"""Commands that only fetch packages: where they fail, there is no network, and nothing is proven."""

NEEDS = {"cpp": "grpc_cpp_plugin", "go": "go", "java": "mvn", "rust": "cargo", "typescript": "npm"}

RUNS = {
    "cpp": ("./client",),
    "go": ("./client",),
    "java": ("mvn", "-q", "-B", "-Dstyle.color=never", "exec:java"),
    "rust": ("target/debug/client",),
    "typescript": ("node", "built/main.js"),
}


@pytest.mark.parametrize("language", sorted(STEPS))
def test_a_client_is_generated_compiled_and_understood(language, tmp_path):
    """From the folder that `abridged protos` writes, and nothing else of this repository."""
    if shutil.which(NEEDS[language]) is None:
        pytest.skip(f"needs {NEEDS[language]}")
    folder = tmp_path / language
    shutil.copytree(HERE / language, folder)
    protos = (
        sys.executable,
        "-c",
        PROGRAM,
        "protos",
        "--out",
        "contract",
        "--go-package",
        "example.com/client/abridged/v1",
    )
    done(folder, protos)
    for fetch in FETCHES[language]:
        if run(folder, fetch).returncode:
            pytest.skip(f"packages cannot be fetched: {' '.join(fetch)}")
    contract = sorted(f"{CONTRACT}/{path.name}" for path in (folder / "contract" / CONTRACT).glob("*.proto"))
    for step in STEPS[language]:
        done(folder, [part for one in step for part in (contract if one == "*.proto" else [one])])

    with served(tmp_path) as sidecar:
        arguments = (f"-Dexec.args={sidecar.address}",) if language == "java" else (sidecar.address,)
        printed = done(folder, (*RUNS[language], *arguments))
        said = json.loads(printed[printed.index("{") : printed.rindex("}") + 1])

    assert said["version"] == 1
    assert json.loads(said["rendered"])["messages"] == [{"role": "user", "content": "Good morning"}]
    assert said["reason"] == "CONVERSATION_NOT_FOUND"


def done(folder: Path, command: Sequence[str]) -> str:
    """The standard output of a command that succeeds in the folder."""
    ran = run(folder, command)
    assert ran.returncode == 0, f"{' '.join(command)}\n{ran.stdout[-4_000:]}\n{ran.stderr[-4_000:]}"
    return ran.stdout


def run(folder: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """A command in the folder, which has the programs that it installs on its path."""
    tools = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    protoc = folder / "bin" / "protoc"
    if not protoc.exists():
        protoc.parent.mkdir()
        protoc.write_text(f'#!/bin/sh\nexec {sys.executable} -m grpc_tools.protoc "$@"\n', encoding="utf-8")
        protoc.chmod(0o755)
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": tools, "GOBIN": str(folder / "bin"), "PROTOC": str(protoc)},
        capture_output=True,
        text=True,
        check=False,
    )
