// ResponseOwners: which worker holds a stored response (routing/response_id.h), for all lanes of a server.
//
//   a response of POST /v1/responses passes             its id sticks to the worker for an hour since its last use
//   a request names an id that is known                 its worker
//   a request names another one (another router's,      all hosts are asked for it at once; who has it is known
//   or older)                                           from now on
//   nobody has it                                       none: whichever worker is asked says 404 as engines do
//
// At most kMaxResponseLookups searches at once, since each goes to all hosts. Thread-safe; a search belongs to one lane.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/limits.h"
#include "http/head.h"
#include "index/stick_table.h"
#include "net/task.h"
#include "proxy/upstream_parts.h"
#include "routing/admission.h"

namespace vllm_router {

class Errand;
struct Lane;

// How a request that names a response found its worker.
enum class ResponseLookup : uint8_t { kKnown, kFound, kNotFound, kBusy };
inline constexpr int kResponseLookupCount = static_cast<int>(ResponseLookup::kBusy) + 1;
std::string_view ResponseLookupName(ResponseLookup lookup);

struct ResponseOwners {
  StickTable workers{{.max_entries = kMaxResponseOwners, .ttl_ns = kResponseOwnerNs}};
  Admission searches{kMaxResponseLookups, 0};
  std::atomic<uint64_t> lookups[kResponseLookupCount]{};
};

// GET /v1/responses/{id} at each host, with what `head` says of its client; the first that has it. None when no host has,
// or none within kResponseLookupMs, or the errand is cancelled.
Task<std::optional<WorkerId>> SearchResponse(
    Lane& lane, Errand& errand, const RequestHead& head, std::string_view id, const ClientSide& client);

}  // namespace vllm_router
