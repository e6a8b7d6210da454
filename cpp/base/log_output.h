// LogOutput: where lines of the log go, on the thread of a LineWriter, which a slow destination may block.
//
//   StreamOutput   standard output or standard error
//   FileOutput     a file per day, `vllm-router.2026-11-21`, made anew when it was moved or deleted
//
// Lines that cannot be written are lost and counted. A line that was cut off is ended before the next one, so
// what is there stays whole lines. A descriptor that other code made non-blocking is waited for.
//
// Cost: a write per call, and of a file one stat(2) to see whether it is still there. Write() belongs to one
// thread, lost() to any.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace vllm_router {

// Returns how many of the bytes were written; if not all, errno has the reason. Blocks as the descriptor does, or
// until it can be written.
size_t WriteAll(int descriptor, std::string_view bytes);

// The same, for at most about `timeout_ms`, as a process that ends must. Its pieces are so small that a pipe takes
// each at once.
void WriteBriefly(int descriptor, std::string_view bytes, int timeout_ms);

// Opens, or makes, a file for appending, without waiting for the other end of a pipe; later writes wait.
int OpenToAppend(const std::string& path, unsigned mode);

// What is told of lines that were lost: the first time at once, then once a minute, and when it is over.
class LossReport {
 public:
  struct News {
    uint64_t lost = 0;  // since the last news
    bool over = false;
  };
  // After each write; `lost`: lines of it. Null: there is nothing to tell now.
  std::optional<News> Add(uint64_t lost, int64_t now_ns);

 private:
  bool failing_ = false;
  uint64_t untold_ = 0;
  int64_t told_ns_ = 0;
};

class LogOutput {
 public:
  // `error`: of errno, 0 when lines are written again. Lost are none if only the file could not be made anew.
  using Tell = std::function<void(const LossReport::News& news, int error)>;

  explicit LogOutput(Tell tell) : tell_(std::move(tell)) {}
  virtual ~LogOutput() = default;
  LogOutput(const LogOutput&) = delete;
  LogOutput& operator=(const LogOutput&) = delete;

  void Write(std::string_view lines);
  uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 protected:
  // Lines go to the former file, since the new one cannot be opened.
  void TellStale(int error) const {
    if (tell_) tell_({}, error);
  }

 private:
  // Where the lines go now; -1: nowhere, and errno has the reason.
  virtual int Descriptor() = 0;
  // How many bytes are written at once.
  virtual size_t PieceBytes() const { return SIZE_MAX; }

  const Tell tell_;
  LossReport report_;
  bool cut_ = false;  // the last line is incomplete
  std::atomic<uint64_t> lost_{0};
};

class StreamOutput final : public LogOutput {
 public:
  StreamOutput(int descriptor, Tell tell) : LogOutput(std::move(tell)), descriptor_(descriptor) {}

 private:
  int Descriptor() override { return descriptor_; }
  // Standard output and standard error may be one pipe, which takes pieces of at most PIPE_BUF bytes whole.
  size_t PieceBytes() const override;

  const int descriptor_;
};

class FileOutput final : public LogOutput {
 public:
  // `name`: that of a file without its date. Nothing is opened before it is needed.
  FileOutput(std::string directory, std::string name, Tell tell)
      : LogOutput(std::move(tell)), directory_(std::move(directory)), name_(std::move(name)) {}
  ~FileOutput() override { Close(); }

  const std::string& directory() const { return directory_; }

  // Opens today's file, and makes its directories. REQUIRES: no thread writes.
  Status Open();
  // REQUIRES: no thread writes.
  void Close();
  // At the next Write(), which may have no lines, the file is closed and opened again. From any thread.
  void Reopen() { reopen_.store(true); }

  // Of that day, as the host counts days.
  std::string PathOf(std::time_t time) const;

 private:
  int Descriptor() override;
  bool IsAt(const std::string& path) const;

  const std::string directory_;
  const std::string name_;
  int descriptor_ = -1;
  bool stale_ = false;  // and that was told
  std::atomic<bool> reopen_{false};
};

}  // namespace vllm_router
