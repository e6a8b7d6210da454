// RequestLosses: what the quarantine learns of one request whose workers were lost with it.
//
//   losses.Report(worker)     this worker had the request, and its connection ended without a response
//   losses.IsSuspected()      so often, here or in other exchanges, that no other worker should get it
//   losses.ReportServed(…)    it was served after all
//
// A body that was streamed and not kept is no longer available, so it is not known; it is not sent to a second worker
// either. Belongs to one exchange.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "proxy/exchange/upstream_message.h"
#include "routing/request_quarantine.h"

namespace vllm_router {

struct IoThread;
struct Settings;
struct Worker;

class RequestLosses {
 public:
  RequestLosses(IoThread& thread, const Settings& settings) : thread_(thread), settings_(settings) {}

  // `sent_ns`: when the worker got the first byte of it.
  void Report(
      const UpstreamMessage& message, const Worker& worker, int64_t sent_ns, std::string_view request_id);
  bool IsSuspected() const;
  void ReportServed(const Worker& worker, std::string_view request_id) const;
  // The request is about to be forgotten; if the quarantine may want to know that it was served, its digest is kept.
  void Keep(const UpstreamMessage& message);

 private:
  void FindDigest(const UpstreamMessage& message);

  IoThread& thread_;
  const Settings& settings_;
  std::optional<RequestDigest> digest_;
};

}  // namespace vllm_router
