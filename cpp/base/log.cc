#include "base/log.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "base/line_writer.h"
#include "base/log_output.h"
#include "base/mutex.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr int64_t kExitFlushMs = 1'000;

constexpr std::string_view kLevelNames[] = {"DEBUG", "INFO", "WARNING", "ERROR", "OFF"};

std::atomic<LogLevel> level_{LogOptions{}.level};
std::atomic<LogFormat> format_{LogOptions{}.format};

std::string UtcTime(const char* format) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, format, &utc));
}

std::string ComposeLine(LogLevel level, std::string_view message) {
  const std::string_view name = kLevelNames[static_cast<size_t>(level)];
  if (log_format() == LogFormat::kJson) {
    return "{\"time\":\"" + UtcTime("%Y-%m-%dT%H:%M:%SZ") + "\",\"level\":\"" + AsciiLower(name) +
           "\",\"message\":" + JsonQuoted(message) + "}\n";
  }
  std::string line = UtcTime("%Y-%m-%d %H:%M:%S ");
  line.append(name).append(" ");
  // What a client sent may be part of a message; it must not be able to start a new log line.
  for (const char c : message) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) {
      line += c;
    } else {
      line.append("\\x").append(Hex16(static_cast<unsigned char>(c)).substr(14));
    }
  }
  return line += '\n';
}

std::string LineIfEnabled(LogLevel level, std::string_view message) {
  return LogEnabled(level) ? ComposeLine(level, message) : std::string();
}

std::string_view LinesWere(uint64_t count) { return count == 1 ? " line was" : " lines were"; }

// An output and its writer. It is never destroyed, since a thread that ends late may still log.
template <typename Output>
struct Destination {
  template <typename... Arguments>
  explicit Destination(LineWriter::Notice notice, Arguments&&... arguments)
      : output(std::make_shared<Output>(std::forward<Arguments>(arguments)...)),
        writer([output = output](std::string_view lines) { output->Write(lines); }, std::move(notice)) {}

  uint64_t dropped() const { return writer.dropped() + output->lost(); }

  std::shared_ptr<Output> output;  // shared with the writer's thread
  LineWriter writer;
};

// What is told of a destination that fails goes to the others.
void TellOfStderr(const LossReport::News& news, int error);
void TellOfStdout(const LossReport::News& news, int error);
void TellOfFile(const std::string& path, const LossReport::News& news, int error);

struct Destinations {
  LineWriter& writer(LogDestination destination) {
    return destination == LogDestination::kStdout ? out.writer : err.writer;
  }

  Destination<StreamOutput> err{
      [](uint64_t dropped) {
        return LineIfEnabled(
            LogLevel::kWarning,
            Concat(dropped, LinesWere(dropped), " dropped here, because standard error took none"));
      },
      STDERR_FILENO, &TellOfStderr};
  Destination<StreamOutput> out{
      [](uint64_t dropped) {
        Log(LogLevel::kWarning,
            Concat(
                dropped, dropped == 1 ? " line" : " lines", " of the access log ",
                dropped == 1 ? "was" : "were", " dropped, because standard output took none"));
        return std::string();
      },
      STDOUT_FILENO, &TellOfStdout};
};

using FileDestination = Destination<FileOutput>;

std::unique_ptr<FileDestination> MakeFile(const std::string& directory) {
  return std::make_unique<FileDestination>(
      [](uint64_t dropped) {
        return LineIfEnabled(
            LogLevel::kWarning,
            Concat(dropped, LinesWere(dropped), " dropped here, because the file system took none"));
      },
      directory, "vllm-router",
      [directory](const LossReport::News& news, int error) { TellOfFile(directory, news, error); });
}

std::atomic<Destinations*> destinations_{nullptr};
std::atomic<FileDestination*> file_{nullptr};  // null: no directory is set
Mutex configure_mutex_;
std::vector<std::unique_ptr<FileDestination>>* const former_files_ =
    new std::vector<std::unique_ptr<FileDestination>>;

Destinations& Current() { return *destinations_.load(std::memory_order_acquire); }

void PutIntoFile(std::string_view lines) {
  if (FileDestination* const file = file_.load(std::memory_order_acquire)) file->writer.Put(lines);
}

void TellOfStderr(const LossReport::News& news, int error) {
  const std::string message =
      error == 0 ? Concat("standard error is written again; ", news.lost, LinesWere(news.lost), " lost")
                 : Concat(
                       "standard error cannot be written: ", std::strerror(error), "; ", news.lost,
                       LinesWere(news.lost), " lost");
  PutIntoFile(LineIfEnabled(LogLevel::kWarning, message));
}

