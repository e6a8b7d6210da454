#include "proxy/events/zmq_feed.h"

#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr size_t kMinSources = 16;

// Each has some five descriptors. At most a sixth of those that the process may have.
size_t MaxSources() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMinSources;
  return std::clamp<size_t>(limit.rlim_cur / 32, kMinSources, kMaxWorkers);
}

}  // namespace

bool ZmqFeed::Follow(const Sources& sources) {
  const bool other_sources = TakeKind(sources.named, KvSourceKind::kZmq, &known_);
  const bool other_workers = sources.may_connect != may_connect_;
  if (other_workers) may_connect_ = sources.may_connect;
  if (!other_sources && !other_workers) return is_started_;
  std::vector<KvSource> wanted = known_;
  if (const size_t limit = MaxSources(); wanted.size() > limit) {
    if (!std::exchange(warned_of_many_, true)) {
      Log(LogLevel::kWarning,
          Concat(
              "kv events: ", wanted.size(), " sources are more than the limit of open files allows, ", limit,
              "; the others' caches are inferred from requests; raise it, for instance by ulimit -n"));
    }
    wanted = FairShare(std::move(wanted), limit);
  }
  const MutexLock lock(mutex_);
  if (subscriber_ == nullptr) {
    StatusOr<std::unique_ptr<EventSubscriber>> started =
        EventSubscriber::Start(&blocks_, {.bind_endpoints = bind_endpoints_});
    if (!started.ok()) {
      known_.clear();  // the next pass tries again
      may_connect_.clear();
      if (!std::exchange(start_failed_, true)) {
        Log(LogLevel::kError, Concat(
                                  "kv events: ", std::string(started.status().message()),
                                  "; caches are inferred from requests"));
      }
      return false;
    }
    subscriber_ = *std::move(started);
    is_started_ = true;
  }
  if (other_sources) {
    sources_ = wanted;
    subscriber_->SetSources(std::move(wanted));
  }
  if (other_workers) subscriber_->SetDialInWorkers(may_connect_);
  return true;
}

void ZmqFeed::ReportOutage(WorkerId worker) {
  const MutexLock lock(mutex_);
  if (subscriber_ != nullptr) subscriber_->ReportOutage(worker);
}

void ZmqFeed::Stop() {
  const MutexLock lock(mutex_);
  subscriber_ = nullptr;
}

bool ZmqFeed::Resync(std::string_view worker_url) {
  const MutexLock lock(mutex_);
  if (subscriber_ == nullptr) return false;
  std::set<WorkerId> workers;
  for (const KvSource& source : sources_) {
    if (source.url == worker_url) workers.insert(source.worker);
  }
  // Publishers that connected.
  for (const KvSourceStatus& status : subscriber_->Report()) {
    if (status.source.url == worker_url) workers.insert(status.source.worker);
  }
  for (const WorkerId worker : workers) subscriber_->Resync(worker);
  return !workers.empty();
}

std::vector<KvSourceStatus> ZmqFeed::Report() const {
  const MutexLock lock(mutex_);
  return subscriber_ != nullptr ? subscriber_->Report() : std::vector<KvSourceStatus>();
}

std::vector<DialInStatus> ZmqFeed::DialInReport() const {
  const MutexLock lock(mutex_);
  return subscriber_ != nullptr ? subscriber_->DialInReport() : std::vector<DialInStatus>();
}

}  // namespace vllm_router
