"""`abridged serve`, `doctor` and `config`: an operator's commands."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Ran, ServedSidecar, abridged, abridged_process, fake_ollama, fake_openai, served
from tests.support.patience import PATIENCE_S

NOBODY = "127.0.0.1:9"


def test_a_served_sidecar_ends_in_order_when_it_is_told_to(tmp_path):
    """SIGTERM: exit code 0, and the log can be opened by the next one."""
    with served(tmp_path) as sidecar:
        abridged("append", "c", "before", "--address", sidecar.address)
        sidecar.process.send_signal(signal.SIGTERM)
        assert sidecar.process.wait(timeout=PATIENCE_S) == 0

    with served(tmp_path) as sidecar:
        assert "user: before" in abridged("context", "c", "--address", sidecar.address).out


def test_a_log_pipe_that_nobody_reads_holds_up_neither_calls_nor_the_end(tmp_path):
    """A container's log reader may hang; passes and the end of the process log lines that nobody takes."""
    with served(tmp_path) as sidecar:
        fill_pipe(f"/proc/{sidecar.process.pid}/fd/2")
        lines = "\n".join(f'{{"role": "user", "content": "Turn {n}: {"words " * 60}"}}' for n in range(40))
        chat = f'{{"conversation_id": "c", "messages": [{lines.replace(chr(10), ",")}]}}\n'
        (tmp_path / "chat.jsonl").write_text(chat)
        appended = abridged(
            "append", "--file", str(tmp_path / "chat.jsonl"), "--context-length", "1024", "--address", sidecar.address
        )
        sidecar.process.send_signal(signal.SIGTERM)

        assert sidecar.process.wait(timeout=PATIENCE_S) == 0

    assert "0 records" not in appended.out


def fill_pipe(path: str) -> None:
    """Fill a pipe with empty lines to the last byte."""
    pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        for piece in (b"\n" * 4_096, b"\n"):
            with contextlib.suppress(BlockingIOError):
                while os.write(pipe, piece):
                    pass
    finally:
        os.close(pipe)


def test_a_second_sidecar_on_the_same_log_is_refused_with_advice(tmp_path):
    """One file has one owner; the second one names the remedy."""
    with served(tmp_path) as sidecar:
        options = ("--set", f"log.path={sidecar.folder / 'served.db'}", "--set", "server.listen=127.0.0.1:0")
        second = abridged_process("serve", *options)

    assert second.code == 1
    assert "set log.path to another file" in second.err
    assert "Traceback" not in second.err


def test_an_address_that_is_taken_is_refused_with_advice(tmp_path):
    """A port belongs to one sidecar."""
    with served(tmp_path) as sidecar:
        options = ("--set", f"log.path={tmp_path / 'other.db'}", "--set", f"server.listen={sidecar.address}")
        second = abridged_process("serve", *options, "--set", "server.http_listen=")

    assert second.code == 1
    assert second.err.splitlines()[-2:] == [
        f"abridged: cannot listen on {sidecar.address}: the address is in use",
        "  stop the process that uses it, or set server.listen to another address",
    ]
    assert "add_port" not in second.err
    assert "Traceback" not in second.err


