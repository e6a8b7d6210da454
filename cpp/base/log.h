// Log: one line for a person, or one JSON object for a machine, per thing that happened. spdlog does the work in
// log.cc; the header stays light. Messages go to stderr, access lines to stdout, and both to a daily file when a
// directory is set. Thread-safe; configure once, before the threads start.
#pragma once

#include <string>
#include <string_view>

namespace vllm_router {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };
enum class LogFormat { kText, kJson };

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  std::string directory;  // empty: no file
};

void ConfigureLog(const LogOptions& options);
LogFormat log_format();
bool LogEnabled(LogLevel level);

void Log(LogLevel level, std::string_view message);

// Whole access lines, each ended by a newline, written as they are when the level is kInfo or lower.
void LogAccess(std::string_view lines);
void FlushLog();

}  // namespace vllm_router
