// PairChoice: the SELECT of a PdExchange: a prefill worker and a decode worker for each attempt of one request.
//
//   ChooseFirst()           both; or a decode worker alone, since it has to compute little of the prompt, or there is no
//                           prefill worker
//   Choose(retry)           what an attempt of this kind needs: both, or a decode worker
//   ChooseOtherGroup(retry) both again, where no decode worker may fetch the blocks that there are
//   Take(kind)              what was chosen is sent the request next
//
// Blocks pass only between workers of one kv_group. Prefill is chosen first; where its group has no decode worker for the
// request, another group's prefill worker is chosen:
//
//   Choose ─▶ prefill of group a ─▶ decode of a: none ─▶ prefill of any but a ─▶ decode of b
//
// Which workers are left out is the business of each stage's WorkerChoice (worker_choice.h). One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "disaggregation/kv_connector.h"
#include "disaggregation/pd_machine.h"
#include "proxy/exchange/worker_choice.h"

namespace vllm_router {

struct IoThread;
struct PdInfo;
struct Settings;

class PairChoice {
 public:
  // One stage of the fleet.
  struct Side {
    Side(IoThread& thread, const Settings& settings) : choice(thread, settings) {}
    WorkerChoice choice;
    std::optional<WorkerChoice::Selected> selected;  // not yet sent anything
    std::shared_ptr<Worker> worker;                  // of this attempt, or of the last one that had one
    bool lost = false;                               // a worker was, so only fresh connections are used
  };

  // All must outlive it. `info` records what is chosen.
  PairChoice(IoThread& thread, const Settings& settings, PdInfo& info);

  void Begin(WorkerChoice::Request request, const KvConnector& connector);

  // nullopt: no worker may be chosen.
  std::optional<PdAttemptKind> ChooseFirst();
  // False: likewise.
  bool Choose(const PdRetry& retry);
  bool ChooseOtherGroup(const PdRetry& retry);
  bool all_full() const { return all_full_; }  // why none was

  void Take(PdAttemptKind kind);
  // A decode worker whose probe was given back when it was chosen needs a pass again. True: its breaker admits no request
  // now, and another worker gets the blocks.
  bool TakePassAgain();
  // What failed is left out from now on.
  void Exclude(const PdRetry& retry);

  // Whether decode serves a request for which no prefill worker is reached.
  bool MayServeAlone() const;
  // Whether the decode worker is in rotation still: a prefill may last.
  bool MayDecodeStill() const;

  Side& prefill() { return prefill_; }
  const Side& prefill() const { return prefill_; }
  Side& decode() { return decode_; }
  const Side& decode() const { return decode_; }
  Side& at(Stage stage) { return stage == Stage::kPrefill ? prefill_ : decode_; }

 private:
  bool ChooseBypass();
  bool IsOfFleetsEngine() const;
  bool ChooseWorkers(const PdRetry& retry, bool last_resort);
  void TakeAt(Side& side);

  IoThread& thread_;
  const Settings& settings_;
  PdInfo& info_;
  const KvConnector* connector_ = nullptr;
  Side prefill_;
  Side decode_;
  bool all_full_ = false;
};

}  // namespace vllm_router
