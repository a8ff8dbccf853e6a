"""Databases that no log can be kept in: the start is refused with a reason and a way out, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import pytest

from tests.support.command import abridged, served
from tests.support.postgres_server import PostgresServer
from tests.support.statement_pooler import statement_pooler

psycopg = pytest.importorskip("psycopg", reason="needs psycopg, of the extra abridged[postgres]")

NO_ROOM = (
    "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
)
CHECK = "check log.url, its role and password, and that the server runs"


class Unfit(NamedTuple):
    """A database at a changed URL after `statements`, before which a log is made if there `is_log`; and what a start
    says of it."""

    name: str
    reason: str
    way_out: str
    statements: tuple[str, ...] = ()
    url: Callable[[str], str] = lambda url: url
    is_log: bool = False


def _as(role: str) -> Callable[[str], str]:
    return lambda url: url.replace("//postgres@", f"//{role}@")


UNFIT = (
    Unfit(
        "tables of another program",
        "a table events of something else",
        "a schema of its own",
        ("CREATE TABLE events (id int)",),
    ),
    Unfit(
        "a newer version",
        "a newer version made the log's tables",
        "start the version that wrote it",
        ("UPDATE eventlog_revision SET version_num = '9999'",),
        is_log=True,
    ),
    Unfit(
        "a newer read table",
        "a newer version",
        "abridged log rebuild",
        ("UPDATE projections SET version = 99",),
        is_log=True,
    ),
    Unfit("a wrong password", 'password authentication failed for user "poor"', CHECK, url=_as("poor:canary")),
    Unfit("a role without rights", "42501", "let the role create tables in its schema", url=_as("poor:right")),
    Unfit(
        "a role that only reads",
        "can only read",
        "default_transaction_read_only = off",
        ("ALTER ROLE reader SET default_transaction_read_only = on",),
        _as("reader"),
    ),
    Unfit("no such database", "does not exist", CHECK, url=lambda url: url.replace("/unfit?", "/nowhere?")),
    Unfit(
        "nobody there", "Connection refused", CHECK, url=lambda _: "postgresql://abridged:canary@127.0.0.1:1/abridged"
    ),
    Unfit(
        "a full disk",
        "53100",
        "make room on the server's disk",
        (
            NO_ROOM,
            "CREATE TRIGGER no_room BEFORE INSERT ON logs EXECUTE FUNCTION no_room()",
            "DELETE FROM logs",
        ),
        is_log=True,
    ),
    Unfit(
        "another encoding",
        "the encoding LATIN1",
        "make one with UTF8",
        url=lambda url: url.replace("/unfit?", "/latin?"),
    ),
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with closing(PostgresServer()) as made:
        made.ask_password("poor")
        made.start()
        _run(
            made.url,
            "CREATE ROLE poor LOGIN PASSWORD 'right'",
            "CREATE ROLE reader LOGIN SUPERUSER",
            "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'",
        )
        yield made


@pytest.fixture
def url(server: PostgresServer) -> str:
    """A new database."""
    _run(server.url, "DROP DATABASE IF EXISTS unfit WITH (FORCE)", "CREATE DATABASE unfit")
    return server.url.replace("/postgres?", "/unfit?")


@pytest.mark.parametrize("unfit", UNFIT, ids=lambda unfit: unfit.name)
def test_an_unfit_database_refuses_the_start(tmp_path, url, unfit):
    """Exit code 1 as of any start that failed, the reason, and a way out."""
    if unfit.is_log:
        with served(tmp_path, f"log.url={url}"):
            pass
    _run(url, *unfit.statements)

    refused = abridged("serve", "--set", f"log.url={unfit.url(url)}")

    assert (refused.code, unfit.reason in refused.err, unfit.way_out in refused.err) == (1, True, True), refused.err
    assert "canary" not in refused.err
    assert "log.path" not in refused.err


def test_a_standby_refuses_the_start():
    """The refusal says where the log can be written."""
    with closing(PostgresServer()) as server:
        server.start()
        server.stop()
        server.follow_nobody()
        server.start()
        refused = abridged("serve", "--set", f"log.url={server.url}")
    assert (refused.code, "connect to the primary" in refused.err) == (1, True), refused.err


def test_a_pooler_of_statements_refuses_the_start(server):
    """The pooler would give each statement of a commit another session."""
    with statement_pooler(server.folder) as url:
        refused = abridged("serve", "--set", f"log.url={url}")
    assert (refused.code, "gives a transaction one session" in refused.err) == (1, True), refused.err


def test_a_second_sidecar_on_a_file_learns_where_sidecars_share_a_log(tmp_path):
    """Exit code 1, and PostgreSQL named."""
    with served(tmp_path):
        refused = abridged("serve", "--set", f"log.path={tmp_path / 'served.db'}", "--set", "server.listen=127.0.0.1:0")
    assert (refused.code, "log in PostgreSQL, log.url" in refused.err) == (1, True), refused.err


def _run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)
