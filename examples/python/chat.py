"""A chat that stays inside its model's context window: append, fetch the window, ask the model, append, report."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress

from abridged.client import Conversations, SidecarError
from abridged.v1.conversation_pb2 import ConversationSettings

CHAT = "python-example"
TURNS = 24


def ask(body: str) -> tuple[str, int]:
    """Put your model's call here: it takes the body of its request and returns its answer and the tokens it counted."""
    return f"The dock of that order is free from noon on. {'Please have the papers ready. ' * 3}", len(body) // 4


def watch(address: str) -> None:
    """Print events until the sidecar ends; the client goes on after the newest one when the connection breaks."""
    with Conversations(address) as chats, suppress(SidecarError):
        for seen in chats.watch(CHAT):
            if seen.WhichOneof("item") == "event":
                print(f"event {seen.event.version}: {seen.event.type}", file=sys.stderr)


def main(address: str) -> None:
    said: dict[str, object] = {}
    with Conversations(address) as chats:
        for turn in range(1, TURNS + 1):
            question = f"Where does order {turn} go? {'It has to be there by noon. ' * 3}"
            # An id makes a repeated call safe; the client repeats what may be repeated.
            message = {"id": f"u{turn}", "role": "user", "content": question}
            chats.append(CHAT, [message], settings=ConversationSettings(context_length=1024))
            if turn == 1:
                threading.Thread(target=watch, args=(address,), daemon=True).start()
            window = chats.context(CHAT, rendering="openai", wait_s=10)
            answer, prompt_tokens = ask(window.rendered_json)
            chats.append(CHAT, [{"id": f"a{turn}", "role": "assistant", "content": answer}])
            chats.report_usage(CHAT, window, prompt_tokens=prompt_tokens)
            said = {"turns": turn, "compacted": window.compacted, "ratio": window.usage.ratio}
            if window.compacted:
                break
        try:
            chats.conversation("nobody")
        except SidecarError as error:
            said["reason"] = error.reason
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1])
