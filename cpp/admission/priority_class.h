// PriorityClass: the rank of a request, and who may claim which.
//
//   interactive > default > batch
//
// Of what is claimed the first that speaks counts: a header, the body's service_tier, the class of the model's alias, that
// of the key, else default. The result is at most what the key permits, so a client can lower itself and never rise. Only
// the headers of a trusted peer may name any class; the body behind them is its client's. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/header_field.h"

namespace vllm_router {

// The highest first.
enum class PriorityClass : uint8_t { kInteractive, kDefault, kBatch };
inline constexpr int kPriorityClasses = 3;
std::string_view PriorityClassName(PriorityClass priority_class);
// Letters of either case.
std::optional<PriorityClass> PriorityClassByName(std::string_view name);
// The names, for messages.
inline constexpr std::string_view kPriorityClassNames = "interactive, default or batch";

constexpr PriorityClass LowerOf(PriorityClass a, PriorityClass b) { return std::max(a, b); }

// What the headers claim: the lowest of all that they name, so that a header which a gateway did not remove raises nobody.
// An unknown name claims default.
struct HeaderClaim {
  std::optional<PriorityClass> claimed;  // nullopt: they say nothing
  uint32_t unknown = 0;                  // fields with unknown names

  bool operator==(const HeaderClaim&) const = default;
};
// `fields`: of a request's head.
HeaderClaim ClassInHeaders(std::span<const HeaderField> fields);

// Of OpenAI's member: flex is batch, priority and fast are interactive. nullopt: any other, which claims nothing.
std::optional<PriorityClass> ClassOfServiceTier(std::string_view tier);

struct ClassClaims {
  std::optional<PriorityClass> headers = {};
  std::optional<PriorityClass> service_tier = {};
  std::optional<PriorityClass> alias = {};  // of the name by which the client calls the model
  std::optional<PriorityClass> key = {};
};
struct ClassLimit {
  PriorityClass highest = PriorityClass::kDefault;
  bool trusts_headers = false;
};
struct ClassGrant {
  PriorityClass given = PriorityClass::kDefault;
  std::optional<PriorityClass> claimed = {};  // by the request; nullopt: by nothing in it
  bool clamped = false;                       // it claims more than it may have

  bool operator==(const ClassGrant&) const = default;
};
ClassGrant GrantClass(const ClassClaims& claims, const ClassLimit& limit);

}  // namespace vllm_router
