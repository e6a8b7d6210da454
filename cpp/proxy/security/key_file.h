// KeyFile: a file of API keys (key_set.h). The keys last read from it are in force.
//
//   StatusOr<std::unique_ptr<KeyFile>> keys =
//       KeyFile::Open("client_keys", "--client-api-key-file", "/etc/router/keys");
//   Snapshot<KeySet>::Cached cached(&(*keys)->keys());   // one per thread
//   (*keys)->Poll(now);                                   // every second: rereads a changed file
//
// A Reloadable (proxy/telemetry/reloadable.h, which has the thread rule); keys() from any thread. A poll
// reads the file if it differs from the one last read and has not changed since the previous poll; so a
// file that is still being written is skipped.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "base/snapshot.h"
#include "base/status.h"
#include "proxy/security/key_set.h"
#include "proxy/telemetry/reloadable.h"

namespace vllm_router {

class KeyFile final : public Reloadable {
 public:
  // `flag`: the flag that names the file, for messages. FailedPrecondition if it cannot be read,
  // InvalidArgument as KeySet::Parse().
  static StatusOr<std::unique_ptr<KeyFile>> Open(
      std::string_view name, std::string flag, std::string path,
      KeySet::Attributes attributes = KeySet::Attributes::kTaken);

  const Snapshot<KeySet>& keys() const { return keys_; }

 private:
  using Stamp = std::array<int64_t, 5>;  // device, inode, size, times of change; all 0 if there is no file

  KeyFile(
      std::string_view name, std::string title, std::string path, KeySet::Attributes attributes, KeySet keys,
      const Stamp& stamp);
  static Stamp StampOf(const std::string& path);
  bool HasChanged() override;
  Status ReadAgain() override;

  const std::string title_;  // flag and path
  const std::string path_;
  const KeySet::Attributes attributes_;
  Snapshot<KeySet> keys_;
  Stamp read_;  // the last one that was read, successfully or not
  Stamp seen_;
};

}  // namespace vllm_router
