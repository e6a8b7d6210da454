// ModelCatalog: which worker serves which model, and the pools that follow from it.
//
//   worker   lists          name   its workers    pool
//   w0       a, b           a      w0, w1         {w0, w1}        a request for b sees a view of the fleet in
//   w1       a              b      w0             {w0}            which w1 is out of rotation
//   w2       (not known)    x      -              {w2}            w2 may serve anything, so it is in each pool
//
// A host that is asked and does not respond is awaited: where all others list the same its workers are taken to serve
// that, else they are in no pool.
//
// A worker lists what its source declares (WorkerDeclaration::models), else what its host said last. While all workers
// list the same, the pool of each name is the whole fleet: `decides` is false, and nothing has to read names.
// A name that no worker lists any more is remembered, so that "unknown" and "asleep" can be told apart.
//
// With `spread` engines load adapters themselves: the pool of an adapter has the workers of its parent, too, and its
// view marks those that list the adapter (FleetView::residents).
//
// Bounded against a worker that lies: kMaxModelsPerWorker names of kMaxModelName bytes; kMaxModelNames over all,
// of which the youngest that are only remembered give way, and then new ones are refused, but for those that people
// name; kMaxModelPools views, beyond which a view is made per request.
//
// In a fleet with stages each pool has views of both, so that no request makes one (FleetView::PoolOf).
//
// Cost: a change of the lists or of the membership O(all names listed), a change of health O(pools * members); a
// look-up by name one hash. The catalog is its caller's to lock; ModelPools are immutable and shared.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/string_view.h>

#include "worker/fleet_view.h"

namespace vllm_router {

inline constexpr size_t kMaxModelsPerWorker = 1024;
inline constexpr size_t kMaxModelName = 256;    // bytes
inline constexpr size_t kMaxModelNames = 4096;  // over all workers
inline constexpr size_t kMaxModelPools = 256;   // views that are kept
inline constexpr size_t kMaxModelLabels = 256;  // names that are labels of metrics

// A model as a worker lists it.
struct ModelCard {
  std::string id;
  std::string parent = {};  // not empty: it is an adapter of that model
  std::string root = {};
  std::string owned_by = {};
  uint64_t max_model_len = 0;  // 0: not told
  int64_t created = 0;         // Unix seconds

  // `created` and `owned_by` say nothing of the model: engines set the former anew in each response.
  friend bool operator==(const ModelCard& a, const ModelCard& b) {
    return a.id == b.id && a.parent == b.parent && a.root == b.root && a.max_model_len == b.max_model_len;
  }
};

// A name that may be a model's: valid UTF-8 without control characters, 1..kMaxModelName bytes.
bool IsModelName(std::string_view name);

// Requests for a model. Any thread.
struct ModelDemand {
  std::atomic<uint64_t> served{0};  // it has workers
  std::atomic<uint64_t> asleep{0};
  std::atomic<uint64_t> unknown{0};  // of names that are not kept
  std::atomic<int64_t> waiting{0};   // now, for a worker of it
};

// What is known of names, and the views; published with a FleetView.
struct ModelPools {
  static constexpr uint32_t kNoPool = UINT32_MAX;
  using Positions = std::vector<uint32_t>;  // in the fleet, ascending

  struct Name {
    ModelCard card;           // as most of its workers have it
    uint32_t pool = kNoPool;  // none: no worker lists it, or can load it
    Positions workers;        // that list it
    int64_t said_ns = 0;      // when a worker listed it last; by the registry's clock
    bool expected = false;    // by the settings
    std::shared_ptr<ModelDemand> demand;
    bool is_label = false;  // the demand is its own

    bool is_listed() const { return !workers.empty(); }
    bool has_pool() const { return pool != kNoPool; }
    // By the settings, or since a worker listed it not longer ago.
    bool IsRemembered(int64_t now_ns, int64_t memory_ns) const {
      return expected || now_ns - said_ns <= memory_ns;
    }
    bool IsKnown(int64_t now_ns, int64_t memory_ns) const {
      return is_listed() || IsRemembered(now_ns, memory_ns);
    }
  };
  struct Members {
    Positions workers;    // with those that may serve anything
    Positions residents;  // that have the adapter, if others can load it; else none are marked
    friend auto operator<=>(const Members&, const Members&) = default;
  };
  struct Names {
    absl::flat_hash_map<std::string, Name> by_name;
    std::vector<std::string> order;  // as they were first listed
    std::vector<Members> pools;
    Positions anything;  // workers of which nothing is known
    bool any_said = false;
    bool decides = false;            // the workers of a request depend on its model
    std::vector<std::string> bases;  // models that workers list, no adapters
    std::shared_ptr<ModelDemand> other;
  };

