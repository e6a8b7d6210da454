// Room: whether a worker may take one more request of a class now.
//
//   every class      fewer than `max_requests` of this router are open at the worker
//   kOpen            nothing more: engines queue
//   kGated           and fewer than 2,048 prompt tokens wait for their first token there, its engine has no more requests
//                    waiting than this router sent it, and its KV cache is below the class's ceiling
//   kIdleOnly        and no request waits there at all, and fewer than half of the pool's workers have a prefill of such a
//                    class. Its ceiling and the half apply only while a higher class has requests; else the ceiling is 0.95
//
// The KV cache's usage is the last load report and what was sent since, but no less than this router's own counters say, so a
// worker that reports 0 is still bounded. What is unknown opens: without a report only the own counters count, without a
// capacity only the report. A report of a full cache is ignored where this router has had nothing open for a minute.
//
// Where the ceiling of a lower class is no higher, a worker with room for it has room for every class above. A worker
// without requests, about which nothing is reported, has room for all classes. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace vllm_router {

inline constexpr uint64_t kMaxQueuedPrefill = 2'048;  // tokens: a quarter of an engine's usual step
inline constexpr double kHighestCeiling = 0.95;       // of the KV cache
inline constexpr int64_t kReportIgnoredAfterNs = 60'000'000'000;

enum class ClassGate : uint8_t { kOpen, kGated, kIdleOnly };

struct ClassRoom {
  ClassGate gate = ClassGate::kGated;
  double kv_ceiling = kHighestCeiling;  // 0 to 1

  bool operator==(const ClassRoom&) const = default;
};

// What a worker reported; not given if the report is too old.
struct WorkerReport {
  double kv_usage = 0;   // share of the cache, 0 to 1
  uint64_t waiting = 0;  // requests in the engine's queue
  uint64_t sent = 0;     // tokens sent to the worker since: uncached prompts and expected responses
};

// What is known of a worker now. Requests and tokens are those of this router.
struct WorkerRoom {
  uint64_t open = 0;
  uint64_t waiting = 0;         // of these, without their first token
  uint64_t queued_prefill = 0;  // uncached prompt tokens of these
  uint64_t tokens = 0;          // of the open ones: uncached prompts and expected responses
  uint64_t capacity = 0;        // of the KV cache, in tokens; 0: unknown
  int64_t idle_ns = 0;          // since the last open one ended; 0: there are open ones
  std::optional<WorkerReport> report = {};
};

struct PoolRoom {
  uint64_t workers = 0;
  uint64_t idle_only_prefills = 0;  // workers with a request of a kIdleOnly class without its first token
  bool higher_class_active = true;  // a request of a class above the kIdleOnly ones came lately
  uint64_t max_requests = 0;        // open at a worker; 0: no limit
};

// kNone: there is room. The others are in the order in which they are looked at.
enum class ClosedBy : uint8_t { kNone, kRequests, kPrefill, kWaiting, kKv, kHalf };
std::string_view ClosedByName(ClosedBy closed);

// Of the worker's KV cache; nullopt: neither its capacity nor a report says it.
std::optional<double> KvUsage(const WorkerRoom& worker);
ClosedBy RoomOf(const WorkerRoom& worker, const ClassRoom& of_class, const PoolRoom& pool);

}  // namespace vllm_router
