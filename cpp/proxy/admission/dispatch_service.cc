#include "proxy/admission/dispatch_service.h"

#include "base/time_units.h"
#include "proxy/admission/class_pools.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr int64_t kNoClassesNs = 3'600 * kNanosPerSecond;  // other settings end the wait

}  // namespace

DispatchService::DispatchService(IoThread& control, ClassPools& pools)
    : thread_(control), pools_(pools), delay_(control.loop) {}

void DispatchService::Start() {
  running_ = true;
  Spawn(Run());
}

void DispatchService::Stop() {
  stopped_ = true;
  delay_.Cancel();
}

// Once more after the classes have gone, for those that wait.
Task<void> DispatchService::Run() {
  int64_t last_ns = thread_.clock.NowNanos();
  while (!stopped_) {
    const int64_t now_ns = thread_.clock.NowNanos();
    pools_.Tick(thread_, now_ns - last_ns);
    last_ns = now_ns;
    const bool has_classes = pools_.rules().Load()->settings != nullptr;
    co_await delay_.For(has_classes || pools_.any_waiting() ? kTickNs : kNoClassesNs);
  }
  running_ = false;
}

}  // namespace vllm_router
