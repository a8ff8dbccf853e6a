// Makes the calls that lines of JSON on standard input describe, and answers each with a line.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/time_util.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "abridged/v1/conversation_service.grpc.pb.h"
#include "google/rpc/error.pb.h"
#include "line.pb.h"

using google::protobuf::Message;
using google::protobuf::util::TimeUtil;

// Names of the codes as the specification has them: the library has none.
constexpr const char* kCodes[] = {
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"};

void Check(const google::protobuf::util::Status& status) {
  if (status.ok()) return;
  std::cerr << status << std::endl;
  std::exit(1);
}

std::string Json(const Message& message, bool with_defaults = false) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = with_defaults;
  std::string text;
  Check(MessageToJsonString(message, &text, options));
  return text;
}

std::unique_ptr<Message> New(const google::protobuf::Descriptor* type) {
  return std::unique_ptr<Message>(google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
}

std::shared_ptr<grpc::Channel> Opened(const std::string& address, const runner::Channel& wanted) {
  static std::map<std::string, std::shared_ptr<grpc::Channel>> channels;
  auto& channel = channels[wanted.SerializeAsString()];
  if (channel) return channel;
  grpc::ChannelArguments options;
  options.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  options.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  if (wanted.retries()) {
    std::stringstream retries;
    retries << std::ifstream("contract/service_config.json").rdbuf();
    options.SetServiceConfigJSON(retries.str());
  } else {
    options.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  }
  if (wanted.receive_bytes() > 0) options.SetMaxReceiveMessageSize(wanted.receive_bytes());
  if (wanted.keepalive_s() > 0) {
    options.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 1'000 * wanted.keepalive_s());
    options.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
    options.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    options.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  return channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), options);
}

// Served is the queue of all calls. Its thread never rests: gRPC hears that an idle connection has broken only while
// somebody polls.
grpc::CompletionQueue* Served() {
  static auto* const queue = [] {
    auto* const served = new grpc::CompletionQueue;
    std::thread([served] {
      bool went_well;
      for (void* tag; served->Next(&tag, &went_well);)
        std::unique_ptr<std::promise<bool>>(static_cast<std::promise<bool>*>(tag))->set_value(went_well);
    }).detach();
    return served;
  }();
  return queue;
}

// Done begins an operation and waits for it. Returns whether it went well.
template <typename Begin>
bool Done(Begin begin) {
  auto* const done = new std::promise<bool>;  // belongs to the queue, which may still hold it when the wait is over
  auto went_well = done->get_future();
  begin(done);
  return went_well.get();
}

// Call takes the responses as JSON. A unary call is a stream of one response, so that both go one way.
grpc::Status Call(const std::string& address, const runner::Asked& asked, std::vector<std::string>* responses) {
  std::string name = asked.call();
  name.replace(name.find('/'), 1, ".");
  const auto* method = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(name);
  const auto request = New(method->input_type());
  const auto response = New(method->output_type());
  Check(google::protobuf::util::JsonStringToMessage(Json(asked.request()), request.get()));

  grpc::ClientContext context;
  const std::chrono::duration<double> deadline(asked.has_deadline_s() ? asked.deadline_s() : 30);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::round<std::chrono::milliseconds>(deadline));
  for (const auto& [key, value] : asked.metadata()) context.AddMetadata(key, value);

  grpc::TemplatedGenericStub<Message, Message> stub(Opened(address, asked.channel()));
  const auto call = stub.PrepareCall(&context, "/" + asked.call(), Served());
  bool open = Done([&](void* tag) { call->StartCall(tag); }) &&
              Done([&](void* tag) { call->WriteLast(*request, {}, tag); });
  const size_t wanted = method->server_streaming() ? asked.stream() : 1;
  while (open && responses->size() < wanted) {
    open = Done([&](void* tag) { call->Read(response.get(), tag); });
    if (open) responses->push_back(Json(*response));
  }
  const bool enough = open && method->server_streaming();
  if (enough) context.TryCancel();
  grpc::Status status;
  Done([&](void* tag) { call->Finish(&status, tag); });
  return enough ? grpc::Status::OK : status;
}

runner::Answer Ended(const grpc::Status& ended) {
  runner::Answer answer;
  answer.set_code(kCodes[ended.error_code()]);
  google::rpc::Status status;
  status.ParseFromString(ended.error_details());
  for (const auto& detail : status.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad;
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&info)) answer.set_reason(info.reason());
    if (detail.UnpackTo(&retry)) answer.set_retry_after_s(TimeUtil::DurationToMilliseconds(retry.retry_delay()) / 1e3);
    if (detail.UnpackTo(&bad))
      for (const auto& violation : bad.field_violations()) answer.add_fields(violation.field());
  }
  return answer;
}

int main(int, char** arguments) {
  for (std::string line; std::getline(std::cin, line);) {
    runner::Asked asked;
    Check(google::protobuf::util::JsonStringToMessage(line, &asked));
    std::vector<std::string> responses;
    std::string answer = Json(Ended(Call(arguments[1], asked, &responses)), true);
    answer.pop_back();
    std::cout << answer << R"(,"responses":[)";
    for (size_t n = 0; n < responses.size(); ++n) std::cout << (n ? "," : "") << responses[n];
    std::cout << "]}" << std::endl;
  }
}