@pytest.mark.parametrize(
    ("assignment", "says", "hint"),
    [
        ("server.listen=unix:/nowhere/at/all.sock", "unix:/nowhere/at/all.sock: No such file", "server.listen"),
        (f"server.listen=unix:/tmp/{'a' * 120}.sock", "the path is longer", "server.listen"),
        ("server.listen=nobody.invalid:7420", "cannot listen on nobody.invalid:7420", "server.listen"),
        ("server.listen=203.0.113.7:7420", "cannot listen on 203.0.113.7:7420: Cannot assign", "server.listen"),
        ("server.http_listen=203.0.113.7:7421", "203.0.113.7", "server.http_listen"),
    ],
)
def test_an_address_that_nobody_can_listen_at_is_refused_by_its_setting(tmp_path, assignment, says, hint):
    """The hint names the setting that is to blame, and nothing of gRPC's own comes before it."""
    tokens = json.dumps([{"token": "t"}])
    given = (f"log.path={tmp_path / 'a.db'}", "server.http_listen=", "server.listen=127.0.0.1:0", assignment)

    ran = abridged_process("serve", *(part for one in (*given, f"server.tokens={tokens}") for part in ("--set", one)))
    complaint, advice = ran.err.splitlines()[-2:]

    assert ran.code == 1
    assert complaint.startswith("abridged: ")
    assert says in complaint
    assert hint in advice
    assert "log.path" not in advice
    assert not re.search(r"\.cc:\d+", ran.err)


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        (
            "ollama.hosts=gpu,http://user:secret@host",
            "ollama.hosts[1]: an Ollama address must not contain a user name or password",
        ),
        ("ollama.hosts=:::", "ollama.hosts[0]: an Ollama address has a host name"),
        ("ollama.hosts=localhost:99999", "ollama.hosts[0]: an Ollama address has a number up to 65535 as its port"),
        ("ollama.hosts=http://example.com:11434", "ollama.hosts[0]: example.com:11434 is beyond loopback"),
        (
            "summarizer.models=extractive,scripted:nobody-wrote-it",
            "summarizer.models[1]: nobody-wrote-it cannot be read",
        ),
        ("summarizer.prompt_file=/nope", "summarizer.prompt_file: /nope cannot be read: No such file or directory"),
        ("summarizer.raw_schema_file=/nope", "summarizer.raw_schema_file: /nope cannot be read"),
        ("log.path=/nowhere/at/all/abridged.db", "log.path: cannot keep a log at /nowhere/at/all/abridged.db: its"),
        ("log.path=/", "log.path: cannot keep a log at /: it is a folder"),
    ],
)
def test_settings_that_cannot_be_carried_out_are_refused_by_name(tmp_path, assignment, says):
    """`serve` and `config check` say the same: setting, reason, origin, exit code 2; and no secret is in it."""
    given = (f"log.path={tmp_path / 'a.db'}", "server.listen=127.0.0.1:0", "server.http_listen=", assignment)

    options = [part for one in given for part in ("--set", one)]
    ran = abridged_process("serve", *options)
    checked = abridged("config", "check", *options)

    assert (ran.code, checked.code) == (2, 2)
    assert ran.err == checked.err
    assert says in ran.err
    assert ran.err.rstrip().endswith(f"(flag {assignment.partition('=')[0]})")
    assert len(ran.err.splitlines()) == 2
    assert "secret" not in ran.err


def test_everything_that_settings_name_and_that_is_not_there_is_told_at_once(tmp_path):
    """Each missing one has a line, in the order of the settings table; those that are there have none."""
    (tmp_path / "prompt").write_bytes(b"\xff")
    wrong = (
        "ollama.hosts=127.0.0.1,gpu:port,:::",
        f"summarizer.prompt_file={tmp_path / 'prompt'}",
        "summarizer.models=scripted:a.json,extractive,scripted:default",
        f"log.path={tmp_path / 'no' / 'a.db'}",
    )

    ran = abridged("config", "check", *(part for one in wrong for part in ("--set", one)))

    told = [line.strip().partition(": ")[0] for line in ran.err.splitlines()[1:]]
    assert told == ["log.path", "summarizer.models[0]", "summarizer.prompt_file", "ollama.hosts[1]", "ollama.hosts[2]"]
    assert abridged("config", "check", "--set", "log.backend=memory", "--set", wrong[-1]).code == 0


