// EventStream: the body of a response that has no end: server-sent events, which one part of the router adds and the
// exchange of a reader writes. An endpoint returns it in its AdminReply.
//
//   const auto stream = std::make_shared<EventStream>();
//   return {.stream = stream};                   // the endpoint; its exchange then owns the stream
//   if (auto open = weak.lock()) open->Add(piece);   // who adds keeps a weak_ptr: it expires when the reader has left
//
// Pieces are whole events, and streams may share one. At most kMostWaiting bytes wait for a reader, or a single piece; what
// has no room is not added. Cost: a mutex per piece. Add() and End() on any thread, the rest on the reader's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/mutex.h"

namespace vllm_router {

class EventStream {
 public:
  static constexpr size_t kMostWaiting = size_t{256} << 10;
  static constexpr int64_t kKeepAliveMs = 15'000;

  using Piece = std::shared_ptr<const std::string>;

  // `keep_alive_ms`: after so long without a piece the reader gets a comment, so that proxies do not take the connection
  // for dead.
  explicit EventStream(int64_t keep_alive_ms = kKeepAliveMs) : keep_alive_ms_(keep_alive_ms) {}
  EventStream(const EventStream&) = delete;
  EventStream& operator=(const EventStream&) = delete;

  // False: there is no room for it, or the stream has ended.
  bool Add(Piece piece);
  // The response ends behind what was added.
  void End();

  int64_t keep_alive_ms() const { return keep_alive_ms_; }
  // `wake` is called, on any thread, when there is something to take, or the end has come.
  void Open(std::function<void()> wake);
  void Close();
  // Null: there is none now. The piece counts as waiting until the next call.
  Piece Take();
  // Everything was taken, and nothing follows.
  bool ended() const;

 private:
  const int64_t keep_alive_ms_;
  mutable Mutex mutex_;  // held while `wake_` is called
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);
  std::deque<Piece> pieces_ ABSL_GUARDED_BY(mutex_);
  size_t taken_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the piece that is being written
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;      // bytes, that piece included
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace vllm_router
