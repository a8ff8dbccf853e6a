"""Plays the cases of cases.yaml with the runner of one language, against sidecars that stop, break and go on."""

from __future__ import annotations

import json
import queue
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.support.command import ServedSidecar, served

TABLE = yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text(encoding="utf-8"))
CALLS_MAX = 300
RETRY_S = 0.1
"""Seconds between attempts after a restart: libraries pause for up to some seconds before they connect again."""

ANSWER_S = 120
"""Longer than any deadline of a case: a runner that says nothing by then hangs."""


class Played(NamedTuple):
    """The result of the cases: what failed and why, by name, and the codes that a case is to show, by what they are."""

    failed: Mapping[str, str]
    shown: Mapping[str, str]


def played(folder: Path, runner: Sequence[str]) -> Played:
    """Play every case with the runner, a command in its folder: those of one kind of sidecar one after another, beside
    those of the others, which mostly wait."""
    failed: dict[str, str] = {}
    shown: dict[str, str] = {}

    def play_those_of(server: str) -> None:
        with _Player(folder, server, runner, shown) as player:
            for case in TABLE["cases"]:
                try:
                    if case.get("server", "plain") == server:
                        player.play(case["steps"])
                except AssertionError as error:
                    failed[case["name"]] = str(error)

    with ThreadPoolExecutor(len(TABLE["servers"])) as pool:
        for each in [pool.submit(play_those_of, server) for server in TABLE["servers"]]:
            each.result()
    return Played(failed, {code: shown[code] for code in sorted(shown)})


class _Player(ExitStack):
    """A sidecar at one address, and a runner that calls it."""

    def __init__(self, folder: Path, name: str, runner: Sequence[str], shown: dict[str, str]) -> None:
        super().__init__()
        self._shown = shown
        self._folder = folder / f"served-{name}"
        self._folder.mkdir()
        (self._folder / "hanging.json").write_text('{"steps": [{"hang": true}]}', encoding="utf-8")
        self._settings = [setting.replace("{folder}", str(self._folder)) for setting in TABLE["servers"][name]]
        self._address = f"127.0.0.1:{_free_port()}"
        self._sidecar = ExitStack()
        self._process: subprocess.Popen[Any] | None = None
        self._runner = [*runner, self._address]
        self._cwd = folder
        self._kept: dict[str, str] = {}

    def __enter__(self) -> _Player:
        super().__enter__()
        self.push(self._sidecar)
        self._start()
        self._calls = self.enter_context(
            subprocess.Popen(self._runner, cwd=self._cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        self.callback(self._calls.kill)
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._hear, daemon=True).start()
        return self

    def play(self, steps: Sequence[Mapping[str, Any]]) -> None:
        """Carry out the steps. Raises AssertionError at the first answer that is not as expected."""
        for step in steps:
            if "server" in step:
                self._do(step["server"])
                continue
            for number in range(1, step.get("repeat", 1) + 1):
                if "end" not in step:
                    self._ask(step, number)
                if "begin" not in step:
                    self._judge(step, step.get("end") or step["expect"])

    def _hear(self) -> None:
        assert self._calls.stdout is not None
        for line in self._calls.stdout:
            self._answers.put(line)
        self._answers.put("the runner has ended")

    def _ask(self, step: Mapping[str, Any], number: int) -> None:
        assert self._calls.stdin is not None
        members = ("deadlineS", "metadata", "stream", "channel")
        asked = {
            "call": f"abridged.v1.{step.get('call') or step['begin']}",
            "request": _filled(step["request"], {**self._kept, "n": str(number)}),
            **{name: step[name] for name in members if name in step},
        }
        self._calls.stdin.write(f"{json.dumps(asked)}\n")
        self._calls.stdin.flush()

    def _judge(self, step: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        text = self._answers.get(timeout=ANSWER_S)
        try:
            answer = json.loads(text)
        except ValueError:
            raise AssertionError(f"the runner says: {text[:400]}") from None
        if "shows" in step:
            self._shown[step["shows"]] = answer["code"]
        assert _holds(expected, answer), f"{expected} expected of {step.get('call', 'the call')}: {text[:600]}"
        for name, member in step.get("keep", {}).items():
            self._kept[name] = answer["responses"][0][member]

    def _do(self, name: str) -> None:
        act: Callable[[], object] = {
            "start": self._start_again,
            "stop": self._sidecar.close,
            "kill": lambda: self._send(signal.SIGKILL),
            "pause": lambda: self._send(signal.SIGSTOP),
            "continue": lambda: self._send(signal.SIGCONT),
        }[name]
        act()

    def _start_again(self) -> None:
        """Start the sidecar, and call until one is served: a channel that was refused waits before it tries again."""
        self._start()
        for _ in range(CALLS_MAX):
            self._ask({"call": "ServerInfoService/GetServerInfo", "request": {}}, 0)
            if json.loads(self._answers.get(timeout=ANSWER_S))["code"] == "OK":
                return
            time.sleep(RETRY_S)
        raise AssertionError("the runner's channel does not connect again")

    def _start(self) -> None:
        self._sidecar.close()
        sidecar: ServedSidecar = self._sidecar.enter_context(
            served(self._folder, *self._settings, f"server.listen={self._address}")
        )
        self._process = sidecar.process

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        if number is signal.SIGKILL:
            self._process.wait()


def _free_port() -> int:
    """A port below those that the system gives to clients: one that asks again while no server runs could take it."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def _filled(value: Any, names: Mapping[str, str]) -> Any:
    """The value with its names in place, and each long text as long as it says."""
    if isinstance(value, dict) and value.keys() == {"text", "times"}:
        return _filled(value["text"], names) * value["times"]
    if isinstance(value, dict):
        return {key: _filled(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, names) for each in value]
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace(f"{{{name}}}", text)
    return value


def _holds(expected: Any, found: Any, member: str = "") -> bool:
    """Return whether an answer has what is expected: a default may be missing, and a number may be text."""
    if member == "code" and isinstance(expected, list):
        return found in expected
    if isinstance(expected, dict) and expected.keys() == {"has"}:
        return isinstance(found, str) and found != "" and expected["has"] in found
    if isinstance(expected, dict) and expected.keys() == {"first"}:
        return isinstance(found, list) and found != [] and _holds(expected["first"], found[0])
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(_holds(each, found.get(key), key) for key, each in expected.items())
    if isinstance(expected, list):
        same = isinstance(found, list) and len(found) == len(expected)
        return same and all(_holds(*pair) for pair in zip(expected, found, strict=True))
    if expected in ("", 0, False):
        return found in (None, "", 0, "0", False)
    return str(found) == str(expected)
