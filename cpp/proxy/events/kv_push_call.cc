#include "proxy/events/kv_push_call.h"

#include <algorithm>
#include <boost/json.hpp>
#include <span>

#include "base/msgpack_writer.h"
#include "base/text.h"
#include "events/kv_source.h"
#include "events/msgpack_cursor.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr size_t kMaxText = 256;  // bytes of a URL, or a model's name

// No deeper than the parser permits.
void Write(const json::value& value, MsgpackWriter* out) {
  switch (value.kind()) {
    case json::kind::null:
      return out->Nil();
    case json::kind::bool_:
      return out->Bool(value.get_bool());
    case json::kind::int64:
      return out->Signed(value.get_int64());
    case json::kind::uint64:
      return out->Unsigned(value.get_uint64());
    case json::kind::double_:
      return out->Float(value.get_double());
    case json::kind::string:
      return out->Text(std::string_view(value.get_string().data(), value.get_string().size()));
    case json::kind::array:
      out->Array(value.get_array().size());
      for (const json::value& element : value.get_array()) Write(element, out);
      return;
    case json::kind::object:
      out->Map(value.get_object().size());
      for (const json::key_value_pair& member : value.get_object()) {
        out->Text(std::string_view(member.key().data(), member.key().size()));
        Write(member.value(), out);
      }
      return;
  }
}

Status Wrong(std::string_view name, std::string_view rule) {
  return absl::InvalidArgumentError(Concat("'", name, "' must be ", rule));
}

Status ReadText(MsgpackCursor* cursor, std::string_view name, std::string* text) {
  std::string_view value;
  if (!cursor->ReadString(&value) || value.size() > kMaxText)
    return Wrong(name, Concat("text of at most ", kMaxText, " bytes"));
  *text = value;
  return absl::OkStatus();
}

// Of the map's members those that are not the batch's own.
Status ReadMember(std::string_view name, MsgpackCursor* cursor, KvPushCall* call) {
  if (name == "worker") return ReadText(cursor, name, &call->worker);
  if (name == "model") return ReadText(cursor, name, &call->model);
  uint64_t number;
  if (name == "seq") {
    if (!cursor->ReadUnsigned(UINT64_MAX, &number)) return Wrong(name, "a whole number of at most 64 bits");
    call->number = number;
  } else if (name == "dp_rank") {
    if (!cursor->ReadUnsigned(kMaxKvRanks - 1, &number)) {
      return Wrong(name, Concat("a data-parallel rank between 0 and ", kMaxKvRanks - 1));
    }
    call->rank = static_cast<uint32_t>(number);
  } else if (name == "reset") {
    if (!cursor->ReadBool(&call->reset)) return Wrong(name, "true or false");
  } else if (!cursor->Skip()) {
    return absl::InvalidArgumentError(Concat(
        "the value of '", name, "' is cut off, or nested deeper than ", MsgpackCursor::kMaxDepth, " levels"));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<KvPushCall> ReadKvPushCall(std::string_view body) {
  KvPushCall call;
  const std::string_view text = body.substr(std::min(body.find_first_not_of(" \t\r\n"), body.size()));
  if (text.starts_with('{')) {  // which begins no map of MessagePack, nor does a blank
    boost::system::error_code error;
    const json::value parsed = json::parse(json::string_view(body.data(), body.size()), error);
    if (error) return absl::InvalidArgumentError("the body is not JSON: " + error.message());
    MsgpackWriter writer;
    Write(parsed, &writer);
    call.payload = writer.Take();
  } else {
    call.payload = body;
  }
  MsgpackCursor cursor(std::span(reinterpret_cast<const uint8_t*>(call.payload.data()), call.payload.size()));
  uint32_t members;
  if (!cursor.ReadMap(&members)) {
    return absl::InvalidArgumentError(
        R"(the body must be a JSON object, or a MessagePack map, such as {"worker": URL, "seq": 0, "events": [...]})");
  }
  bool has_events = false;
  for (; members != 0; --members) {
    std::string_view name;
    if (!cursor.ReadString(&name))
      return absl::InvalidArgumentError("a key of the MessagePack map is no text");
    has_events = has_events || name == "events";
    ROUTER_RETURN_IF_ERROR(ReadMember(name, &cursor, &call));
  }
  if (call.worker.empty()) return absl::InvalidArgumentError("'worker' is missing: the URL of a worker");
  if (!has_events) return absl::InvalidArgumentError("'events' is missing: a list of events");
  return call;
}

}  // namespace vllm_router
