// PairResponse: what the client of a pair gets, and what the attempts at each stage leave until that is known.
//
//   Relay(pair)        decode's response, which has begun; merged with prefill's if it was read whole
//   Keep(leg)          an attempt that failed: its response, and (errors()) whose fault a 5xx is
//   Use(stage)         no attempt is left, and the client gets the last response of this stage
//
// Belongs to one PdExchange. One thread.
#pragma once

#include <optional>

#include "net/task.h"
#include "proxy/disaggregation/stage_leg.h"
#include "proxy/disaggregation/upstream_pair.h"
#include "proxy/exchange/arriving_response.h"
#include "proxy/exchange/kept_response.h"

namespace vllm_router {

struct RequestInfo;
struct RoutingKey;

class PairResponse {
 public:
  // All must outlive it. `arriving` is what the exchange relays; `info` records what happens.
  PairResponse(IoThread& thread, const Settings& settings, RequestInfo& info, ArrivingResponse& arriving);

  // `key` is the request's.
  void Relay(UpstreamPair& pair, const RoutingKey& key);
  // Decode's leg that is relayed; null: none is.
  StageLeg* relayed() const { return relayed_; }
  // The relayed leg was closed, because of prefill: its connection and its load are given back.
  Task<void> Drop();

  void Keep(StageLeg& leg);
  // False: there is none.
  bool Use(Stage stage);

  ServerErrors& errors(Stage stage) { return at(stage).errors; }
  // No attempt follows.
  void SettleErrors();

 private:
  struct Left {
    ServerErrors errors;
    std::optional<KeptResponse> kept;
  };

  Left& at(Stage stage) { return stage == Stage::kPrefill ? at_prefill_ : at_decode_; }
  void UseMerged(const UpstreamPair& pair);

  IoThread& thread_;
  RequestInfo& info_;
  ArrivingResponse& arriving_;
  Left at_prefill_;
  Left at_decode_;
  StageLeg* relayed_ = nullptr;
};

}  // namespace vllm_router
