import com.google.gson.Gson;
import com.google.rpc.ErrorInfo;
import io.abridged.v1.AppendMessagesRequest;
import io.abridged.v1.ConversationServiceGrpc;
import io.abridged.v1.GetContextRequest;
import io.abridged.v1.GetConversationRequest;
import io.abridged.v1.Message;
import io.abridged.v1.Rendering;
import io.abridged.v1.Role;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

/** Appends a message, fetches the window and reads the reason of a refusal: what every client does. */
public final class Main {
  public static void main(String[] arguments) throws Exception {
    Map<String, ?> retries = new Gson().fromJson(Files.readString(Path.of("contract/service_config.json")), Map.class);
    ManagedChannel channel =
        Grpc.newChannelBuilder(arguments[0], InsecureChannelCredentials.create()).defaultServiceConfig(retries).build();
    var chats = ConversationServiceGrpc.newBlockingStub(channel);

    var message = Message.newBuilder().setId("m1").setRole(Role.ROLE_USER).setContent("Good morning");
    var appended =
        chats.appendMessages(AppendMessagesRequest.newBuilder().setConversationId("java").addMessages(message).build());
    var window =
        chats.getContext(
            GetContextRequest.newBuilder().setConversationId("java").setRendering(Rendering.RENDERING_OPENAI).build());
    String reason = "";
    try {
      chats.getConversation(GetConversationRequest.newBuilder().setConversationId("nobody").build());
    } catch (StatusRuntimeException error) {
      reason = reason(error);
    }
    System.out.println(
        new Gson().toJson(
            Map.of("version", appended.getMessageVersion(), "rendered", window.getRenderedJson(), "reason", reason)));
    channel.shutdownNow();
  }

  private static String reason(StatusRuntimeException error) throws Exception {
    for (var detail : StatusProto.fromThrowable(error).getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        return detail.unpack(ErrorInfo.class).getReason();
      }
    }
    return "";
  }
}
