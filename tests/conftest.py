"""Guards of every test: no other machine is reached, and the settings of this machine's user do not leak in."""

from __future__ import annotations

import gc
import ipaddress
import os
import sys
from typing import Any

from hypothesis import HealthCheck, settings

from tests.support.postgres_server import keep_named_server
from tests.support.shared_data import keep_named_folder

_FOREIGN_SETTINGS = ("ABRIDGED_", "OLLAMA_", "OPENAI_", "OTEL_")
_FOREIGN_VARIABLES = ("SUMMARY_MODEL", "LLM_MODEL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
# Nobody listens on the discard port, so a sidecar that a test starts without naming a model's host finds none.
_NO_OLLAMA = "127.0.0.1:9"
_GC_ALLOCATIONS = 10_000

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)


class ReachedOut(RuntimeError):
    """A test tried to reach another machine; models are faked on loopback."""


def pytest_configure() -> None:
    keep_named_folder()
    keep_named_server()
    for variable in list(os.environ):
        if variable.startswith(_FOREIGN_SETTINGS) or variable.upper() in _FOREIGN_VARIABLES:
            del os.environ[variable]
    os.environ["OLLAMA_HOST"] = _NO_OLLAMA
    os.environ["OPENAI_BASE_URL"] = f"http://{_NO_OLLAMA}/v1"
    settings.load_profile("ci" if os.environ.get("CI") else "default")
    sys.addaudithook(_refuse_other_machines)


def pytest_collection_finish() -> None:
    """Collect garbage less often: to look through the modules and the tests takes a twentieth of a run."""
    gc.set_threshold(_GC_ALLOCATIONS)


def _refuse_other_machines(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "socket.connect":
        return
    address = arguments[1]
    if isinstance(address, tuple) and not _is_loopback(str(address[0])):
        raise ReachedOut(f"a test tried to connect to {address[0]}")


def _is_loopback(host: str) -> bool:
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
