// A chat that stays inside its model's context window: append, fetch the window, ask the model, append, report.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include <grpcpp/grpcpp.h>

#include "abridged/v1/conversation_service.grpc.pb.h"
#include "google/rpc/error.pb.h"

namespace api = abridged::v1;
using api::ConversationService;

constexpr char kChat[] = "cpp-example";
constexpr int kTurns = 24;

std::string Thrice(const std::string& text) { return text + text + text; }

// Ask is where your model's call goes: the body of its request in, its answer and the tokens that it counted out.
std::pair<std::string, int64_t> Ask(const std::string& body) {
  return {"The dock of that order is free from noon on. " + Thrice("Please have the papers ready. "), body.size() / 4};
}

// Reason is the name that a program decides by; the message is for people.
std::string Reason(const grpc::Status& refused) {
  google::rpc::Status status;
  google::rpc::ErrorInfo info;
  status.ParseFromString(refused.error_details());
  for (const auto& detail : status.details())
    if (detail.UnpackTo(&info)) break;
  return info.reason();
}

void Check(const grpc::Status& status) {
  if (status.ok()) return;
  std::cerr << status.error_message() << " (" << Reason(status) << ")" << std::endl;
  std::_Exit(1);
}

// Patient is the context of one call: without a deadline, gRPC waits for ever.
std::unique_ptr<grpc::ClientContext> Patient() {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  return context;
}

// Say appends a message. Its id makes a repeated call safe.
void Say(ConversationService::Stub& chats, api::Role role, const std::string& id, const std::string& content) {
  api::AppendMessagesRequest request;
  request.set_conversation_id(kChat);
  request.mutable_settings()->set_context_length(1024);
  auto& message = *request.add_messages();
  message.set_id(id);
  message.set_role(role);
  message.set_content(content);
  api::AppendMessagesResponse appended;
  Check(chats.AppendMessages(Patient().get(), request, &appended));
}

// Watch prints events, and goes on after the newest event when the connection breaks.
void Watch(ConversationService::Stub& chats) {
  api::WatchConversationRequest request;
  request.set_conversation_id(kChat);
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(100))) {
    grpc::ClientContext context;
    const auto stream = chats.WatchConversation(&context, request);
    for (api::WatchConversationResponse next; stream->Read(&next);) {
      if (!next.has_event()) continue;
      request.set_after_version(next.event().version());
      std::cerr << "event " << next.event().version() << ": " << next.event().type() << std::endl;
    }
  }
}

int main(int, char** arguments) {
  std::stringstream retries;
  retries << std::ifstream("contract/service_config.json").rdbuf();
  grpc::ChannelArguments options;
  options.SetServiceConfigJSON(retries.str());
  options.SetMaxReceiveMessageSize(16 << 20);  // a window may exceed gRPC's default of 4 MiB
  const auto chats = ConversationService::NewStub(
      grpc::CreateCustomChannel(arguments[1], grpc::InsecureChannelCredentials(), options));
  std::thread(Watch, std::ref(*chats)).detach();

  int turn = 0;
  api::GetContextResponse window;
  while (turn < kTurns && !window.compacted()) {
    const auto n = std::to_string(++turn);
    Say(*chats, api::ROLE_USER, "u" + n, "Where does order " + n + " go? " + Thrice("It has to be there by noon. "));
    api::GetContextRequest request;
    request.set_conversation_id(kChat);
    request.set_rendering(api::RENDERING_OPENAI);
    request.mutable_wait()->set_seconds(10);  // for a pass that is under way; then the window comes as it is
    Check(chats->GetContext(Patient().get(), request, &window));
    const auto [answer, prompt_tokens] = Ask(window.rendered_json());
    Say(*chats, api::ROLE_ASSISTANT, "a" + n, answer);
    api::ReportUsageRequest report;  // corrects the sidecar's estimates by the tokens that the model's API counted
    report.set_conversation_id(kChat);
    report.set_message_version(window.message_version());
    report.set_summary_id(window.summary_id());
    report.set_epoch(window.epoch());
    report.set_prompt_tokens(prompt_tokens);
    api::ReportUsageResponse reported;
    Check(chats->ReportUsage(Patient().get(), report, &reported));
  }

  api::GetConversationRequest unknown;
  unknown.set_conversation_id("nobody");
  api::GetConversationResponse none;
  const auto refused = chats->GetConversation(Patient().get(), unknown, &none);
  std::cout << std::boolalpha << R"({"turns":)" << turn << R"(,"compacted":)" << window.compacted() << R"(,"ratio":)"
            << window.usage().ratio() << R"(,"reason":")" << Reason(refused) << R"("})" << std::endl;
  std::_Exit(0);  // leaves the watch, which has no end of its own: ClientContext::TryCancel is what would end it
}
