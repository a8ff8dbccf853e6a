package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.abridged.v1.ConversationServiceGrpc;
import io.abridged.v1.ConversationServiceGrpc.ConversationServiceBlockingStub;
import io.abridged.v1.ConversationSettings;
import io.abridged.v1.GetConversationRequest;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.ai.chat.client.ChatClient;
import org.springframework.ai.chat.client.advisor.MessageChatMemoryAdvisor;
import org.springframework.ai.chat.memory.ChatMemory;
import org.springframework.ai.chat.messages.AssistantMessage;
import org.springframework.ai.chat.messages.AssistantMessage.ToolCall;
import org.springframework.ai.chat.messages.Message;
import org.springframework.ai.chat.messages.SystemMessage;
import org.springframework.ai.chat.messages.ToolResponseMessage;
import org.springframework.ai.chat.messages.ToolResponseMessage.ToolResponse;
import org.springframework.ai.chat.messages.UserMessage;
import org.springframework.ai.chat.model.ChatModel;
import org.springframework.ai.chat.model.ChatResponse;
import org.springframework.ai.chat.model.Generation;

/** Talks to a model that keeps its prompts, over a memory in the sidecar at SIDECAR_ADDRESS. */
class AbridgedChatMemoryTest {
  private static final int TURNS = 24;
  private static final Object SUMMARY = 0L;
  private static final String ANSWER = "The dock of that order is free from noon on. Please have the papers ready.";

  private static ManagedChannel channel;
  private static ConversationServiceBlockingStub stub;

  private final String id = "spring-ai-" + UUID.randomUUID();
  private final ChatMemory memory =
      new AbridgedChatMemory(stub, ConversationSettings.newBuilder().setContextLength(1024).build());
  private final List<List<Message>> prompts = new ArrayList<>();
  private final ChatModel model = prompt -> {
    prompts.add(prompt.getInstructions());
    return new ChatResponse(List.of(new Generation(new AssistantMessage(ANSWER))));
  };
  private final ChatClient client = ChatClient.builder(model)
      .defaultAdvisors(MessageChatMemoryAdvisor.builder(memory).build())
      .defaultAdvisors(advisors -> advisors.param(ChatMemory.CONVERSATION_ID, id))
      .build();

  @BeforeAll
  static void connect() {
    var address = Objects.requireNonNull(System.getenv("SIDECAR_ADDRESS"), "SIDECAR_ADDRESS");
    channel = Grpc.newChannelBuilder(address, InsecureChannelCredentials.create()).build();
    stub = ConversationServiceGrpc.newBlockingStub(channel);
  }

  @AfterAll
  static void disconnect() {
    channel.shutdownNow();
  }

  @Test
  void aLongChatIsSentAsItsWindow() {
    for (int turn = 1; turn < TURNS; turn++) {
      client.prompt().user(question(turn)).call().content();
    }
    var window = memory.get(id);

    client.prompt().user(question(TURNS)).call().content();

    var prompt = prompts.get(TURNS - 1);
    assertEquals(window, prompt.subList(0, prompt.size() - 1));
    assertEquals(SUMMARY, prompt.get(0).getMetadata().get(Messages.NUMBER));
    assertTrue(prompt.size() < 2 * TURNS - 1);
    var newest = prompt.subList(prompt.size() - 3, prompt.size()).stream().map(Message::getText).toList();
    assertEquals(List.of(question(TURNS - 1), ANSWER, question(TURNS)), newest);
    assertEquals(2 * TURNS, version());
  }

  @Test
  void theSystemPromptStandsBeforeTheSummary() {
    for (int turn = 1; turn <= TURNS; turn++) {
      client.prompt().system("Be brief.").user(question(turn)).call().content();
    }

    var prompt = prompts.get(TURNS - 1);
    assertEquals(new SystemMessage("Be brief."), prompt.get(0));
    assertEquals(SUMMARY, prompt.get(1).getMetadata().get(Messages.NUMBER));
  }

  @Test
  void aRepeatedAddAppendsNothing() {
    var question = new UserMessage(question(1));
    memory.add(id, question);

    memory.add(id, question);
    memory.add(id, memory.get(id));

    assertEquals(1, version());
  }

  @Test
  void toolCallsKeepTheirResults() {
    var calls = List.of(
        new ToolCall("c1", "function", "find_order", "{\"number\": 1}"),
        new ToolCall("", "function", "find_order", "{\"number\": 2}"));
    memory.add(id, List.of(
        new UserMessage("Where do orders 1 and 2 go?"),
        AssistantMessage.builder().toolCalls(calls).build(),
        ToolResponseMessage.builder().responses(List.of(
            new ToolResponse("c1", "find_order", "dock 1"), new ToolResponse("", "find_order", "dock 2"))).build()));

    var window = memory.get(id);

    assertEquals(3, window.size());
    var ids = ((AssistantMessage) window.get(1)).getToolCalls().stream().map(ToolCall::id).toList();
    var results = ((ToolResponseMessage) window.get(2)).getResponses();
    assertEquals(List.of("dock 1", "dock 2"), results.stream().map(ToolResponse::responseData).toList());
    assertEquals(ids, results.stream().map(ToolResponse::id).toList());
  }

  @Test
  void aClearedMemoryIsEmpty() {
    memory.add(id, new UserMessage(question(1)));

    memory.clear(id);

    assertEquals(List.of(), memory.get(id));
    memory.clear("nobody");
    assertEquals(List.of(), memory.get("nobody"));
  }

  private static String question(int turn) {
    return "Where does order " + turn + " go? " + "It has to be there by noon. ".repeat(3);
  }

  private long version() {
    var request = GetConversationRequest.newBuilder().setConversationId(id).build();
    return stub.getConversation(request).getConversation().getMessageVersion();
  }
}
