// Log: one line for a person, or one JSON object for a machine, per thing that happened. Messages go to stderr,
// access lines to stdout, and both to a daily file `vllm-router.<date>` when a directory is set.
//
//   text   2026-11-21 10:50:37 WARNING worker http://a:8000 refused the connection
//   json   {"time":"2026-11-21T10:50:37Z","level":"warning","message":"worker http://a:8000 refused the connection"}
//
// Whatever a message contains, it stays one line. No caller waits for a destination: each of the three has a
// LineWriter, which drops and counts lines while its destination takes none, so one that is stuck delays neither
// the program nor the others. Its thread starts with the first line. When the process exits, what waits is
// written, for at most a second. A child by fork() has empty queues and threads of its own.
//
// Cost: a disabled level costs one relaxed load; a line costs a lock and a copy for each destination.
// Thread-safe; configure before the threads start, since lines written meanwhile may go either way.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };
enum class LogFormat { kText, kJson };
enum class LogDestination { kStderr, kStdout, kFile };

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
// Other texts of the program for standard output or standard error, in order with the lines of the log there.
void LogText(LogDestination destination, std::string_view lines);

// Closes the file and opens it again, soon: it may have been moved.
void ReopenLog();
// Waits until all lines are written, for at most `timeout_ms`. Returns true if they are.
bool FlushLog(int64_t timeout_ms);
// Lines that the destination did not get, because too many waited or because it failed.
uint64_t LogDropped(LogDestination destination);

}  // namespace vllm_router
