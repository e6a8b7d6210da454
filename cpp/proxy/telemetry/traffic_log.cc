#include "proxy/telemetry/traffic_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/log_output.h"
#include "base/text.h"
#include "proxy/telemetry/traffic_log_line.h"
#include "proxy/telemetry/traffic_log_salt.h"

namespace vllm_router {
namespace {

constexpr unsigned kMode = 0640;

// Whether the last line is incomplete: its writer was stopped in the middle.
bool EndsInsideALine(int descriptor) {
  struct stat found {};
  char last = '\n';
  return ::fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode) && found.st_size > 0 &&
         ::pread(descriptor, &last, 1, found.st_size - 1) == 1 && last != '\n';
}

bool IsDeleted(int descriptor) {
  struct stat found {};
  return ::fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink == 0;
}

void Complain(const Status& status) {
  if (!status.ok()) Log(LogLevel::kError, std::string(status.message()));
}

}  // namespace

// One thread makes it, another writes it; one at a time may reopen it, any may read the counts.
class TrafficLog::File {
 public:
  File(std::string path, std::string head) : path_(std::move(path)), head_(std::move(head)) {}
  ~File() {
    Close(descriptor_);
    Close(next_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  Status Open() {
    ROUTER_RETURN_IF_ERROR(Reopen());
    const int descriptor = next_.load();
    struct stat found {};
    // A pipe may have no reader, so its head is left to the writer's thread.
    if (::fstat(descriptor, &found) == 0 && S_ISFIFO(found.st_mode)) return absl::OkStatus();
    return Adopt(next_.exchange(-1));
  }

  // The next line goes to the file that has the path now; if there is none, to the old one.
  Status Reopen() {
    const int descriptor = OpenToAppend(path_, kMode);
    if (descriptor < 0) return Failed(errno);
    Close(next_.exchange(descriptor));
    return absl::OkStatus();
  }

  void Write(std::string_view lines) {
    if (IsDeleted(descriptor_)) {  // nobody could read what it takes
      const Status opened = Reopen();
      if (!std::exchange(deleted_, !opened.ok())) Complain(opened);
    }
    if (const int next = next_.exchange(-1); next >= 0) Complain(Adopt(next));
    if (lines.empty()) return;  // it was woken for the new file
    size_t done = 0;
    if (WriteFirst()) done = WriteAll(descriptor_, lines);
    const uint64_t lost = CountLines(lines.substr(done));
    written_.fetch_add(CountLines(lines) - lost, std::memory_order_relaxed);
    lost_.fetch_add(lost, std::memory_order_relaxed);
    // A line that was cut off is ended before the next line.
    if (done > 0 && lines[done - 1] != '\n') first_ = "\n";
    Tell(lost);
  }

  uint64_t written() const { return written_.load(std::memory_order_relaxed); }
  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  static void Close(int descriptor) {
    if (descriptor >= 0) ::close(descriptor);
  }

  Status Adopt(int descriptor) {
    Close(descriptor_);
    descriptor_ = descriptor;
    first_ = EndsInsideALine(descriptor) ? "\n" + head_ : head_;
    return WriteFirst() ? absl::OkStatus() : Failed(errno);
  }

  // Writes what must precede the next line, if anything.
  bool WriteFirst() {
    first_.erase(0, WriteAll(descriptor_, first_));
    return first_.empty();
  }

  Status Failed(int error) const {
    return absl::FailedPreconditionError(Concat(
        "--record-log ", path_, " cannot be written: ", std::strerror(error),
        "; name a file that this process may write, on a disk with free space"));
  }

  // Logs once when loss begins and once when it is over.
  void Tell(uint64_t lost) {
    if (lost > 0 && lost_in_a_row_ == 0) {
      Log(LogLevel::kError,
          Concat(std::string(Failed(errno).message()), ". Requests are served without being recorded"));
    } else if (lost == 0 && lost_in_a_row_ > 0) {
      Log(LogLevel::kWarning,
          Concat("--record-log ", path_, " is written again; ", lost_in_a_row_, " requests are not in it"));
    }
    lost_in_a_row_ = lost == 0 ? 0 : lost_in_a_row_ + lost;
  }

  const std::string path_;
  const std::string head_;
  int descriptor_ = -1;
  bool deleted_ = false;       // and it could not be made anew, which was told
  std::atomic<int> next_{-1};  // the descriptor that replaces it
  std::string first_;
  uint64_t lost_in_a_row_ = 0;
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> lost_{0};
};

StatusOr<std::unique_ptr<TrafficLog>> TrafficLog::Open(const TrafficLogOptions& options) {
  const StatusOr<KeyedHash::Key> key =
      options.salt_path.empty() ? DrawSalt() : ReadOrMakeSalt(options.salt_path);
  if (!key.ok()) return key.status();
  std::string head;
  TrafficLogLine(*key, options.block_size).AppendHead(&head);
  auto file = std::make_shared<File>(options.path, std::move(head));
  ROUTER_RETURN_IF_ERROR(file->Open());
  return std::unique_ptr<TrafficLog>(new TrafficLog(*key, options.block_size, std::move(file)));
}

TrafficLog::TrafficLog(const KeyedHash::Key& key, uint32_t block_size, std::shared_ptr<File> file)
    : Reloadable("record_log"),
      key_(key),
      block_size_(block_size),
      file_(std::move(file)),
      writer_([file = file_](std::string_view lines) { file->Write(lines); }) {}

Status TrafficLog::ReadAgain() {
  const Status opened = file_->Reopen();
  Complain(opened);
  writer_.Wake();  // it closes the former file
  return opened;
}

uint64_t TrafficLog::written() const { return file_->written(); }

uint64_t TrafficLog::lost() const { return file_->lost(); }

}  // namespace vllm_router
