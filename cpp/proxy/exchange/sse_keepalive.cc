#include "proxy/exchange/sse_keepalive.h"

#include <sys/uio.h>

#include <string_view>

#include "net/write_all.h"

namespace vllm_router {
namespace {

constexpr std::string_view kCommentChunk = "e\r\n: keep-alive\n\n\r\n";

}  // namespace

SseKeepalive::SseKeepalive(
    EventLoop& loop, Socket& client, int64_t interval_ms, int64_t write_timeout_ms, const Hooks& hooks)
    : loop_(loop),
      client_(client),
      interval_ms_(interval_ms),
      write_timeout_ms_(write_timeout_ms),
      hooks_(hooks) {
  Arm();
}

void SseKeepalive::Arm() { timer_.Arm(loop_.timers(), interval_ms_, &SseKeepalive::OnInterval, this); }

void SseKeepalive::OnInterval(void* context) { static_cast<SseKeepalive*>(context)->SendComment(); }

void SseKeepalive::SendComment() {
  if (unsent_.empty()) {
    if (!sent_head()) unsent_ = hooks_.head(hooks_.context);
    unsent_ += kCommentChunk;
    ++comments_;
  }
  const iovec piece = Piece(unsent_);
  const IoResult write = client_.TryWrite({&piece, 1});
  if (write.error != 0 && !write.would_block()) return hooks_.client_lost(hooks_.context, /*slow=*/false);
  stuck_ms_ = write.bytes > 0 ? 0 : stuck_ms_ + interval_ms_;
  unsent_.erase(0, static_cast<size_t>(write.bytes));
  const bool slow = write_timeout_ms_ > 0 && stuck_ms_ >= write_timeout_ms_;
  if (slow) return hooks_.client_lost(hooks_.context, /*slow=*/true);
  Arm();
}

}  // namespace vllm_router
