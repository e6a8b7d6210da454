// TenantLimit: one request and the limits of its tenant (admission/tenant_limits.h), kept in its RequestState.
//
//   Begin()         counts as a request, and as one at a time until ReturnPlace()
//   TakeTokens()    reserves what its prompt and response will need; what is rejected does not count as a request either,
//                   so that it passes at the time that it is told
//   ReturnRequest() it does not count as a request any more
//   AddFields()     what is left, for any response
//   ReturnPlace()   the response is there, and its last bytes are about to go to the client, which may then send another
//                   request at once
//   End(used)       settles the tokens; where they are not known, by the events of the stream if these are more than was
//                   reserved, so that a client gains nothing by asking for no usage, or by leaving before it
//
// A retry changes nothing, since all that is done once. By the rules, and the router's part of them, that were in force when it
// came. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "admission/admission_settings.h"
#include "admission/tenant_limits.h"
#include "admission/tenant_table.h"
#include "base/header_field.h"

namespace vllm_router {

// A thread's part of the server's table. Used by that thread.
struct ThreadTenants {
  explicit ThreadTenants(TenantTable& table) : table(table) {}

  TenantTable& table;
  TenantTable::Cache known;
};

class TenantLimit {
 public:
  // Null: the tenant has no limits. `tenant` is copied.
  static std::optional<TenantLimit> Find(
      ThreadTenants* thread, const AdmissionSettings& settings, std::string_view tenant, int64_t now_ns);

  TenantLimit(TenantLimit&& other) noexcept = default;
  TenantLimit& operator=(TenantLimit&&) = delete;

  // False: it is rejected, and rejected() says why.
  bool Begin(int64_t now_ns);
  // `output`: of the response, as expected. `counted`: the prompt's tokens are; else they are estimated from bytes, which may
  // be those of an image, so that the request needs no more than the whole burst.
  bool TakeTokens(uint64_t prompt, uint64_t output, bool counted, int64_t now_ns);
  // Once is enough.
  void ReturnRequest(int64_t now_ns);
  // Once is enough; End() does it, too.
  void ReturnPlace();
  // `used`: tokens; nullopt: not known, so what it reserved counts, and of the stream's `events` those beyond the expected
  // output. Once is enough.
  void End(std::optional<uint64_t> used, uint64_t events, int64_t now_ns);

  // It is limited as to requests at a time.
  bool has_places() const { return limits_.concurrency != 0; }
  const std::optional<TenantRejected>& rejected() const { return rejected_; }
  // What the client is told of rejected().
  std::string Message() const;
  // For Retry-After; 0: no wait helps.
  int64_t retry_after_ns() const;

  // x-ratelimit-… and, if `anthropic`, anthropic-ratelimit-…; their values live until the next call. `unix_us`: now.
  void AddFields(bool anthropic, int64_t now_ns, int64_t unix_us, std::vector<HeaderField>* fields);

 private:
  TenantLimit(const TenantLimits& limits, std::string tenant, TenantTable::Hold meter)
      : limits_(limits), tenant_(std::move(tenant)), meter_(std::move(meter)) {}

  const TenantLimits limits_;
  std::string tenant_;
  TenantTable::Hold meter_;
  bool open_ = false;
  bool has_place_ = false;
  bool has_request_ = false;  // it counts as one
  uint64_t reserved_ = 0;     // tokens
  uint64_t output_ = 0;       // of these, or more
  uint64_t needed_ = 0;       // the tokens that were rejected
  std::optional<TenantRejected> rejected_;
  std::array<std::string, 8> texts_;  // of fields
};

// A duration as OpenAI's API writes it: 0s, 12ms, 7.66s, 6m0s, 1h0m3.5s. Rounded up to milliseconds. REQUIRES: nanos >= 0.
std::string DurationText(int64_t nanos);

}  // namespace vllm_router
