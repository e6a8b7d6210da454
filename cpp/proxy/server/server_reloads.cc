#include "proxy/server/server_reloads.h"

#include <cstdint>

#include "base/clock.h"
#include "base/log.h"

namespace vllm_router {
namespace {

constexpr int64_t kPollMs = 1000;

int64_t NowS() { return static_cast<int64_t>(UnixSeconds()); }

}  // namespace

ServerReloads::ServerReloads(
    EventLoop& control, std::initializer_list<Reloadable*> files, Reloadable* traffic_log)
    : control_(control), traffic_log_(traffic_log) {
  for (Reloadable* const file : files) {
    if (file != nullptr) files_.push_back(file);
  }
}

void ServerReloads::Start() {
  if (!files_.empty()) OnTimer(this);
}

void ServerReloads::OnTimer(void* reloads) {
  auto* self = static_cast<ServerReloads*>(reloads);
  {
    MutexLock lock(self->reload_mutex_);
    for (Reloadable* const file : self->files_) file->Poll(NowS());
  }
  self->timer_.Arm(self->control_.timers(), kPollMs, &ServerReloads::OnTimer, self);
}

void ServerReloads::Reload() {
  {
    MutexLock lock(reload_mutex_);
    for (Reloadable* const file : files_) {
      if (file != traffic_log_) (void)file->Reload(NowS());
    }
  }
  ReopenLogs();
}

void ServerReloads::ReopenLogs() {
  ReopenLog();
  if (traffic_log_ == nullptr) return;
  MutexLock lock(reopen_mutex_);
  (void)traffic_log_->Reload(NowS());
}

}  // namespace vllm_router
