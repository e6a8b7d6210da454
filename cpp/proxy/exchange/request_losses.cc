#include "proxy/exchange/request_losses.h"

#include <string>

#include "proxy/thread/io_thread.h"
#include "proxy/thread/quarantine.h"
#include "proxy/thread/server_limits.h"

namespace vllm_router {

void RequestLosses::FindDigest(const UpstreamMessage& message) {
  const bool has_body = !message.stream_body || (message.body->keeps_pieces() && message.body->complete());
  if (!has_body || digest_) return;
  digest_ = DigestOf(thread_, settings_, *message.head, message.body->held(), message.client.address);
}

void RequestLosses::Report(
    const UpstreamMessage& message, const Worker& worker, int64_t sent_ns, std::string_view request_id) {
  FindDigest(message);
  if (!digest_) return;
  thread_.limits.quarantine.ReportLoss(
      {.digest = *digest_,
       .bytes = message.body->bytes(),
       .host = HostNumber(worker.url),
       .client = ClientNumber(thread_, settings_, *message.head, message.client.address),
       .sent_ns = sent_ns,
       .request_id = std::string(request_id)},
      thread_.clock.NowNanos());
}

bool RequestLosses::IsSuspected() const {
  return digest_.has_value() && thread_.limits.quarantine.IsSuspected(*digest_, thread_.clock.NowNanos());
}

void RequestLosses::ReportServed(const Worker& worker, std::string_view request_id) const {
  if (digest_) vllm_router::ReportServed(thread_, worker.url, *digest_, std::string(request_id));
}

void RequestLosses::Keep(const UpstreamMessage& message) {
  if (thread_.limits.quarantine.MayForget(message.body->bytes())) FindDigest(message);
}

}  // namespace vllm_router