def test_a_token_is_asked_for_and_taken(tmp_path):
    """A call without it is told what to set. A call with it, by option or variable, is served as if there were none."""
    tokens = json.dumps([{"token": "s3cret", "scopes": ["append", "read"]}])
    with served(tmp_path, f"server.tokens={tokens}") as sidecar:
        without = abridged("append", "c", "hello", "--address", sidecar.address)
        by_option = abridged("append", "c", "hello", "--address", sidecar.address, "--token", "s3cret")
        by_variable = abridged(
            "context", "c", "--address", sidecar.address, environ={"ABRIDGED_CLIENT__TOKEN": "s3cret"}
        )

    assert without.code == 1
    assert "UNAUTHENTICATED" in without.err
    assert "--token" in without.err
    assert (by_option.code, by_variable.code) == (0, 0)


def test_the_doctor_finds_nothing_wrong_where_nothing_is(tmp_path):
    """Sidecar, Ollama, model and log: a line each."""
    with (
        fake_ollama() as url,
        served(tmp_path, "summarizer.models=ollama:qwen2.5:3b", f"ollama.hosts={url}") as sidecar,
    ):
        ran = abridged("doctor", *own_settings(sidecar), "--set", f"ollama.hosts={url}")

    assert ran.code == 0, ran.out
    assert "ok    sidecar" in ran.out
    assert "serving" in ran.out
    assert "ok    model qwen2.5:3b: context length 32,768" in ran.out
    assert f"ok    readiness {sidecar.http_address}: append, read, read_table, space" in ran.out
    assert "ok    log" in ran.out
    assert "warn  SQLite" not in ran.out


def test_the_doctor_asks_for_the_models_that_give_titles(tmp_path):
    """Summaries need none of Ollama here, and titles do."""
    with fake_ollama() as url, served(tmp_path) as sidecar:
        titles = ("titles.enabled=true", "titles.models=ollama:missing:1b", f"ollama.hosts={url}")
        given = [part for one in titles for part in ("--set", one)]
        ran = abridged("doctor", *own_settings(sidecar), *given)

    assert "warn  model missing:1b" in ran.out


def own_settings(sidecar: ServedSidecar) -> list[str]:
    """Options by which a command has the settings of a served sidecar."""
    given = (
        f"server.listen={sidecar.address}",
        f"server.http_listen={sidecar.http_address}",
        f"log.path={sidecar.folder / 'served.db'}",
        "summarizer.models=extractive:default",
    )
    return [part for one in given for part in ("--set", one)]


def test_commands_find_the_sidecar_that_their_settings_have_moved(tmp_path):
    """The settings' token goes along; an address of the client's own goes before, and gets no such token."""
    grant = 'server.tokens=[{"token": "s3cret-of-the-sidecar", "namespace": "default", "scopes": ["append", "read"]}]'
    with served(tmp_path, grant) as sidecar:
        own = ("--set", f"server.listen={sidecar.address}", "--set", grant)
        there = abridged("append", "moved", "hello", *own)
        elsewhere = abridged("append", "moved", "hello", *own, "--address", "127.0.0.1:9")
        named = abridged("append", "moved", "hello", *own, "--address", sidecar.address)

    assert (there.code, there.err) == (0, "")
    assert (elsewhere.code, "127.0.0.1:9: nobody answers" in elsewhere.err) == (1, True)
    assert (named.code, "UNAUTHENTICATED" in named.err) == (1, True)


def finding(what: str, ran: Ran) -> str:
    """Return the doctor's line about one thing."""
    (line,) = [line for line in ran.out.splitlines() if line.split()[1].rstrip(":") == what]
    return line


def test_the_doctor_says_that_the_sidecar_has_other_models_than_its_own_settings(tmp_path):
    """Hosts and keys are those of its own settings, which may be none of the sidecar's."""
    with served(tmp_path) as sidecar:
        same = abridged("doctor", *own_settings(sidecar))
        given = ("--set", "summarizer.models=openai:gpt", "--set", f"openai.url=http://{NOBODY}/v1")
        other = abridged("doctor", *own_settings(sidecar), *given)
        titles = ("--set", "titles.enabled=true", "--set", "titles.models=openai:gpt")
        away = abridged("doctor", *own_settings(sidecar), *given, *titles)

    assert "settings:" not in same.out
    assert finding("settings", other) == (
        "warn  settings: the sidecar's models are extractive:default, and openai:gpt in these settings; hosts and keys "
        "below are of these settings"
    )
    assert "set but not used" not in other.out
    assert "if the sidecar has this host and key, too: passes fail until it responds" in away.out


