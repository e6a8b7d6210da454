// RequestView: what the caller of a routing decision knows of the request, whether it came over HTTP or
// from Python. All views; they must outlive the call they are passed to. Everything is optional.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/header_field.h"

namespace vllm_router {

class SharedHits;
struct CostOverride;
struct RequestFields;

struct RequestView {
  std::span<const HeaderField> headers;
  std::string_view path;                               // target without query; empty outside HTTP
  std::optional<std::string_view> session_id;          // counts as X-Session-ID, before every header
  std::optional<std::string_view> body;                // whole JSON body, if available
  uint64_t body_bytes = 0;                             // its length if known, even without the body
  std::optional<std::string_view> prompt;              // plain text instead of a body
  std::optional<std::span<const uint32_t>> token_ids;  // or token ids
  std::string_view model;                              // of a prompt or token ids; a body has its own
  bool body_is_padded = false;                         // kBodyPadding readable bytes follow the body
  const RequestFields* fields = nullptr;               // the body's, if it was parsed already
  const SharedHits* shared_hits = nullptr;             // of the prompt's blocks, if known
  const CostOverride* cost_override = nullptr;
};

// What simdjson may read (not interpret) past the end of a JSON text.
inline constexpr size_t kBodyPadding = 64;

}  // namespace vllm_router
