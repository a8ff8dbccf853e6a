"""`abridged serve`, `doctor` and `config`: what an operator types."""

from __future__ import annotations

import json
import signal

import pytest

from tests.support.command import abridged, abridged_process, fake_ollama, served

NOBODY = "127.0.0.1:9"


def test_a_served_sidecar_ends_in_order_when_it_is_told_to(tmp_path):
    """SIGTERM: exit code 0, and the log can be opened by the next one."""
    with served(tmp_path) as sidecar:
        abridged("append", "c", "before", "--address", sidecar.address)
        sidecar.process.send_signal(signal.SIGTERM)
        assert sidecar.process.wait(timeout=20) == 0

    with served(tmp_path) as sidecar:
        assert "user: before" in abridged("context", "c", "--address", sidecar.address).out


def test_a_second_sidecar_on_the_same_log_is_refused_with_advice(tmp_path):
    """One file, one owner; the second one says what to do."""
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
    assert f"cannot listen at {sidecar.address}" in second.err
    assert "Traceback" not in second.err


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("ollama.hosts=http://user:secret@host", "no user name or password"),
        ("summarizer.models=scripted:nobody-wrote-it", "nobody-wrote-it"),
        ("log.path=/nowhere/at/all/abridged.db", "/nowhere/at/all"),
    ],
)
def test_settings_that_cannot_be_carried_out_end_without_a_traceback(tmp_path, assignment, says):
    """What only shows at start is a line with advice too, and no secret is in it."""
    given = (f"log.path={tmp_path / 'a.db'}", "server.listen=127.0.0.1:0", "server.http_listen=", assignment)

    ran = abridged_process("serve", *(part for one in given for part in ("--set", one)))

    assert ran.code in {1, 2}
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert "secret" not in ran.err


def test_a_token_is_asked_for_and_taken(tmp_path):
    """Without: what to set. With it, by option or variable: as if there were none."""
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
        log = f"log.path={sidecar.folder / 'served.db'}"
        ran = abridged("doctor", "--address", sidecar.address, "--set", f"ollama.hosts={url}", "--set", log)

    assert ran.code == 0, ran.out
    assert "ok    sidecar" in ran.out
    assert "serving" in ran.out
    assert "ok    model qwen2.5:3b: context length 32,768" in ran.out
    assert "ok    log" in ran.out


def test_the_doctor_says_how_to_mend_what_is_broken(tmp_path):
    """No sidecar, a model that is not pulled, a folder that is not there: each with its remedy, exit code 1."""
    with fake_ollama() as url:
        ran = abridged(
            "doctor",
            *("--address", NOBODY),
            *("--set", f"ollama.hosts={url}"),
            *("--set", "summarizer.models=ollama:never-pulled:7b"),
            *("--set", f"log.path={tmp_path / 'missing' / 'a.db'}"),
        )

    assert ran.code == 1
    assert "abridged serve" in ran.out
    assert "ollama pull never-pulled:7b" in ran.out
    assert "its folder cannot be written" in ran.out


def test_the_doctor_says_that_ollama_is_not_there(tmp_path):
    """Another remedy than for a missing model."""
    ran = abridged("doctor", "--address", NOBODY, "--set", f"ollama.hosts={NOBODY}")

    assert "ollama serve" in ran.out
    assert "ollama pull" not in ran.out


def test_the_doctor_warns_of_a_log_that_others_can_read(tmp_path):
    """Conversations are private; the remedy is a command."""
    path = tmp_path / "open.db"
    path.touch(0o644)
    path.chmod(0o644)

    ran = abridged("doctor", "--address", NOBODY, "--set", f"log.path={path}")

    assert f"chmod 600 {path}" in ran.out


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


def test_the_settings_are_shown_with_their_origin_and_without_secrets():
    """What holds, and why; before or after the command's name."""
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
    """Start-up time: what a command does not need, it does not import."""
    program = (
        "import sys\n"
        "from service.cli.main import main\n"
        "heavy = {'grpc', 'pydantic', 'rich', 'sqlalchemy', 'httpx'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    ran = abridged_process(program=program)

    assert ran.code == 0, ran.err
    assert abridged("--version").out.startswith("abridged ")
