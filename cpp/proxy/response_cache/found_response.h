// FoundResponse: a stored response that a request gets, from the bytes in which it was stored to the last that its client
// takes:
//
//   Take(blob)   ─▶ kTaken: head(), stored(), age()   ─▶ Replay(client)
//                └▶ else it is as if there were none
//
// Belongs to one CachedRequest. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "http/head.h"
#include "http/head_parser.h"
#include "net/task.h"
#include "proxy/exchange/body_sink.h"
#include "proxy/response_cache/response_cache.h"
#include "response_cache/stored_response.h"

namespace vllm_router {

class CancelScope;
struct IoThread;

class FoundResponse {
 public:
  // kUnfit: it has expired, or is no stream where one is wanted, or the reverse. kCorrupt: Redis may have anybody's bytes.
  enum class Taken : uint8_t { kTaken, kUnfit, kCorrupt, kNoMemory };

  // Both outlive it.
  FoundResponse(IoThread& thread, ResponseCache& cache) : thread_(thread), cache_(cache) {}
  FoundResponse(const FoundResponse&) = delete;
  FoundResponse& operator=(const FoundResponse&) = delete;
  ~FoundResponse();

  Taken Take(const CacheKey& key, std::shared_ptr<const std::string> blob, bool wants_stream);
  explicit operator bool() const { return blob_ != nullptr; }

  // REQUIRES for these: kTaken.
  const StoredResponse& stored() const { return stored_; }
  const ResponseHead& head() const { return parser_->head(); }  // with its body's length
  std::string_view age() const { return age_; }                 // seconds, as in the header
  // `events_per_second`: whole events of a stream are held back for it; 0: not.
  Task<BodySink::Took> Replay(BodySink& client, CancelScope& scope, uint32_t events_per_second);
  uint64_t replayed_bytes() const { return replayed_; }

 private:
  bool Hold(const CacheKey& key);
  bool ReadHead(const StoredResponse& stored);

  IoThread& thread_;
  ResponseCache& cache_;
  std::shared_ptr<const std::string> blob_;
  std::shared_ptr<const ResponseCache::Replayed> hold_;  // its memory, if it is long
  StoredResponse stored_;                                // views into it
  std::string head_text_;
  std::unique_ptr<ResponseHeadParser> parser_;  // of that
  std::string age_;
  uint64_t replayed_ = 0;
};

}  // namespace vllm_router
