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
  SetResting(false);
  Change(gauges_.open, -1);
}

void UpstreamConnection::SetResting(bool resting) {
  if (resting != resting_) Change(gauges_.idle, resting ? 1 : -1);
  resting_ = resting;
}

UpstreamPool::UpstreamPool(
    TimerWheel& timers, size_t most_per_worker, int64_t idle_ms, const UpstreamGauges& gauges)
    : timers_(timers), most_per_worker_(most_per_worker), idle_ms_(idle_ms), gauges_(gauges) {}

UpstreamPool::Lease UpstreamPool::Take(WorkerId worker) {
  const auto found = idle_.find(static_cast<uint32_t>(worker));
  if (found == idle_.end() || found->second.empty()) return nullptr;
  Lease lease = std::move(found->second.back());
  found->second.pop_back();
  lease->SetResting(false);
  lease->idle_.Disarm();
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

void UpstreamPool::Give(Lease lease) {
  std::vector<Lease>& resting = idle_[static_cast<uint32_t>(lease->worker)];
  if (resting.size() >= most_per_worker_) return;
  UpstreamConnection* connection = lease.get();
  connection->reused = true;
  connection->SetResting(true);
  connection->idle_.Arm(timers_, idle_ms_, &UpstreamPool::OnExpired, connection);
  connection->socket.WatchReadable(&UpstreamPool::OnExpired, connection);
  resting.push_back(std::move(lease));
}

void UpstreamPool::OnExpired(void* connection) {
  auto* expired = static_cast<UpstreamConnection*>(connection);
  expired->pool_->Drop(expired);
}

void UpstreamPool::Drop(UpstreamConnection* connection) {
  std::vector<Lease>& resting = idle_[static_cast<uint32_t>(connection->worker)];
  const auto found = std::find_if(
      resting.begin(), resting.end(), [connection](const Lease& lease) { return lease.get() == connection; });
  if (found != resting.end()) resting.erase(found);
}

void UpstreamPool::CloseWorker(WorkerId worker) { idle_.erase(static_cast<uint32_t>(worker)); }

size_t UpstreamPool::idle() const {
  size_t sum = 0;
  for (const auto& [worker, resting] : idle_) sum += resting.size();
  return sum;
}

}  // namespace vllm_router