  std::shared_ptr<const Names> names;
  std::vector<std::shared_ptr<const FleetView>> views;  // by pool; empty if !decides. Null: none is kept
  std::shared_ptr<const FleetView> anything;            // null: all workers are known

  bool decides() const { return names->decides; }
  // Where a request for a name may go: kAll: to any worker; kPool: to those of its pool; kAnything: to those that may
  // serve anything. kAsleep: to none now; kUnknown: it never had one. (kForwarded is the caller's, for an
  // unknown name.)
  enum class Result : uint8_t { kAll, kPool, kAnything, kAsleep, kUnknown, kForwarded };
  Result Resolve(std::string_view name, int64_t now_ns, int64_t memory_ns) const;
  const Name* Find(std::string_view name) const {
    const auto found = names->by_name.find(absl::string_view(name.data(), name.size()));
    return found != names->by_name.end() ? &found->second : nullptr;
  }
  // The view of `whole`, with which this was published, for requests of a name that has a pool.
  std::shared_ptr<const FleetView> ViewOf(
      const std::shared_ptr<const FleetView>& whole, const Name& name) const;
};

class ModelCatalog {
 public:
  ModelCatalog();

  // The list of a host, by its base URL. True if something changed. `refused`: how many of its names are not kept.
  bool Say(
      std::string_view base, std::span<const ModelCard> cards, int64_t now_ns, size_t* refused = nullptr);
  // The workers of a host may serve anything again. True if something changed.
  // `if_awaited`: only if it has not responded before.
  bool Forget(std::string_view base, bool if_awaited = false);
  // The host does not respond; what it listed before holds. True if something changed.
  bool Await(std::string_view base, int64_t now_ns);
  // What the host listed last; empty: it is not known.
  std::vector<std::string> NamesOf(std::string_view base) const;
  // Something that Publish() has not been called for.
  bool changed() const { return changed_; }

  // Names that are known even if no worker lists them, how long others are remembered, and whether a worker of the
  // parent can load an adapter.
  void Expect(std::span<const std::string> names, int64_t memory_ns, bool spread = false);

  // A worker of the fleet, in its order.
  struct Listed {
    std::string_view base;
    std::span<const std::string> declared;  // not empty: it counts instead of what the host said
  };
  using Planner = std::function<std::shared_ptr<const FleetPlan>(const FleetView& next)>;
  // The pools of `whole`, whose plan is made already. `last`: those of the view before, or null.
  std::shared_ptr<const ModelPools> Publish(
      const FleetView& whole, std::span<const Listed> workers, const ModelPools* last, const Planner& planner,
      int64_t now_ns);

 private:
  struct Known {
    ModelCard card;
    uint64_t number = 0;  // by age
    int64_t said_ns = 0;
    bool expected = false;
    std::shared_ptr<ModelDemand> demand;  // null: that of all others
  };
  struct Said {
    std::shared_ptr<Known> known;
    ModelCard card;
    friend bool operator==(const Said&, const Said&) = default;
  };
  struct Host {
    std::vector<Said> listed;
    int64_t said_ns = 0;
    bool is_awaited = false;  // it has not listed anything yet
  };

  // Nothing but memory keeps it.
  static bool IsIdle(const std::shared_ptr<Known>& known) {
    return known.use_count() == 1 && !known->expected;
  }
  // The names of those that are idle, the youngest last, as they are when the first is needed. While one list or
  // one set of settings is read none is added to them.
  struct Idle {
    bool is_filled = false;
    std::vector<std::string> names;
    std::vector<std::string> labelled;
  };
  // `asked`: people name it. Null: there is no room.
  std::shared_ptr<Known> Keep(const ModelCard& card, int64_t now_ns, Idle* idle, bool asked = false);
  // Its own, or without a label its parent's, or that of all others.
  std::shared_ptr<ModelDemand> DemandOf(const Known& known) const;
  // Forgets the youngest idle name, or takes the label of the youngest that has one. False: there is none.
  bool MakeRoom(Idle* idle, bool of_label);
  void Prune(std::span<const Listed> workers, int64_t now_ns);
  std::shared_ptr<const ModelPools::Names> NamesOf(
      const FleetView& whole, std::span<const Listed> workers, int64_t now_ns);

  std::map<std::string, std::shared_ptr<Known>, std::less<>> known_;
  std::map<std::string, Host, std::less<>> hosts_;
  std::shared_ptr<ModelDemand> other_;
  size_t labels_ = 0;
  uint64_t next_number_ = 1;
  int64_t memory_ns_;
  bool spread_ = false;
  // What names_ was made for.
  std::shared_ptr<const ModelPools::Names> names_;
  bool changed_ = true;
  uint64_t membership_ = ~uint64_t{0};
  std::vector<std::vector<std::string>> declared_;
};

}  // namespace vllm_router
