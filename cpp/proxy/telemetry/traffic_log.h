// TrafficLog: the file of --record-log, which keeps the traffic of a server for a replay (docs/reference/record_log.md).
// Lanes compose the lines (record_line.h); a LineWriter's thread writes them here, whatever the disk does meanwhile.
//
//   thread 0  TrafficLogLine --Take--.
//   thread 1  TrafficLogLine --Take--+--> LineWriter --> file        head | line | line | ... | head | line
//
// The file is appended to, and each opening writes a head. What cannot be written is lost and counted, and the next line
// that can be begins a line of its own. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "hashing/keyed_hash.h"
#include "proxy/telemetry/line_writer.h"

namespace vllm_router {

struct TrafficLogOptions {
  std::string path;
  std::string salt_path;     // empty: a secret that ends with this object
  uint32_t block_size = 16;  // tokens
};

class TrafficLog {
 public:
  // Fails as ReadOrMakeSalt(), or with FailedPrecondition when the file cannot be written.
  static StatusOr<std::unique_ptr<TrafficLog>> Open(const TrafficLogOptions& options);

  const KeyedHash::Key& key() const { return key_; }
  uint32_t block_size() const { return block_size_; }
  LineWriter& writer() { return writer_; }

  // Before the next line is written, the path is opened once more: for whoever has moved the file away.
  void Reopen();

  uint64_t written() const;  // lines, heads aside
  uint64_t lost() const;     // those that the file did not take

 private:
  class File;
  TrafficLog(const KeyedHash::Key& key, uint32_t block_size, std::shared_ptr<File> file);

  const KeyedHash::Key key_;
  const uint32_t block_size_;
  const std::shared_ptr<File> file_;  // the writer's thread's as well
  LineWriter writer_;
};

}  // namespace vllm_router
