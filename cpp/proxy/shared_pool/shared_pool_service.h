// SharedPoolService finds out what the server's MooncakePool needs: the page layout and the master's address, which
// workers tell unless the operator does, and the names of base models.
//
//   --shared-cache-layout, --shared-cache-url     as the operator says
//   GET /server_info                              else as SGLang says; all workers that tell it must agree
//   GET /v1/models                                prompts for other models (adapters) have no pages
//
// A healthy host is polled when it joins or comes back and every kAgainNanos; one that does not respond, after
// kSoonNanos, doubling up to a minute. Pages and blocks must have sizes of which one is a multiple of the other.
// Whatever cannot be used turns the pool off, and the log says why at most once a minute. On the control
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/task.h"
#include "proxy/control/host_poller.h"
#include "proxy/shared_pool/mooncake_pool.h"
#include "proxy/shared_pool/shared_pool_counts.h"
#include "routing/paged_prompts.h"
#include "shared_pool/page_layout.h"
#include "worker/worker_url.h"

namespace vllm_router {

class SharedPoolService final : public HostPoller {
 public:
  static constexpr int64_t kAgainNanos = 300'000'000'000;
  static constexpr int64_t kSoonNanos = 2'000'000'000;
  static constexpr int64_t kLookNanos = 500'000'000;  // between looks at the fleet

  // `pool` and the counts outlive it. `counts`: of all threads; those of `thread` come last.
  SharedPoolService(IoThread& thread, MooncakePool* pool, std::vector<SharedPoolCounts*> counts)
      : HostPoller(thread), pool_(*pool), counts_(std::move(counts)) {}

  void Start() override;
  // Queries for the metrics alone run on other threads.
  bool ended() const override { return HostPoller::ended() && pool_.background_queries() == 0; }
  void WriteMetrics(MetricsPage* page) const override;

 private:
  struct Host {
    int64_t due_ns = 0;
    bool polling = false;
    bool polled = false;  // it responded once
    int failures = 0;     // of polls, in a row
    std::optional<PagePool> pool;
    std::string complaint;  // of a pool that cannot be used
    std::vector<std::string> models;
  };
  // What the pool is, or why there is none.
  struct Found {
    std::vector<PageLayout> layouts;
    std::vector<WorkerUrl> masters;
    std::set<std::string, std::less<>> models;
    std::string complaint;
  };

  int64_t Pass(const FleetView& fleet) override;
  Task<void> Poll(std::shared_ptr<Host> host, std::shared_ptr<Worker> worker);
  Found Find(const Hosts& fleet) const;
  std::set<std::string, std::less<>> BaseModels() const;
  // The pool as the operator or the workers describe it; nullopt if not known yet, or as in `complaint`.
  std::optional<PagePool> Describe(const Hosts& fleet, std::string* complaint) const;
  void Configure(const Hosts& fleet);
  void Warn(std::string_view complaint);

  MooncakePool& pool_;
  const std::vector<SharedPoolCounts*> counts_;
  std::optional<PagePool> given_;                       // by --shared-cache-layout
  std::vector<WorkerUrl> masters_;                      // by --shared-cache-url
  std::map<std::string, std::shared_ptr<Host>> hosts_;  // by base URL
  std::vector<PageLayout> layouts_;                     // as configured last
  std::vector<std::string> master_urls_;
  PagedPrompts::Pages pages_;
  int64_t warn_again_ns_ = 0;
};

}  // namespace vllm_router
