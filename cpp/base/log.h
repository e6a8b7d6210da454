// Log: one line for a person, or one JSON object for a machine, per thing that happened. Messages go to stderr,
// access lines to stdout, and both to a daily file `vllm-router.<date>` when a directory is set. spdlog does the
// work in log.cc; the header stays light.
//
//   text   2026-11-21 10:50:37 WARNING worker http://a:8000 refused the connection
//   json   {"time":"2026-11-21T10:50:37Z","level":"warning","message":"worker http://a:8000 refused the connection"}
//
// Whatever a message contains, it stays one line. Cost: a disabled level costs one relaxed load; a line costs a lock
// and a write, so the request path batches its access lines. The file is flushed after a warning and every second.
// Thread-safe; configure before the threads start, since lines written meanwhile may go either way.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };
enum class LogFormat { kText, kJson };

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  LogFormat format = LogFormat::kText;
  std::string directory;  // empty: no file
};

// InvalidArgument when the directory cannot be written; the log then stays as it was.
Status ConfigureLog(const LogOptions& options);
// Of lines from now on.
void SetLogLevel(LogLevel level);
LogFormat log_format();
bool LogEnabled(LogLevel level);

void Log(LogLevel level, std::string_view message);

// Whole access lines, each ended by a newline, written as they are when the level is kInfo or lower.
void LogAccess(std::string_view lines);
void FlushLog();

}  // namespace vllm_router