def test_the_doctor_asks_whether_a_sidecar_that_answers_is_ready(tmp_path):
    """The sidecar answers calls, and takes no appends: its log is gone from under it."""
    with served(tmp_path) as sidecar:
        (tmp_path / "served.db").rename(tmp_path / "moved.db")
        gone = abridged("doctor", *own_settings(sidecar))
        elsewhere = abridged("doctor", *own_settings(sidecar), "--set", f"server.http_listen={NOBODY}")

    assert gone.code == 1
    assert finding("sidecar", gone).startswith("ok")
    assert finding("readiness", gone).startswith(f"FAIL  readiness {sidecar.http_address}: append: LogGone")
    assert finding("readiness", elsewhere).startswith(f"warn  readiness: {NOBODY}")


def test_the_doctor_knows_a_log_that_is_not_the_one_that_is_served(tmp_path):
    """A file that is missing or another one will not be made and used: the sidecar has its own open."""
    with served(tmp_path), served_in(tmp_path / "other") as other:
        another = abridged("doctor", *own_settings(other), "--set", f"log.path={tmp_path / 'served.db'}")
        missing = abridged("doctor", *own_settings(other), "--set", f"log.path={tmp_path / 'missing.db'}")

    assert (another.code, missing.code) == (1, 1)
    assert re.search(r"FAIL  log \S+: it is log [0-9a-f]{8}, and the sidecar serves log [0-9a-f]{8}", another.out)
    assert re.search(r"FAIL  log \S+: no log is there, and the sidecar serves log [0-9a-f]{8}", missing.out)
    assert not (tmp_path / "missing.db").exists()


@contextlib.contextmanager
def served_in(folder: Path) -> Iterator[ServedSidecar]:
    folder.mkdir()
    with served(folder) as sidecar:
        yield sidecar


def left_alone(path: Path) -> None:
    """Make nothing at the path."""


def an_orphan(path: Path) -> None:
    path.with_name(f"{path.name}-wal").write_bytes(b"frames")


def junk(path: Path) -> None:
    path.write_bytes(b"no database" * 1_000)
    path.chmod(0o600)


def empty(path: Path) -> None:
    path.touch(0o600)


def another_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE notes (text)")
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("made", "verdict", "says"),
    [
        (left_alone, "ok", "will be made"),
        (empty, "ok", "will be made"),
        (an_orphan, "FAIL", "is missing, and its write-ahead log is there"),
        (junk, "FAIL", "is not an abridged log (not an SQLite file)"),
        (another_database, "FAIL", "is an SQLite database of something else"),
    ],
)
def test_the_doctor_opens_the_log_that_a_sidecar_would(tmp_path, made, verdict, says):
    """The doctor leaves the log as it was."""
    path = tmp_path / "a.db"
    made(path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}

    ran = abridged("doctor", "--set", f"server.listen={NOBODY}", "--set", f"log.path={path}", "--no-speed")

    assert finding("log", ran).startswith(verdict)
    assert says in finding("log", ran)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_the_settings_are_checked_without_asking_anybody(tmp_path):
    """A host is written well or not; whether it answers is the doctor's question."""
    given = (f"log.path={tmp_path / 'a.db'}", f"ollama.hosts={NOBODY}", "summarizer.models=ollama:qwen2.5:3b")

    assert abridged("config", "check", *(part for one in given for part in ("--set", one))).code == 0
    assert "Does not connect to hosts" in " ".join(abridged("config", "check", "--help").out.split())


STRONG = "7f3c0d5be1a94e62"


