// NamedSlots: the workers of an index by name, and their names by slot, for Python classes whose workers
// are names.
//
//   NamedSlots workers("insert()");
//   const WorkerSlot slot = workers.FindOrAdd(NamedSlots::Name(worker), tree);   // a new one joins the tree
//   workers.NameOf(slot);                                                        // its str again
//
// Cost: a lookup by hash. The GIL guards it: all functions with the GIL. A match that was found without
// it may name a slot whose worker has left since.
#pragma once

#include <pybind11/pybind11.h>

#include <absl/container/flat_hash_map.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/errors.h"
#include "index/worker_slot.h"

namespace vllm_router {

// Workers' names by slot; None for a free one.
using WorkerNames = std::vector<pybind11::object>;

class NamedSlots {
 public:
  // `learns_by`: the function that makes a worker known, for a message; a literal.
  explicit NamedSlots(std::string_view learns_by, WorkerNames names = {});

  // TypeError if it is no str.
  static std::string Name(pybind11::handle worker);

  std::optional<WorkerSlot> Find(pybind11::handle worker) const;
  // WorkerNotFoundError if it is unknown.
  WorkerSlot Get(pybind11::handle worker) const;
  // Adds an unknown one to the index.
  template <typename Index>
  WorkerSlot FindOrAdd(const std::string& name, Index& index) {
    const auto found = slots_.find(name);
    if (found != slots_.end()) return found->second;
    const WorkerSlot slot = ValueOrThrow(index.AddWorker());
    Add(name, slot);
    return slot;
  }
  // Its slot, which is free now; the caller removes it from the index. As Get().
  WorkerSlot Remove(pybind11::handle worker);

  // Null if the worker has been removed.
  pybind11::object NameOf(WorkerSlot slot) const;
  const WorkerNames& names() const { return names_; }
  pybind11::list AsList() const;

 private:
  void Add(const std::string& name, WorkerSlot slot);

  const std::string_view learns_by_;
  absl::flat_hash_map<std::string, WorkerSlot> slots_;
  WorkerNames names_;
};

}  // namespace vllm_router
