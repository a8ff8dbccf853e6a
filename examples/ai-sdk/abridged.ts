// The window that abridged keeps, instead of a growing history: generateText({ …, prepareStep: abridged("chat-1") }).
import type { ModelMessage } from "ai";
const CONTEXT = { summaryRole: "SUMMARY_ROLE_USER" };
type Step = { messages: ModelMessage[]; initialMessages?: ModelMessage[]; responseMessages?: ModelMessage[] };

export function abridged(conversationId: string, settings = {}, url = "http://127.0.0.1:7421") {
  let sent = 0;
  // Version 7 of the SDK carries the window on in `messages`; the other two are the history.
  return async ({ messages, initialMessages = messages, responseMessages = [] }: Step) => {
    const history = [...initialMessages, ...responseMessages].flatMap(onePerResult);
    let answer: any;
    for (let at = Math.min(sent, history.length - 1); at < history.length; at += 512) {
      const batch = history.slice(at, at + 512).map((one, index) => ({ id: `m${at + index + 1}`, ...said(one) }));
      const body = JSON.stringify({ conversationId, settings, messages: batch, wait: "10s", context: CONTEXT });
      const headers = { "content-type": "application/json" };
      const post = { method: "POST", headers, body, signal: AbortSignal.timeout(30_000) };
      answer = await (await fetch(`${url}/abridged.v1.ConversationService/AppendMessages`, post)).json();
      if (!answer.context) throw new Error(answer.message ?? answer.contextFailure.message);
    }
    sent = history.length;
    return { messages: answer.context.messages.map((one: any) => sendable(one.message, history[one.number - 1])) };
  };
}

const onePerResult = (one: ModelMessage): ModelMessage[] => one.role !== "tool" ? [one]
  : one.content.filter((part) => part.type === "tool-result").map((part) => ({ role: "tool", content: [part] }));

function said({ role, content }: ModelMessage) {
  const parts: any[] = typeof content === "string" ? [{ type: "text", text: content }] : content;
  const text = (part: any) => (part.type === "text" ? part.text : part.output && JSON.stringify(part.output.value));
  const call = (part: any) => ({ id: part.toolCallId, name: part.toolName, arguments: JSON.stringify(part.input) });
  const toolCalls = parts.filter((part) => part.type === "tool-call" && !part.providerExecuted).map(call);
  const toolCallId = role === "tool" ? parts[0].toolCallId : undefined;
  return { role: `ROLE_${role.toUpperCase()}`, content: parts.map(text).join(""), toolCalls, toolCallId };
}

// Summaries have no original, and the window may show an old result as one line.
const sendable = ({ content = "" }: any, own?: ModelMessage): ModelMessage =>
  own?.role !== "tool" || said(own).content === content ? (own ?? { role: "user", content })
    : { role: "tool", content: own.content.map((part) => ({ ...part, output: { type: "text", value: content } })) };
