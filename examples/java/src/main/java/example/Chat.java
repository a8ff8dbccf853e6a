package example;

import com.google.gson.Gson;
import com.google.protobuf.util.Durations;
import com.google.rpc.ErrorInfo;
import io.abridged.v1.*;
import io.abridged.v1.ConversationServiceGrpc.ConversationServiceBlockingStub;
import io.grpc.*;
import io.grpc.protobuf.StatusProto;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** A chat that stays inside its model's context window: append, fetch the window, ask the model, append, report. */
record Chat(ConversationServiceBlockingStub stub, String id) {
  private static final int TURNS = 24;
  record Answer(String text, long promptTokens) {}
  record Outcome(int turns, boolean compacted, double ratio, String reason) {}

  public static void main(String[] arguments) throws IOException {
    System.out.println(new Gson().toJson(play(arguments[0])));
  }

  static Outcome play(String address) throws IOException {
    var channel = open(address);
    var watcher = Executors.newSingleThreadScheduledExecutor();
    try {
      var chat = new Chat(ConversationServiceGrpc.newBlockingStub(channel), "java-example");
      var seen = WatchConversationRequest.newBuilder().setConversationId(chat.id);
      watcher.scheduleWithFixedDelay(() -> chat.watch(seen), 0, 100, TimeUnit.MILLISECONDS);
      return chat.talk();
    } finally {
      watcher.shutdownNow();
      channel.shutdownNow();
    }
  }

  static ManagedChannel open(String address) throws IOException {
    Map<String, ?> retries = new Gson().fromJson(Files.readString(Path.of("contract/service_config.json")), Map.class);
    return Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).defaultServiceConfig(retries)
        .maxInboundMessageSize(16 << 20).build(); // A window may exceed gRPC's default of 4 MiB.
  }

  /** Your model's call goes here: the body of its request in, its answer and the tokens that it counted out. */
  static Answer ask(String body) {
    return new Answer("The dock of that order is free from noon on. " + "Please have the papers ready. ".repeat(3),
        body.length() / 4);
  }

  private Outcome talk() throws IOException {
    GetContextResponse window;
    int turn = 0;
    do {
      turn++;
      say(Role.ROLE_USER, "u" + turn, "Where does order " + turn + " go? " + "It has to be there by noon. ".repeat(3));
      window = fetch();
      var answer = ask(window.getRenderedJson());
      say(Role.ROLE_ASSISTANT, "a" + turn, answer.text());
      report(window, answer.promptTokens());
    } while (!window.getCompacted() && turn < TURNS);
    var reason = "";
    try {
      calls().getConversation(GetConversationRequest.newBuilder().setConversationId("nobody").build());
    } catch (StatusRuntimeException refused) {
      reason = reason(refused);
    }
    return new Outcome(turn, window.getCompacted(), window.getUsage().getRatio(), reason);
  }

  /** Gives each call a deadline of its own. */
  ConversationServiceBlockingStub calls() {
    return stub.withDeadlineAfter(30, TimeUnit.SECONDS);
  }

  /** Appends a message. Its id makes a repeated call safe. */
  void say(Role role, String messageId, String content) {
    var message = Message.newBuilder().setId(messageId).setRole(role).setContent(content);
    calls().appendMessages(AppendMessagesRequest.newBuilder().setConversationId(id).addMessages(message)
        .setSettings(ConversationSettings.newBuilder().setContextLength(1024)).build());
  }

  /** Waits a while for a pass that is under way, and takes the window as it is otherwise. */
  GetContextResponse fetch() {
    return calls().getContext(GetContextRequest.newBuilder().setConversationId(id)
        .setRendering(Rendering.RENDERING_OPENAI).setWait(Durations.fromSeconds(10)).build());
  }

  /** Corrects the sidecar's estimates by the tokens that the model's API counted. */
  private void report(GetContextResponse window, long tokens) {
    calls().reportUsage(ReportUsageRequest.newBuilder().setConversationId(id).setSummaryId(window.getSummaryId())
        .setMessageVersion(window.getMessageVersion()).setEpoch(window.getEpoch()).setPromptTokens(tokens).build());
  }

  /** Prints events until the stream breaks, and keeps in the request where to go on. */
  private void watch(WatchConversationRequest.Builder seen) {
    try {
      stub.watchConversation(seen.build()).forEachRemaining(next -> {
        if (next.hasEvent()) {
          System.err.printf("event %d: %s%n", next.getEvent().getVersion(), next.getEvent().getType());
          seen.setAfterVersion(next.getEvent().getVersion());
        }
      });
    } catch (StatusRuntimeException broken) {
      System.err.printf("the stream has ended: %s%n", broken.getStatus().getCode());
    }
  }

  /** Returns the name that a program decides by; the message is for people. */
  private static String reason(StatusRuntimeException refused) throws IOException {
    for (var detail : StatusProto.fromThrowable(refused).getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        return detail.unpack(ErrorInfo.class).getReason();
      }
    }
    return "";
  }
}
