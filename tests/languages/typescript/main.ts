// Appends a message, fetches the window and reads the reason of a refusal: what every client does.
import * as grpc from "@grpc/grpc-js";
import * as fs from "node:fs";
import {
  AppendMessagesRequest,
  AppendMessagesResponse,
  ConversationServiceClient,
  GetContextRequest,
  GetContextResponse,
  GetConversationRequest,
  GetConversationResponse,
  Rendering,
} from "./gen/abridged/v1/conversation_service";
import { Role } from "./gen/abridged/v1/message";
import { ErrorInfo } from "./gen/google/rpc/error_details";
import { Status } from "./gen/google/rpc/status";

const chats = new ConversationServiceClient(process.argv[2], grpc.credentials.createInsecure(), {
  "grpc.service_config": fs.readFileSync("contract/service_config.json", "utf8"),
});

function answer<R>(call: (done: (error: grpc.ServiceError | null, answer: R) => void) => void): Promise<R> {
  return new Promise((resolve, reject) => call((error, found) => (error ? reject(error) : resolve(found))));
}

function reason(error: grpc.ServiceError): string {
  const [details] = error.metadata.get("grpc-status-details-bin");
  const info = Status.decode(details as Buffer).details.find((one) => one.typeUrl.endsWith("/google.rpc.ErrorInfo"));
  return info ? ErrorInfo.decode(info.value).reason : "";
}

async function main() {
  const conversationId = "typescript";
  const messages = [{ id: "m1", role: Role.ROLE_USER, content: "Good morning" }];
  const appended = await answer<AppendMessagesResponse>((done) =>
    chats.appendMessages(AppendMessagesRequest.fromPartial({ conversationId, messages }), done),
  );
  const window = await answer<GetContextResponse>((done) =>
    chats.getContext(GetContextRequest.fromPartial({ conversationId, rendering: Rendering.RENDERING_OPENAI }), done),
  );
  const refused: grpc.ServiceError = await answer<GetConversationResponse>((done) =>
    chats.getConversation(GetConversationRequest.fromPartial({ conversationId: "nobody" }), done),
  ).then(
    () => Promise.reject(new Error("nobody is there")),
    (error) => error,
  );
  const version = Number(appended.messageVersion);
  console.log(JSON.stringify({ version, rendered: window.renderedJson, reason: reason(refused) }));
  chats.close();
}

main();
