// KvPublisher: a PUB socket and a ROUTER for replays that behave as vLLM's publisher of KV events does.
//
//   PUB     ["", number (u64, big-endian), payload]
//   ROUTER  [peer, "", 5] -> [peer, "", "", 5, payload] … [peer, "", "", 2^64 - 1, ""]
//
// The last `buffer` batches are kept for replays. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common.h"
#include "net/zmq_socket.h"

namespace vllm_router::bench {

class KvPublisher {
 public:
  KvPublisher(const ZmqContext& context, size_t buffer) : context_(context), buffer_(buffer) { Open(); }

  const std::string& endpoint() const { return endpoints_[0]; }
  const std::string& replay_endpoint() const { return endpoints_[1]; }
  uint64_t next() const { return first_ + kept_.size(); }  // number of the next batch
  uint64_t first() const { return first_; }                // that a replay has
  size_t buffer() const { return buffer_; }
  const ZmqSocket& replays() const { return *router_; }  // for ZmqPoll()

  // A batch that is not `sent` is lost on its way: only a replay has it.
  void Publish(std::string payload, bool sent = true) {
    if (sent) {
      const std::string number = Number(next());
      const std::string_view frames[] = {{}, number, payload};
      live_->Send(frames);
    }
    kept_.push_back(std::move(payload));
    if (kept_.size() <= buffer_) return;
    kept_.pop_front();
    ++first_;
  }

  void ServeReplays() {
    while (router_->Receive(kRequestFrames, &request_) == ZmqReceive::kMessage) {
      if (request_.size() != kRequestFrames || request_[2].size() != 8) continue;
      uint64_t from = 0;
      for (const char byte : request_[2]) from = from << 8 | static_cast<uint8_t>(byte);
      for (uint64_t at = std::max(from, first_); at < next(); ++at) Respond(at, kept_[at - first_]);
      Respond(std::numeric_limits<uint64_t>::max(), {});
    }
  }

  // Numbers begin with 0 again, and nothing is kept. Connections stay.
  void Restart() {
    kept_.clear();
    first_ = 0;
  }
  // Between these two nothing listens, and what is published reaches nobody.
  void Close() {
    live_.reset();
    router_.reset();
  }
  void Open() {
    ZmqOptions options{.send_limit = 100'000};
    live_ = Listen(ZmqSocketType::kPub, options, &endpoints_[0]);
    options.send_limit = 2 * static_cast<int>(buffer_) + 1000;
    router_ = Listen(ZmqSocketType::kRouter, options, &endpoints_[1]);
  }
  bool is_open() const { return live_.has_value(); }

 private:
  static constexpr size_t kRequestFrames = 3;

  static std::string Number(uint64_t number) {
    std::string frame(8, '\0');
    for (size_t i = 0; i < frame.size(); ++i) frame[i] = static_cast<char>(number >> (56 - 8 * i));
    return frame;
  }

  // On the endpoint as before; the first time on any.
  ZmqSocket Listen(ZmqSocketType type, const ZmqOptions& options, std::string* endpoint) {
    StatusOr<ZmqSocket> socket = ZmqSocket::Open(context_, type, options);
    if (!socket.ok()) Fail(std::string(socket.status().message()));
    constexpr int kAttempts = 500;  // libzmq closes ports in the background
    Status listening;
    for (int i = 0; i < kAttempts; ++i) {
      listening = socket->Bind(endpoint->empty() ? "tcp://127.0.0.1:*" : *endpoint);
      if (listening.ok()) {
        *endpoint = socket->last_endpoint();
        return *std::move(socket);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    Fail(std::string(listening.message()));
  }

  void Respond(uint64_t number, std::string_view payload) {
    const std::string frame = Number(number);
    const std::string_view frames[] = {request_[0], {}, {}, frame, payload};
    router_->Send(frames);
  }

  const ZmqContext& context_;
  const size_t buffer_;
  std::string endpoints_[2];
  std::optional<ZmqSocket> live_;
  std::optional<ZmqSocket> router_;
  std::deque<std::string> kept_;  // payloads
  uint64_t first_ = 0;            // number of the first of them
  std::vector<std::string> request_;
};

}  // namespace vllm_router::bench
