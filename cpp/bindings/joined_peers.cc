// The Python class of what a router shares with others without being served; python/vllm_router/peers.py holds it.
#include "proxy/peer_sync/joined_peers.h"

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/callables.h"
#include "bindings/errors.h"
#include "bindings/py_router.h"
#include "bindings/server_options.h"
#include "proxy/peer_sync/peer_endpoints.h"

namespace vllm_router {
namespace py = pybind11;

namespace {

// Its end waits for a thread that logs, so it is without the GIL.
class PyPeers {
 public:
  PyPeers(std::shared_ptr<Router> router, std::unique_ptr<JoinedPeers> peers)
      : router_(std::move(router)), peers_(std::move(peers)) {}
  PyPeers(const PyPeers&) = delete;
  PyPeers& operator=(const PyPeers&) = delete;
  ~PyPeers() {
    const py::gil_scoped_release release;
    peers_.reset();
  }

  JoinedPeers& peers() const { return *peers_; }
  Router& router() const { return *router_; }

 private:
  const std::shared_ptr<Router> router_;
  std::unique_ptr<JoinedPeers> peers_;
};

std::unique_ptr<PyPeers> JoinPeers(const PyRouter& router, const py::kwargs& given) {
  const ServerOptions options = ToServerOptions(given);
  StatusOr<std::unique_ptr<JoinedPeers>> peers = absl::UnknownError("");
  {
    const py::gil_scoped_release release;
    peers = JoinedPeers::Join(router.shared(), options);
  }
  return std::make_unique<PyPeers>(router.shared(), ValueOrThrow(std::move(peers)));
}

// Of `url`, or of each of its ranks; without one, of every worker. A URL that the fleet does not have is none of theirs.
void TellForgottenCaches(const PyPeers& self, const std::optional<std::string>& url) {
  const Pool& pool = self.router().pool();
  const std::shared_ptr<const FleetView> fleet = pool.fleet();
  for (const FleetView::Member& member : fleet->members()) {
    const WorkerUrl& named = member.worker->url;
    if (!url || named.url == *url || named.base == *url) self.peers().TellForgotten(member.worker->id);
  }
}

}  // namespace

void BindJoinedPeers(py::module_& module) {
  py::class_<PyPeers>(module, "JoinedPeers", ClassDoc("JoinedPeers"))
      .def(py::init(&JoinPeers), py::arg("router"))
      .def(
          "stop", [](const PyPeers& self) { self.peers().Stop(); }, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("running", [](const PyPeers& self) { return self.peers().running(); })
      .def("status_text", [](const PyPeers& self) { return PeerStatusText(self.peers().Report()); })
      .def("tell_forgotten", &TellForgottenCaches, py::arg("url") = py::none());
}

}  // namespace vllm_router
