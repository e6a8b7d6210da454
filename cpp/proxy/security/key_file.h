// KeyFile: a file of API keys (key_set.h) and what was read from it last, which is what holds.
//
//   StatusOr<std::unique_ptr<KeyFile>> keys = KeyFile::Open("--client-api-key-file", "/etc/router/keys");
//   Snapshot<KeySet>::Cached cached(&(*keys)->keys());   // one per thread
//   (*keys)->Poll();                                      // every second: reads the file again once it has changed
//
// A file that has become unreadable, or has a mistake, changes nothing but the log: the keys of before stay in force.
// Poll() and Reload() from one thread; keys() from any. They read the file where they are called, so not on a thread
// that serves clients.
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
  // `flag`: what names the file, for messages. FailedPrecondition if it cannot be read, InvalidArgument as
  // KeySet::Parse().
  static StatusOr<std::unique_ptr<KeyFile>> Open(std::string flag, std::string path);

  const Snapshot<KeySet>& keys() const { return keys_; }

  // Reads the file if it is another than the one that was read last, and the same as at the last call: one that is
  // being written is left in peace. Returns whether its keys are in force now.
  bool Poll();
  // Reads it in any case.
  bool Reload();
  // How often it was read again, by whichever of the two; and what could not be. Any thread.
  const Counter& reloads_done() const { return reloads_done_; }
  const Counter& reloads_failed() const { return reloads_failed_; }

 private:
  using Stamp = std::array<int64_t, 5>;  // device, inode, size, times of change; all 0 where there is no file

  KeyFile(std::string name, std::string path, KeySet keys, const Stamp& stamp);
  static Stamp StampOf(const std::string& path);
  bool Take(const Stamp& stamp);

  const std::string name_;  // flag and path
  const std::string path_;
  Snapshot<KeySet> keys_;
  Stamp read_;  // what was tried last
  Stamp seen_;
  Counter reloads_done_;
  Counter reloads_failed_;
};

}  // namespace vllm_router
