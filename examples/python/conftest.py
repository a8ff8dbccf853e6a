"""The option of the tests in this folder."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="play the chat, and write its log to chat.jsonl")
