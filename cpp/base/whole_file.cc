#include "base/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/file_descriptor.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr size_t kMostPerCall = size_t{1} << 30;  // the maximum for one read() or write() anywhere

Status Failed(std::string_view path, std::string_view what, int* error) {
  *error = errno;
  return absl::FailedPreconditionError(
      Concat("file ", Quoted(path), " cannot be ", what, ": ", std::strerror(*error)));
}

bool WroteAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), kMostPerCall));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

Status WriteWholeFile(const std::string& path, std::string_view bytes, int* error) {
  static std::atomic<uint64_t> count{0};
  const std::string beside = Concat(path, ".tmp-", ::getpid(), "-", count.fetch_add(1));
  FileDescriptor file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.is_open()) return Failed(path, "written", error);
  if (WroteAll(*file, bytes) && ::fsync(*file) == 0 && file.Close() &&
      ::rename(beside.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  const Status failed = Failed(path, "written", error);
  ::unlink(beside.c_str());
  return failed;
}

StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t most, int* error) {
  // Without O_NONBLOCK, opening a pipe would block until another process writes to it.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about;
  if (!file.is_open() || ::fstat(*file, &about) != 0) return Failed(path, "read", error);
  if (!S_ISREG(about.st_mode))
    return absl::DataLossError(Concat("file ", Quoted(path), " is not a regular file"));
  const auto size = static_cast<uint64_t>(about.st_size);
  if (size > most) {
    return absl::DataLossError(
        Concat("file ", Quoted(path), " has ", size, " bytes; at most ", most, " are read"));
  }
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(*file, bytes.data() + done, std::min<size_t>(size - done, kMostPerCall));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(path, "read", error);
    if (got == 0) break;  // it has become shorter
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

StatusOr<std::string> ReadSecretFile(const std::string& path) {
  int error = 0;
  StatusOr<std::string> secret = ReadWholeFile(path, kMaxSecretBytes, &error);
  if (!secret.ok()) return secret;
  while (secret->ends_with('\n') || secret->ends_with('\r')) secret->pop_back();
  return secret;
}

StatusOr<std::string> ReadSecretFile(std::string_view option, const std::string& path, size_t min_bytes) {
  StatusOr<std::string> read = ReadSecretFile(path);
  if (!read.ok())
    return absl::FailedPreconditionError(Concat(option, ": ", std::string(read.status().message())));
  if (read->size() >= min_bytes) return read;
  return absl::FailedPreconditionError(Concat(
      option, " is ", Quoted(path), ", which has ", read->size(), " bytes; a secret has at least ", min_bytes,
      ", for example those of: openssl rand -hex 32"));
}

}  // namespace vllm_router
