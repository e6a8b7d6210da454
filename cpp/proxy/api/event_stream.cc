#include "proxy/api/event_stream.h"

#include <utility>

namespace vllm_router {

bool EventStream::Add(Piece piece) {
  const MutexLock lock(mutex_);
  if (is_over_ || (waiting_ != 0 && waiting_ + piece->size() > kMostWaiting)) return false;
  waiting_ += piece->size();
  pieces_.push_back(std::move(piece));
  if (wake_ != nullptr) wake_();
  return true;
}

void EventStream::End() {
  const MutexLock lock(mutex_);
  is_over_ = true;
  if (wake_ != nullptr) wake_();
}

void EventStream::Open(std::function<void()> wake) {
  const MutexLock lock(mutex_);
  wake_ = std::move(wake);
}

void EventStream::Close() {
  const MutexLock lock(mutex_);
  wake_ = nullptr;
  is_over_ = true;
}

EventStream::Piece EventStream::Take() {
  const MutexLock lock(mutex_);
  waiting_ -= taken_bytes_;
  taken_bytes_ = 0;
  if (pieces_.empty()) return nullptr;
  Piece piece = std::move(pieces_.front());
  pieces_.pop_front();
  taken_bytes_ = piece->size();
  return piece;
}

bool EventStream::ended() const {
  const MutexLock lock(mutex_);
  return is_over_ && pieces_.empty();
}

}  // namespace vllm_router
