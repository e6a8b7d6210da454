#include "picker/ext_proc.h"

#include <bit>
#include <utility>

#include "base/check.h"
#include "base/proto_wire.h"
#include "base/text.h"

namespace vllm_router {
namespace {

using Field = ProtoReader::Field;

constexpr uint32_t kFirstRequestPart = 2;  // of ProcessingRequest, in the order of ProcessingPart
constexpr uint32_t kLastRequestPart = 7;
constexpr uint64_t kOverwriteIfExistsOrAdd = 2;

bool IsBytes(const Field& field, uint32_t number) {
  return field.number == number && field.type == WireType::kBytes;
}
bool IsVarint(const Field& field, uint32_t number) {
  return field.number == number && field.type == WireType::kVarint;
}

Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(Concat(
      what,
      " of a ProcessingRequest is malformed; it must be a message of Protocol Buffers as "
      "envoy.service.ext_proc.v3 has it"));
}

Status TooMany(std::string_view what, size_t most) {
  return absl::ResourceExhaustedError(
      Concat("a ProcessingRequest has more than ", most, " ", what, "; send fewer"));
}

Status ReadHeader(std::string_view message, std::vector<HeaderField>* fields) {
  if (fields->size() == kMaxExtProcFields) return TooMany("headers", kMaxExtProcFields);
  HeaderField header;
  std::string_view raw;
  ProtoReader in(message);
  while (const std::optional<Field> field = in.Next()) {
    if (IsBytes(*field, 1)) header.name = field->bytes;
    if (IsBytes(*field, 2)) header.value = field->bytes;
    if (IsBytes(*field, 3)) raw = field->bytes;
  }
  if (!in.ok()) return Malformed("a header");
  if (!raw.empty()) header.value = raw;
  fields->push_back(header);
  return absl::OkStatus();
}

Status ReadHeaderMap(std::string_view message, std::vector<HeaderField>* fields) {
  ProtoReader in(message);
  while (const std::optional<Field> field = in.Next()) {
    if (IsBytes(*field, 1)) ROUTER_RETURN_IF_ERROR(ReadHeader(field->bytes, fields));
  }
  return in.ok() ? absl::OkStatus() : Malformed("a map of headers");
}

// Of HttpHeaders and HttpTrailers, which has no end_of_stream.
Status ReadHeaders(std::string_view message, bool trailers, ProcessingRequest* request) {
  ProtoReader in(message);
  while (const std::optional<Field> field = in.Next()) {
    if (IsBytes(*field, 1)) ROUTER_RETURN_IF_ERROR(ReadHeaderMap(field->bytes, &request->fields));
    if (IsVarint(*field, 3) && !trailers) request->end_of_stream = field->value != 0;
  }
  return in.ok() ? absl::OkStatus() : Malformed("a part with headers");
}

Status ReadBody(std::string_view message, ProcessingRequest* request) {
  bool ends = request->end_of_stream;
  bool ends_without_message = false;
  ProtoReader in(message);
  while (const std::optional<Field> field = in.Next()) {
    if (IsBytes(*field, 1)) request->body = field->bytes;
    if (IsVarint(*field, 2)) ends = field->value != 0;
    if (IsVarint(*field, 3)) ends_without_message = field->value != 0;
  }
  request->end_of_stream = ends || ends_without_message;
  return in.ok() ? absl::OkStatus() : Malformed("a piece of a body");
}

Status ReadPart(const Field& field, ProcessingRequest* request) {
  const auto part = static_cast<ProcessingPart>(field.number - kFirstRequestPart + 1);
  if (request->part != part) {  // the last of them counts
    request->part = part;
    request->fields.clear();
    request->body = {};
    request->end_of_stream = false;
  }
  switch (part) {
    case ProcessingPart::kRequestHeaders:
    case ProcessingPart::kResponseHeaders:
      return ReadHeaders(field.bytes, false, request);
    case ProcessingPart::kRequestTrailers:
    case ProcessingPart::kResponseTrailers:
      return ReadHeaders(field.bytes, true, request);
    case ProcessingPart::kRequestBody:
    case ProcessingPart::kResponseBody:
    case ProcessingPart::kNone:
      break;
  }
  return ReadBody(field.bytes, request);
}

// An entry of a map from names to Structs.
Status ReadNamedStruct(std::string_view message, std::string_view what, std::vector<NamedStruct>* structs) {
  if (structs->size() == kMaxExtProcStructs) return TooMany(what, kMaxExtProcStructs);
  NamedStruct entry;
  ProtoReader in(message);
  while (const std::optional<Field> field = in.Next()) {
    if (IsBytes(*field, 1)) entry.name = field->bytes;
    if (IsBytes(*field, 2)) entry.bytes = field->bytes;
  }
  if (!in.ok()) return Malformed(Concat("an entry of the ", what));
  structs->push_back(entry);
  return absl::OkStatus();
}

Status ReadMetadata(std::string_view message, std::vector<NamedStruct>* structs) {
  ProtoReader in(message);
  while (const std::optional<Field> field = in.Next()) {
    if (IsBytes(*field, 1))
      ROUTER_RETURN_IF_ERROR(ReadNamedStruct(field->bytes, "namespaces of metadata", structs));
  }
  return in.ok() ? absl::OkStatus() : Malformed("metadata_context");
}

BodySendMode BodySendModeOf(uint64_t value) {
  return value <= static_cast<uint64_t>(BodySendMode::kGrpc) ? static_cast<BodySendMode>(value)
                                                             : BodySendMode::kNone;
}

Status ReadProtocol(std::string_view message, ProcessingProtocol* protocol) {
  ProtoReader in(message);
  while (const std::optional<Field> field = in.Next()) {
    if (IsVarint(*field, 1)) protocol->request_body = BodySendModeOf(field->value);
    if (IsVarint(*field, 2)) protocol->response_body = BodySendModeOf(field->value);
    if (IsVarint(*field, 3)) protocol->sends_body_early = field->value != 0;
  }
  return in.ok() ? absl::OkStatus() : Malformed("protocol_config");
}

// False: malformed.
bool ReadStructValue(std::string_view message, StructValue* value) {
  ProtoReader in(message);
  while (const std::optional<Field> field = in.Next()) {
    if (IsVarint(*field, 1)) *value = {.kind = StructValue::Kind::kNull};
    if (field->number == 2 && field->type == WireType::kFixed64)
      *value = {.kind = StructValue::Kind::kNumber, .number = std::bit_cast<double>(field->value)};
    if (IsBytes(*field, 3)) *value = {.kind = StructValue::Kind::kString, .bytes = field->bytes};
    if (IsVarint(*field, 4)) *value = {.kind = StructValue::Kind::kBool, .boolean = field->value != 0};
    if (IsBytes(*field, 5)) *value = {.kind = StructValue::Kind::kStruct, .bytes = field->bytes};
    if (IsBytes(*field, 6)) *value = {.kind = StructValue::Kind::kList, .bytes = field->bytes};
  }
  return in.ok();
}

void WriteHeaders(uint32_t number, std::span<const HeaderField> fields, ProtoWriter* out) {
  for (const HeaderField& header : fields) {
    const size_t option = out->Begin(number);
    const size_t value = out->Begin(1);
    out->Text(1, header.name);
    out->Text(3, header.value);  // raw_value: bytes
    out->End(value);
    out->Varint(3, kOverwriteIfExistsOrAdd);
    out->End(option);
  }
}

void WriteHeaderMutation(
    uint32_t number, std::span<const HeaderField> set, std::span<const std::string_view> remove,
    ProtoWriter* out) {
  if (set.empty() && remove.empty()) return;
  const size_t mutation = out->Begin(number);
  WriteHeaders(1, set, out);
  for (const std::string_view name : remove) out->Text(2, name);
  out->End(mutation);
}

void WriteNumbers(std::span<const NamedNumber> numbers, ProtoWriter* out) {
  for (const NamedNumber& each : numbers) {
    const size_t entry = out->Begin(1);
    out->TextOf(1, each.name);
    const size_t value = out->Begin(2);
    out->Double(2, each.number);
    out->End(value);
    out->End(entry);
  }
}

void WriteMetadata(std::string_view name_space, std::span<const MetadataField> fields, ProtoWriter* out) {
  if (fields.empty()) return;
  const size_t metadata = out->Begin(8);
  const size_t outer = out->Begin(1);
  out->Text(1, name_space);
  const size_t outer_value = out->Begin(2);
  const size_t inner = out->Begin(5);
  for (const MetadataField& field : fields) {
    const size_t entry = out->Begin(1);
    out->Text(1, field.key);
    const size_t value = out->Begin(2);
    if (field.numbers.empty()) {
      out->TextOf(3, field.text);
    } else {
      const size_t numbers = out->Begin(5);
      WriteNumbers(field.numbers, out);
      out->End(numbers);
    }
    out->End(value);
    out->End(entry);
  }
  out->End(inner);
  out->End(outer_value);
  out->End(outer);
  out->End(metadata);
}

void WriteModeOverride(const ModeOverride& mode, ProtoWriter* out) {
  const size_t begun = out->Begin(9);
  const auto write = [out](uint32_t number, auto value) {
    if (static_cast<uint64_t>(value) != 0) out->Varint(number, static_cast<uint64_t>(value));
  };
  write(2, mode.response_headers);
  write(3, mode.request_body);
  write(4, mode.response_body);
  write(5, mode.request_trailers);
  write(6, mode.response_trailers);
  out->End(begun);
}

size_t VarintBytes(uint64_t value) { return value < 0x80 ? 1 : 1 + VarintBytes(value >> 7); }

// Of a field of bytes with a number below 16, without the bytes.
size_t HeadBytes(size_t bytes) { return 1 + VarintBytes(bytes); }
void AppendHead(uint32_t number, size_t bytes, std::string* out) {
  *out += static_cast<char>(number << 3 | static_cast<uint32_t>(WireType::kBytes));
  uint64_t left = bytes;
  for (; left >= 0x80; left >>= 7) *out += static_cast<char>(left | 0x80);
  *out += static_cast<char>(left);
}

// Of ProcessingResponse.
uint32_t NumberOf(ProcessingPart part) { return static_cast<uint32_t>(part); }

}  // namespace

