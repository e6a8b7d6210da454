#include "proxy/server/server_threads.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proxy/exchange/connection.h"
#include "proxy/telemetry/telemetry.h"

namespace vllm_router {

ServerThreads::ServerThreads(uint32_t data_threads, const Make& make) {
  for (uint32_t i = 0; i <= std::max(1u, data_threads); ++i) {
    threads_.push_back(make());
    telemetries_.push_back(&threads_.back()->telemetry);
  }
}

ServerThreads::~ServerThreads() { Join(); }

void ServerThreads::OnDataThreads(const std::function<void(IoThread&)>& action) const {
  for (const std::unique_ptr<IoThread>& thread : data()) {
    thread->loop.Post([action, &thread = *thread] { action(thread); });
  }
}

void ServerThreads::OnConnections(std::function<void(Connection&)> action) const {
  OnDataThreads([action = std::move(action)](IoThread& thread) {
    for (Connection* connection : thread.connections) action(*connection);
  });
}

int64_t ServerThreads::OpenConnections() const {
  int64_t sum = 0;
  for (const std::unique_ptr<IoThread>& thread : data()) {
    sum += thread->telemetry.connections.clients.load(std::memory_order_relaxed);
  }
  return sum;
}

void ServerThreads::Run(std::function<void()> at_end) {
  at_end_ = std::move(at_end);
  running_ = threads_.size();
  for (const std::unique_ptr<IoThread>& thread : threads_) {
    running_threads_.emplace_back([this, &thread = *thread] { Serve(thread); });
  }
}

void ServerThreads::Serve(IoThread& thread) {
  thread.loop.Run();
  thread.telemetry.lines.Flush();
  if (running_.fetch_sub(1) > 1) return;
  at_end_();
  MutexLock lock(mutex_);
  ended_ = true;
  ended_signal_.notify_all();
}

bool ServerThreads::Wait(int64_t timeout_ms) {
  const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; };
  MutexLock lock(mutex_);
  if (timeout_ms < 0) {
    ended_signal_.wait(lock.native(), ended);
    return true;
  }
  return ended_signal_.wait_for(lock.native(), std::chrono::milliseconds(timeout_ms), ended);
}

void ServerThreads::Join() {
  for (std::thread& thread : running_threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace vllm_router
