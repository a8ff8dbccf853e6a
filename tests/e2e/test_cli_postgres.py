"""A log in PostgreSQL, as an operator runs it: served, checked, and moved there; its password is never shown."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from tests.support.command import Ran, abridged, abridged_process, served
from tests.support.flipped_bits import built_log
from tests.support.patience import PATIENCE_S
from tests.support.postgres_server import schema_url
from tests.support.sidecar import said, sidecar

PASSWORD = "canary-of-a-password"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty schema, with a password that a server of tests does not ask for."""
    return schema_url(tmp_path).replace("://postgres@", f"://postgres:{PASSWORD}@")


def test_a_sidecar_serves_its_log_in_postgresql(tmp_path, url):
    """Appends, a pass, the window and the events are there, and still there after a restart."""
    lines = [{"id": f"m{n}", "role": "user", "content": f"Turn {n}: {'words ' * 60}"} for n in range(40)]
    (tmp_path / "chat.jsonl").write_text(json.dumps({"conversation_id": "c", "messages": lines}) + "\n")
    send = ("append", "--file", str(tmp_path / "chat.jsonl"), "--context-length", "1024", "--settle")

    with served(tmp_path, f"log.url={url}") as one:
        appended = abridged(*send, "--address", one.address)
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(timeout=PATIENCE_S) == 0
    assert (appended.code, "0 records" in appended.out) == (0, False), appended

    with served(tmp_path, f"log.url={url}") as two:
        assert "Turn 39" in abridged("context", "c", "--address", two.address).out
        assert "record" in abridged("summaries", "c", "--address", two.address).out
        assert abridged(*send, "--address", two.address).code == 0
    assert abridged("log", "verify", url).code == 0


def test_a_log_in_a_file_moves_to_postgresql_by_its_lines(tmp_path, url):
    """The same lines again, positions and all, and a retry of an append is known there."""
    path = asyncio.run(built_log(tmp_path))
    lines = tmp_path / "lines.jsonl"
    lines.write_text(abridged("log", "export", str(path)).out)

    moved = abridged("log", "import", str(lines), url)

    assert moved.code == 0, moved
    assert abridged("log", "export", url).out == lines.read_text()
    verified = [abridged("log", "verify", place) for place in (str(path), url)]
    assert (verified[0].code, verified[0].out) == (0, verified[1].out)
    again = abridged("log", "import", str(lines), url)
    assert (again.code, "there is a log at postgresql://" in again.err) == (1, True)
    assert abridged("log", "rebuild", url).code == 0
    assert abridged("log", "verify", url).out == verified[1].out


def test_a_database_holds_several_logs_by_name(tmp_path, url):
    """Two sidecars serve one each, an import makes a third, and each is checked and exported by itself."""
    with (
        served(tmp_path, f"log.url={url}") as one,
        served(tmp_path, f"log.url={url}", "log.name=tenant-b") as other,
    ):
        for run, said_there in ((one, "to the first"), (other, "to the second")):
            assert abridged("append", "c", said_there, "--address", run.address).code == 0
        windows = [abridged("context", "c", "--address", run.address).out for run in (one, other)]
    assert [text in window for window in windows for text in ("to the first", "to the second")] == [
        True,
        False,
        False,
        True,
    ]

    of_other = abridged("log", "export", url, "--name", "tenant-b").out
    assert ("to the second" in of_other, "to the first" in of_other) == (True, False)
    assert "to the first" in abridged("log", "export", "--set", f"log.url={url}").out
    named = ("--set", f"log.url={url}", "--set", "log.name=tenant-b")
    assert abridged("log", "export", *named).out == of_other
    (tmp_path / "lines.jsonl").write_text(of_other)
    assert abridged("log", "import", str(tmp_path / "lines.jsonl"), url, "--name", "copy").code == 0
    assert abridged("log", "export", url, "--name", "copy").out == of_other
    for name in ("default", "tenant-b", "copy"):
        assert abridged("log", "verify", url, "--name", name).code == 0
        assert abridged("log", "rebuild", url, "--name", name).code == 0


def test_the_name_of_no_log_is_refused_with_those_that_are_there(tmp_path, url):
    """Every command that only reads refuses it, and makes no log."""
    with served(tmp_path, f"log.url={url}", "log.name=tenant-a"), served(tmp_path, f"log.url={url}"):
        pass

    for command in ("export", "rebuild", "verify"):
        refused = abridged("log", command, url, "--name", "tenant-b")
        assert ("(log tenant-b)" in refused.err, "logs there: default, tenant-a" in refused.err) == (True, True)
        assert refused.code == 2


