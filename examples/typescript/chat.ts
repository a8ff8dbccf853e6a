// A chat that stays inside its model's context window: append, fetch the window, ask the model, append, report.
import { readFileSync, realpathSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type CallOptions, type Client, type ClientReadableStream, type ServiceError } from "@grpc/grpc-js";
import { credentials, Metadata } from "@grpc/grpc-js";
import { ErrorInfo } from "nice-grpc-error-details";
import { Status } from "nice-grpc-error-details/lib/proto/google/rpc/status.js";
import {
  AppendMessagesRequest,
  ConversationServiceClient,
  GetContextRequest,
  type GetContextResponse,
  Rendering,
  ReportUsageRequest,
  WatchConversationRequest,
  type WatchConversationResponse,
} from "./gen/abridged/v1/conversation_service.js";
import { Role } from "./gen/abridged/v1/message.js";

export const conversationId = "typescript-example";
const TURNS = 24;
const PATIENCE_MS = 30_000;

/** Stands in for your model's call: the body of its request in, its answer and the tokens that it counted out. */
export function ask(body: string) {
  const answer = `The dock of that order is free from noon on. ${"Please have the papers ready. ".repeat(3)}`;
  return { answer, promptTokens: Math.floor(body.length / 4) };
}

export async function chat(address: string) {
  const chats = new ConversationServiceClient(address, credentials.createInsecure(), {
    "grpc.service_config": readFileSync("contract/service_config.json", "utf8"),
    "grpc.max_receive_message_length": 16 << 20, // windows may exceed gRPC's default of 4 MiB
  });
  const ended = new AbortController();
  const watched = watch(chats, ended.signal);
  try {
    let turns = 0;
    let window: GetContextResponse;
    do {
      turns += 1;
      const question = `Where does order ${turns} go? ${"It has to be there by noon. ".repeat(3)}`;
      await say(chats, Role.ROLE_USER, `u${turns}`, question);
      window = await fetchWindow(chats);
      const { answer, promptTokens } = ask(window.renderedJson);
      await say(chats, Role.ROLE_ASSISTANT, `a${turns}`, answer);
      await report(chats, window, promptTokens);
    } while (turns < TURNS && !window.compacted);

    const refused = await call(chats, chats.getConversation, { conversationId: "nobody" }).then(() => "", reason);
    return { turns, compacted: window.compacted, ratio: window.usage?.ratio, reason: refused };
  } finally {
    ended.abort();
    await watched;
    chats.close();
  }
}

/** Ids make a repeated call safe. */
export function say(chats: ConversationServiceClient, role: Role, id: string, content: string) {
  const append = { conversationId, messages: [{ id, role, content }], settings: { contextLength: 1024 } };
  return call(chats, chats.appendMessages, AppendMessagesRequest.fromPartial(append));
}

/** Waits a while for a pass that is under way, and takes the window as it is otherwise. */
export function fetchWindow(chats: ConversationServiceClient) {
  const asked = { conversationId, rendering: Rendering.RENDERING_OPENAI, wait: { seconds: 10 } };
  return call(chats, chats.getContext, GetContextRequest.fromPartial(asked));
}

/** Tokens that the model's API counted correct the sidecar's estimates. */
function report(chats: ConversationServiceClient, window: GetContextResponse, promptTokens: number) {
  const { messageVersion, summaryId, epoch } = window;
  const usage = ReportUsageRequest.fromPartial({ conversationId, messageVersion, summaryId, epoch, promptTokens });
  return call(chats, chats.reportUsage, usage);
}

/** Prints events, and goes on after the newest event when the connection breaks. */
async function watch(chats: ConversationServiceClient, ended: AbortSignal) {
  let events: ClientReadableStream<WatchConversationResponse>;
  ended.addEventListener("abort", () => events.cancel());
  for (let afterVersion = 0; !ended.aborted; await sleep(100)) {
    events = chats.watchConversation(WatchConversationRequest.fromPartial({ conversationId, afterVersion }));
    try {
      for await (const { event } of events as AsyncIterable<WatchConversationResponse>) {
        if (event) console.error(`event ${event.version}: ${event.type}`);
        afterVersion = event?.version ?? afterVersion;
      }
    } catch {
      // Events are not lost with a stream: the next one begins after the newest.
    }
  }
}

type Unary<Q, A> = (
  request: Q,
  metadata: Metadata,
  options: Partial<CallOptions>,
  done: (error: ServiceError | null, answer: A) => void,
) => unknown;

/** Promises the answer of a call, by a deadline. */
export function call<Q, A>(client: Client, method: Unary<Q, A>, request: Q): Promise<A> {
  return new Promise((resolve, reject) =>
    method.call(client, request, new Metadata(), { deadline: Date.now() + PATIENCE_MS }, (error, answer) =>
      error ? reject(error) : resolve(answer),
    ),
  );
}

/** Programs decide by this name; the message is for people. */
function reason(error: ServiceError) {
  const [details] = error.metadata.get("grpc-status-details-bin");
  const info = details && Status.decode(details as Buffer).details.find((one) => one.typeUrl.endsWith(".ErrorInfo"));
  return info ? ErrorInfo.decode(info.value).reason : "";
}

if (import.meta.filename === realpathSync(process.argv[1])) {
  console.log(JSON.stringify(await chat(process.argv[2])));
}
