// AdminFacts: what admins said of workers at any router of the fleet. Of two that contradict each other the later one
// counts at all routers, in whatever order they hear of it (a last-writer-wins map).
//
//   router a   12:00:01  http://w7 is a worker           all       http://w7 is a worker, and drains
//   router b   12:00:05  http://w7 drains
//   router b   11:59:50  http://w7 is no worker          heard late: of no effect
//
//   a drain after it was added                           it drains where it is known, and is added nowhere any more
//   added after its drain                                it came anew
//
// Times are Redis's, so that routers' clocks may differ; at one time the higher router counts. What was taken back is
// kept for kKeptMs, so that a router which was away does not bring it back; so is the drain of a worker that is no
// longer known here, with its having been added before. At most kMaxFacts: beyond that new ones are not taken. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "worker/stage.h"

namespace vllm_router {

struct AdminFact {
  enum class Kind : uint8_t { kMember = 0, kDrain = 1 };

  Kind kind = Kind::kMember;
  std::string url;
  bool holds = true;       // false: it was taken back
  uint32_t weight = 1000;  // of a member, in thousandths
  bool receives_api_key = false;
  WorkerRole role = {};     // of a member
  uint32_t timeout_ms = 0;  // of a drain
  uint64_t at_ms = 0;       // when it was said
  uint64_t router = 0;      // where

  friend bool operator==(const AdminFact&, const AdminFact&) = default;
};

class AdminFacts {
 public:
  static constexpr size_t kMaxFacts = 4096;
  static constexpr uint64_t kKeptMs = 86'400'000;

  // False: it is known already, or a later one is, or there are too many.
  bool Merge(const AdminFact& fact);
  // It is known, and neither a later fact nor one of the other kind has ended it.
  bool Counts(const AdminFact& fact) const;
  // What has ended for so long. `knows`: the fleet has a worker of this URL.
  void Forget(uint64_t now_ms, const std::function<bool(const std::string& url)>& knows);

  using Key = std::pair<AdminFact::Kind, std::string>;
  const std::map<Key, AdminFact>& all() const { return facts_; }

 private:
  const AdminFact* Find(AdminFact::Kind kind, const std::string& url) const;

  std::map<Key, AdminFact> facts_;
};

}  // namespace vllm_router
