// PdRegistrations: the workers of prefill/decode that have registered, and what each message and each silence changes.
//
//   registered ──silent 5 s──▶ silent, not eligible ──silent forget_ns──▶ removed
//       ▲                            │
//       └────────registers───────────┘
//
// A worker is its HTTP address. One that registers as the other role is rejected while the first is here. The first
// MoRI-IO mode that registers is the fleet's until all its workers are removed; workers of the other mode are rejected.
// What is rejected counts as silence. At most kMaxInstances workers.
//
// Times are passed in; one that goes back counts as the last one. Cost: O(1) per message and change, as workers are
// kept in the order in which they were heard. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "disaggregation/pd_registration.h"

namespace vllm_router {

// What happened to a worker, and what it told last.
struct PdChange {
  enum class Kind : uint8_t {
    kAdded,     // as a new worker, also if its address was removed before
    kUpdated,   // it told something else than before, as after a restart
    kSilenced,  // not eligible
    kReturned,  // eligible again
    kRemoved,
  };
  Kind kind;
  PdRegistration worker;

  friend bool operator==(const PdChange&, const PdChange&) = default;
};
std::string_view PdChangeName(PdChange::Kind kind);

class PdRegistrations {
 public:
  static constexpr size_t kMaxInstances = 4096;
  static constexpr int64_t kSilentNs = 5'000'000'000;

  enum class Result : uint8_t { kTaken, kOtherRole, kOtherMode, kFull };

  explicit PdRegistrations(int64_t forget_ns, size_t max_instances = kMaxInstances)
      : forget_ns_(forget_ns), max_instances_(max_instances) {}

  // Both append what changed, in order.
  Result Register(const PdRegistration& told, int64_t now_ns, std::vector<PdChange>* changes);
  void Expire(int64_t now_ns, std::vector<PdChange>* changes);
  // When Expire() will next change anything; nullopt: not before the next message.
  std::optional<int64_t> next_expiry_ns() const;

  size_t size() const { return places_.size(); }
  size_t eligible(PdRole role) const;
  std::optional<MoriioMode> mode() const { return mode_; }  // of the fleet

 private:
  struct Instance {
    PdRegistration told;
    int64_t heard_ns;
    bool is_silent = false;
  };
  using Instances = std::list<Instance>;

  Result Admit(const PdRegistration& told) const;
  int64_t silent_ns() const { return std::min(kSilentNs, forget_ns_); }
  void CountMode(const PdRegistration& told, int by);
  void Refresh(Instances::iterator instance, const PdRegistration& told, std::vector<PdChange>* changes);
  void Remove(Instances* from, std::vector<PdChange>* changes);

  const int64_t forget_ns_;
  const size_t max_instances_;
  int64_t now_ns_ = 0;
  // Heard longest ago first.
  Instances eligible_;
  Instances silent_;
  absl::flat_hash_map<std::string, Instances::iterator> places_;
  std::optional<MoriioMode> mode_;
  size_t of_mode_ = 0;  // workers
};
std::string_view PdRegisterResultName(PdRegistrations::Result result);  // a label of metrics

}  // namespace vllm_router
