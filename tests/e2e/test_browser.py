"""A page in a real browser calls the sidecar over Connect, where its origin is let in. Needs Chromium."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from tests.support.command import ROOT, served
from tests.support.patience import PATIENCE_S

CHROMIUM = shutil.which("chromium")
NODE = shutil.which("node")
CLIENTS = ROOT / "docs" / "clients.md"
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip

in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")

PAGE = """<!doctype html><script type="module">
const service = "http://ADDRESS/abridged.v1.ConversationService/";
const call = async (method, body) => {
  const response = await fetch(service + method, {
    method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(body)});
  return response.json();
};

async function events(conversationId, count) {
  const text = new TextEncoder().encode(JSON.stringify({conversationId}));
  const body = new Uint8Array(5 + text.length);
  new DataView(body.buffer).setUint32(1, text.length);
  body.set(text, 5);
  const stop = new AbortController();
  const response = await fetch(service + "WatchConversation", {
    method: "POST", headers: {"content-type": "application/connect+json"}, body, signal: stop.signal});
  const types = [];
  let unread = new Uint8Array();
  for (const reader = response.body.getReader(); types.length < count;) {
    const {value} = await reader.read();
    unread = new Uint8Array([...unread, ...value]);
    while (unread.length >= 5) {
      const end = 5 + new DataView(unread.buffer).getUint32(1);
      if (unread.length < end) break;
      const item = JSON.parse(new TextDecoder().decode(unread.slice(5, end)));
      if (item.event) types.push(item.event.type);
      unread = unread.slice(end);
    }
  }
  stop.abort();
  return types;
}

let said;
try {
  const watched = {conversationId: "browser", messages: [{id: "m1", role: "ROLE_USER", content: "Good morning"}]};
  const appended = await call("AppendMessages", watched);
  said = {
    version: appended.messageVersion,
    context: (await call("GetContext", {conversationId: "browser"})).messages[0].message.content,
    reason: (await call("GetContext", {conversationId: "nobody"})).details[0].debug.reason,
    events: await events("browser", 2),
  };
} catch (error) {
  said = {failed: error.name};
}
await fetch("/said", {method: "POST", body: JSON.stringify(said)});
</script>"""


class _Site(ThreadingHTTPServer):
    """Serves the page, and takes the page's findings."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.page = ""
        self.said: Queue[Any] = Queue()
        self.origin = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: _Site

    def do_GET(self) -> None:
        self._answer(self.server.page.encode() if self.path == "/" else b"")

    def do_POST(self) -> None:
        self.server.said.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self._answer(b"")

    def log_message(self, *_: Any) -> None:
        """Keep the terminal quiet."""

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def site() -> Iterator[_Site]:
    with _Site() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def opened(page: _Site, profile: Path) -> Any:
    """The text of the page once a browser has opened it."""
    assert CHROMIUM is not None
    process = subprocess.Popen(
        [CHROMIUM, *OPTIONS, f"--user-data-dir={profile}", page.origin], stderr=subprocess.DEVNULL
    )
    try:
        return page.said.get(timeout=PATIENCE_S)
    finally:
        process.terminate()
        process.wait()


@in_a_browser
def test_a_page_that_is_let_in_chats_and_watches(tmp_path):
    """Calls in JSON, errors by reason, and a stream as it comes."""
    with site() as page, served(tmp_path, f'server.http_origins=["{page.origin}"]') as sidecar:
        page.page = PAGE.replace("ADDRESS", sidecar.http_address)

        assert opened(page, tmp_path / "profile") == {
            "version": "1",
            "context": "Good morning",
            "reason": "CONVERSATION_NOT_FOUND",
            "events": ["ConversationOpened", "MessageAppended"],
        }


@in_a_browser
def test_a_page_of_a_foreign_origin_gets_nothing(tmp_path):
    """The browser shows it no answer, and nothing was appended."""
    with site() as page, served(tmp_path, 'server.http_origins=["http://localhost:1"]') as sidecar:
        page.page = PAGE.replace("ADDRESS", sidecar.http_address)

        assert opened(page, tmp_path / "profile") == {"failed": "TypeError"}
        assert curl(sidecar.http_address, "GetConversation", {"conversationId": "browser"})["code"] == "not_found"


def test_a_person_chats_by_curl(tmp_path):
    """The commands are those of docs/clients.md."""
    message = {"id": "m1", "role": "ROLE_USER", "content": "Good morning"}
    with served(tmp_path) as sidecar:
        curl(sidecar.http_address, "AppendMessages", {"conversationId": "support-1", "messages": [message]})
        window = curl(sidecar.http_address, "GetContext", {"conversationId": "support-1"})

    assert window["messages"][0]["message"]["content"] == "Good morning"


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_a_program_in_javascript_chats(tmp_path):
    """The snippet of docs/clients.md, with the sidecar's real port in the place of the default one; its second run is
    another turn."""
    (snippet,) = re.findall(r"^```js\n(.*?)^```$", CLIENTS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    with served(tmp_path) as sidecar:
        program = snippet.replace("127.0.0.1:7421", sidecar.http_address) + "console.log(JSON.stringify(messages));"
        command = [str(NODE), "--input-type=module", "--eval", program]
        said = [subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S).stdout for _ in range(2)]
        window = curl(sidecar.http_address, "GetContext", {"conversationId": "order-1205"})

    question = {"role": "user", "content": "Where is my order?"}
    assert json.loads(said[0]) == [question]
    assert [message["role"] for message in json.loads(said[1])] == ["user", "assistant", "user"]
    ids = [entry["message"]["id"] for entry in window["messages"]]
    assert [name.rpartition("-")[2] for name in ids] == ["question", "answer"] * 2


def curl(address: str, method: str, body: dict[str, Any]) -> Any:
    """The answer to a call, as curl prints it."""
    url = f"http://{address}/abridged.v1.ConversationService/{method}"
    command = ["curl", "-sS", "-H", "content-type: application/json", url, "-d", json.dumps(body)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
