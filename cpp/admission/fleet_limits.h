// FleetLimits: the limits of tenants (tenant_limits.h) as those of all routers of a fleet: what this router tells the others of
// what was used here, and what it makes of what they tell. No sockets and no clock; whatever carries reports calls it.
//
//   router a                                        router b
//   meter: 812 tokens used, 3 requests open         Tell() == {search: 812 tokens, 1 request, 3 open}
//   ...                                             Hear(): the bucket of search moves on by 812, from when it was told
//                                                           3 of its requests at a time are a's
//
// What was used is told once, as an amount, so nothing is kept for each pair of routers, and a report that is lost leaves
// no more behind than its own amounts. Requests that are open are told as they are: when they change, and with each full
// report. They count until kOpenNanos after their router said so last, so those of a router that is gone come back then.
//
// A report has kMostTold tenants: those that the operator named, then those with most to tell; the others' amounts add up
// until their turn. So neither reports nor what is kept of them grow with the number of names.
//
// A report may lie. It can use a tenant's limits up, by a full bucket and a minute, and never gives anything back. Names that
// only others tell have half of the table (tenant_table.h); of one router 4,096 tenants' open requests are kept.
//
// While the others are not heard, each of n routers has 1/n of each limit, what is used then is not told, and what others had
// open does not count: it does again with the next report.
//
// Cost: 40 ns per tenant of the table in Tell(), 240 of one with something to tell; 1 us per tenant of a report in Hear(). One
// thread; counts: any.
//
//   report     = { 1: tenant }*                            Protocol Buffers, without a schema (base/proto_wire.h)
//   tenant     = 1: name, 2: requests, 3: tokens, 4: open requests
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>

#include "admission/admission_settings.h"
#include "admission/tenant_table.h"

namespace vllm_router {

class FleetLimits {
 public:
  static constexpr size_t kMostTold = 1'024;
  static constexpr size_t kMostOpenOfRouter = 4'096;
  static constexpr size_t kMostOpen = 65'536;                // of all routers
  static constexpr int64_t kOpenNanos = 5'000'000'000;       // or three intervals, if those are longer
  static constexpr int64_t kMostOpenNanos = 60'000'000'000;  // a router may claim any interval

  // `table` outlives it.
  explicit FleetLimits(TenantTable& table) : table_(table) {}

  // Of what was used since the last report. Empty: there is nothing to tell.
  std::string Tell(bool full, int64_t now_ns);
  struct Report {
    uint64_t router = 0;
    int64_t told_ns = 0;  // not to come
    uint32_t interval_ms = 0;
    std::string_view bytes;
  };
  // Bytes that are no report are counted and change nothing.
  void Hear(const AdmissionSettings& settings, const Report& report, int64_t now_ns);
  // Once a second or more often: whether the routers hear each other, and how many there are, this one included; while they
  // do not, how many there were.
  void Turn(bool connected, uint32_t routers, int64_t now_ns);
  // There are no limits: nothing is told of what was used until now.
  void Drop() { table_.DropUntold(); }

  enum Result : uint8_t {
    kTold,
    kUntold,  // they have to wait for another report
    kHeard,
    kIgnored,  // without a limit here
    kNoRoom,
    kMalformed,
  };
  static constexpr size_t kResults = 6;
  uint64_t count(Result result) const { return counts_[result].load(std::memory_order_relaxed); }
  uint32_t parts() const { return table_.parts(); }

 private:
  static constexpr int64_t kSweepNanos = 1'000'000'000;

  struct Open {
    uint64_t router;
    uint64_t requests;
    int64_t until_ns;
  };
  // Of one tenant, whose meter is held meanwhile.
  struct Peers {
    TenantTable::Hold meter;
    absl::InlinedVector<Open, 3> routers;
  };
  using PeersByTenant = absl::flat_hash_map<std::string, Peers>;

  void SetOpen(std::string_view tenant, TenantTable::Hold meter, const Open& open);
  bool HasRoom(uint64_t router) const;
  // Ends the row.
  void Erase(Peers* peers, size_t row);
  static void Sum(const Peers& peers);
  void Sweep(int64_t now_ns);
  void Count(Result result, uint64_t more = 1) { counts_[result].fetch_add(more, std::memory_order_relaxed); }

  TenantTable& table_;
  PeersByTenant open_;
  absl::flat_hash_map<uint64_t, size_t> rows_of_;  // by router
  size_t rows_ = 0;
  int64_t swept_ns_ = 0;
  std::array<std::atomic<uint64_t>, kResults> counts_{};
};

}  // namespace vllm_router
