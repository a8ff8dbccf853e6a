// A chat with a tool, by the sidecar whose HTTP address is SIDECAR_HTTP: what its model sees stays small and whole.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { generateText, jsonSchema, type ModelMessage, simulateReadableStream, stepCountIs, streamText, tool } from "ai";
import { mockId, MockLanguageModelV3 } from "ai/test";
import { abridged } from "./abridged.js";

const TURNS = 24;
const CONTEXT_LENGTH = 1_024;

type Prompt = MockLanguageModelV3["doGenerateCalls"][number]["prompt"];

/** Version 6 of the SDK has the messages of all steps in `response`. */
type Answered = { response: { messages: ModelMessage[] }; responseMessages?: ModelMessage[] };

const nextId = mockId({ prefix: "call" });
const stop = { unified: "stop" as const, raw: undefined };
const usage = {
  inputTokens: { total: undefined, noCache: undefined, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: undefined, text: undefined, reasoning: undefined },
};

/** Asks the tool for the order that the user named, then answers. */
const model = new MockLanguageModelV3({
  doGenerate: async ({ prompt }) => {
    if (prompt.at(-1)?.role === "tool") {
      const text = `It is free from noon on. ${"Please have the papers ready. ".repeat(3)}`;
      return { content: [{ type: "text", text }], finishReason: stop, usage, warnings: [] };
    }
    const [order] = JSON.stringify(prompt.at(-1)).match(/\d+/)!;
    const call = { toolCallId: nextId(), toolName: "dock", input: JSON.stringify({ order }) };
    const finishReason = { unified: "tool-calls" as const, raw: undefined };
    return { content: [{ type: "tool-call", ...call }], finishReason, usage, warnings: [] };
  },
  doStream: async () => ({
    stream: simulateReadableStream({
      chunks: [
        { type: "text-start", id: "1" },
        { type: "text-delta", id: "1", delta: "It is." },
        { type: "text-end", id: "1" },
        { type: "finish", finishReason: stop, usage },
      ],
    }),
  }),
});

const dock = tool({
  description: "Finds the dock of an order.",
  inputSchema: jsonSchema<{ order: string }>({ type: "object", properties: { order: { type: "string" } } }),
  execute: async ({ order }) => ({ dock: `D${order}`, gate: "north", free: "noon" }),
});

test("a model sees a compacted window", async () => {
  const chat = randomUUID();
  const fit = () => abridged(chat, { contextLength: CONTEXT_LENGTH }, `http://${process.env.SIDECAR_HTTP}`);
  const prepareStep = fit();
  const history: ModelMessage[] = [];
  for (let turn = 1; turn <= TURNS; turn += 1) {
    history.push({ role: "user", content: `Where does order ${turn} go? ${"It has to be there by noon. ".repeat(3)}` });
    const asked = { model, messages: history, tools: { dock }, stopWhen: stepCountIs(2), prepareStep };
    const { response, responseMessages = response.messages }: Answered = await generateText(asked);
    history.push(...responseMessages);
  }
  history.push({ role: "user", content: "Is the last one free?" });
  // Programs that were started again send everything once more, and nothing is appended twice.
  await streamText({ model, messages: history, prepareStep: fit() }).consumeStream();

  const prompts = [...model.doGenerateCalls, ...model.doStreamCalls].map(({ prompt }) => prompt);
  assert.equal(prompts.length, 2 * TURNS + 1);
  prompts.forEach(isWhole);
  assert.equal(history.length, 4 * TURNS + 1);
  assert.ok(tokens(history) > 1.5 * CONTEXT_LENGTH);
  const last = prompts.at(-1)!;
  assert.equal(last[0].role, "user");
  assert.match(JSON.stringify(last[0].content), /Messages up to \d+, summarized/);
  assert.deepEqual(last.at(-1)?.content, [{ type: "text", text: "Is the last one free?" }]);
});

/** Holds the prompt to the budget, and each result to its place after its call. */
function isWhole(prompt: Prompt) {
  assert.ok(tokens(prompt) <= CONTEXT_LENGTH);
  prompt.forEach((message, at) => assert.deepEqual(ids(message, "tool-result"), ids(prompt[at - 1], "tool-call")));
}

/** Characters of text, four a token; the names of JSON's members are left out. */
function tokens(messages: unknown) {
  let characters = 0;
  JSON.stringify(messages, (_, value) => ((characters += typeof value === "string" ? value.length : 0), value));
  return characters / 4;
}

function ids(message: Prompt[number] | undefined, type: "tool-call" | "tool-result") {
  if (message === undefined || message.role === "system") return [];
  return message.content.flatMap((part) => (part.type === type ? part.toolCallId : []));
}
