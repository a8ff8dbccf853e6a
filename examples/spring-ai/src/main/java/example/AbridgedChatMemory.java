package example;

import com.google.protobuf.util.Durations;
import io.abridged.v1.AppendMessagesRequest;
import io.abridged.v1.ConversationServiceGrpc.ConversationServiceBlockingStub;
import io.abridged.v1.ConversationSettings;
import io.abridged.v1.GetContextRequest;
import io.abridged.v1.GetContextResponse;
import io.abridged.v1.RewindConversationRequest;
import io.abridged.v1.SummaryRole;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.springframework.ai.chat.memory.ChatMemory;
import org.springframework.ai.chat.messages.Message;

/** A memory that keeps every message, and gives the window: a summary of the older messages, then the newest ones. */
public record AbridgedChatMemory(ConversationServiceBlockingStub stub, ConversationSettings settings)
    implements ChatMemory {
  @Override
  public void add(String conversationId, List<Message> messages) {
    var request = AppendMessagesRequest.newBuilder().setConversationId(conversationId).setSettings(settings);
    messages.stream().flatMap(Messages::toAppend).forEach(request::addMessages);
    if (request.getMessagesCount() > 0) {
      calls().appendMessages(request.build());
    }
  }

  @Override
  public List<Message> get(String conversationId) {
    // The advisor puts one system message first: with a summary of that role, the application's own would stand last.
    var request = GetContextRequest.newBuilder().setConversationId(conversationId)
        .setSummaryRole(SummaryRole.SUMMARY_ROLE_USER).setWait(Durations.fromSeconds(10)).build();
    return Messages.ofWindow(unlessUnknown(() -> calls().getContext(request), GetContextResponse.getDefaultInstance()));
  }

  /** Takes all messages out of the window; the log keeps them. */
  @Override
  public void clear(String conversationId) {
    var request = RewindConversationRequest.newBuilder().setConversationId(conversationId).build();
    unlessUnknown(() -> calls().rewindConversation(request), null);
  }

  private ConversationServiceBlockingStub calls() {
    return stub.withDeadlineAfter(30, TimeUnit.SECONDS);
  }

  private static <T> T unlessUnknown(Supplier<T> call, T otherwise) {
    try {
      return call.get();
    } catch (StatusRuntimeException refused) {
      if (refused.getStatus().getCode() == Status.Code.NOT_FOUND) {
        return otherwise;
      }
      throw refused;
    }
  }
}
