// Receipts without a server: the ring, the log with its filter, and what a decision predicts.
#include <pybind11/stl.h>

#include <map>
#include <utility>

#include "bindings/bindings.h"
#include "policy/cache_prediction.h"
#include "receipts/receipt_json.h"
#include "receipts/receipt_log.h"
#include "worker/worker.h"

namespace vllm_router {

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

struct NumberedValue {
  uint64_t number = 0;
  uint64_t value = 0;
};

Decision DecisionOf(
    const std::string& unit, uint64_t matched, uint64_t total, uint64_t best, bool blocks_are_tokens) {
  Decision decision{.blocks_are_tokens = blocks_are_tokens, .matched = matched, .total = total};
  for (const MatchUnit one : {MatchUnit::kBytes, MatchUnit::kTokens, MatchUnit::kBlocks}) {
    if (MatchUnitName(one) == unit) decision.unit = one;
  }
  ConsiderBest(/*position=*/1, best, &decision);
  return decision;
}

// A log, and workers that its receipts name.
class TestReceipts {
 public:
  TestReceipts(size_t threads, size_t per_thread)
      : log_(threads, {.per_thread = per_thread, .candidates_every = 0}) {}

  void Write(
      size_t thread, const std::string& id, const std::string& worker, const std::string& model,
      const std::string& reason, int64_t wall_us, int64_t total_us, std::optional<uint64_t> predicted,
      std::optional<uint64_t> reported, size_t candidates, const std::string& tenant,
      const std::string& priority_class) {
    Decision decision;
    for (int i = 0; i < kReasonCount; ++i) {
      if (ReasonName(static_cast<Reason>(i)) == reason) decision.reason = static_cast<Reason>(i);
    }
    const Worker& chosen = WorkerOf(worker);
    decision.worker = decision.best_worker = chosen.id;
    if (predicted) {
      decision.unit = MatchUnit::kTokens;
      decision.matched = *predicted;
      decision.total = 1'000'000;
    }
    if (candidates != 0) {
      auto explanation = std::make_shared<Explanation>();
      for (size_t i = 0; i < candidates; ++i) {
        explanation->candidates.push_back(
            {.worker = i == 0 ? chosen.id : WorkerId{static_cast<uint32_t>(10'000 + i)},
             .url = i == 0 ? worker : "http://candidate-" + std::to_string(i),
             .open_requests = static_cast<int64_t>(i),
             .matched = i,
             .cost = static_cast<double>(i) / 2});
      }
      decision.explanation = std::move(explanation);
    }
    log_.writer(thread).Write(
        {.request_id = id,
         .model = model,
         .policy = "auto",
         .route = "/v1/completions",
         .end = "done",
         .worker = &chosen,
         .decision = &decision,
         .block_tokens = 16,
         .prompt_tokens = predicted,
         .cached_tokens = reported,
         .wall_us = wall_us,
         .decision_ns = 14'000,
         .total_ns = total_us * 1000,
         .status = 200,
         .attempts = 1,
         .tenant = tenant,
         .priority_class = priority_class});
  }

  std::string Find(const std::vector<ReceiptFilter::Parameter>& parameters) const {
    const StatusOr<ReceiptFilter> filter = ReceiptFilter::Parse(parameters);
    if (!filter.ok()) throw py::value_error(std::string(filter.status().message()));
    return ReceiptsJson(log_.Find(*filter));
  }
  std::optional<std::string> FindOne(const std::string& id) const {
    const std::optional<ReceiptLog::Row> row = log_.FindOne(id);
    return row ? std::optional(ReceiptJson(*row)) : std::nullopt;
  }

 private:
  const Worker& WorkerOf(const std::string& url) {
    std::unique_ptr<Worker>& worker = workers_[url];
    if (worker == nullptr) {
      const WorkerId id{static_cast<uint32_t>(workers_.size())};
      worker = std::make_unique<Worker>(id, *ParseWorkerUrl(url), kWeightOne, std::make_shared<WorkerLoad>());
    }
    return *worker;
  }

  ReceiptLog log_;
  std::map<std::string, std::unique_ptr<Worker>> workers_;
};

}  // namespace

void BindTestingReceipts(py::module_& testing) {
  py::class_<SeqlockRing<NumberedValue>>(testing, "SeqlockRing")
      .def(py::init<size_t>(), "capacity"_a)
      .def(
          "add",
          [](SeqlockRing<NumberedValue>& ring, uint64_t value) {
            ring.Add({ring.added(), value});
          })
      .def_property_readonly("added", &SeqlockRing<NumberedValue>::added)
      .def(
          "read",
          [](const SeqlockRing<NumberedValue>& ring,
             uint64_t number) -> std::optional<std::pair<uint64_t, uint64_t>> {
            NumberedValue value;
            if (!ring.Read(number, &value)) return std::nullopt;
            return std::pair(value.number, value.value);
          },
          "number"_a);
  py::class_<TestReceipts>(testing, "ReceiptLog")
      .def(py::init<size_t, size_t>(), "threads"_a, "per_thread"_a)
      .def(
          "write", &TestReceipts::Write, "thread"_a, "id"_a, py::kw_only(), "worker"_a = "http://w0:8000",
          "model"_a = "m", "reason"_a = "lowest_cost", "wall_us"_a = 0, "total_us"_a = 0,
          "predicted"_a = py::none(), "reported"_a = py::none(), "candidates"_a = 0, "tenant"_a = "",
          "priority_class"_a = "")
      .def("find", &TestReceipts::Find, "parameters"_a)
      .def("find_one", &TestReceipts::FindOne, "id"_a);
  testing.def("time_text", &TimeText, "unix_us"_a);
  testing.def("parse_time", &ParseTime, "text"_a);
  testing.def(
      "cache_prediction",
      [](const std::string& unit, uint64_t matched, uint64_t total, uint64_t best,
         std::optional<uint64_t> prompt_tokens, uint32_t block_tokens,
         bool blocks_are_tokens) -> std::optional<std::pair<uint64_t, uint64_t>> {
        const auto prediction = PredictionOf(
            DecisionOf(unit, matched, total, best, blocks_are_tokens), prompt_tokens, block_tokens);
        if (!prediction) return std::nullopt;
        return std::pair(prediction->cached, prediction->foregone());
      },
      "unit"_a, "matched"_a, "total"_a, "best"_a = 0, "prompt_tokens"_a = py::none(), "block_tokens"_a = 16,
      "blocks_are_tokens"_a = true);
}

}  // namespace vllm_router
