// Bytes of a gRPC client behind HTTP/2's preface, in pieces whose size the first byte says: events come in order and within
// their limits, calls are ended in some way, and nothing is left of a connection that has ended.
#include "grpc/grpc_connection.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "fuzz.h"

namespace vllm_router {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr GrpcLimits kLimits{
    .max_streams = 8,
    .max_message_bytes = 4096,
    .max_head_bytes = 1024,
    .max_partial_bytes = 8192,
    .stream_window = 16 * 1024,
    .connection_window = 128 * 1024};

enum class State : uint8_t { kOpen, kHalfClosed, kOver };

class Server {
 public:
  // False: the connection cannot be used any more.
  bool Take(std::string_view bytes) {
    const bool good = connection_.Feed(bytes).ok();
    Respond();
    std::string out;
    while (connection_.Write(&out, 1024)) {
    }
    FUZZ_CHECK(connection_.streams() <= kLimits.max_streams || !good);
    Respond();
    return good && !connection_.ended();
  }

 private:
  void Respond() {
    for (const GrpcEvent& event : connection_.TakeEvents()) {
      switch (event.kind) {
        case GrpcEvent::Kind::kOpened:
          FUZZ_CHECK(calls_.try_emplace(event.stream, State::kOpen).second);
          connection_.SetPaused(event.stream, event.path.size() % 3 == 1);
          if (event.path.size() % 5 == 1)
            End(event.stream, connection_.Finish(event.stream, GrpcCode::kNotFound, "no"));
          if (event.path.size() % 7 == 1) End(event.stream, connection_.Reset(event.stream));
          break;
        case GrpcEvent::Kind::kMessage:
          FUZZ_CHECK(event.message.size() <= kLimits.max_message_bytes);
          FUZZ_CHECK(calls_.contains(event.stream));
          connection_.Send(event.stream, event.message);
          connection_.SetPaused(event.stream, event.message.size() % 2 == 1);
          break;
        case GrpcEvent::Kind::kHalfClosed:
          FUZZ_CHECK(calls_.contains(event.stream) && calls_[event.stream] != State::kHalfClosed);
          if (calls_[event.stream] == State::kOpen) calls_[event.stream] = State::kHalfClosed;
          End(event.stream, connection_.Finish(event.stream, GrpcCode::kOk));
          break;
        case GrpcEvent::Kind::kReset:
          FUZZ_CHECK(calls_.contains(event.stream));
          FUZZ_CHECK(!connection_.Send(event.stream, "x"));
          FUZZ_CHECK(event.code != GrpcCode::kOk && !event.reason.empty());
          calls_[event.stream] = State::kOver;
          break;
      }
    }
  }
  void End(int32_t stream, bool ended) {
    if (ended) calls_[stream] = State::kOver;
  }

  GrpcConnection connection_{kLimits};
  std::map<int32_t, State> calls_;
};

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  if (size == 0) return 0;
  Server server;
  const size_t piece = data[0] == 0 ? size : data[0];
  std::string_view rest = AsText(data + 1, size - 1);
  if (!server.Take(kPreface)) return 0;
  while (!rest.empty()) {
    if (!server.Take(rest.substr(0, std::min(piece, rest.size())))) return 0;
    rest.remove_prefix(std::min(piece, rest.size()));
  }
  return 0;
}
