// KeyFile: a file of API keys (key_set.h). The keys last read from it are in force.
//
//   StatusOr<std::unique_ptr<KeyFile>> keys = KeyFile::Open("--client-api-key-file", "/etc/router/keys");
//   Snapshot<KeySet>::Cached cached(&(*keys)->keys());   // one per thread
//   (*keys)->Poll();                                      // every second: rereads a changed file
//
// If the file becomes unreadable or has an error, that is logged and the previous keys stay in force.
// Poll() and Reload() from one thread; keys() from any. They read the file where they are called, so not
// on a thread that serves clients.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/snapshot.h"
#include "base/status.h"
#include "proxy/security/key_set.h"
#include "proxy/telemetry/counters.h"

namespace vllm_router {

class KeyFile {
 public:
  // `flag`: the flag that names the file, for messages. FailedPrecondition if it cannot be read,
  // InvalidArgument as KeySet::Parse().
  static StatusOr<std::unique_ptr<KeyFile>> Open(std::string flag, std::string path);

  const Snapshot<KeySet>& keys() const { return keys_; }

  // Reads the file if it differs from the one last read and has not changed since the previous call; so
  // a file that is still being written is skipped. Returns whether its keys are in force now.
  bool Poll();
  // Reads it in any case.
  bool Reload();
  // Counts of rereads by either function, and of failures. Any thread.
  const Counter& reloads_done() const { return reloads_done_; }
  const Counter& reloads_failed() const { return reloads_failed_; }

 private:
  using Stamp = std::array<int64_t, 5>;  // device, inode, size, times of change; all 0 if there is no file

  KeyFile(std::string name, std::string path, KeySet keys, const Stamp& stamp);
  static Stamp StampOf(const std::string& path);
  bool Take(const Stamp& stamp);

  const std::string name_;  // flag and path
  const std::string path_;
  Snapshot<KeySet> keys_;
  Stamp read_;  // the last one that was read, successfully or not
  Stamp seen_;
  Counter reloads_done_;
  Counter reloads_failed_;
};

}  // namespace vllm_router
