#include "proxy/telemetry/log_lines.h"

#include "base/limits.h"
#include "base/log.h"

namespace vllm_router {

LogLines::LogLines(std::string_view policy, const Logs& logs) : logs_(logs), access_line_(policy) {
  if (logs.records != nullptr) record_line_.emplace(logs.records->key(), logs.records->block_size());
}

void LogLines::Write(const RequestInfo& record) {
  if (logs_.access != nullptr && LogEnabled(LogLevel::kInfo)) WriteAccess(record);
  if (record_line_.has_value() && record.prompt != nullptr) WriteRecord(record);
}

void LogLines::WriteAccess(const RequestInfo& record) {
  const uint64_t number = logs_.access->NextNumber();
  if (access_lines_.size() >= kMaxAccessLogBytes) {
    access_dropped_.Add();
    return;
  }
  if (log_format() == LogFormat::kJson) {
    access_line_.AppendJson(record, number, &access_lines_);
  } else {
    access_line_.AppendText(record, number, &access_lines_);
  }
}

void LogLines::WriteRecord(const RequestInfo& record) {
  if (record_lines_.size() >= kMaxAccessLogBytes) {
    records_dropped_.Add();
    return;
  }
  record_line_->Append(record, &record_lines_);
}

void LogLines::Flush() {
  if (!access_lines_.empty()) logs_.access->Take(&access_lines_);
  if (!record_lines_.empty()) logs_.records->writer().Take(&record_lines_);
}

}  // namespace vllm_router
