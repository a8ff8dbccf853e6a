// Makes the calls that lines of JSON on standard input describe, and answers each with a line.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Client, type ClientOptions, credentials, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { BadRequest, ErrorInfo, RetryInfo } from "nice-grpc-error-details";
import { Status } from "nice-grpc-error-details/lib/proto/google/rpc/status.js";
import * as conversationService from "./gen/abridged/v1/conversation_service.js";
import * as eventLogService from "./gen/abridged/v1/event_log_service.js";
import * as serverInfoService from "./gen/abridged/v1/server_info_service.js";
import * as textService from "./gen/abridged/v1/text_service.js";
import { Duration } from "./gen/google/protobuf/duration.js";

interface Channel {
  retries?: boolean;
  receiveBytes?: number;
  keepaliveS?: number;
}

interface Asked {
  call: string;
  request: unknown;
  deadlineS?: number;
  metadata?: Record<string, string>;
  stream?: number;
  channel?: Channel;
}

// Stubs of ts-proto have no descriptors: names lead to their messages and services.
const stubs: Record<string, any> = {
  ...conversationService,
  ...eventLogService,
  ...serverInfoService,
  ...textService,
};

// Text is how proto JSON writes a duration; ts-proto expects an object.
Duration.fromJSON = (text: string) => {
  const seconds = Math.trunc(parseFloat(text));
  return { seconds, nanos: Math.round((parseFloat(text) - seconds) * 1e9) };
};
Duration.toJSON = ({ seconds, nanos }) => `${seconds + nanos / 1e9}s`;

const channels = new Map<string, Client>();

function channel(wanted: Channel): Client {
  const key = JSON.stringify([wanted.retries, wanted.receiveBytes, wanted.keepaliveS]);
  const options: ClientOptions = { "grpc.max_reconnect_backoff_ms": 1_000 };
  if (wanted.retries) {
    options["grpc.service_config"] = readFileSync("contract/service_config.json", "utf8");
  } else {
    options["grpc.enable_retries"] = 0;
  }
  if (wanted.receiveBytes) {
    options["grpc.max_receive_message_length"] = wanted.receiveBytes;
  }
  if (wanted.keepaliveS) {
    options["grpc.keepalive_time_ms"] = wanted.keepaliveS * 1_000;
    options["grpc.keepalive_timeout_ms"] = 5_000;
    options["grpc.keepalive_permit_without_calls"] = 1;
  }
  const opened = channels.get(key) ?? new Client(process.argv[2], credentials.createInsecure(), options);
  channels.set(key, opened);
  return opened;
}

async function answer(asked: Asked) {
  const [service, name] = asked.call.split(".").at(-1)!.split("/");
  const { path, requestSerialize, responseDeserialize, responseStream } =
    stubs[`${service}Service`][name[0].toLowerCase() + name.slice(1)];
  const request = stubs[`${name}Request`].fromJSON(asked.request);
  const metadata = new Metadata();
  Object.entries(asked.metadata ?? {}).forEach(([key, value]) => metadata.set(key, value));
  const options = { deadline: Date.now() + (asked.deadlineS ?? 30) * 1_000 };
  const call = [path, requestSerialize, responseDeserialize, request, metadata, options] as const;
  const client = channel(asked.channel ?? {});
  const responses: unknown[] = [];
  const add = (response: unknown) => responses.push(stubs[`${name}Response`].toJSON(response));
  try {
    if (responseStream) {
      const stream = client.makeServerStreamRequest(...call);
      stream.on("error", () => {}); // Cancelled streams end with an error that nobody waits for.
      for await (const response of stream) {
        if (add(response) === asked.stream) break;
      }
      stream.cancel();
    } else {
      add(await new Promise((resolve, reject) =>
        client.makeUnaryRequest(...call, (error, response) => (error ? reject(error) : resolve(response))),
      ));
    }
  } catch (error) {
    return { ...refused(error as ServiceError), responses };
  }
  return { code: "OK", reason: "", fields: [], retryAfterS: 0, responses };
}

function refused(error: ServiceError) {
  const found = { code: status[error.code], reason: "", fields: [] as string[], retryAfterS: 0 };
  const [bytes] = error.metadata.get("grpc-status-details-bin");
  for (const { typeUrl, value } of bytes ? Status.decode(bytes as Buffer).details : []) {
    if (typeUrl.endsWith("/google.rpc.ErrorInfo")) {
      found.reason = ErrorInfo.decode(value).reason;
    } else if (typeUrl.endsWith("/google.rpc.BadRequest")) {
      found.fields = BadRequest.decode(value).fieldViolations.map(({ field }) => field);
    } else if (typeUrl.endsWith("/google.rpc.RetryInfo")) {
      const { seconds, nanos } = RetryInfo.decode(value).retryDelay!;
      found.retryAfterS = seconds + nanos / 1e9;
    }
  }
  return found;
}

for await (const line of createInterface(process.stdin)) {
  console.log(JSON.stringify(await answer(JSON.parse(line))));
}
channels.forEach((client) => client.close());
