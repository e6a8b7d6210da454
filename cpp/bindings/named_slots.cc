#include "bindings/named_slots.h"

#include <utility>

#include "base/text.h"
#include "bindings/arguments.h"

namespace vllm_router {

namespace py = pybind11;

NamedSlots::NamedSlots(std::string_view learns_by, WorkerNames names)
    : learns_by_(learns_by), names_(std::move(names)) {
  for (size_t slot = 0; slot < names_.size(); ++slot) {
    if (!names_[slot].is_none()) slots_.emplace(*TextView(names_[slot]), static_cast<WorkerSlot>(slot));
  }
}

std::string NamedSlots::Name(py::handle worker) {
  if (!PyUnicode_Check(worker.ptr()))
    throw py::type_error("worker is of type " + TypeName(worker) + "; it must be a str, such as its URL");
  return std::string(*TextView(worker));
}

std::optional<WorkerSlot> NamedSlots::Find(py::handle worker) const {
  const auto found = slots_.find(Name(worker));
  return found == slots_.end() ? std::nullopt : std::optional(found->second);
}

WorkerSlot NamedSlots::Get(py::handle worker) const {
  const std::optional<WorkerSlot> found = Find(worker);
  if (!found) {
    Throw(absl::NotFoundError(Concat(
        "worker ", Show(worker), " is not known here; ", learns_by_, " makes it known, and there are ",
        slots_.size(), " others")));
  }
  return *found;
}

WorkerSlot NamedSlots::Remove(py::handle worker) {
  const WorkerSlot slot = Get(worker);
  slots_.erase(Name(worker));
  names_[static_cast<size_t>(slot)] = py::none();
  return slot;
}

py::object NamedSlots::NameOf(WorkerSlot slot) const {
  const auto number = static_cast<size_t>(slot);
  if (number >= names_.size() || names_[number].is_none()) return {};
  return names_[number];
}

py::list NamedSlots::AsList() const {
  py::list workers;
  for (const py::object& name : names_) workers.append(name);
  return workers;
}

void NamedSlots::Add(const std::string& name, WorkerSlot slot) {
  const auto number = static_cast<size_t>(slot);
  if (number >= names_.size()) names_.resize(number + 1, py::none());
  names_[number] = py::str(name);
  slots_.emplace(name, slot);
}

}  // namespace vllm_router
