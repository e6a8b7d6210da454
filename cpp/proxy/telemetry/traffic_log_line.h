// TrafficLogLine: one request as a line of the traffic log, and the head of the file
// (docs/reference/record_log.md).
//
//   {"arrival_s": 1763800000.113482, "input_tokens": 50, "output_tokens": 12, "blocks": "9c3d…",
//    "session": "3f8e…", "status": 200}
//
// Blocks and sessions are names under the secret (hashing/keyed_hash.h); the line has nothing else of a
// prompt. The lines can be replayed as they are. If the worker counted fewer tokens than a prompt's
// blocks stand for, the last blocks are dropped.
//
// Cost: 15 ns per block, of which 6 are the cipher's; no allocation once `out` has grown. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hashing/keyed_hash.h"
#include "proxy/telemetry/request_info.h"

namespace vllm_router {

class TrafficLogLine {
 public:
  TrafficLogLine(const KeyedHash::Key& key, uint32_t block_size) : names_(key), block_size_(block_size) {}

  void AppendHead(std::string* out);
  // REQUIRES: record.prompt is not null.
  void Append(const RequestInfo& record, std::string* out);

 private:
  void AppendName(std::string_view member, std::string_view of, std::string* out);
  // `key`: the session's.
  void AppendRelations(std::string_view key, const SessionInfo& session, std::string* out);

  KeyedHash names_;
  const uint32_t block_size_;
  std::vector<uint64_t> blocks_;  // work space
};

// The status for a replay: if the response broke off, an error, whatever its head said.
int RecordedStatus(const RequestInfo& record);

}  // namespace vllm_router
