// The structures of proxy/ that keep the server within its limits, for their property tests.
#include <map>
#include <memory>
#include <optional>
#include <set>

#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "proxy/idle_list.h"

namespace vllm_router {
namespace {

namespace py = pybind11;

// Members by number.
class IdleListHarness {
 public:
  void Enter(int number) {
    std::unique_ptr<One>& one = members_[number];
    if (one == nullptr) one = std::make_unique<One>(number);
    if (one->is_idle()) throw py::value_error("it is idle already");
    list_.Enter(one.get());
  }
  void Leave(int number) {
    if (const auto found = members_.find(number); found != members_.end()) list_.Leave(found->second.get());
  }
  std::optional<int> Find(const std::set<int>& busy) {
    auto* found = static_cast<One*>(list_.Find(
        [&busy](IdleList::Member& member) { return !busy.contains(static_cast<One&>(member).number); }));
    return found == nullptr ? std::nullopt : std::optional(found->number);
  }
  IdleList& list() { return list_; }

 private:
  struct One : IdleList::Member {
    explicit One(int number) : number(number) {}
    const int number;
  };
  IdleList list_;
  std::map<int, std::unique_ptr<One>> members_;
};

}  // namespace

void BindTestingAccess(py::module_& testing) {
  testing.attr("IDLE_LIST_MAX_LOOKS") = IdleList::kMaxLooks;
  py::class_<IdleListHarness>(testing, "IdleList")
      .def(py::init<>())
      .def("enter", &IdleListHarness::Enter)
      .def("leave", &IdleListHarness::Leave)
      .def("find", &IdleListHarness::Find, py::arg("busy") = std::set<int>())
      .def("claim", [](IdleListHarness& harness) { return harness.list().Claim(); })
      .def("end_claim", [](IdleListHarness& harness) { harness.list().EndClaim(); })
      .def("__len__", [](IdleListHarness& harness) { return harness.list().size(); });
}

}  // namespace vllm_router