Status ReadProcessingRequest(std::string_view message, ProcessingRequest* request) {
  std::vector<HeaderField> fields = std::move(request->fields);
  std::vector<NamedStruct> metadata = std::move(request->metadata);
  std::vector<NamedStruct> attributes = std::move(request->attributes);
  fields.clear();
  metadata.clear();
  attributes.clear();
  *request = {
      .fields = std::move(fields), .metadata = std::move(metadata), .attributes = std::move(attributes)};
  ProtoReader in(message);
  while (const std::optional<Field> field = in.Next()) {
    if (field->type == WireType::kBytes && field->number >= kFirstRequestPart &&
        field->number <= kLastRequestPart) {
      ROUTER_RETURN_IF_ERROR(ReadPart(*field, request));
    } else if (IsBytes(*field, 8)) {
      ROUTER_RETURN_IF_ERROR(ReadMetadata(field->bytes, &request->metadata));
    } else if (IsBytes(*field, 9)) {
      ROUTER_RETURN_IF_ERROR(ReadNamedStruct(field->bytes, "attributes", &request->attributes));
    } else if (IsVarint(*field, 10)) {
      request->observability_mode = field->value != 0;
    } else if (IsBytes(*field, 11)) {
      if (!request->protocol) request->protocol.emplace();
      ROUTER_RETURN_IF_ERROR(ReadProtocol(field->bytes, &*request->protocol));
    }
  }
  return in.ok() ? absl::OkStatus() : Malformed("a field");
}

