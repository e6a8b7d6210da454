// The structures of proxy/ that keep the server within its limits, for their property tests.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "proxy/admin/page_renderer.h"
#include "proxy/admin/render_queue.h"
#include "proxy/api/fan_out_paths.h"
#include "proxy/api/json_text.h"
#include "proxy/control/shared_refresh.h"
#include "proxy/exchange/fan_out.h"
#include "proxy/security/key_queue.h"
#include "proxy/thread/idle_list.h"

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

// Waiters and validations by number.
class KeyQueueHarness {
 public:
  KeyQueueHarness(size_t places, size_t address_share) : queue_(places, address_share) {}

  std::string Enter(int number, const std::string& address, const std::string& key, bool refresh) {
    std::unique_ptr<One>& one = waiters_[number];
    one = std::make_unique<One>(number, address);
    switch (queue_.Enter(one.get(), Sha256({key}), key, refresh)) {
      case KeyQueue::Entry::kNew:
        return "new";
      case KeyQueue::Entry::kJoined:
        return "joined";
      case KeyQueue::Entry::kFull:
        return "full";
      case KeyQueue::Entry::kAddressFull:
        return "address_full";
    }
    return {};
  }
  std::optional<std::pair<std::string, size_t>> Begin() {
    const std::shared_ptr<KeyQueue::Validation> begun = queue_.Begin();
    if (begun == nullptr) return std::nullopt;
    begun_.push_back(begun);
    return std::pair(begun->key, begun_.size() - 1);
  }
  std::vector<int> End(size_t validation) {
    std::vector<int> numbers;
    for (KeyQueue::Waiter* waiter : queue_.End(*begun_.at(validation))) {
      numbers.push_back(static_cast<One*>(waiter)->number);
    }
    return numbers;
  }
  // The validation that is to be abandoned.
  std::optional<size_t> Leave(int number) {
    const auto found = waiters_.find(number);
    if (found == waiters_.end()) return std::nullopt;
    const std::shared_ptr<KeyQueue::Validation> abandoned = queue_.Leave(found->second.get());
    const auto at = std::find(begun_.begin(), begun_.end(), abandoned);
    return abandoned == nullptr ? std::nullopt : std::optional<size_t>(at - begun_.begin());
  }
  const KeyQueue& queue() const { return queue_; }

 private:
  struct One : KeyQueue::Waiter {
    One(int number, std::string address) : KeyQueue::Waiter(std::move(address)), number(number) {}
    const int number;
  };
  KeyQueue queue_;
  std::map<int, std::unique_ptr<One>> waiters_;
  std::vector<std::shared_ptr<KeyQueue::Validation>> begun_;
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

  py::class_<KeyQueueHarness>(testing, "KeyQueue")
      .def(py::init<size_t, size_t>(), py::arg("places"), py::arg("address_share"))
      .def("enter", &KeyQueueHarness::Enter)
      .def("begin", &KeyQueueHarness::Begin)
      .def("end", &KeyQueueHarness::End)
      .def("leave", &KeyQueueHarness::Leave)
      .def(
          "waiting_of", [](KeyQueueHarness& harness,
                           const std::string& address) { return harness.queue().waiting_of(address); })
      .def_property_readonly("waiting", [](KeyQueueHarness& harness) { return harness.queue().waiting(); })
      .def_property_readonly("queued", [](KeyQueueHarness& harness) { return harness.queue().queued(); });

  py::class_<FanOutPaths>(testing, "FanOutPaths")
      .def(py::init([](const std::vector<std::string>& more) { return std::make_unique<FanOutPaths>(more); }))
      .def(
          "__contains__",
          [](const FanOutPaths& paths, std::string_view path) { return paths.Contains(path, "POST"); })
      .def("contains", &FanOutPaths::Contains)
      .def("resembles", &FanOutPaths::Resembles)
      .def_static("empties_cache", &FanOutPaths::EmptiesCache);

  // (worker, status, body or error) of each; (status, body, error code).
  testing.def("merge_fan_out", [](const std::vector<std::tuple<std::string, int, std::string>>& given) {
    std::vector<FanOutResponse> responses;
    for (const auto& [worker, status, text] : given) {
      responses.push_back({worker, status, status == 0 ? "" : text, status == 0 ? text : ""});
    }
    const AdminReply reply = MergeFanOut(responses);
    return std::tuple(reply.status, py::bytes(reply.body), std::string(reply.error_code));
  });

  testing.def("json_text", &JsonAgain);

  // Returns what it was.
  testing.def(
      "set_max_page_bytes", [](size_t bytes) { return PageRenderer::max_page_bytes.exchange(bytes); });

  // Pages are (name of the route, detail).
  py::class_<RenderQueue>(testing, "RenderQueue")
      .def(py::init<>())
      .def_readonly_static("max_pages", &RenderQueue::kMaxPages)
      .def_readonly_static("rest", &RenderQueue::kRest)
      .def_readonly_static("longest_rest_ns", &RenderQueue::kLongestRestNanos)
      .def(
          "ask",
          [](RenderQueue& queue, std::string_view path, std::string detail, int64_t now) {
            return queue.Ask({FindRoute(path), std::move(detail)}, now);
          })
      .def(
          "next",
          [](RenderQueue& queue, int64_t now) -> std::optional<std::pair<std::string_view, std::string>> {
            std::optional<PageKey> page = queue.Next(now);
            if (!page) return std::nullopt;
            return std::pair(RouteOf(page->route).label, std::move(page->detail));
          })
      .def_property_readonly("next_ns", &RenderQueue::next_ns)
      .def("rendered", [](RenderQueue& queue, std::string_view path, int64_t began, int64_t ended) {
        queue.Rendered(FindRoute(path), began, ended);
      });
  py::class_<SharedRefresh>(testing, "SharedRefresh")
      .def(py::init<int64_t, int64_t>(), py::arg("fresh"), py::arg("usable"))
      .def(
          "ask",
          [](SharedRefresh& refresh, int64_t now, uint64_t version) {
            constexpr std::array<const char*, 3> kNames = {"serve", "start", "join"};
            return kNames[static_cast<size_t>(refresh.Ask(now, version))];
          })
      .def("is_usable", &SharedRefresh::IsUsable)
      .def_property_readonly("begun", &SharedRefresh::begun_ns)
      .def("end", &SharedRefresh::End);
}

}  // namespace vllm_router
