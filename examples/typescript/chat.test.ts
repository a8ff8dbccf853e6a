// Tests of the chat on what it once said: `npm run record` plays it and keeps its log, `npm test` asserts on that log.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { credentials } from "@grpc/grpc-js";
import { ask, call, chat, conversationId, fetchWindow, say } from "./chat.js";
import { ConversationServiceClient, GetSummaryRequest } from "./gen/abridged/v1/conversation_service.js";
import { Role } from "./gen/abridged/v1/message.js";
import { ServerInfoServiceClient, WaitIdleRequest } from "./gen/abridged/v1/server_info_service.js";
import { Provenance } from "./gen/abridged/v1/summary.js";

const LOG = "chat.jsonl";
const DAY_S = 86_400;

if (process.env.RECORD) await record();
const sidecar = await serve("--log", LOG);
const chats = new ConversationServiceClient(sidecar.address, credentials.createInsecure());
const info = new ServerInfoServiceClient(sidecar.address, credentials.createInsecure());

after(async () => {
  chats.close();
  info.close();
  await sidecar.stop();
  console.log(`${(performance.now() / 1000).toFixed(2)} s of wall time`);
});

test("the chat ends with a compacted window", async () => {
  const window = await fetchWindow(chats);

  assert.ok(window.compacted);
  assert.equal(window.messageVersion, 24);
  assert.equal(window.messages[0].tag, "summary-depth:0");
  assert.equal(window.messages.at(-1)?.message?.content, ask("").answer);
});

test("a model wrote the record", async () => {
  const { summaryId } = await fetchWindow(chats);

  const named = GetSummaryRequest.fromPartial({ conversationId, summaryId });
  const { summary, live } = await call(chats, chats.getSummary, named);

  assert.ok(live);
  assert.equal(summary?.provenance, Provenance.PROVENANCE_MODEL);
});

test("the chat goes on from its log", async () => {
  const before = await fetchWindow(chats);

  await say(chats, Role.ROLE_USER, "u13", "And the day after?");
  const { idle } = await call(info, info.waitIdle, WaitIdleRequest.fromPartial({ conversationId }));

  assert.ok(idle);
  const window = await fetchWindow(chats);
  assert.equal(window.messageVersion, before.messageVersion + 1);
  assert.equal(window.messages.at(-1)?.message?.content, "And the day after?");
});

test("a day passes in no time", async () => {
  const [, now] = (await sidecar.tell(`advance ${DAY_S}`)).split("now ");

  assert.ok(Date.parse(now) - Date.now() > (DAY_S - 60) * 1000);
});

/** Plays the chat with a sidecar that leaves its log. */
async function record() {
  const recorder = await serve("--record", LOG);
  await chat(recorder.address);
  await recorder.stop();
}

/** Starts a sidecar, which ends with its standard input and so with this program. */
async function serve(...options: string[]) {
  const command = ["serve", "--ephemeral", "--set", "telemetry.log_level=warning", ...options];
  const child = spawn("abridged", command, { stdio: ["pipe", "pipe", "inherit"] });
  await once(child, "spawn");
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const line = async () => {
    const { value, done } = await lines.next();
    assert.ok(!done, `abridged ${command.join(" ")} has ended`);
    return value;
  };
  return {
    address: await line(),
    tell: (text: string) => {
      child.stdin.write(`${text}\n`);
      return line();
    },
    stop: () => {
      child.stdin.end();
      return once(child, "exit");
    },
  };
}
