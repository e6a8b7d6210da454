#include "proxy/security/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file_descriptor.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {

StatusOr<std::string> ReadFile(const std::string& path, std::string_view name) {
  const auto failed = [&](int error) {
    return absl::FailedPreconditionError(
        Concat(name, " cannot be read: ", std::strerror(error), "; name a file that this process may read"));
  };
  // Non-blocking, so that a named pipe without a writer does not block us.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return failed(errno);
  // One byte more than permitted, so that an oversized file is detected.
  std::string text(kMaxKeyFileBytes + 1, '\0');
  size_t size = 0;
  int error = 0;
  while (size < text.size()) {
    const ssize_t read = ::read(*file, text.data() + size, text.size() - size);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) error = errno;
    if (read <= 0) break;
    size += static_cast<size_t>(read);
  }
  if (error != 0) return failed(error);
  text.resize(size);
  return text;
}

StatusOr<KeySet> ReadKeys(const std::string& path, std::string_view name, KeySet::Attributes attributes) {
  StatusOr<std::string> text = ReadFile(path, name);
  if (!text.ok()) return text.status();
  StatusOr<KeySet> keys = KeySet::Parse(*text, name, attributes);
  ::explicit_bzero(text->data(), text->size());  // from here on only digests are kept
  return keys;
}

std::string Count(size_t keys) { return Concat(keys, keys == 1 ? " key" : " keys"); }

}  // namespace

StatusOr<std::unique_ptr<KeyFile>> KeyFile::Open(
    std::string_view name, std::string flag, std::string path, KeySet::Attributes attributes) {
  std::string title = flag + " " + path;
  const Stamp stamp = StampOf(path);
  StatusOr<KeySet> keys = ReadKeys(path, title, attributes);
  if (!keys.ok()) return keys.status();
  Log(LogLevel::kInfo, Concat(title, ": ", Count(keys->size())));
  return std::unique_ptr<KeyFile>(
      new KeyFile(name, std::move(title), std::move(path), attributes, *std::move(keys), stamp));
}

KeyFile::KeyFile(
    std::string_view name, std::string title, std::string path, KeySet::Attributes attributes, KeySet keys,
    const Stamp& stamp)
    : Reloadable(name),
      title_(std::move(title)),
      path_(std::move(path)),
      attributes_(attributes),
      keys_(std::make_shared<const KeySet>(std::move(keys))),
      read_(stamp),
      seen_(stamp) {}

KeyFile::Stamp KeyFile::StampOf(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return {};
  return {
      static_cast<int64_t>(found.st_dev), static_cast<int64_t>(found.st_ino), found.st_size,
      found.st_mtim.tv_sec * kNanosPerSecond + found.st_mtim.tv_nsec,
      found.st_ctim.tv_sec * kNanosPerSecond + found.st_ctim.tv_nsec};
}

bool KeyFile::HasChanged() {
  const Stamp now = StampOf(path_);
  const bool settled = now == std::exchange(seen_, now);
  return now != read_ && settled;
}

Status KeyFile::ReadAgain() {
  read_ = StampOf(path_);
  const std::shared_ptr<const KeySet> former = keys_.Load();
  const size_t before = former->size();
  StatusOr<KeySet> keys = ReadKeys(path_, title_, attributes_);
  if (!keys.ok()) {
    Log(LogLevel::kError,
        Concat(
            std::string(keys.status().message()), ". The previous keys stay in force (", Count(before), ")"));
    return keys.status();
  }
  if (*keys == *former) {
    Log(LogLevel::kInfo, Concat(title_, ": unchanged, ", Count(before)));
    return absl::OkStatus();
  }
  Log(LogLevel::kInfo, Concat(title_, ": reloaded, ", Count(keys->size()), " (", before, " before)"));
  keys_.Publish(std::make_shared<const KeySet>(*std::move(keys)));
  return absl::OkStatus();
}

}  // namespace vllm_router
