// ResponseOwners: which worker holds a stored response or conversation (routing/stored_path.h), for all threads of a
// server.
//
//   a response of POST /v1/responses passes          its path maps to the worker for an hour since its last use
//   a request names a known path                     its worker
//   a request names another one (another router's,   all hosts are queried for it at once; the one that
//   or older)                                        has it is known from now on
//   no host has it                                   none: any worker returns 404 as engines do
//
// At most kMaxResponseLookups searches at once, since each goes to all hosts. Thread-safe; a search
// belongs to one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/limits.h"
#include "index/stick_table.h"
#include "routing/concurrency_limiter.h"

namespace vllm_router {

// How a request that names a response or a conversation found its worker.
enum class ResponseLookup : uint8_t { kKnown, kFound, kNotFound, kBusy };
inline constexpr int kResponseLookupCount = static_cast<int>(ResponseLookup::kBusy) + 1;
std::string_view ResponseLookupName(ResponseLookup lookup);

struct ResponseOwners {
  StickTable workers{{.max_entries = kMaxResponseOwners, .ttl_ns = kResponseOwnerNs}};
  ConcurrencyLimiter searches{kMaxResponseLookups, 0};
  std::atomic<uint64_t> lookups[kResponseLookupCount]{};
};

}  // namespace vllm_router
