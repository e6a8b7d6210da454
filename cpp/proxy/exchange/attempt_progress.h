// AttemptProgress: what worker/hang_detector.h learns of an attempt: while it waits for its response, for how long and with
// what; then how long the first byte of the response's body took.
//
//   progress.Begin(settings);                         before it is sent
//   progress.DescribeWait(&reads_bodies)              while it waits
//   progress.Responded(head, route); progress.CountFirstByte();
//
// Costs nothing unless hangs are detected. Belongs to one attempt. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "http/head_parser.h"
#include "proxy/api/routes.h"
#include "proxy/exchange/upstream_message.h"
#include "proxy/exchange/upstream_sender.h"
#include "routing/ticket.h"
#include "worker/hang_detector.h"

namespace vllm_router {

struct IoThread;
struct Settings;

class AttemptProgress {
 public:
  // All must outlive it.
  AttemptProgress(
      IoThread& thread, const UpstreamMessage& message, const Ticket& ticket, const UpstreamSender& sender)
      : thread_(thread), message_(message), ticket_(ticket), sender_(sender) {}
  AttemptProgress(const AttemptProgress&) = delete;
  AttemptProgress& operator=(const AttemptProgress&) = delete;

  void Begin(const Settings& settings);
  // `reads_bodies`: how many bodies may still be parsed; at 0 a request whose body was not counts as one that does not
  // stream.
  HangDetector::Wait DescribeWait(size_t* reads_bodies);
  // The head of the response is here. `route`: the request's.
  void Responded(const ResponseHead& head, Route route);
  // The first byte of its body came; calls after the first have no effect.
  void CountFirstByte();

 private:
  enum class Kind : uint8_t { kNotRead, kStream, kPlain };

  ResponseKind response_kind() const {
    return kind_ == Kind::kStream ? ResponseKind::kStream : ResponseKind::kPlain;
  }

  IoThread& thread_;
  const UpstreamMessage& message_;
  const Ticket& ticket_;
  const UpstreamSender& sender_;
  uint32_t client_ = 0;         // its ClientTag
  Kind kind_ = Kind::kNotRead;  // as the request says, later as the response does
  bool counts_ = false;         // the response shows that the engine serves, as soon as it has a byte
};

}  // namespace vllm_router
