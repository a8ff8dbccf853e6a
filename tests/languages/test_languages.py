"""Clients in six languages, with a newcomer's means: the README of each example, and one table of cases for all.

The tools fetch packages, so these tests run by `make test-languages`; `make clients-table` writes the results into
docs/clients.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from tests.languages.conformance import TABLE, Played, played
from tests.support.command import served

pytestmark = [pytest.mark.languages, pytest.mark.timeout(1_800)]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
README_S = 180
"""Seconds from a clone to the first compacted context: the time that a newcomer gives it."""

BEGIN, END = "<!-- the table begins -->\n", "<!-- the table ends -->\n"


class Tools(NamedTuple):
    """The generators of a language's stubs; how a runner, laid over the built example, is built and run; and how the
    example's own tests record a chat and replay it. `needs` is a program without which nothing is."""

    name: str
    stubs: str
    needs: str
    build: str
    run: Sequence[str]
    record: str = ""
    replay: str = ""


LANGUAGES = {
    "python": Tools(
        "Python",
        "abridged-client",
        "python3",
        f"mkdir gen && abridged protos --out contract && {sys.executable} -m grpc_tools.protoc -Icontract"
        " --python_out=gen contract/abridged/v1/*.proto",
        (sys.executable, "runner.py"),
        "pytest -q --record",
        "pytest -q",
    ),
    "go": Tools(
        "Go",
        "buf, protoc-gen-go",
        "go",
        "go mod tidy && go build -o conformance ./runner",
        ("./conformance",),
        "go test -count=1 -record .",
        "go test -count=1 -v .",
    ),
    "typescript": Tools(
        "TypeScript",
        "buf, ts-proto",
        "npm",
        "npx tsc",
        ("node", "built/runner.js"),
        "npm run --silent record",
        "npm test --silent",
    ),
    "java": Tools(
        "Java",
        "protobuf-maven-plugin",
        "mvn",
        "mvn -q -B compile dependency:copy-dependencies",
        ("java", "-cp", "target/classes:target/dependency/*", "example.Runner"),
        "mvn -q -B test -Drecord=true",
        "mvn -B test",
    ),
    "rust": Tools(
        "Rust",
        "tonic-prost-build, protox",
        "cargo",
        # Cargo goes by time, and the copy of the runner's build script is older than what the example's has made.
        "touch build.rs && cargo add -q prost-reflect@0.16 --features serde && cargo build -q --bin conformance",
        ("target/debug/conformance",),
    ),
    "cpp": Tools(
        "C++",
        "protoc, grpc_cpp_plugin",
        "grpc_cpp_plugin",
        "protoc -I runner --cpp_out=build runner/line.proto && g++ -std=c++17 -I build -o conformance runner/main.cc"
        " build/line.pb.cc $(find build -name '*.pb.cc.o') $(pkg-config --cflags --libs grpc++ protobuf)",
        ("./conformance",),
    ),
}

FITS = {"fits": "python3", "ai-sdk": "npm", "spring-ai": "mvn"}
"""Folders of fits for frameworks, and a program without which nothing is."""

SEEN: dict[str, Played] = {}
"""The results of the languages that this run has played."""


@pytest.fixture(scope="module", params=LANGUAGES)
def example(request, tmp_path_factory):
    """A copy of a language's example, and the output of its README's commands."""
    language = request.param
    _needs(LANGUAGES[language].needs)
    folder = _copy(language, tmp_path_factory.mktemp("clone"))
    with served(folder.parent, "summarizer.models=scripted:default") as sidecar:
        began = time.monotonic()
        printed = done(folder, _commands(folder).replace("ADDRESS", sidecar.address))
    return language, folder, json.loads(printed.splitlines()[-1]), time.monotonic() - began


def test_a_readme_leads_to_a_compacted_context(example):
    """The README's own commands lead there, in a folder where nothing was built before."""
    language, _, said, seconds = example

    sys.stdout.write(f"\n{language}: {seconds:.0f} s to the first compacted context\n")
    assert said["compacted"] is True
    assert said["reason"] == "CONVERSATION_NOT_FOUND"
    assert 0 < said["ratio"] < 0.6
    assert seconds <= README_S


