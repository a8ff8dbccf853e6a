package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.util.Timestamps;
import io.abridged.v1.*;
import io.abridged.v1.ConversationServiceGrpc.ConversationServiceBlockingStub;
import io.grpc.ManagedChannel;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Asserts on a recorded chat: {@code mvn test -Drecord=true} plays it first, {@code mvn test} only replays it. */
class ChatTest {
  private static final String RECORDED = "chat.jsonl";
  private static final String CHAT = "java-example";

  private static Sidecar sidecar;
  private static ManagedChannel channel;
  private static ConversationServiceBlockingStub stub;

  @BeforeAll
  static void replay() throws Exception {
    if (Boolean.getBoolean("record")) {
      record();
    }
    sidecar = new Sidecar("--log", RECORDED);
    channel = Chat.open(sidecar.address());
    stub = ConversationServiceGrpc.newBlockingStub(channel);
  }

  @AfterAll
  static void stop() throws Exception {
    channel.shutdownNow();
    sidecar.close();
  }

  @Test
  void theWindowIsCompacted() {
    var window = new Chat(stub, CHAT).fetch();

    assertTrue(window.getCompacted());
    assertEquals(24, window.getMessageVersion());
    assertEquals("summary-depth:0", window.getMessages(0).getTag());
    var newest = window.getMessages(window.getMessagesCount() - 1).getMessage();
    assertEquals("a12", newest.getId());
    assertEquals(Chat.ask("").text(), newest.getContent());
  }

  @Test
  void theRecordIsTheAnswerOfTheModel() {
    var request = ListSummariesRequest.newBuilder().setConversationId(CHAT).build();
    var records = new Chat(stub, CHAT).calls().listSummaries(request);

    assertEquals(1, records.getSummariesCount());
    assertEquals(Provenance.PROVENANCE_MODEL, records.getSummaries(0).getProvenance());
  }

  @Test
  void theChatGoesOn() {
    var chat = fork("another-turn");

    chat.say(Role.ROLE_USER, "u13", "And order 1?");

    var infos = ServerInfoServiceGrpc.newBlockingStub(channel).withDeadlineAfter(30, TimeUnit.SECONDS);
    assertTrue(infos.waitIdle(WaitIdleRequest.newBuilder().setConversationId(chat.id()).build()).getIdle());
    var window = chat.fetch();
    assertEquals(25, window.getMessageVersion());
    assertEquals("And order 1?", window.getMessages(window.getMessagesCount() - 1).getMessage().getContent());
  }

  @Test
  void theClockMovesByADay() throws Exception {
    var chat = fork("next-day");

    var then = sidecar.advance(Duration.ofDays(1));
    chat.say(Role.ROLE_USER, "u13", "Good morning");

    var request = GetConversationRequest.newBuilder().setConversationId(chat.id()).build();
    var updated = chat.calls().getConversation(request).getConversation().getUpdateTime();
    assertTrue(Timestamps.toMillis(updated) >= then.toEpochMilli());
  }

  /** Leaves the recorded conversation to the other tests. */
  private static Chat fork(String id) {
    var request = ForkConversationRequest.newBuilder().setConversationId(CHAT).setForkId(id).build();
    new Chat(stub, CHAT).calls().forkConversation(request);
    return new Chat(stub, id);
  }

  private static void record() throws Exception {
    var recording = new Sidecar("--record", RECORDED);
    try (recording) {
      Chat.play(recording.address());
    }
    recording.join();
  }
}
