#include "proxy/exchange/client_watch.h"

#include <array>
#include <cstdint>

#include "base/limits.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/relay.h"
#include "proxy/exchange/request.h"

namespace vllm_router {
namespace {

constexpr int64_t kRestMs = 100;  // of a stream whose client has left behind the last event

}  // namespace

void ClientWatch::Begin() { request_.connection.socket.WatchReadable(&ClientWatch::OnReadable, this); }

void ClientWatch::Stop() { request_.connection.socket.WatchReadable(nullptr, nullptr); }

void ClientWatch::BeginEnd() { request_.connection.socket.WatchEnd(&ClientWatch::OnEnded, this); }

void ClientWatch::StopEnd() { request_.connection.socket.WatchEnd(nullptr, nullptr); }

void ClientWatch::OnEnded(void* context) {
  Request& request = static_cast<ClientWatch*>(context)->request_;
  if (!request.connection.MayStillRead()) request.Cancel(CancelReason::kClientGone);
}

// During an exchange a client may leave, or send its next requests; only a read tells which.
void ClientWatch::OnReadable(void* context) {
  auto* watch = static_cast<ClientWatch*>(context);
  Request& request = watch->request_;
  std::array<char, 4096> bytes;
  for (;;) {
    const IoResult read = request.connection.socket.TryRead(bytes);
    if (read.would_block()) break;
    if (read.eof && request.connection.MayStillRead())
      return;  // from now on only a write shows whether it left
    if (!read.ok()) {
      Relay* const relay = request.client.relay();
      if (relay == nullptr || !request.relaying || !relay->client_has_all()) {
        request.Cancel(CancelReason::kClientGone);
      } else {
        relay->LeaveClient();
        OnLeft(&request);
      }
      return;
    }
    std::unique_ptr<std::string>& pipelined = watch->pipelined_;
    if (pipelined == nullptr) pipelined = std::make_unique<std::string>();
    pipelined->append(bytes.data(), static_cast<size_t>(read.bytes));
    if (pipelined->size() >= kMaxPipelinedBytes)
      return;  // the rest may wait; a write then shows that the client left
  }
  watch->Begin();
}

void ClientWatch::OnLeft(void* context) {
  auto* request = static_cast<Request*>(context);
  request->connection.keep = false;
  request->ArmDeadline(
      kRestMs, [](void* late) { static_cast<Request*>(late)->attempts->response().socket().Close(); });
}

void ClientWatch::ReturnPipelined() {
  if (pipelined_ != nullptr) request_.connection.in.Append(*pipelined_);
  pipelined_.reset();
}

}  // namespace vllm_router