def test_a_chat_is_recorded_and_replayed(example):
    """One run of the example's tests writes a log, another one asserts on it."""
    language, folder, *_ = example
    tools = LANGUAGES[language]
    if not tools.record:
        pytest.skip("has no tests of its own")
    assert not (folder / "chat.jsonl").exists()

    done(folder, tools.record)
    lines = (folder / "chat.jsonl").read_bytes()
    printed = done(folder, tools.replay)

    sys.stdout.write(f"\n{language}: {' '.join(printed.splitlines()[-3:])}\n")
    assert lines.startswith(b'{"format":')
    assert (folder / "chat.jsonl").read_bytes() == lines


def test_a_language_plays_the_table(example):
    """Every case, with the codes that this language's library has for it."""
    language, folder, *_ = example
    shutil.copytree(HERE / language, folder, dirs_exist_ok=True)
    done(folder, LANGUAGES[language].build)

    SEEN[language] = played(folder, LANGUAGES[language].run)

    assert not SEEN[language].failed, "\n".join(f"{name}: {why}" for name, why in SEEN[language].failed.items())


@pytest.mark.parametrize("fit", FITS)
def test_a_fit_sends_the_window_of_a_framework(fit, tmp_path):
    """The README's commands run it: with the framework's own stand-in for a model, and a real sidecar."""
    _needs(FITS[fit])
    folder = _copy(fit, tmp_path)
    with served(tmp_path, "summarizer.models=scripted:default") as sidecar:
        commands = _commands(folder).replace("ADDRESS", sidecar.http_address).replace("../..", str(ROOT))

        done(folder, commands, SIDECAR_ADDRESS=sidecar.address)


def test_the_table_in_the_docs_is_what_was_seen():
    """The page has the results of a run, and nothing that no run has seen."""
    if SEEN.keys() != LANGUAGES.keys():
        pytest.skip(f"played: {', '.join(SEEN) or 'no language'}")
    path = ROOT / "docs" / "clients.md"
    page = path.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    now = f"{before}{BEGIN}{_table()}{END}{after}"
    if os.environ.get("WRITE_CLIENTS_TABLE"):
        path.write_text(now, encoding="utf-8")
        return

    assert page == now, "`make clients-table` writes it anew"


def _table() -> str:
    """Rows of cases by group, then of the codes that differ, by language."""
    cases = Counter(case["group"] for case in TABLE["cases"])
    failed = {
        language: Counter(case["group"] for case in TABLE["cases"] if case["name"] in SEEN[language].failed)
        for language in LANGUAGES
    }
    rows = [
        ["", *(tools.name for tools in LANGUAGES.values())],
        ["---"] * (len(LANGUAGES) + 1),
        ["stubs by", *(tools.stubs for tools in LANGUAGES.values())],
        *(
            [
                f"{group}: {count} case{'s' * (count > 1)}",
                *(f"{count - failed[language][group]} hold" for language in LANGUAGES),
            ]
            for group, count in cases.items()
        ),
        *(
            [shown, *(f"`{SEEN[language].shown.get(shown, '')}`" for language in LANGUAGES)]
            for shown in next(iter(SEEN.values())).shown
        ),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")


def _copy(name: str, parent: Path) -> Path:
    """A copy of an example without anything that was made in it."""
    lines = (ROOT / "examples" / ".gitignore").read_text(encoding="utf-8").splitlines()
    made = [Path(line).name for line in lines if line and not line.startswith("#")]
    ignored = shutil.ignore_patterns(*(one for one in made if one != "chat"), ".pytest_cache", "__pycache__", ".venv")
    return Path(shutil.copytree(ROOT / "examples" / name, parent / name, ignore=ignored))


def _commands(folder: Path) -> str:
    """The one block of commands of a README."""
    (commands,) = re.findall(r"```sh\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return str(commands)


def done(folder: Path, command: str, **environ: str) -> str:
    """The standard output of shell commands that succeed in the folder."""
    path = f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, **environ}
    ran = subprocess.run(["sh", "-ec", command], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if ran.returncode and _is_offline():
        pytest.skip("packages cannot be fetched")
    assert ran.returncode == 0, f"{command}\n{ran.stdout[-4_000:]}\n{ran.stderr[-4_000:]}"
    return ran.stdout


def _is_offline() -> bool:
    """Return whether no package can be fetched, so that nothing is proven."""
    with TemporaryDirectory() as folder:
        asked = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "six")
        return subprocess.run(asked, capture_output=True, check=False).returncode != 0
