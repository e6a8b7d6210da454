#include "proxy/recorder.h"

#include "base/log.h"

namespace vllm_router {

struct Recorder::Shard {};

Recorder::Recorder(bool access_log) : access_log_(access_log), shard_(std::make_unique<Shard>()) {}

Recorder::~Recorder() = default;

void Recorder::Record(const ExchangeRecord& /*record*/) {}

void Recorder::Flush() {
  if (lines_.empty()) return;
  LogAccess(lines_);
  lines_.clear();
}

}  // namespace vllm_router