def test_the_name_of_a_log_goes_with_a_database(tmp_path):
    """A file has one log, and none is named other than names of namespaces are."""
    path = f"log.path={tmp_path / 'a.db'}"
    for settings in ((path, "log.name=b"), ("log.backend=memory", "log.name=b"), ("log.name=b",)):
        refused = abridged("config", "check", *[part for one in settings for part in ("--set", one)])
        assert (refused.code, "log.name: a file has one log" in refused.err) == (2, True)
    assert abridged("config", "check", "--set", path, environ={"ABRIDGED_LOG__NAME": "b"}).code == 0
    refused = abridged("log", "verify", str(tmp_path / "a.db"), "--name", "b")
    assert (refused.code, "leave --name out" in refused.err) == (2, True)
    refused = abridged("log", "verify", "postgresql://db/a", "--name", "B b")
    assert (refused.code, "is no name" in refused.err) == (2, True)


def test_the_index_of_a_sidecar_that_runs_is_left_alone(tmp_path, url):
    """A reindexing, and another sidecar, are refused while it has the file open; without it the index is made again."""
    index = tmp_path / "recall"
    chosen = ("--set", f"recall.path={index}")
    with served(tmp_path, f"log.url={url}", f"recall.path={index}") as run:
        assert abridged("append", "c", "The heron flies at dawn.", "--address", run.address).code == 0
        file = index.stat().st_ino
        refused = abridged("log", "reindex", url, *chosen)
        assert (refused.code, f"another process has the index {index} open" in refused.err) == (1, True), refused
        second = abridged("serve", "--set", f"log.url={url}", *chosen, "--set", "server.listen=127.0.0.1:0")
        assert (second.code, "set recall.path to another file" in second.err) == (1, True), second
        assert index.stat().st_ino == file

    assert abridged("log", "reindex", url, *chosen).code == 0
    index.write_bytes(b"no index" * 1_000)
    assert abridged("log", "reindex", url, *chosen).code == 0


def test_a_log_in_postgresql_is_replayed_as_its_lines_are(tmp_path, url):
    """The sidecar goes on beside it, folded or under another policy; a name that is not there is refused."""
    lines = tmp_path / "lines.jsonl"
    with served(tmp_path, f"log.url={url}", "log.name=tenant-b") as run:
        assert abridged("append", "c", "The heron flies at dawn.", "--address", run.address).code == 0
        lines.write_text(abridged("log", "export", url, "--name", "tenant-b").out)
        for more in (("--json",), ("--policy", "default", "--json")):
            of_url = abridged("log", "replay", url, "--name", "tenant-b", *more)
            assert (of_url.code, of_url.out) == (0, abridged("log", "replay", str(lines), *more).out), of_url
        assert "heron" in abridged("log", "replay", url, "--name", "tenant-b", "--json").out
    refused = abridged("log", "replay", url)
    assert (refused.code, "logs there: tenant-b" in refused.err) == (2, True), refused


def test_lines_that_are_no_log_leave_nothing_in_the_database(tmp_path, url):
    """Whole or not at all, as in a file."""
    path = asyncio.run(built_log(tmp_path))
    lines = abridged("log", "export", str(path)).out.splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_text("".join(lines[:-1]))

    refused = abridged("log", "import", str(tmp_path / "cut.jsonl"), url)

    assert (refused.code, "no log was made" in refused.err) == (1, True)
    assert abridged("log", "verify", url).code == 2


def test_commands_need_a_log_in_the_database(url):
    """The commands make no log by looking."""
    for command in ("export", "rebuild"):
        refused = abridged("log", command, url)
        assert (refused.code, "there is no log at postgresql://" in refused.err) == (2, True)
    assert abridged("log", "verify", url).code == 2


def test_a_refused_database_is_not_told_to_be_a_file(url):
    """The next step names the setting that it came from."""
    psycopg = pytest.importorskip("psycopg", reason="needs psycopg, of the extra abridged[postgres]")
    with psycopg.connect(url) as beside:
        beside.execute("CREATE TABLE events (id int)")

    refused = abridged("log", "verify", url)

    assert (refused.code, "check log.url" in refused.err, "log.path" in refused.err) == (1, True, False)