std::optional<StructValue> FindMetadata(
    std::span<const NamedStruct> structs, std::string_view name, std::string_view key) {
  std::optional<std::string_view> bytes;
  for (const NamedStruct& each : structs) {
    if (each.name == name) bytes = each.bytes;
  }
  if (!bytes) return std::nullopt;
  std::optional<StructValue> found;
  ProtoReader in(*bytes);
  while (const std::optional<Field> field = in.Next()) {
    if (!IsBytes(*field, 1)) continue;
    std::string_view entry_key;
    StructValue value;
    ProtoReader entry(field->bytes);
    while (const std::optional<Field> part = entry.Next()) {
      if (IsBytes(*part, 1)) entry_key = part->bytes;
      if (IsBytes(*part, 2) && !ReadStructValue(part->bytes, &value)) return std::nullopt;
    }
    if (!entry.ok()) return std::nullopt;
    if (entry_key == key) found = value;
  }
  return in.ok() ? found : std::nullopt;
}

Status ReadStrings(std::string_view list, std::vector<std::string_view>* texts) {
  size_t count = 0;
  ProtoReader in(list);
  while (const std::optional<Field> field = in.Next()) {
    if (!IsBytes(*field, 1)) continue;
    if (++count > kMaxExtProcListed) return TooMany("values of one list", kMaxExtProcListed);
    StructValue value;
    if (!ReadStructValue(field->bytes, &value)) return Malformed("a value of a list");
    if (value.kind == StructValue::Kind::kString) texts->push_back(value.bytes);
  }
  return in.ok() ? absl::OkStatus() : Malformed("a list");
}

