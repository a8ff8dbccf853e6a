package example;

import static java.util.Objects.requireNonNullElse;

import io.abridged.v1.GetContextResponse;
import io.abridged.v1.Role;
import io.abridged.v1.ToolCall;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.springframework.ai.chat.messages.AssistantMessage;
import org.springframework.ai.chat.messages.Message;
import org.springframework.ai.chat.messages.SystemMessage;
import org.springframework.ai.chat.messages.ToolResponseMessage;
import org.springframework.ai.chat.messages.ToolResponseMessage.ToolResponse;
import org.springframework.ai.chat.messages.UserMessage;
import org.springframework.ai.content.MediaContent;
import org.springframework.util.StringUtils;

/** Messages of Spring AI as the sidecar has them, and back. */
final class Messages {
  /** The metadata with a message's id: whatever has the same id is appended once. */
  static final String ID = "abridged.id";

  /** The metadata with the number of a message of the window, 0 for a summary: the log has it already. */
  static final String NUMBER = "abridged.number";

  private Messages() {}

  static Stream<io.abridged.v1.Message> toAppend(Message message) {
    if (message.getMetadata().containsKey(NUMBER)) {
      return Stream.empty();
    }
    if (message instanceof MediaContent content && !content.getMedia().isEmpty()) {
      throw new IllegalArgumentException("this memory keeps texts and tool calls, and no media");
    }
    var id = (String) message.getMetadata().computeIfAbsent(ID, key -> UUID.randomUUID().toString());
    var appended = io.abridged.v1.Message.newBuilder().setId(id)
        .setRole(Role.valueOf("ROLE_" + message.getMessageType().name()))
        .setContent(requireNonNullElse(message.getText(), ""));
    if (message instanceof ToolResponseMessage answered) {
      var results = answered.getResponses();
      return IntStream.range(0, results.size()).mapToObj(i -> appended.setId(id + "." + i)
          .setToolCallId(callId(results.get(i).id(), results.get(i).name(), i))
          .setName(results.get(i).name()).setContent(results.get(i).responseData()).build());
    }
    if (message instanceof AssistantMessage asked) {
      var calls = asked.getToolCalls();
      IntStream.range(0, calls.size()).forEach(i -> appended.addToolCalls(ToolCall.newBuilder()
          .setId(callId(calls.get(i).id(), calls.get(i).name(), i))
          .setName(calls.get(i).name()).setArguments(calls.get(i).arguments())));
    }
    return Stream.of(appended.build());
  }

  /** Names a call by its place if the model gives it no id, as Ollama's do: results have the order of their calls. */
  private static String callId(String id, String name, int index) {
    return StringUtils.hasText(id) ? id : name + "." + index;
  }

  static List<Message> ofWindow(GetContextResponse window) {
    var messages = new ArrayList<Message>();
    for (var each : window.getMessagesList()) {
      var said = each.getMessage();
      Map<String, Object> metadata = Map.of(NUMBER, each.getNumber());
      switch (said.getRole()) {
        case ROLE_SYSTEM -> messages.add(SystemMessage.builder().text(said.getContent()).metadata(metadata).build());
        case ROLE_USER -> messages.add(UserMessage.builder().text(said.getContent()).metadata(metadata).build());
        case ROLE_ASSISTANT -> messages.add(AssistantMessage.builder().content(said.getContent()).properties(metadata)
            .toolCalls(said.getToolCallsList().stream().map(Messages::ofCall).toList()).build());
        case ROLE_TOOL -> resultsIn(messages, metadata)
            .add(new ToolResponse(said.getToolCallId(), said.getName(), said.getContent()));
        default -> throw new IllegalArgumentException("a role that this memory does not know: " + said.getRole());
      }
    }
    return messages;
  }

  private static AssistantMessage.ToolCall ofCall(ToolCall call) {
    return new AssistantMessage.ToolCall(call.getId(), "function", call.getName(), call.getArguments());
  }

  /** Collects the results of one message's calls: they are one message in Spring AI. */
  private static List<ToolResponse> resultsIn(List<Message> messages, Map<String, Object> metadata) {
    if (!(messages.get(messages.size() - 1) instanceof ToolResponseMessage)) {
      messages.add(ToolResponseMessage.builder().responses(new ArrayList<>()).metadata(metadata).build());
    }
    return ((ToolResponseMessage) messages.get(messages.size() - 1)).getResponses();
  }
}