async def test_a_sidecar_shows_no_password(tmp_path, url):
    """The log lines, the HTTP port and the doctor all leave it out."""
    async with sidecar(tmp_path, {"log.url": url}) as s:
        await s.chat().append(said(1))
        told = [s.log_text, *[await s.http(path) for path in ("/config", "/readyz", "/metrics")]]
        own = (
            f"server.http_listen={s.http_address}",
            f"client.address={s.running.grpc_addresses[0]}",
            f"log.url={url}",
        )
        assignments = [part for one in own for part in ("--set", one)]
        told.append(_text(await asyncio.to_thread(abridged, "doctor", "--no-speed", *assignments)))
    assert [text for text in told if PASSWORD in text] == []


def test_no_command_shows_a_password(url):
    """URLs that are used keep theirs, and so do those that cannot be."""
    unusable = (
        f"other{url}",
        url.replace("?", "?nothing=1&"),
        url.replace("?", "?connect_timeout=none&"),
        url.replace(PASSWORD, f"{PASSWORD}/0"),
        url.replace(PASSWORD, f"1/{PASSWORD}"),
        url.replace(PASSWORD, f"1@{PASSWORD}"),
    )
    told = [_text(abridged("log", "verify", given)) for given in (url, *unusable)]
    for command in (("config", "show"), ("config", "check"), ("doctor", "--no-speed")):
        told += [_text(abridged(*command, "--set", f"log.url={given}")) for given in (url, *unusable)]
    told += [_text(abridged("serve", "--set", f"log.url={given}")) for given in unusable]

    assert [text for text in told if PASSWORD in text] == []
    assert "(secret)" in abridged("config", "show", "--set", f"log.url={url}").out


def test_a_log_is_in_one_place(tmp_path):
    """A file and a database that one source names are a mistake; of two sources, the one that comes first decides."""
    url, path = "postgresql://db/abridged", str(tmp_path / "a.db")
    both = abridged("config", "check", "--set", f"log.url={url}", "--set", f"log.path={path}")
    assert (both.code, "log.url: a log is in one place" in both.err) == (2, True)

    in_file = {"ABRIDGED_LOG__URL": url}
    assert "log.url = null" in _columns(abridged("config", "show", "--set", f"log.path={path}", environ=in_file))
    in_database = {"ABRIDGED_LOG__PATH": path}
    shown = _columns(abridged("config", "show", "--set", f"log.url={url}", environ=in_database))
    assert 'log.path = "abridged.db"' in shown


def test_without_the_extra_one_sentence_says_how_to_install_it():
    """The command starts nothing before, and exits with the code of other settings that cannot be used."""
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from abridged.service.cli.main import main; main(prog_name='abridged')"
    )
    for command in (("serve",), ("config", "check"), ("log", "verify")):
        refused = abridged_process(*command, "--set", "log.url=postgresql://db/abridged", program=program)
        assert (refused.code, "scripts/install postgres" in refused.err) == (2, True), refused


def _text(ran: Ran) -> str:
    return ran.out + ran.err


def _columns(ran: Ran) -> list[str]:
    return [" ".join(line.split()) for line in ran.out.splitlines()]


def test_a_log_in_postgresql_is_backed_up_into_a_file_and_restored(tmp_path, url):
    """The sidecar goes on beside it; a restore is whole, under another name, and never in the place of a log."""
    backup = str(tmp_path / "backup.db")
    with served(tmp_path, f"log.url={url}") as run:
        assert abridged("append", "c", "The heron flies at dawn.", "--address", run.address).code == 0
        made = abridged("log", "backup", url, backup)
        assert (made.code, made.out[:4]) == (0, "ok: "), made
        told = json.loads(abridged("log", "stats", url, "--json").out)
        assert (told["messages"], told["bytes"]["tables of all logs"] > 0) == (1, True)
        assert abridged("append", "c", "And at dusk.", "--address", run.address).code == 0

    assert abridged("log", "verify", backup).code == 0
    for replace, code, why in ((), 1, "there is a log at"), (("--replace",), 2, "is not replaced"):
        refused = abridged("log", "restore", backup, url, *replace)
        assert (refused.code, why in refused.err) == (code, True), refused
    assert abridged("log", "restore", backup, url, "--name", "restored").code == 0
    lines = abridged("log", "export", backup).out
    assert abridged("log", "export", url, "--name", "restored").out == lines
    assert ("dusk" in lines, "dusk" in abridged("log", "export", url).out) == (False, True)
    again = abridged("log", "backup", url, backup)
    assert (again.code, "there is a log at" in again.err) == (1, True), again
    part = abridged("log", "export", url, "--conversation", "default/c")
    assert (part.code, json.loads(part.out.splitlines()[0])["events"]) == (0, 3), part
