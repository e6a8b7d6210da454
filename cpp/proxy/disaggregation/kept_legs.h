// KeptLegs: the limits of legs that go on though the client needs them no more, because the engines do not bear their end
// yet: blocks would stay held. Each posts an event once it is reached, or at once where nothing is to be kept.
//
//   decode    that was sent the request: --pd-grace-ms                          kGraceOver
//   prefill   --pd-drain-ms; a second behind a complete response of decode      kKeepOver
//
// Belongs to one PdExchange. One thread.
#pragma once

#include "net/timer_wheel.h"

namespace vllm_router {

class PdExchange;
class StageLeg;
struct IoThread;
struct PdSettings;

class KeptLegs {
 public:
  // All must outlive it.
  KeptLegs(PdExchange& owner, IoThread& thread, const PdSettings& settings)
      : owner_(owner), thread_(thread), settings_(settings) {}

  // Null: the leg was not opened.
  void KeepDecode(const StageLeg* leg);
  void KeepPrefill(const StageLeg* leg, bool behind_complete_response);

 private:
  PdExchange& owner_;
  IoThread& thread_;
  const PdSettings& settings_;
  Timer decode_;
  Timer prefill_;
};

}  // namespace vllm_router
