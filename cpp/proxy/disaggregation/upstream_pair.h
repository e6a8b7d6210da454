// UpstreamPair: one attempt of a request at a prefill worker and a decode worker, or at a decode worker alone, as an
// UpstreamRequest is one at one worker. Both workers were chosen before (pair_choice.h).
//
//   UpstreamPair pair(exchange, thread, settings, info, request, choice, before);
//   pair.Plan(kind);                                a pair gets an id, and a place where the workers meet
//   pair.OpenPrefill(errors);                       from now on pair.prefill() runs
//   pair.OpenDecode(errors, /*with_parameters=*/true);
//
//   client's body ─┬─ patch ─▶ prefill's leg ── parameters of its response ─┐
//                  └─ patch ◀────────────────────────────────────────────────┘─▶ decode's leg
//
// An attempt without a prefill of its own has that of the attempt `before`, whose blocks it may use. The legs' tasks refer
// to it, so it stays where it is until they have ended. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "disaggregation/pd_plan.h"
#include "proxy/api/request_id.h"
#include "proxy/disaggregation/pair_choice.h"
#include "proxy/disaggregation/stage_leg.h"
#include "proxy/telemetry/request_info.h"

namespace vllm_router {

class PdExchange;

// What two workers are to serve. Everything outlives it.
struct PairRequest {
  UpstreamRequest::Message message{};  // the client's, whose body is whole
  WorkerChoice::Request choice{};      // for both stages
  const RequestId* id = nullptr;
  bool client_restricted = false;  // by the quarantine: not given to a second worker after a loss
  PdRoute route;
  const BodyMap* body;
  const PdPlan* plan;  // kTwoStages
  const KvConnector* connector;
  std::span<const BodyInsertion> insertions{};  // into each copy of the body
};

class UpstreamPair {
 public:
  // All must outlive it; `before` may be null.
  UpstreamPair(
      PdExchange& owner, IoThread& thread, const Settings& settings, RequestInfo& info,
      const PairRequest& request, PairChoice& choice, const UpstreamPair* before);
  UpstreamPair(const UpstreamPair&) = delete;
  UpstreamPair& operator=(const UpstreamPair&) = delete;

  // For the machine. nullopt: the workers cannot be told what they need, and decode serves no request alone.
  std::optional<PdAttempt> Plan(PdAttemptKind kind);
  // Again if another decode worker is to get the blocks.
  void Name();
  bool is_pair() const { return !id_.empty(); }
  // Whether decode is told which engine computes the prompt.
  bool names_engine() const { return engine_id_ != nullptr; }
  // As connectors see it.
  PairAttempt Attempt() const;

  // `errors` holds 5xx of all attempts at this stage.
  void OpenPrefill(ServerErrors& errors);
  void OpenDecode(ServerErrors& errors, bool with_parameters);
  // Null: it was not opened.
  StageLeg* prefill() const { return prefill_; }
  StageLeg* decode() const { return decode_; }
  // The legs that it has opened itself; null: it has not.
  std::array<StageLeg*, 2> legs() { return {own_prefill_ ? &*own_prefill_ : nullptr, decode_}; }

  // Prefill has handed over: decode gets the parameters of its response.
  void HandOver() { source_ = prefill_; }
  StageLeg* source() const { return source_; }  // null: nothing was handed over
  // What prefill's response says of its engine, for the pairs to come.
  void LearnIdentity() const;
  // Whether decode, which runs, needs blocks that this worker holds.
  bool WaitsForBlocksOf(const Worker& worker) const;

  // Prefill's usage, as UsageOf(), which decode's response gets; empty as long as it is not known. Null: decode's stays
  // as it is, which is right where it has computed the prompt itself.
  const std::string* usage_for_decode() const;
  // Decode's body with prefill's log probabilities of the prompt and its usage, or as it is where they do not fit.
  std::string MergedBody() const;

 private:
  PdAttempt PlanAlone();
  StageLeg::Setup SetupFor(std::string id) const;
  bool MergesLogprobs() const;
  bool MergesUsage() const;
  uint32_t RanksOfPrefill() const;

  PdExchange& owner_;
  IoThread& thread_;
  const Settings& settings_;
  RequestInfo& info_;
  const PairRequest& request_;
  PairChoice& choice_;
  std::string id_;
  std::shared_ptr<const std::string>
      engine_id_;  // of prefill, as it was when the pair was named; null: not needed
  PairBits bits_;
  std::vector<uint64_t> rooms_;
  PdOrder order_ = PdOrder::kSerial;
  RequestInfo prefill_info_;  // of prefill's request, whose times are not the client's
  std::optional<StageLeg> own_prefill_;
  std::optional<StageLeg> own_decode_;
  StageLeg* prefill_ = nullptr;
  StageLeg* decode_ = nullptr;
  StageLeg* source_ = nullptr;
};

// All attempts of one request: legs that were closed go on for a moment beside those of the last attempt.
class UpstreamPairs {
 public:
  // A further attempt, behind the last one.
  UpstreamPair& Add(
      PdExchange& owner, IoThread& thread, const Settings& settings, RequestInfo& info,
      const PairRequest& request, PairChoice& choice) {
    pairs_.push_back(std::make_unique<UpstreamPair>(owner, thread, settings, info, request, choice, last()));
    return *pairs_.back();
  }
  UpstreamPair* last() const { return pairs_.empty() ? nullptr : pairs_.back().get(); }
  // The legs of the last one; null: it has none.
  StageLeg* prefill() const { return pairs_.empty() ? nullptr : last()->prefill(); }
  StageLeg* decode() const { return pairs_.empty() ? nullptr : last()->decode(); }
  StageLeg* leg(Stage stage) const { return stage == Stage::kPrefill ? prefill() : decode(); }

  bool AnyRuns() const {
    bool any = false;
    ForLegs([&](const StageLeg& leg) { any = any || leg.runs(); });
    return any;
  }
  bool IsAt(const Worker& worker) const {
    bool any = false;
    ForLegsAt(worker, [&](const StageLeg&) { any = true; });
    return any;
  }
  bool WaitForBlocksOf(const Worker& worker) const {
    return last() != nullptr && last()->WaitsForBlocksOf(worker);
  }
  // Those that run at this worker.
  template <typename F>
  void ForLegsAt(const Worker& worker, F f) const {
    ForLegs([&](StageLeg& leg) {
      if (leg.runs() && leg.worker().get() == &worker) f(leg);
    });
  }

 private:
  template <typename F>
  void ForLegs(F f) const {
    for (const std::unique_ptr<UpstreamPair>& pair : pairs_) {
      for (StageLeg* const leg : pair->legs()) {
        if (leg != nullptr) f(*leg);
      }
    }
  }

  std::vector<std::unique_ptr<UpstreamPair>> pairs_;
};

}  // namespace vllm_router
