// Appends a message, fetches the window and reads the reason of a refusal: what every client does.
#include <fstream>
#include <iostream>
#include <sstream>

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include "abridged/v1/conversation_service.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace api = abridged::v1;

std::string Reason(const grpc::Status& refused) {
  google::rpc::Status status;
  status.ParseFromString(refused.error_details());
  for (const auto& detail : status.details()) {
    google::rpc::ErrorInfo info;
    if (detail.UnpackTo(&info)) return info.reason();
  }
  return "";
}

void Check(const grpc::Status& status) {
  if (status.ok()) return;
  std::cerr << status.error_message() << std::endl;
  std::exit(1);
}

int main(int, char** arguments) {
  std::stringstream retries;
  retries << std::ifstream("contract/service_config.json").rdbuf();
  grpc::ChannelArguments options;
  options.SetServiceConfigJSON(retries.str());
  auto chats = api::ConversationService::NewStub(
      grpc::CreateCustomChannel(arguments[1], grpc::InsecureChannelCredentials(), options));

  api::AppendMessagesRequest append;
  append.set_conversation_id("cpp");
  auto* message = append.add_messages();
  message->set_id("m1");
  message->set_role(api::ROLE_USER);
  message->set_content("Good morning");
  api::AppendMessagesResponse appended;
  grpc::ClientContext appending, reading, refusing;
  Check(chats->AppendMessages(&appending, append, &appended));

  api::GetContextRequest get;
  get.set_conversation_id("cpp");
  get.set_rendering(api::RENDERING_OPENAI);
  api::GetContextResponse window;
  Check(chats->GetContext(&reading, get, &window));

  api::GetConversationRequest unknown;
  unknown.set_conversation_id("nobody");
  api::GetConversationResponse none;
  const grpc::Status refused = chats->GetConversation(&refusing, unknown, &none);

  // The rendering stands first, so that its quotes are escaped by a library.
  google::protobuf::util::JsonPrintOptions names;
  std::string rendered;
  api::GetContextResponse part;
  part.set_rendered_json(window.rendered_json());
  google::protobuf::util::MessageToJsonString(part, &rendered, names);
  rendered = rendered.substr(rendered.find(':') + 1, rendered.rfind('}') - rendered.find(':') - 1);
  std::cout << "{\"version\":" << appended.message_version() << ",\"rendered\":" << rendered << ",\"reason\":\""
            << Reason(refused) << "\"}" << std::endl;
}
