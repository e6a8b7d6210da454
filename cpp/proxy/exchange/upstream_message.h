// UpstreamMessage: what an attempt sends to its worker: the client's head, and its body or an edited copy of that. The
// message and all that it refers to stay unchanged until it has been sent (UpstreamSender::sent). All attempts of a
// RetryLoop send the same one.
#pragma once

#include <cstdint>
#include <optional>

#include "http/head_parser.h"
#include "proxy/exchange/request_body.h"
#include "proxy/exchange/upstream_parts.h"
#include "routing/body_patch.h"

namespace vllm_router {

struct UpstreamMessage {
  const RequestHead* head;
  RequestBody* body;
  bool stream_body;  // piece by piece, while it arrives
  ClientSide client;
  // An edited copy of the body, which is then whole; null: the body as it is.
  const SplicedBody* copy = nullptr;
  // For one of the two requests that a prefill worker and a decode worker get (pd_exchange.h).
  struct Pair {
    bool is_prefill = false;
    bool identity = false;              // the response must not be compressed
    int64_t first_byte_timeout_ms = 0;  // 0: as the settings say
  };
  std::optional<Pair> pair = {};

  bool is_prefill() const { return pair && pair->is_prefill; }
  // Whether the body can be sent once more.
  bool replayable() const { return !stream_body || body->keeps_pieces(); }
};

}  // namespace vllm_router
