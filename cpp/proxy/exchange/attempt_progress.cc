#include "proxy/exchange/attempt_progress.h"

#include <utility>

#include "base/limits.h"
#include "proxy/api/settings.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/quarantine.h"
#include "routing/request_fields.h"

namespace vllm_router {

void AttemptProgress::Begin(const Settings& settings) {
  if (!settings.detects_hangs() || client_ != 0) return;
  client_ = ClientTag(thread_, settings, *message_.head, message_.client.address);
}

HangDetector::Wait AttemptProgress::DescribeWait(size_t* reads_bodies) {
  const bool is_held = !message_.stream_body || message_.body->keeps_pieces();
  if (kind_ == Kind::kNotRead && message_.is_prefill()) kind_ = Kind::kStream;
  if (kind_ == Kind::kNotRead && (!is_held || message_.body->bytes() > kRoutedBodyBytes))
    kind_ = Kind::kPlain;
  if (kind_ == Kind::kNotRead && *reads_bodies != 0) {
    --*reads_bodies;
    const RequestFields fields = ParseRequestFields(message_.body->held(), /*padded=*/false);
    kind_ = fields.stream.value_or(false) ? Kind::kStream : Kind::kPlain;
  }
  return {
      .kind = response_kind(),
      .bytes = message_.body->bytes(),
      .sent_ns = sender_.sent_ns(),
      .client = client_};
}

// A response without a body, or with another status than 2xx, says nothing of the engine behind the server, nor does one
// of /v1/responses that is no stream: the request may run in the background.
void AttemptProgress::Responded(const ResponseHead& head, Route route) {
  kind_ = message_.is_prefill() || head.event_stream ? Kind::kStream : Kind::kPlain;
  const bool may_be_accepted = route == Route::kResponses && kind_ == Kind::kPlain;
  const bool computes = message_.pair.has_value() || RouteOf(route).computes;
  counts_ = computes && !may_be_accepted && sender_.sent_ns() != 0 && head.status / 100 == 2;
}

void AttemptProgress::CountFirstByte() {
  if (!std::exchange(counts_, false)) return;
  const int64_t now = thread_.clock.NowNanos();
  ticket_.shared_worker()->progress.CountFirstByte(
      response_kind(), message_.body->bytes(), now - sender_.sent_ns(), client_, now);
}

}  // namespace vllm_router
