// Where KV events come from, and what is predicted until they come.
#include <map>

#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "events/dial_in_topic.h"
#include "events/kv_event.h"
#include "events/kv_source.h"
#include "index/predicted_blocks.h"
#include "index/reported_blocks.h"
#include "proxy/client/kv_source_report.h"
#include "proxy/client/model_report.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

// Workers 0 .. n-1 in the slots of the same numbers.
class Predictions {
 public:
  explicit Predictions(uint32_t workers) : hasher_(16), reported_(hasher_) {
    std::vector<ReportedBlocks::Known> known;
    for (uint32_t i = 0; i < workers; ++i)
      known.push_back({static_cast<WorkerId>(i), static_cast<WorkerSlot>(i)});
    reported_.SetWorkers(known);
  }
  void SetTrust(uint32_t worker, const std::string& name) {
    for (int trust = 0; trust < kKvTrustCount; ++trust) {
      if (KvTrustName(static_cast<KvTrust>(trust)) == name)
        reported_.SetTrust(static_cast<WorkerId>(worker), static_cast<KvTrust>(trust));
    }
  }
  uint64_t Add(uint16_t worker, const std::vector<uint64_t>& chain) {
    return predicted_.Add(static_cast<WorkerSlot>(worker), chain);
  }
  void EndWait(uint64_t wait) { predicted_.EndWait(wait); }
  void Remove(uint16_t worker) { predicted_.Remove(static_cast<WorkerSlot>(worker)); }
  void Rotate(int64_t now_ns, int64_t repeated_ns) { predicted_.Rotate(now_ns, repeated_ns); }
  // Blocks by worker.
  std::map<uint16_t, uint32_t> Match(const std::vector<uint64_t>& chain) {
    BlockMatches matches;
    predicted_.Merge(chain, reported_, &matches);
    std::map<uint16_t, uint32_t> held;
    for (const BlockMatch& match : std::as_const(matches).entries())
      held[static_cast<uint16_t>(match.owner)] = match.on(Tier::kGpu);
    return held;
  }

 private:
  BlockHasher hasher_;
  ReportedBlocks reported_;
  PredictedBlocks predicted_;
};

py::list ListOf(const std::vector<ReportedSource>& sources) {
  py::list list;
  for (const ReportedSource& source : sources)
    list.append(py::make_tuple(source.rank, source.endpoint, source.replay_endpoint, source.topic));
  return list;
}

}  // namespace

void BindTestingKvSources(py::module_& testing) {
  testing.def("parse_named_endpoints", [](std::string_view option, std::string_view value) {
    NamedEndpoints named = ValueOrThrow(ParseNamedEndpoints(option, value));
    return py::make_tuple(named.worker, named.endpoints);
  });
  testing.def("fair_share", [](const std::vector<uint32_t>& workers, size_t most) {
    std::vector<KvSource> sources;
    for (size_t i = 0; i < workers.size(); ++i)
      sources.push_back({.worker = WorkerId{workers[i]}, .rank = static_cast<uint32_t>(i)});
    std::vector<uint32_t> kept;
    for (const KvSource& source : FairShare(std::move(sources), most)) kept.push_back(source.rank);
    return kept;
  });
  testing.def("reachable_endpoint", &ReachableEndpoint);
  testing.def("parse_dial_in_topic", [](std::string_view topic) -> py::object {
    const std::optional<DialInTopic> parsed = ParseDialInTopic(topic);
    if (!parsed) return py::none();
    return py::make_tuple(parsed->host, parsed->port);
  });
  testing.def("check_bind_endpoint", [](std::string_view option, std::string_view endpoint) {
    ThrowIfError(CheckBindEndpoint(option, endpoint));
  });
  testing.def("read_batch_rank", [](const py::bytes& payload) -> py::object {
    const std::string_view bytes = payload;
    std::optional<int64_t> rank;
    if (!ReadBatchRank({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, &rank))
      return py::cast("malformed");
    return py::cast(rank);
  });
  testing.def("kv_sources_in_report", [](std::string_view text) -> std::optional<py::list> {
    const auto sources = SourcesInReport(text);
    if (!sources) return std::nullopt;
    return ListOf(*sources);
  });
  testing.def("kv_sources_in_server_info", [](std::string_view text) -> std::optional<py::list> {
    const auto sources = SourcesInServerInfo(text);
    if (!sources) return std::nullopt;
    return ListOf(*sources);
  });
  testing.def("base_models_in", &BaseModelsIn);
  testing.def("models_in_report", [](const std::string& text) -> py::object {
    const std::optional<std::vector<ModelCard>> cards = ModelsInReport(text);
    if (!cards) return py::none();
    py::list rows;
    for (const ModelCard& card : *cards)
      rows.append(py::make_tuple(card.id, card.parent, card.root, card.max_model_len));
    return rows;
  });
  py::class_<Predictions>(testing, "Predictions")
      .def(py::init<uint32_t>())
      .def("set_trust", &Predictions::SetTrust)
      .def("add", &Predictions::Add)
      .def("remove", &Predictions::Remove)
      .def("end_wait", &Predictions::EndWait)
      .def("rotate", &Predictions::Rotate, py::arg("now_ns") = 0, py::arg("repeated_ns") = 0)
      .def("match", &Predictions::Match);
}

}  // namespace vllm_router