void TellOfStdout(const LossReport::News& news, int error) {
  Log(LogLevel::kWarning,
      error == 0 ? Concat("standard output is written again; ", news.lost, LinesWere(news.lost), " lost")
                 : Concat(
                       "standard output cannot be written: ", std::strerror(error), "; ", news.lost,
                       LinesWere(news.lost), " lost"));
}

void TellOfFile(const std::string& path, const LossReport::News& news, int error) {
  const std::string lost = Concat(news.lost, LinesWere(news.lost), " lost");
  std::string message;
  if (error == 0) {
    message = Concat("--log-dir ", path, " is written again; ", lost);
  } else if (news.lost == 0) {
    message = Concat(
        "the log file in --log-dir ", path, " cannot be opened again: ", std::strerror(error),
        "; lines go to the former file");
  } else {
    message = Concat(
        "--log-dir ", path, " cannot be written: ", std::strerror(error), "; ", lost,
        ". Make room, or name a directory on another disk");
  }
  Current().err.writer.Put(LineIfEnabled(error == 0 ? LogLevel::kWarning : LogLevel::kError, message));
}

// In a child by fork(): the parent's threads are not here, and may have held the locks of its queues. Objects of
// the parent are left as they are.
void StartAnew() {
  if (FileDestination* const file = file_.load(std::memory_order_acquire)) {
    file_.store(MakeFile(file->output->directory()).release(), std::memory_order_release);
  }
  destinations_.store(new Destinations, std::memory_order_release);
}

// When the library is loaded. It has no threads then, and the process may never log.
[[maybe_unused]] const bool initialized_ = [] {
  destinations_.store(new Destinations, std::memory_order_release);
  pthread_atfork(nullptr, nullptr, &StartAnew);
  std::atexit([] { FlushLog(kExitFlushMs); });
  return true;
}();

}  // namespace

void SetLogLevel(LogLevel level) { level_.store(level, std::memory_order_relaxed); }

Status ConfigureLog(const LogOptions& options) {
  MutexLock lock(configure_mutex_);
  std::unique_ptr<FileDestination> file;
  if (!options.directory.empty()) {
    file = MakeFile(options.directory);
    if (const Status opened = file->output->Open(); !opened.ok()) {
      return absl::InvalidArgumentError(Concat(
          "log directory '", options.directory, "' cannot be written (", std::string(opened.message()),
          "); choose a directory that this user may write to, or leave --log-dir out"));
    }
  }
  level_.store(options.level, std::memory_order_relaxed);
  format_.store(options.format, std::memory_order_relaxed);
  FileDestination* const former = file_.exchange(file.release(), std::memory_order_acq_rel);
  if (former == nullptr) return absl::OkStatus();
  // Another thread may be about to hand a line to it, so it stays; its thread and its file end.
  if (former->writer.Close()) former->output->Close();
  former_files_->emplace_back(former);
  return absl::OkStatus();
}

LogFormat log_format() { return format_.load(std::memory_order_relaxed); }

bool LogEnabled(LogLevel level) {
  return level != LogLevel::kOff && level >= level_.load(std::memory_order_relaxed);
}

void Log(LogLevel level, std::string_view message) {
  if (!LogEnabled(level)) return;
  const std::string line = ComposeLine(level, message);
  PutIntoFile(line);
  Current().err.writer.Put(line);
}

void LogAccess(std::string_view lines) {
  if (lines.empty() || !LogEnabled(LogLevel::kInfo)) return;
  PutIntoFile(lines);
  Current().out.writer.Put(lines);
}

void LogText(LogDestination destination, std::string_view lines) {
  if (!lines.empty()) Current().writer(destination).Put(lines);
}

void ReopenLog() {
  FileDestination* const file = file_.load(std::memory_order_acquire);
  if (file == nullptr) return;
  file->output->Reopen();
  file->writer.Wake();
}

bool FlushLog(int64_t timeout_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  const auto written = [end](const LineWriter& writer) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    return writer.WaitUntilWritten(std::max<int64_t>(0, left.count()));
  };
  FileDestination* const file = file_.load(std::memory_order_acquire);
  // Standard output first: of lines that it did not get, the others tell.
  bool all = written(Current().out.writer);
  if (file != nullptr) all &= written(file->writer);
  return all & written(Current().err.writer);
}

uint64_t LogDropped(LogDestination destination) {
  if (destination == LogDestination::kStdout) return Current().out.dropped();
  if (destination == LogDestination::kStderr) return Current().err.dropped();
  FileDestination* const file = file_.load(std::memory_order_acquire);
  return file == nullptr ? 0 : file->dropped();
}

}  // namespace vllm_router
