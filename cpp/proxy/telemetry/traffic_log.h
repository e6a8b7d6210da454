// TrafficLog: the file of --record-log, which keeps a server's traffic for a replay
// (docs/reference/record_log.md). The server's threads compose the lines (traffic_log_line.h); a
// LineWriter's thread writes them here, however slow the disk is.
//
//   thread 0  TrafficLogLine --Take--.
//   thread 1  TrafficLogLine --Take--+--> LineWriter --> file        head | line | line | ... | head | line
//
// The file is appended to, and each opening writes a head. Lines that cannot be written are lost and
// counted; the next line that can be written starts a new line.
//
// A Reloadable (reloadable.h has the thread rule), for log rotation: the path is opened again and what is
// written from then on goes there. Anything else from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/line_writer.h"
#include "base/status.h"
#include "hashing/keyed_hash.h"
#include "proxy/telemetry/reloadable.h"

namespace vllm_router {

struct TrafficLogOptions {
  std::string path;
  std::string salt_path;     // empty: a random secret that ends with this object
  uint32_t block_size = 16;  // tokens
};

class TrafficLog final : public Reloadable {
 public:
  // Fails as ReadOrMakeSalt(), or with FailedPrecondition if the file cannot be written.
  static StatusOr<std::unique_ptr<TrafficLog>> Open(const TrafficLogOptions& options);

  const KeyedHash::Key& key() const { return key_; }
  uint32_t block_size() const { return block_size_; }
  LineWriter& writer() { return writer_; }

  uint64_t written() const;  // lines, without heads
  uint64_t lost() const;     // lines that could not be written

 private:
  class File;
  TrafficLog(const KeyedHash::Key& key, uint32_t block_size, std::shared_ptr<File> file);
  Status ReadAgain() override;

  const KeyedHash::Key key_;
  const uint32_t block_size_;
  const std::shared_ptr<File> file_;  // shared with the writer's thread
  LineWriter writer_;
};

}  // namespace vllm_router
