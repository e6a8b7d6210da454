// Streams of ext_proc: messages, each behind a byte with its length, and after some of them a choice or a rejection. Whatever comes,
// responses are messages, what was kept is sent back, and nothing follows a rejection.
#include "picker/ext_proc_stream.h"

#include "base/proto_wire.h"
#include "fuzz.h"

namespace vllm_router {
namespace {

constexpr ExtProcOptions kOptions{.max_body_bytes = 512};

// Of BodyResponse.response.body_mutation.streamed_response.body; 0 for other responses to the request's body.
size_t SentBack(std::string_view message) {
  constexpr uint32_t kPath[] = {3, 1, 3, 3, 1};
  for (const uint32_t number : kPath) {
    std::string_view found;
    ProtoReader in(message);
    while (const std::optional<ProtoReader::Field> field = in.Next()) {
      if (field->number == number && field->type == WireType::kBytes) found = field->bytes;
    }
    FUZZ_CHECK(in.ok());
    message = found;
  }
  return message.size();
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string endpoints[] = {"10.0.0.1:8000", "10.0.0.2:8000"};
  ExtProcStream stream(kOptions);
  std::string_view rest = AsText(data, size);
  bool has_head = false;
  bool is_duplex = false;
  bool picked = false;
  bool rejected = false;
  size_t due = 0;  // bytes to be sent back
  size_t sent = 0;
  while (!rest.empty()) {
    const auto length = static_cast<unsigned char>(rest.front());
    const std::string_view message = rest.substr(1, length);
    rest.remove_prefix(1 + message.size());
    ProcessingRequest request;
    if (!ReadProcessingRequest(message, &request).ok() || !stream.Take(request).ok()) return 0;
    if (!has_head && request.part == ProcessingPart::kRequestHeaders) {
      has_head = true;
      is_duplex = !request.observability_mode &&
                  (!request.protocol || request.protocol->request_body == BodySendMode::kFullDuplexStreamed);
    }
    if (picked && request.part == ProcessingPart::kRequestBody) due += request.body.size();
    FUZZ_CHECK(stream.body().size() <= kOptions.max_body_bytes);
    FUZZ_CHECK(!stream.must_pick() || stream.may_pick());
    FUZZ_CHECK(!rejected || (!stream.may_pick() && stream.TakeMessages().empty()));
    if (stream.may_pick() && length % 2 == 1) {
      due = stream.body().size();
      stream.Choose({.endpoints = endpoints});
      picked = true;
      FUZZ_CHECK(!stream.may_pick() && stream.body().empty());
    } else if (stream.may_pick() && length % 7 == 0) {
      stream.Reject({.status = 503, .body = "no"});
      rejected = !stream.may_pick();
    }
    for (const std::string& response : stream.TakeMessages()) sent += SentBack(response);
    FUZZ_CHECK(!is_duplex || sent == due);
  }
  return 0;
}
