// CacheControl: where a request to POST /v1/messages gets a marker for the prompt cache of Anthropic's API, which keeps
// a prompt up to a marked block, and no prompt without one.
//
//   "system":"You are …"                         "system":[{"type":"text","text":"You are …",
//                                                           "cache_control":{"type":"ephemeral"}}]
//
//   "system":[{"type":"text","text":"You are"},  "system":[{"type":"text","text":"You are"},
//             {"type":"text","text":"…"}]                  {"type":"text","text":"…",
//                                                           "cache_control":{"type":"ephemeral"}}]
//
// One marker, on the last block that has text: it covers all before it, the tools among them. The API takes four in a
// request, and none on an empty block, so one more marker on another block could make a request fail that the API takes
// as it is. What the client wrote stays byte for byte. A client that marks its system prompt, or the whole request, has
// decided and gets no marker; neither does what two parsers may read differently.
//
// A body that is no JSON does not become some. Pure; any thread. Cost: a pass over `system`, and a search through the
// body; views of the body, no copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "routing/body_map.h"
#include "routing/body_patch.h"

namespace vllm_router {

enum class CacheControlResult : uint8_t {
  kAdded,
  kPresent,     // cache_control, with whatever value, is in system or a member of the body
  kLimit,       // the body has as many as the API takes
  kNoText,      // system has no block with text, or is neither text nor a list
  kOddNames,    // BodyMap::HasOddNames() of the body or a block of system
  kUnreadable,  // no JSON object, or one with very many members; likewise system
};
std::string_view CacheControlResultName(CacheControlResult result);  // a label of metrics

class CacheControlEdit {
 public:
  static constexpr size_t kMaxMarkers = 4;  // of a request, by the API
  static constexpr size_t kMaxBlocks = 1024;

  static CacheControlEdit Of(const BodyMap& body);

  CacheControlResult result() const { return result_; }
  // For each copy of the body; empty unless kAdded.
  std::span<const BodyInsertion> insertions() const { return {insertions_.data(), count_}; }

 private:
  explicit CacheControlEdit(CacheControlResult result) : result_(result) {}
  static CacheControlEdit OfText(const BodyMap& body, const BodyMap::Member& system);
  static CacheControlEdit OfBlocks(const BodyMap& body, const BodyMap::Member& system);
  void Add(const char* at, std::string_view text) { insertions_[count_++] = {at, text}; }

  CacheControlResult result_;
  std::array<BodyInsertion, 2> insertions_;
  size_t count_ = 0;
};

}  // namespace vllm_router
