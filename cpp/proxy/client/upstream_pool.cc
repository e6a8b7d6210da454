#include "proxy/client/upstream_pool.h"

#include <algorithm>
#include <utility>

namespace vllm_router {

namespace {

void Change(std::atomic<int64_t>* gauge, int64_t by) {
  if (gauge != nullptr) gauge->fetch_add(by, std::memory_order_relaxed);
}

}  // namespace

UpstreamConnection::UpstreamConnection(const UpstreamGauges& gauges) : gauges_(gauges) {
  Change(gauges_.open, 1);
}

UpstreamConnection::~UpstreamConnection() {
  SetIdle(false);
  Change(gauges_.open, -1);
}

void UpstreamConnection::SetIdle(bool idle) {
  if (idle != idle_) Change(gauges_.idle, idle ? 1 : -1);
  idle_ = idle;
}

UpstreamPool::UpstreamPool(
    TimerWheel& timers, size_t most_per_worker, int64_t idle_ms, const UpstreamGauges& gauges)
    : timers_(timers), most_per_worker_(most_per_worker), idle_ms_(idle_ms), gauges_(gauges) {}

UpstreamPool::Lease UpstreamPool::Acquire(WorkerId worker) {
  const auto found = idle_.find(static_cast<uint32_t>(worker));
  if (found == idle_.end() || found->second.empty()) return nullptr;
  Lease lease = std::move(found->second.back());
  found->second.pop_back();
  lease->SetIdle(false);
  lease->idle_timer_.Disarm();
  lease->socket.WatchReadable(nullptr, nullptr);
  return lease;
}

UpstreamPool::Lease UpstreamPool::Adopt(Socket socket, WorkerId worker) {
  auto lease = std::make_unique<UpstreamConnection>(gauges_);
  lease->socket = std::move(socket);
  lease->worker = worker;
  lease->pool_ = this;
  return lease;
}

void UpstreamPool::Release(Lease lease) {
  std::vector<Lease>& idle = idle_[static_cast<uint32_t>(lease->worker)];
  if (idle.size() >= most_per_worker_) return;
  UpstreamConnection* connection = lease.get();
  connection->reused = true;
  connection->SetIdle(true);
  connection->idle_timer_.Arm(timers_, idle_ms_, &UpstreamPool::OnExpired, connection);
  connection->socket.WatchReadable(&UpstreamPool::OnExpired, connection);
  idle.push_back(std::move(lease));
}

void UpstreamPool::OnExpired(void* connection) {
  auto* expired = static_cast<UpstreamConnection*>(connection);
  expired->pool_->Drop(expired);
}

void UpstreamPool::Drop(UpstreamConnection* connection) {
  std::vector<Lease>& idle = idle_[static_cast<uint32_t>(connection->worker)];
  const auto found = std::find_if(
      idle.begin(), idle.end(), [connection](const Lease& lease) { return lease.get() == connection; });
  if (found != idle.end()) idle.erase(found);
}

void UpstreamPool::CloseWorker(WorkerId worker) { idle_.erase(static_cast<uint32_t>(worker)); }

size_t UpstreamPool::idle() const {
  size_t sum = 0;
  for (const auto& [worker, idle] : idle_) sum += idle.size();
  return sum;
}

}  // namespace vllm_router
