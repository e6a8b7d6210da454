#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "events/kv_event.h"
#include "events/msgpack_cursor.h"
#include "events/trtllm_event.h"
#include "events/trust_log.h"
#include "events/worker_trust.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

py::object ValueAt(MsgpackCursor* cursor);

py::object ListAt(MsgpackCursor* cursor) {
  uint32_t count;
  if (!cursor->ReadArray(&count)) throw py::value_error("cut off");
  py::list items;
  for (; count != 0; --count) items.append(ValueAt(cursor));
  return items;
}

// Pairs, since a key may be anything.
py::object PairsAt(MsgpackCursor* cursor) {
  uint32_t count;
  if (!cursor->ReadMap(&count)) throw py::value_error("cut off");
  py::list pairs;
  for (; count != 0; --count) {
    py::object key = ValueAt(cursor);
    pairs.append(py::make_tuple(key, ValueAt(cursor)));
  }
  return py::make_tuple("map", pairs);
}

py::object ValueAt(MsgpackCursor* cursor) {
  using Type = MsgpackCursor::Type;
  bool truth = false;
  uint64_t bits = 0;
  double number = 0;
  std::string_view text;
  bool read = false;
  py::object value = py::none();
  switch (cursor->Peek()) {
    case Type::kNil:
      read = cursor->ReadNil();
      break;
    case Type::kBool:
      read = cursor->ReadBool(&truth);
      value = py::bool_(truth);
      break;
    case Type::kInteger:
      read = cursor->ReadInteger(&bits);
      value = py::int_(bits);
      break;
    case Type::kFloat:
      read = cursor->ReadNumber(&number);
      value = py::float_(number);
      break;
    case Type::kString:
      read = cursor->ReadString(&text);
      value = py::make_tuple("text", py::bytes(text.data(), text.size()));
      break;
    case Type::kBinary:
      read = cursor->ReadBinary(&text);
      value = py::bytes(text.data(), text.size());
      break;
    case Type::kArray:
      return ListAt(cursor);
    case Type::kMap:
      return PairsAt(cursor);
    case Type::kEnd:
    case Type::kOther:
      break;
  }
  if (!read) throw py::value_error("no value, or cut off");
  return value;
}

py::dict DictOf(const KvEvent& event, const KvBatch& batch) {
  constexpr const char* kKinds[] = {"stored", "removed", "cleared"};
  constexpr const char* kSpecs[] = {"unnamed", "full", "other"};
  constexpr const char* kExtras[] = {"name", "media", "bytes"};
  const std::span<const EngineHash> hashes = batch.HashesOf(event);
  const std::span<const uint32_t> tokens = batch.TokensOf(event);
  py::list extras;
  for (const KvExtraKey& extra : batch.ExtrasOf(event)) {
    extras.append(py::make_tuple(
        extra.block, kExtras[static_cast<size_t>(extra.kind)],
        py::bytes(extra.name.data(), extra.name.size()), extra.offset));
  }
  return py::dict(
      py::arg("kind") = kKinds[static_cast<size_t>(event.kind)],
      py::arg("medium") = KvMediumName(event.medium),
      py::arg("spec_kind") = kSpecs[static_cast<size_t>(event.spec_kind)],
      py::arg("is_remote") = event.is_remote, py::arg("is_bigram") = event.is_bigram,
      py::arg("group") = event.group, py::arg("block_size") = event.block_size,
      py::arg("parent") = event.parent, py::arg("lora_id") = event.lora_id,
      py::arg("lora_name") = py::bytes(event.lora_name.data(), event.lora_name.size()),
      py::arg("cache_salt") = py::bytes(event.cache_salt.data(), event.cache_salt.size()),
      py::arg("hashes") = std::vector<uint64_t>(hashes.begin(), hashes.end()),
      py::arg("tokens") = std::vector<uint32_t>(tokens.begin(), tokens.end()), py::arg("extras") = extras);
}

py::list EventsOf(const KvBatch& batch) {
  py::list events;
  for (const KvEvent& event : batch.events) events.append(DictOf(event, batch));
  return events;
}

py::dict DroppedOf(const KvBatch& batch) {
  py::dict dropped;
  for (int i = 0; i < kKvDropCount; ++i) {
    const uint32_t count = batch.dropped[static_cast<size_t>(i)];
    if (count != 0) dropped[py::str(KvDropName(static_cast<KvDrop>(i)))] = count;
  }
  return dropped;
}

}  // namespace

void BindTestingEvents(py::module_& testing) {
  // The first value and the number of bytes behind it. ValueError if there is no whole one.
  testing.def("msgpack_value", [](const py::bytes& payload) {
    const std::string_view text = payload;
    MsgpackCursor cursor(BytesOf(text));
    py::object value = ValueAt(&cursor);
    return py::make_tuple(value, cursor.left());
  });
  // The number of bytes behind the first value, None if it cannot be skipped.
  testing.def("msgpack_skip", [](const py::bytes& payload) -> std::optional<size_t> {
    const std::string_view text = payload;
    MsgpackCursor cursor(BytesOf(text));
    if (cursor.Skip()) return cursor.left();
    if (cursor.left() != text.size()) throw py::value_error("it moved");
    return std::nullopt;
  });
  // None if the payload is no batch.
  testing.def("decode_kv_batch", [](const py::bytes& payload) -> std::optional<py::dict> {
    static KvBatch batch;  // with the GIL; reused, as in the router
    const std::string_view text = payload;
    if (!DecodeKvBatch(BytesOf(text), &batch)) return std::nullopt;
    return py::dict(
        py::arg("seconds") = batch.seconds, py::arg("rank") = batch.rank, py::arg("events") = EventsOf(batch),
        py::arg("dropped") = DroppedOf(batch));
  });
  // None if the response is malformed.
  testing.def("read_trtllm_events", [](const py::bytes& response) -> std::optional<py::list> {
    static TrtllmReader reader;
    static TrtllmEvent event;
    constexpr const char* kKinds[] = {"none", "created", "stored", "removed", "updated"};
    if (!reader.Open(std::string_view(response))) return std::nullopt;
    py::list events;
    while (reader.Next(&event)) {
      events.append(py::dict(
          py::arg("kind") = kKinds[static_cast<size_t>(event.kind)], py::arg("number") = event.number,
          py::arg("rank") = event.rank, py::arg("window") = event.window,
          py::arg("gpu_blocks") = event.gpu_blocks, py::arg("block_size") = event.block_size,
          py::arg("full_blocks") = event.full_blocks, py::arg("partial_blocks") = event.partial_blocks,
          py::arg("events") = EventsOf(event.batch), py::arg("dropped") = DroppedOf(event.batch)));
    }
    return events;
  });
  py::class_<TrustLog>(testing, "TrustLog")
      .def(py::init())
      .def(
          "changed",
          [](TrustLog& log, const std::string& url, std::string_view trust, std::string_view meaning,
             int64_t now_ns) {
            int state = 0;
            while (KvTrustName(static_cast<KvTrust>(state)) != trust) ++state;
            log.Changed(url, static_cast<KvTrust>(state), meaning, now_ns);
          })
      .def("forget", &TrustLog::Forget)
      .def("watch", &TrustLog::Watch);
  testing.def("set_silent_nanos", [](int64_t nanos) { return WorkerTrust::silent_nanos.exchange(nanos); });
  testing.def("kv_medium", [](std::string_view name) { return KvMediumName(KvMediumByName(name)); });
}

}  // namespace vllm_router