std::string WriteProcessingResponse(const ProcessingResponse& response) {
  ROUTER_CHECK(response.part != ProcessingPart::kNone, "there is no response to no part");
  std::string bytes;
  ProtoWriter out(&bytes);
  const size_t part = out.Begin(NumberOf(response.part));
  if (response.part == ProcessingPart::kRequestTrailers ||
      response.part == ProcessingPart::kResponseTrailers) {
    WriteHeaderMutation(1, response.set_headers, response.remove_headers, &out);
  } else if (
      !response.set_headers.empty() || !response.remove_headers.empty() || response.clear_route_cache) {
    const size_t common = out.Begin(1);
    WriteHeaderMutation(2, response.set_headers, response.remove_headers, &out);
    if (response.clear_route_cache) out.Varint(5, 1);
    out.End(common);
  }
  out.End(part);
  WriteMetadata(response.metadata_namespace, response.metadata, &out);
  if (response.mode_override) WriteModeOverride(*response.mode_override, &out);
  out.Close();
  return bytes;
}

// The lengths are known before, so that the body is copied once. A number of a field may stand before a lower one.
std::string WriteStreamedBody(ProcessingPart part, std::string_view body, bool end_of_stream) {
  ROUTER_CHECK(
      part == ProcessingPart::kRequestBody || part == ProcessingPart::kResponseBody, "it is no body's part");
  constexpr size_t kEndBytes = 2;
  const size_t streamed =
      (end_of_stream ? kEndBytes : 0) + (body.empty() ? 0 : HeadBytes(body.size()) + body.size());
  const size_t mutation = HeadBytes(streamed) + streamed;
  const size_t common = HeadBytes(mutation) + mutation;
  const size_t response = HeadBytes(common) + common;
  std::string bytes;
  bytes.reserve(HeadBytes(response) + response);
  AppendHead(NumberOf(part), response, &bytes);
  AppendHead(1, common, &bytes);
  AppendHead(3, mutation, &bytes);
  AppendHead(3, streamed, &bytes);
  if (end_of_stream) bytes += std::string_view("\x10\x01", kEndBytes);  // field 2, true
  if (body.empty()) return bytes;
  AppendHead(1, body.size(), &bytes);
  bytes += body;
  return bytes;
}

std::string WriteTimeoutOverride(uint64_t milliseconds) {
  std::string bytes;
  ProtoWriter out(&bytes);
  const size_t duration = out.Begin(10);
  if (milliseconds >= 1000) out.Varint(1, milliseconds / 1000);
  if (milliseconds % 1000 != 0) out.Varint(2, milliseconds % 1000 * 1'000'000);
  out.End(duration);
  out.Close();
  return bytes;
}

std::string WriteImmediateResponse(const ImmediateResponse& response) {
  std::string bytes;
  ProtoWriter out(&bytes);
  const size_t immediate = out.Begin(7);
  const size_t status = out.Begin(1);
  out.Varint(1, static_cast<uint64_t>(response.status));
  out.End(status);
  WriteHeaderMutation(2, response.headers, {}, &out);
  if (!response.body.empty()) out.Text(3, response.body);
  if (!response.details.empty()) out.TextOf(5, response.details);
  out.End(immediate);
  out.Close();
  return bytes;
}

}  // namespace vllm_router
