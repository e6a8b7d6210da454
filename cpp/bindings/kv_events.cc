#include "bindings/kv_events.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/msgpack_writer.h"
#include "base/text.h"
#include "bindings/errors.h"
#include "events/kv_push.h"

namespace vllm_router {
namespace {

namespace py = pybind11;
using namespace py::literals;

constexpr int kMaxDepth = 16;          // as the decoder's
constexpr size_t kMaxModelName = 256;  // bytes

// Anything with __index__, numpy's integers among them.
void WriteInteger(py::handle value, MsgpackWriter* out) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) {
    PyErr_Clear();
    throw py::type_error(Concat(
        "events have a value of type ", std::string(py::str(py::type::of(value).attr("__name__"))),
        "; they are made of dicts, lists, text, bytes, integers, floats, booleans and None"));
  }
  int overflow = 0;
  const int64_t small = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow == 0) return out->Signed(small);
  const uint64_t large = overflow > 0 ? PyLong_AsUnsignedLongLong(number.ptr()) : 0;
  if (overflow < 0 || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw py::value_error("events have an integer of more than 64 bits");
  }
  out->Unsigned(large);
}

// Dicts with text keys, lists, text, bytes, integers of 64 bits, floats.
void WriteValue(py::handle value, int depth, MsgpackWriter* out) {
  if (depth > kMaxDepth) throw py::value_error("events are nested deeper than 16 levels");
  if (value.is_none()) return out->Nil();
  if (py::isinstance<py::bool_>(value)) return out->Bool(value.cast<bool>());
  if (py::isinstance<py::float_>(value)) return out->Float(value.cast<double>());
  if (py::isinstance<py::str>(value)) return out->Text(value.cast<std::string>());
  if (py::isinstance<py::bytes>(value)) return out->Binary(value.cast<std::string>());
  if (py::isinstance<py::dict>(value)) {
    const auto dict = value.cast<py::dict>();
    out->Map(dict.size());
    for (const auto& [key, inner] : dict) {
      if (!py::isinstance<py::str>(key)) throw py::type_error("events have a key that is no text");
      WriteValue(key, depth + 1, out);
      WriteValue(inner, depth + 1, out);
    }
    return;
  }
  if (py::isinstance<py::sequence>(value)) {
    const auto list = value.cast<py::sequence>();
    out->Array(list.size());
    for (const auto& inner : list) WriteValue(inner, depth + 1, out);
    return;
  }
  WriteInteger(value, out);
}

std::string PayloadOf(const py::object& events) {
  if (py::isinstance<py::bytes>(events)) return std::string(events.cast<py::bytes>());
  if (!py::isinstance<py::list>(events) && !py::isinstance<py::tuple>(events)) {
    throw py::type_error(Concat(
        "events is of type ", std::string(py::str(py::type::of(events).attr("__name__"))),
        "; it is a list of events, or bytes as an engine publishes them"));
  }
  MsgpackWriter writer;
  WriteValue(py::dict("events"_a = events), 0, &writer);
  return writer.Take();
}

uint64_t PushKvEvents(
    PyRouter& self, const std::string& worker, const py::object& events, std::optional<uint64_t> seq,
    uint32_t rank, bool reset, const std::string& model) {
  const std::string payload = PayloadOf(events);
  const auto fleet = self.fleet();
  const std::optional<uint32_t> position = fleet->Find(worker);
  if (!position) ThrowIfError(absl::NotFoundError(Concat("worker ", Quoted(worker), " is not in the fleet")));
  if (rank >= kMaxKvRanks) {
    throw py::value_error(
        Concat("rank is ", rank, "; it is a data-parallel rank and must be between 0 and ", kMaxKvRanks - 1));
  }
  KvPushReceiver* const receiver = self.pushes();
  if (receiver == nullptr) {
    throw py::value_error(Concat(
        "the policy ", self.router().policy().name(),
        " matches no blocks, so it has no use for KV events; use auto"));
  }
  if (model.size() > kMaxModelName) {
    throw py::value_error(
        Concat("model is a name of ", model.size(), " bytes; it has at most ", kMaxModelName));
  }
  KvPushReceiver::Result result;
  {
    const py::gil_scoped_release release;
    result = receiver->Push(
        {.worker = fleet->worker(*position).id,
         .rank = rank,
         .number = seq,
         .reset = reset,
         .model = model,
         .payload = std::span(reinterpret_cast<const uint8_t*>(payload.data()), payload.size())},
        SteadyClock().NowNanos());
  }
  KvIndex& index = *self.router().pool().index();
  index.RotateDuePredictions();
  switch (result.verdict) {
    case KvPushReceiver::Verdict::kGap:
      throw py::value_error(Concat(
          "seq is ", *seq, "; ", result.next, " comes next for ", worker,
          ": push from there on, or with reset=True"));
    case KvPushReceiver::Verdict::kMalformed:
      throw py::value_error("events are no batch of KV events in msgpack; nothing was applied");
    case KvPushReceiver::Verdict::kWorkerLeft:
      ThrowIfError(absl::NotFoundError(Concat("worker ", Quoted(worker), " is not in the fleet")));
      break;
    case KvPushReceiver::Verdict::kOtherModel:
      throw py::value_error("model is another than the one whose blocks this rank has; push with reset=True");
    case KvPushReceiver::Verdict::kTooManyModels:
      throw py::value_error(
          Concat("model is one more than the ", ReportedBlocks::kMaxPushedModels, " that were pushed"));
    case KvPushReceiver::Verdict::kAccepted:
      break;
  }
  if (reset || result.cleared) index.ForgetPredictions(fleet->worker(*position).id);
  if (result.unusable != 0) {
    const std::string sentence =
        Concat(result.unusable, " of the events were not applied, most of them as ", result.why);
    if (PyErr_WarnEx(PyExc_UserWarning, sentence.c_str(), 1) < 0) throw py::error_already_set();
  }
  return result.next;
}

}  // namespace

void BindKvEvents(py::class_<PyRouter>* router) {
  router->def(
      "push_kv_events", &PushKvEvents, "KV events of a worker.", "worker"_a, "events"_a, py::kw_only(),
      "seq"_a = py::none(), "rank"_a = 0, "reset"_a = false, "model"_a = "");
}

}  // namespace vllm_router
