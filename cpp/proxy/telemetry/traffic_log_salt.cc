#include "proxy/telemetry/traffic_log_salt.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/file_descriptor.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

Status Failed(const std::string& path, std::string_view what, int error) {
  return absl::FailedPreconditionError(Concat(
      "--record-log-salt-file ", path, " cannot be ", what, ": ", std::strerror(error),
      "; name a file that this process may read, or make"));
}

Status Unfit(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(Concat("--record-log-salt-file ", path, " ", why));
}

// Non-blocking, so that a named pipe without a writer does not block us.
StatusOr<KeyedHash::Key> Read(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return Failed(path, "read", errno);
  struct stat found {};
  if (::fstat(*file, &found) != 0) return Failed(path, "read", errno);
  if ((found.st_mode & kOthers) != 0) {
    return Unfit(path, "is accessible to other users than its owner; chmod 600 it");
  }
  KeyedHash::Key key;
  if (!S_ISREG(found.st_mode) || found.st_size != static_cast<off_t>(key.size())) {
    return Unfit(
        path, Concat(
                  "has ", found.st_size, " bytes, and a salt has ", key.size(),
                  "; remove it to have a new one made, whose hashes do not match those recorded before"));
  }
  if (::read(*file, key.data(), key.size()) != static_cast<ssize_t>(key.size())) {
    return Failed(path, "read", errno);
  }
  return key;
}

// Written under a temporary name and then linked, so that no reader sees part of it. An existing file
// stays.
Status Make(const std::string& path) {
  const StatusOr<KeyedHash::Key> key = DrawSalt();
  if (!key.ok()) return key.status();
  std::string aside = path + ".XXXXXX";
  const FileDescriptor file(::mkostemp(aside.data(), O_CLOEXEC));  // mode 0600
  if (!file.is_open()) return Failed(path, "made", errno);
  int error = 0;
  if (::write(*file, key->data(), key->size()) != static_cast<ssize_t>(key->size()) || ::fsync(*file) != 0 ||
      ::link(aside.c_str(), path.c_str()) != 0) {
    error = errno;
  }
  ::unlink(aside.c_str());
  return error == 0 || error == EEXIST ? absl::OkStatus() : Failed(path, "made", error);
}

}  // namespace

StatusOr<KeyedHash::Key> ReadOrMakeSalt(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT) {
    const Status made = Make(path);
    if (!made.ok()) return made;
  }
  return Read(path);
}

StatusOr<KeyedHash::Key> DrawSalt() {
  const std::optional<KeyedHash::Key> key = DrawKey();
  if (!key.has_value()) {
    return absl::FailedPreconditionError(Concat(
        "no salt can be generated for --record-log: ", std::strerror(errno),
        "; make the system's random source available"));
  }
  return *key;
}

}  // namespace vllm_router
