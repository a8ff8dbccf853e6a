package example;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.Descriptors;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.util.Durations;
import com.google.protobuf.util.JsonFormat;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.abridged.v1.ConversationServiceProto;
import io.abridged.v1.EventLogServiceProto;
import io.abridged.v1.ServerInfoServiceProto;
import io.abridged.v1.TextServiceProto;
import io.grpc.CallOptions;
import io.grpc.ClientInterceptors;
import io.grpc.Context;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Makes the calls that lines of JSON on standard input describe, and answers each with a line. */
final class Runner {
  private static final Gson GSON = new Gson();
  private static final Map<String, Descriptors.MethodDescriptor> METHODS = Stream.of(
          ConversationServiceProto.getDescriptor(), EventLogServiceProto.getDescriptor(),
          ServerInfoServiceProto.getDescriptor(), TextServiceProto.getDescriptor())
      .flatMap(file -> file.getServices().stream())
      .flatMap(service -> service.getMethods().stream())
      .collect(Collectors.toMap(each -> each.getService().getFullName() + "/" + each.getName(), each -> each));

  record Wanted(boolean retries, int receiveBytes, int keepaliveS) {}

  record Asked(
      String call, JsonObject request, Double deadlineS, Map<String, String> metadata, int stream, Wanted channel) {}

  record Answer(String code, String reason, List<String> fields, double retryAfterS, JsonArray responses) {}

  private final Map<Wanted, ManagedChannel> channels = new HashMap<>();
  private final String address;

  private Runner(String address) {
    this.address = address;
  }

  public static void main(String[] arguments) throws Exception {
    var runner = new Runner(arguments[0]);
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    for (String line; (line = lines.readLine()) != null; ) {
      answers.println(GSON.toJson(runner.answer(GSON.fromJson(line, Asked.class))));
    }
  }

  private Answer answer(Asked asked) throws Exception {
    var method = METHODS.get(asked.call());
    var responses = new JsonArray();
    // A context ends the stream that is read no further.
    try (var context = Context.current().withCancellation()) {
      return context.call(() -> {
        var read = begin(asked, method);
        while ((!method.isServerStreaming() || responses.size() < asked.stream()) && read.hasNext()) {
          responses.add(JsonParser.parseString(JsonFormat.printer().print(read.next())));
        }
        return new Answer("OK", "", List.of(), 0, responses);
      });
    } catch (StatusRuntimeException refused) {
      return refusal(refused, responses);
    }
  }

  private Iterator<DynamicMessage> begin(Asked asked, Descriptors.MethodDescriptor method) throws IOException {
    var request = DynamicMessage.newBuilder(method.getInputType());
    JsonFormat.parser().merge(asked.request().toString(), request);
    var headers = new Metadata();
    if (asked.metadata() != null) {
      asked.metadata().forEach(
          (name, value) -> headers.put(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER), value));
    }
    var call = MethodDescriptor.<DynamicMessage, DynamicMessage>newBuilder()
        .setFullMethodName(asked.call())
        .setType(method.isServerStreaming() ? MethodType.SERVER_STREAMING : MethodType.UNARY)
        .setRequestMarshaller(ProtoUtils.marshaller(DynamicMessage.getDefaultInstance(method.getInputType())))
        .setResponseMarshaller(ProtoUtils.marshaller(DynamicMessage.getDefaultInstance(method.getOutputType())))
        .build();
    double deadlineS = asked.deadlineS() == null ? 30 : asked.deadlineS();
    var options = CallOptions.DEFAULT.withDeadlineAfter((long) (deadlineS * 1_000), TimeUnit.MILLISECONDS);
    var channel = ClientInterceptors.intercept(
        channel(asked.channel()), MetadataUtils.newAttachHeadersInterceptor(headers));
    return ClientCalls.blockingServerStreamingCall(channel, call, options, request.build());
  }

  private ManagedChannel channel(Wanted given) throws IOException {
    var wanted = given == null ? new Wanted(false, 0, 0) : given;
    var opened = channels.get(wanted);
    if (opened == null) {
      var builder = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create());
      if (wanted.retries()) {
        var retries = Files.readString(Path.of("contract/service_config.json"));
        builder.defaultServiceConfig(GSON.fromJson(retries, Map.class));
      } else {
        builder.disableRetry();
      }
      if (wanted.receiveBytes() > 0) {
        builder.maxInboundMessageSize(wanted.receiveBytes());
      }
      if (wanted.keepaliveS() > 0) {
        builder.keepAliveTime(wanted.keepaliveS(), TimeUnit.SECONDS).keepAliveTimeout(5, TimeUnit.SECONDS)
            .keepAliveWithoutCalls(true);
      }
      opened = builder.build();
      channels.put(wanted, opened);
    }
    return opened;
  }

  private static Answer refusal(StatusRuntimeException refused, JsonArray responses) throws IOException {
    var reason = "";
    var fields = new ArrayList<String>();
    double retryAfterS = 0;
    for (var detail : StatusProto.fromThrowable(refused).getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        reason = detail.unpack(ErrorInfo.class).getReason();
      } else if (detail.is(BadRequest.class)) {
        detail.unpack(BadRequest.class).getFieldViolationsList().forEach(violation -> fields.add(violation.getField()));
      } else if (detail.is(RetryInfo.class)) {
        retryAfterS = Durations.toSecondsAsDouble(detail.unpack(RetryInfo.class).getRetryDelay());
      }
    }
    return new Answer(refused.getStatus().getCode().name(), reason, fields, retryAfterS, responses);
  }
}
