// LogLines: the lines that a thread has written for the access log and the traffic log, until it hands them over. They wait
// here in small pieces, since a log's LineWriter takes a lock. Of each log at most kMaxAccessLogBytes wait; further lines
// are dropped and counted. Used by its thread; any may read the counts. No allocation in steady state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/line_writer.h"
#include "proxy/telemetry/access_log_line.h"
#include "proxy/telemetry/counters.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/telemetry/traffic_log.h"
#include "proxy/telemetry/traffic_log_line.h"

namespace vllm_router {

// Null: that log is disabled.
struct Logs {
  LineWriter* access = nullptr;
  TrafficLog* records = nullptr;
};

class LogLines {
 public:
  // `policy`: its name, for the access log. The logs must outlive this.
  LogLines(std::string_view policy, const Logs& logs);

  // A line for each log in use.
  void Write(const RequestInfo& record);
  // Whether the traffic log needs prompts.
  bool wants_prompts() const { return record_line_.has_value(); }
  // Hands over the lines collected so far, unless their log has no room. Called at every kLogPieceBytes,
  // every 100 ms while there are any, and at shutdown.
  void Flush();
  bool empty() const { return bytes() == 0; }
  size_t bytes() const { return access_lines_.size() + record_lines_.size(); }

  // Lines that had no room.
  uint64_t access_dropped() const { return access_dropped_.count(); }
  uint64_t records_dropped() const { return records_dropped_.count(); }

 private:
  void WriteAccess(const RequestInfo& record);
  void WriteRecord(const RequestInfo& record);

  const Logs logs_;
  AccessLogLine access_line_;
  std::optional<TrafficLogLine> record_line_;
  std::string access_lines_;
  std::string record_lines_;
  Counter access_dropped_;
  Counter records_dropped_;
};

}  // namespace vllm_router
