#include "base/log_output.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/line_writer.h"

namespace vllm_router {
namespace {

constexpr int64_t kTellNs = 60'000'000'000;
constexpr unsigned kFileMode = 0666;  // and the umask

// The next lines of a text, at most `limit` bytes unless the first is longer.
std::string_view NextPiece(std::string_view lines, size_t limit) {
  if (lines.size() <= limit) return lines;
  size_t end = lines.rfind('\n', limit - 1);
  if (end == std::string_view::npos) end = lines.find('\n');
  return lines.substr(0, end == std::string_view::npos ? end : end + 1);
}

}  // namespace

size_t WriteAll(int descriptor, std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = ::write(descriptor, bytes.data() + done, bytes.size() - done);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (written < 0 && errno == EAGAIN) {
      pollfd wait{.fd = descriptor, .events = POLLOUT, .revents = 0};
      ::poll(&wait, 1, -1);
    } else if (written == 0 || errno != EINTR) {
      break;
    }
  }
  return done;
}

void WriteBriefly(int descriptor, std::string_view bytes, int timeout_ms) {
  constexpr int kTurnMs = 10;
  for (int left_ms = timeout_ms; left_ms > 0 && !bytes.empty();) {
    pollfd wait{.fd = descriptor, .events = POLLOUT, .revents = 0};
    if (::poll(&wait, 1, kTurnMs) == 1 && (wait.revents & POLLOUT) != 0) {
      const ssize_t written =
          ::write(descriptor, bytes.data(), std::min(bytes.size(), static_cast<size_t>(PIPE_BUF)));
      if (written > 0) {
        bytes.remove_prefix(static_cast<size_t>(written));
        continue;
      }
      if (written < 0 && errno != EAGAIN && errno != EINTR) return;
    } else if (wait.revents != 0) {
      return;
    }
    left_ms -= kTurnMs;
  }
}

int OpenToAppend(const std::string& path, unsigned mode) {
  const int descriptor =
      ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode);
  if (descriptor >= 0) ::fcntl(descriptor, F_SETFL, O_APPEND);
  return descriptor;
}

std::optional<LossReport::News> LossReport::Add(uint64_t lost, int64_t now_ns) {
  const bool failed = lost > 0;
  untold_ += lost;
  const bool changed = failed != failing_;
  failing_ = failed;
  if (!changed && (!failed || now_ns - told_ns_ < kTellNs)) return std::nullopt;
  told_ns_ = now_ns;
  return News{.lost = std::exchange(untold_, 0), .over = !failed};
}

void LogOutput::Write(std::string_view lines) {
  const int descriptor = Descriptor();  // also without lines, when a file is to be opened again
  if (lines.empty()) return;
  int error = descriptor < 0 ? errno : 0;
  size_t done = 0;
  if (error == 0 && cut_) {
    cut_ = WriteAll(descriptor, "\n") == 0;
    if (cut_) error = errno;
  }
  const size_t piece_bytes = PieceBytes();
  while (error == 0 && done < lines.size()) {
    const std::string_view piece = NextPiece(lines.substr(done), piece_bytes);
    const size_t written = WriteAll(descriptor, piece);
    if (written < piece.size()) error = errno;
    done += written;
  }
  if (done > 0) cut_ = lines[done - 1] != '\n';
  const uint64_t lost = CountLines(lines.substr(done));
  lost_.fetch_add(lost, std::memory_order_relaxed);
  const std::optional<LossReport::News> news = report_.Add(lost, SteadyClock().NowNanos());
  if (news && tell_) tell_(*news, error);
}

size_t StreamOutput::PieceBytes() const {
  struct stat ours {};
  struct stat other {};
  const int other_descriptor = descriptor_ == STDOUT_FILENO ? STDERR_FILENO : STDOUT_FILENO;
  const bool is_shared = ::fstat(descriptor_, &ours) == 0 && ::fstat(other_descriptor, &other) == 0 &&
                         ours.st_dev == other.st_dev && ours.st_ino == other.st_ino && !S_ISREG(ours.st_mode);
  return is_shared ? PIPE_BUF : SIZE_MAX;
}

void FileOutput::Close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

Status FileOutput::Open() {
  std::error_code failed;
  std::filesystem::create_directories(directory_, failed);
  if (failed) return absl::InvalidArgumentError(failed.message());
  if (Descriptor() < 0) return absl::InvalidArgumentError(std::strerror(errno));
  return absl::OkStatus();
}

std::string FileOutput::PathOf(std::time_t time) const {
  std::tm day{};
  localtime_r(&time, &day);
  char date[16];
  return directory_ + "/" + name_ + std::string(date, std::strftime(date, sizeof date, ".%Y-%m-%d", &day));
}

bool FileOutput::IsAt(const std::string& path) const {
  struct stat found {};
  struct stat ours {};
  return ::stat(path.c_str(), &found) == 0 && ::fstat(descriptor_, &ours) == 0 &&
         found.st_dev == ours.st_dev && found.st_ino == ours.st_ino;
}

int FileOutput::Descriptor() {
  const std::string path = PathOf(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()));
  const bool reopens = reopen_.exchange(false);
  if (descriptor_ >= 0 && !reopens && IsAt(path)) return descriptor_;
  int opened = OpenToAppend(path, kFileMode);
  if (opened < 0 && errno == ENOENT) {  // the directory has gone, too
    std::error_code failed;
    std::filesystem::create_directories(directory_, failed);
    opened = OpenToAppend(path, kFileMode);
  }
  if (opened < 0) {  // a file that was moved away is better than none
    if (descriptor_ >= 0 && !std::exchange(stale_, true)) TellStale(errno);
    return descriptor_;
  }
  stale_ = false;
  Close();
  return descriptor_ = opened;
}

}  // namespace vllm_router