@pytest.mark.parametrize(
    ("token", "mode", "says"),
    [
        (STRONG, 0o600, ""),
        (STRONG, 0o644, "server.tokens[0].token_file: can be read by others: run `chmod 600"),
        (STRONG, 0o620, "server.tokens[0].token_file: can be written by others"),
        ("7f3c0d5b", 0o600, "has 8 characters, fewer than 16: make one with `openssl rand -hex 32`"),
        ("changeme123456789", 0o600, "is easily guessed"),
        ("abababababababababab", 0o600, "is easily guessed"),
    ],
)
def test_a_token_that_others_can_guess_or_read_is_refused_by_the_check(tmp_path, token, mode, says):
    """The refusal names the field and the remedy, not the token. A start warns, so that nobody's sidecar stays away."""
    file, settings = tmp_path / "token", tmp_path / "abridged.toml"
    file.write_text(token)
    file.chmod(mode)
    settings.write_text(f'[[server.tokens]]\ntoken_file = "{file}"\n')

    ran = abridged("config", "check", "--config", str(settings), "--set", f"log.path={tmp_path / 'a.db'}")

    assert ran.code == (2 if says else 0)
    assert says in ran.err
    assert token not in ran.out + ran.err


def test_a_mounted_token_may_have_any_mode(tmp_path):
    """Kubernetes links secrets into a folder of its own, readable for all who are in the container."""
    mounted = tmp_path / "..data" / "token"
    mounted.parent.mkdir()
    mounted.write_text(STRONG)
    mounted.chmod(0o644)
    (tmp_path / "token").symlink_to(mounted)
    (tmp_path / "abridged.toml").write_text(f'[[server.tokens]]\ntoken_file = "{tmp_path / "token"}"\n')

    ran = abridged(
        "config", "check", "--config", str(tmp_path / "abridged.toml"), "--set", f"log.path={tmp_path / 'a.db'}"
    )

    assert ran.code == 0, ran.err


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("api.example.com", "openai.url: an OpenAI-compatible endpoint begins with http:// or https://"),
        ("http://example.com/v1", "openai.url: example.com:80 is beyond loopback"),
        ("https://user:secret@host", "openai.url: an OpenAI-compatible endpoint must not contain"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused_if_a_model_needs_it(tmp_path, url, says):
    """The variable may be another program's without such a model, and stops nothing."""
    given = [part for one in (f"log.path={tmp_path / 'a.db'}", f"openai.url={url}") for part in ("--set", one)]
    needed = abridged("config", "check", *given, "--set", "summarizer.models=ollama:a,openai:gpt-4o-mini")

    assert needed.code == 2
    assert says in needed.err
    assert "secret@" not in needed.err
    assert abridged("config", "check", *given).code == 0


@pytest.mark.parametrize(
    ("url", "key", "models", "found"),
    [
        ("", "right", "openai:gpt-fake", ["ok    endpoint", "ok    model gpt-fake: listed"]),
        ("", "right", "openai:other", ["ok    endpoint", "warn  model other: the endpoint does not list it"]),
        ("", "wrong", "openai:gpt-fake", ["warn  endpoint", "set openai.api_key"]),
        (f"http://{NOBODY}/v1", "right", "openai:gpt-fake", ["warn  endpoint", "set openai.url"]),
    ],
)
def test_the_doctor_asks_an_endpoint_for_its_key_and_models(tmp_path, url, key, models, found):
    """The endpoint must respond, accept the key and list the models; a fault is a warning, as only passes need it."""
    with fake_openai("--key", "right") as endpoint, served(tmp_path, f"summarizer.models={models}") as sidecar:
        given = (f"openai.url={url or endpoint}", f"openai.api_key={key}", f"log.path={tmp_path / 'served.db'}")
        ran = abridged("doctor", "--address", sidecar.address, *(part for one in given for part in ("--set", one)))

    assert ran.code == 0, ran.out
    assert [says for says in found if says not in ran.out] == []
    assert key not in ran.out


def test_the_doctor_says_how_to_mend_what_is_broken(tmp_path):
    """No sidecar, a model that is not pulled, a folder that is not there: each with its remedy, exit code 1."""
    with fake_ollama() as url:
        ran = abridged(
            "doctor",
            *("--set", f"server.listen={NOBODY}"),
            *("--set", f"ollama.hosts={url}"),
            *("--set", "summarizer.models=ollama:never-pulled:7b"),
            *("--set", f"log.path={tmp_path / 'missing' / 'a.db'}"),
        )

    assert ran.code == 1
    assert "abridged serve" in ran.out
    assert "ollama pull never-pulled:7b" in ran.out
    assert "its folder does not exist" in ran.out


def test_a_model_that_is_away_is_a_warning(tmp_path):
    """Passes fail and nothing else does: exit code 0, with a remedy for each of the two ways of being away."""
    asked = "summarizer.models=ollama:never-pulled:7b"
    with fake_ollama() as url, served(tmp_path, asked) as sidecar:
        options = ("--address", sidecar.address, "--set", f"log.path={sidecar.folder / 'served.db'}")
        away = abridged("doctor", *options, "--set", f"ollama.hosts={NOBODY}")
        missing = abridged("doctor", *options, "--set", f"ollama.hosts={url}")

    for ran in (away, missing):
        assert ran.code == 0, ran.out
        assert "FAIL" not in ran.out
        assert "summarizer.models=extractive:default" in ran.out
    assert "warn  Ollama" in away.out
    assert "ollama serve" in away.out
    assert "ollama pull" not in away.out
    assert "warn  model never-pulled:7b" in missing.out
    assert "ollama pull never-pulled:7b" in missing.out
    assert "summarizer.models=ollama:qwen2.5:3b" in missing.out


def test_the_doctor_tells_how_fast_a_model_is_and_what_that_means(tmp_path):
    """The longest prompt of a pass against the time that the settings give it, and which setting to change."""
    given = ("--set", "client.deadline_s=5", "--set", f"log.path={tmp_path / 'a.db'}")
    with (
        fake_ollama("--prefill-tokens-per-s", "1000", "--tokens-per-s", "800") as url,
        served(tmp_path, "summarizer.models=ollama:qwen2.5:3b", f"ollama.hosts={url}") as sidecar,
    ):
        options = (*given, "--address", sidecar.address, "--set", f"ollama.hosts={url}")
        fits = abridged("doctor", *options)
        slow = abridged("doctor", *options, "--set", "ollama.first_byte_timeout_s=4")
        silent = abridged("doctor", *options, "--no-speed")

    assert (fits.code, slow.code, silent.code) == (0, 0, 0)
    pace = r"reads 1,0\d\d tokens/s, writes \d+ tokens/s; a pass of 8,500 tokens waits about [89] s"
    assert re.search(rf"ok    model qwen2.5:3b: {pace}, ollama.first_byte_timeout_s is \d+: enough", fits.out)
    assert re.search(rf"warn  model qwen2.5:3b: {pace}, ollama.first_byte_timeout_s is 4: too short", slow.out)
    assert "set ollama.first_byte_timeout_s=20, or policy.max_input_tokens=2" in slow.out
    assert "--no-speed leaves it out" in fits.err
    assert "reads" not in silent.out
    assert silent.err == ""


def test_the_doctor_says_when_a_model_that_is_there_does_not_work():
    """A crash of its runner is a warning with where to look."""
    with fake_ollama("--behaviour", "crash") as url:
        ran = abridged("doctor", "--set", f"server.listen={NOBODY}", "--set", f"ollama.hosts={url}")

    assert "warn  model qwen2.5:3b: a small question was not answered" in ran.out
    assert "ollama ps" in ran.out


def test_the_doctor_asks_the_sidecar_of_its_settings(tmp_path):
    """The doctor asks at server.listen with a token of server.tokens, not at the usual address; the option wins."""
    tokens = json.dumps([{"token": "w", "scopes": ["append"]}, {"token": "s3cret"}])
    with served(tmp_path, f"server.tokens={tokens}") as sidecar:
        port = sidecar.address.rpartition(":")[2]
        config = tmp_path / "tok.toml"
        config.write_text(
            f'[server]\nlisten = ["0.0.0.0:{port}"]\nhttp_listen = ""\n'
            'tokens = [{token = "w", scopes = ["append"]}, {token = "s3cret"}]\n'
            f'[log]\npath = "{sidecar.folder / "served.db"}"\n[summarizer]\nmodels = ["extractive:default"]\n'
        )
        own = abridged("doctor", "--config", str(config))
        live = abridged("doctor", "--live", "--config", str(config))
        other = abridged("doctor", "--config", str(config), "--address", NOBODY)
        bare = abridged("doctor", "--config", str(config), "--address", sidecar.address)

    assert (own.code, live.code) == (0, 0), own.out
    assert f"ok    sidecar 127.0.0.1:{port}" in own.out
    assert (other.code, bare.code) == (1, 1)
    assert f"{NOBODY}: nobody answers" in other.out
    assert "UNAUTHENTICATED" in bare.out


def test_the_doctor_knows_the_http_port_when_it_meets_it(tmp_path):
    """The same words as every other command's."""
    with served(tmp_path) as sidecar:
        ran = abridged("doctor", "--address", sidecar.http_address)

    assert ran.code == 1
    assert f"FAIL  sidecar: {sidecar.http_address} is an HTTP port" in ran.out


def test_the_doctor_warns_of_a_log_that_others_can_read(tmp_path):
    """Conversations are private; the remedy is a command."""
    path = tmp_path / "open.db"
    path.touch(0o644)
    path.chmod(0o644)

    ran = abridged("doctor", "--set", f"server.listen={NOBODY}", "--set", f"log.path={path}")

    assert f"chmod 600 {path}" in ran.out


def test_the_doctor_does_not_judge_a_log_that_may_be_anothers(tmp_path):
    """A user who names a sidecar by its address may have no settings of it: the log of theirs says nothing of it."""
    broken = f"log.path={tmp_path / 'missing' / 'a.db'}"
    with served(tmp_path) as sidecar:
        by_option = abridged("doctor", "--address", sidecar.address, "--set", broken)
        by_setting = abridged("doctor", "--set", f"client.address={sidecar.address}", "--set", broken)

        without_port = abridged("doctor", "--address", sidecar.address, "--set", "server.http_listen=")

    for ran in (by_option, by_setting):
        assert ran.code == 0, ran.out
        assert "skip  log: client.address (flag) may name a sidecar with another log" in ran.out
        assert "skip  readiness: client.address (flag) may name a sidecar with another HTTP port" in ran.out
        assert ran.out.count("      run `abridged doctor` with that sidecar's --config and without client.address") == 2
        assert "missing" not in ran.out
    assert "skip  readiness" not in without_port.out


def test_a_container_learns_whether_its_sidecar_lives(tmp_path):
    """`doctor --live` asks one thing of the port of these settings, or of gRPC where there is no such port."""
    with served(tmp_path) as sidecar:
        by_http = abridged("doctor", "--live", "--set", f"server.http_listen={sidecar.http_address}")
        by_grpc = abridged("doctor", "--live", "--set", "server.http_listen=", "--address", sidecar.address)
    dead_http = abridged("doctor", "--live", "--set", f"server.http_listen={NOBODY}")
    dead_grpc = abridged("doctor", "--live", "--set", "server.http_listen=", "--address", NOBODY)

    assert (by_http.code, by_grpc.code, dead_http.code, dead_grpc.code) == (0, 0, 1, 1)


def test_the_settings_are_checked_with_everything_that_is_wrong_at_once(tmp_path):
    """Each problem with its field and its origin; exit code 2."""
    file = tmp_path / "abridged.toml"
    file.write_text("[policy]\ntrigger_token_ratio = 3\n")

    ran = abridged("config", "check", "--config", str(file), "--set", "log.backend=paper")

    assert ran.code == 2
    assert "policy.trigger_token_ratio" in ran.err
    assert str(file) in ran.err
    assert "log.backend" in ran.err
    assert abridged("config", "check").code == 0


def test_a_standard_variable_that_is_not_served_is_warned_of_and_ignored(tmp_path):
    """The check that an operator makes warns of it, and so does the start."""
    environ = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    checked = abridged("config", "check", environ=environ)
    with served(tmp_path, environ=environ) as sidecar:
        assert sidecar.address

    assert checked.code == 0
    assert "warning: OTEL_EXPORTER_OTLP_PROTOCOL is ignored: it must be one of http/protobuf\n" in checked.err
    assert checked.out.startswith("ok: ")


def test_the_settings_are_shown_with_their_origin_and_without_secrets():
    """The command shows what holds, and why; the option stands before or after the command's name."""
    shown = abridged(
        "--set", "policy.trigger_token_ratio=0.75", "config", "show", "--origin", "--set", "client.token=s3cret"
    )
    as_json = json.loads(abridged("config", "show", "--json", "--set", "policy.reset_token_ratio=0.6").out)

    assert "s3cret" not in shown.out
    row = next(line for line in shown.out.splitlines() if line.startswith("policy.trigger_token_ratio"))
    assert row.split() == ["policy.trigger_token_ratio", "=", "0.75", "#", "flag", "policy.trigger_token_ratio"]
    assert as_json["policy.reset_token_ratio"] == {"value": 0.6, "origin": "flag policy.reset_token_ratio"}


def test_each_command_says_what_it_is_for():
    """The overview and every page of it."""
    overview = abridged("--help")
    names = [line.split()[0] for line in overview.out.partition("Commands:\n")[2].splitlines()]

    assert {"serve", "demo", "chat", "append", "context", "watch", "summaries", "doctor", "config"} <= set(names)
    for name in names:
        assert abridged(name, "--help").code == 0


def test_what_all_commands_share_loads_nothing_that_serves_or_draws():
    """Start-up time: a command does not import a module that it does not need."""
    program = (
        "import sys\n"
        "from abridged.service.cli.main import main\n"
        "heavy = {'grpc', 'pydantic', 'rich', 'sqlalchemy', 'httpx'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    ran = abridged_process(program=program)

    assert ran.code == 0, ran.err
    assert abridged("--version").out.startswith("abridged ")


def test_an_endpoint_that_no_model_uses_is_hinted_at_by_whatever_looks_at_the_settings(tmp_path):
    """`config check`, `doctor` and the start, once; with an openai: model nobody says so. The key is never shown."""
    environ = {"OPENAI_API_KEY": "sk-secret-4711", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    hint = "openai.url (OPENAI_BASE_URL) and openai.api_key (OPENAI_API_KEY) are set but not used: to use it, set "
    unused = f'{hint}summarizer.models=["openai:NAME"]'

    checked = abridged_process("config", "check", environ=environ)
    used = abridged_process("config", "check", "--set", 'summarizer.models=["openai:m"]', environ=environ)
    with served(tmp_path, environ=environ) as s:
        assert s.process.stderr is not None
        line = json.loads(s.process.stderr.readline())
        doctor = abridged_process("doctor", "--no-speed", "--address", s.address, environ=environ)

    assert (checked.code, checked.err) == (0, f"warning: {unused}\n")
    assert (used.code, used.err) == (0, "")
    assert (line["event"], line["hint"]) == ("model.endpoint_unused", unused)
    assert f"warn  endpoint: {unused}\n" in doctor.out
    assert "4711" not in checked.err + doctor.out + doctor.err + str(line)
