#include "base/log.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/daily_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "base/mutex.h"
#include "base/snapshot.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::chrono::seconds kFlushInterval{1};

constexpr std::string_view kLevelNames[] = {"DEBUG", "INFO", "WARNING", "ERROR", "OFF"};

// Two loggers that may share the file. Lines are composed here rather than by a spdlog pattern, because
// a pattern belongs to a sink, and the file takes both kinds of lines.
struct Loggers {
  std::shared_ptr<spdlog::logger> messages;
  std::shared_ptr<spdlog::logger> access;
};

std::atomic<LogLevel> level_{LogOptions{}.level};
std::atomic<LogFormat> format_{LogOptions{}.format};

// `vllm-router.2026-11-21`, named as the reference router names it; the day is the host's.
struct FileName {
  static spdlog::filename_t calc_filename(const spdlog::filename_t& path, const tm& day) {
    char date[16];
    std::strftime(date, sizeof date, ".%Y-%m-%d", &day);
    return path + date;
  }
};
using DailyFile = spdlog::sinks::daily_file_sink<std::mutex, FileName>;

// Standard output, for access lines. Unlike spdlog's console sinks it shares no lock with standard
// error, and unlike stdio's it leaves none behind. So a pipe that is not read blocks only the thread
// that writes access lines, not messages and not the end of the process.
class StandardOutput final : public spdlog::sinks::sink {
 public:
  void log(const spdlog::details::log_msg& message) override {
    MutexLock lock(mutex_);
    std::string_view rest(message.payload.data(), message.payload.size());
    while (!rest.empty()) {
      const ssize_t written = ::write(STDOUT_FILENO, rest.data(), rest.size());
      if (written > 0) {
        rest.remove_prefix(static_cast<size_t>(written));
      } else if (written < 0 && errno == EAGAIN) {  // other code made the descriptor non-blocking
        pollfd wait{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
        ::poll(&wait, 1, -1);
      } else if (written == 0 || errno != EINTR) {
        return;  // closed: the error can go nowhere
      }
    }
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}  // lines are written as they are
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  Mutex mutex_;  // keeps lines whole
};

std::shared_ptr<spdlog::logger> MakeLogger(const char* name, std::vector<spdlog::sink_ptr> sinks) {
  auto logger = std::make_shared<spdlog::logger>(name, sinks.begin(), sinks.end());
  logger->set_formatter(
      std::make_unique<spdlog::pattern_formatter>("%v", spdlog::pattern_time_type::utc, /*eol=*/""));
  logger->set_level(spdlog::level::trace);  // LogEnabled() has decided before spdlog is called
  logger->flush_on(spdlog::level::warn);
  return logger;
}

std::shared_ptr<const Loggers> MakeLoggers(const std::string& directory) {
  std::vector<spdlog::sink_ptr> messages = {std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  std::vector<spdlog::sink_ptr> access = {std::make_shared<StandardOutput>()};
  if (!directory.empty()) {
    auto file =
        std::make_shared<DailyFile>(directory + "/vllm-router", /*rotation_hour=*/0, /*rotation_minute=*/0);
    messages.push_back(file);
    access.push_back(file);
  }
  return std::make_shared<const Loggers>(Loggers{
      MakeLogger("vllm-router", std::move(messages)), MakeLogger("vllm-router-access", std::move(access))});
}

// Never destroyed: a thread that ends late may still log.
Snapshot<Loggers>& CurrentLoggers() {
  static auto* const loggers = new Snapshot<Loggers>(MakeLoggers(""));
  return *loggers;
}

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

}  // namespace

void SetLogLevel(LogLevel level) { level_.store(level, std::memory_order_relaxed); }

Status ConfigureLog(const LogOptions& options) {
  std::shared_ptr<const Loggers> loggers;
  try {
    loggers = MakeLoggers(options.directory);
  } catch (const spdlog::spdlog_ex& error) {
    return absl::InvalidArgumentError(
        "log directory '" + options.directory + "' cannot be written (" + error.what() +
        "); choose a directory that this user may write to, or leave --log-dir out");
  }
  level_.store(options.level, std::memory_order_relaxed);
  format_.store(options.format, std::memory_order_relaxed);
  // The registry is what flush_every() walks; its thread starts here, so that a library user who never
  // configures the log has no thread for it.
  spdlog::drop_all();
  spdlog::register_logger(loggers->messages);
  spdlog::register_logger(loggers->access);
  spdlog::flush_every(kFlushInterval);
  CurrentLoggers().Publish(std::move(loggers));
  return absl::OkStatus();
}

LogFormat log_format() { return format_.load(std::memory_order_relaxed); }

bool LogEnabled(LogLevel level) {
  return level != LogLevel::kOff && level >= level_.load(std::memory_order_relaxed);
}

void Log(LogLevel level, std::string_view message) {
  if (!LogEnabled(level)) return;
  const auto urgency = level >= LogLevel::kWarning ? spdlog::level::warn : spdlog::level::info;
  CurrentLoggers().Load()->messages->log(urgency, spdlog::string_view_t(ComposeLine(level, message)));
}

void LogAccess(std::string_view lines) {
  if (lines.empty() || !LogEnabled(LogLevel::kInfo)) return;
  CurrentLoggers().Load()->access->log(
      spdlog::level::info, spdlog::string_view_t(lines.data(), lines.size()));
}

void FlushLog() {
  const std::shared_ptr<const Loggers> loggers = CurrentLoggers().Load();
  loggers->messages->flush();
  loggers->access->flush();
}

}  // namespace vllm_router
