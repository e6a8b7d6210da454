#include "tracing/span_writer.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/text.h"
#include "base/utf8.h"

namespace vllm_router {
namespace {

// Numbers of fields, by message.
namespace request {
constexpr uint32_t kResourceSpans = 1;
}
namespace resource_spans {
constexpr uint32_t kResource = 1;
constexpr uint32_t kScopeSpans = 2;
}  // namespace resource_spans
namespace resource_ {
constexpr uint32_t kAttributes = 1;
}
namespace scope_spans {
constexpr uint32_t kScope = 1;
constexpr uint32_t kSpans = 2;
}  // namespace scope_spans
namespace scope_ {
constexpr uint32_t kName = 1;
constexpr uint32_t kVersion = 2;
}  // namespace scope_
namespace span_ {
constexpr uint32_t kTraceId = 1;
constexpr uint32_t kSpanId = 2;
constexpr uint32_t kTraceState = 3;
constexpr uint32_t kParentSpanId = 4;
constexpr uint32_t kName = 5;
constexpr uint32_t kKind = 6;
constexpr uint32_t kStartTime = 7;
constexpr uint32_t kEndTime = 8;
constexpr uint32_t kAttributes = 9;
constexpr uint32_t kDroppedAttributes = 10;
constexpr uint32_t kEvents = 11;
constexpr uint32_t kStatus = 15;
constexpr uint32_t kFlags = 16;
}  // namespace span_
namespace event_ {
constexpr uint32_t kTime = 1;
constexpr uint32_t kName = 2;
}  // namespace event_
namespace status_ {
constexpr uint32_t kCode = 3;
constexpr uint64_t kError = 2;
}  // namespace status_
namespace attribute_ {
constexpr uint32_t kKey = 1;
constexpr uint32_t kValue = 2;
constexpr uint32_t kText = 1;
constexpr uint32_t kSwitch = 2;
constexpr uint32_t kCount = 3;
constexpr uint32_t kReal = 4;
}  // namespace attribute_
namespace response {
constexpr uint32_t kPartialSuccess = 1;
constexpr uint32_t kRejectedSpans = 1;
constexpr uint32_t kErrorMessage = 2;
}  // namespace response

// Of Span.flags: the trace flags, and whether the parent is known to be in another process.
constexpr uint32_t kIsSampled = 0x1;
constexpr uint32_t kHasIsRemote = 0x100;
constexpr uint32_t kIsRemote = 0x200;

constexpr size_t kFraming = 16;     // of an attribute or event, beside its texts
constexpr size_t kRoomForEnd = 64;  // status, dropped attributes

char* PutBigEndian(uint64_t value, char* to) {
  if constexpr (std::endian::native == std::endian::little) value = __builtin_bswap64(value);
  std::memcpy(to, &value, sizeof(value));
  return to + sizeof(value);
}

char* PutId(uint32_t field, uint64_t id, char* to) {
  to = ProtoWriter::PutTag(field, WireType::kBytes, to);
  return PutBigEndian(id, ProtoWriter::PutVarint(sizeof(id), to));
}

bool IsAscii(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  uint64_t bits = 0;
  size_t i = 0;
  for (uint64_t eight; i + sizeof(eight) <= text.size(); i += sizeof(eight)) {
    std::memcpy(&eight, text.data() + i, sizeof(eight));
    bits |= eight;
  }
  for (; i < text.size(); ++i) bits |= static_cast<unsigned char>(text[i]);
  return (bits & kHighBits) == 0;
}

// Of an attribute, all but the value of `any_bytes` bytes, which follows. Numbers of fields here take a byte.
constexpr size_t AttributeBytes(size_t key_bytes, size_t any_bytes) {
  return 1 + ProtoWriter::VarintBytes(key_bytes) + key_bytes + 1 + ProtoWriter::VarintBytes(any_bytes) +
         any_bytes;
}
char* BeginAttribute(std::string_view key, size_t any_bytes, ProtoWriter* out) {
  const size_t bytes = AttributeBytes(key.size(), any_bytes);
  char* to = out->Reserve(1 + kMaxVarintBytes + bytes);
  to = ProtoWriter::PutTag(span_::kAttributes, WireType::kBytes, to);
  to = ProtoWriter::PutVarint(bytes, to);
  to = ProtoWriter::PutTag(attribute_::kKey, WireType::kBytes, to);
  to = ProtoWriter::PutVarint(key.size(), to);
  to = ProtoWriter::PutBytes(key, to);
  to = ProtoWriter::PutTag(attribute_::kValue, WireType::kBytes, to);
  return ProtoWriter::PutVarint(any_bytes, to);
}

void WriteVarintAttribute(std::string_view key, uint32_t kind, uint64_t value, ProtoWriter* out) {
  char* to = BeginAttribute(key, 1 + ProtoWriter::VarintBytes(value), out);
  to = ProtoWriter::PutTag(kind, WireType::kVarint, to);
  out->Commit(ProtoWriter::PutVarint(value, to));
}

void WriteAttribute(ProtoWriter& out, std::string_view key, std::string_view value) {
  out.Text(attribute_::kKey, key);
  const size_t any = out.Begin(attribute_::kValue);
  out.TextOf(attribute_::kText, CutAtCharacter(value, kMaxSpanValueBytes));
  out.End(any);
}

}  // namespace

SpanWriter::SpanWriter(std::string* spans, const SpanHead& head)
    : out_(spans), begun_(out_.Begin(scope_spans::kSpans)) {
  constexpr size_t kIds = 2 + 16 + 2 + 8;
  char* to = out_.Reserve(kIds);
  to = ProtoWriter::PutTag(span_::kTraceId, WireType::kBytes, to);
  to = ProtoWriter::PutVarint(16, to);
  to = PutBigEndian(head.trace.low, PutBigEndian(head.trace.high, to));
  out_.Commit(PutId(span_::kSpanId, head.span, to));
  if (!head.state.empty()) out_.TextOf(span_::kTraceState, head.state.substr(0, kMaxTracestateBytes));
  if (head.parent != 0) out_.Commit(PutId(span_::kParentSpanId, head.parent, out_.Reserve(2 + 8)));
  out_.TextOf(span_::kName, CutAtCharacter(head.name, kMaxSpanValueBytes));
  constexpr size_t kRest = 2 + 2 * (1 + 8) + 2 + 4;
  to = out_.Reserve(kRest);
  to = ProtoWriter::PutTag(span_::kKind, WireType::kVarint, to);
  to = ProtoWriter::PutVarint(static_cast<uint64_t>(head.kind), to);
  to = ProtoWriter::PutTag(span_::kStartTime, WireType::kFixed64, to);
  to = ProtoWriter::PutFixed(static_cast<uint64_t>(head.begin_ns), to);
  to = ProtoWriter::PutTag(span_::kEndTime, WireType::kFixed64, to);
  to = ProtoWriter::PutFixed(static_cast<uint64_t>(std::max(head.begin_ns, head.end_ns)), to);
  to = ProtoWriter::PutTag(span_::kFlags, WireType::kFixed32, to);
  const uint32_t flags =
      (head.sampled ? kIsSampled : 0) | kHasIsRemote | (head.parent_is_remote ? kIsRemote : 0);
  out_.Commit(ProtoWriter::PutFixed(flags, to));
}

bool SpanWriter::Fits(size_t bytes) const {
  return out_.size() - begun_ + bytes + kFraming + kRoomForEnd <= kMaxSpanBytes;
}

bool SpanWriter::HasRoom(size_t bytes) {
  const bool fits = Fits(bytes);
  if (!fits) ++dropped_;
  return fits;
}

void SpanWriter::Text(std::string_view key, std::string_view value) {
  if (value.empty()) return;
  if (!HasRoom(key.size() + kMaxUtf8Growth * std::min(value.size(), kMaxSpanValueBytes))) return;
  if (value.size() > kMaxSpanValueBytes || !IsAscii(value)) {
    const size_t attribute = out_.Begin(span_::kAttributes);
    WriteAttribute(out_, key, value);
    out_.End(attribute);
    return;
  }
  char* to = BeginAttribute(key, 1 + ProtoWriter::VarintBytes(value.size()) + value.size(), &out_);
  to = ProtoWriter::PutTag(attribute_::kText, WireType::kBytes, to);
  to = ProtoWriter::PutVarint(value.size(), to);
  out_.Commit(ProtoWriter::PutBytes(value, to));
}

void SpanWriter::Count(std::string_view key, int64_t value) {
  if (HasRoom(key.size() + sizeof(value)))
    WriteVarintAttribute(key, attribute_::kCount, static_cast<uint64_t>(value), &out_);
}

void SpanWriter::Real(std::string_view key, double value) {
  if (!HasRoom(key.size() + sizeof(value))) return;
  char* to = BeginAttribute(key, 1 + sizeof(value), &out_);
  to = ProtoWriter::PutTag(attribute_::kReal, WireType::kFixed64, to);
  out_.Commit(ProtoWriter::PutFixed(std::bit_cast<uint64_t>(value), to));
}

void SpanWriter::Switch(std::string_view key, bool value) {
  if (HasRoom(key.size() + 1)) WriteVarintAttribute(key, attribute_::kSwitch, value ? 1 : 0, &out_);
}

void SpanWriter::Event(std::string_view name, int64_t time_ns) {
  if (!Fits(name.size())) return;
  const size_t event = out_.Begin(span_::kEvents);
  out_.Fixed64(event_::kTime, static_cast<uint64_t>(time_ns));
  out_.Text(event_::kName, name);
  out_.End(event);
}

void SpanWriter::Finish() {
  if (dropped_ != 0) out_.Varint(span_::kDroppedAttributes, dropped_);
  if (failed_) {
    const size_t status = out_.Begin(span_::kStatus);
    out_.Varint(status_::kCode, status_::kError);
    out_.End(status);
  }
  out_.End(begun_);
  out_.Close();
}

std::string BeginExport(
    const std::vector<std::pair<std::string, std::string>>& resource, std::string_view scope,
    std::string_view scope_version, size_t span_bytes) {
  std::string about;  // the resource and the scope, as fields of their messages
  ProtoWriter resource_out(&about);
  const size_t begun = resource_out.Begin(resource_spans::kResource);
  std::vector<std::string_view> names;
  for (const auto& [key, value] : resource) {
    if (std::ranges::find(names, key) != names.end()) continue;
    names.push_back(key);
    const size_t attribute = resource_out.Begin(resource_::kAttributes);
    WriteAttribute(resource_out, key, value);
    resource_out.End(attribute);
  }
  resource_out.End(begun);
  resource_out.Close();
  std::string named;
  ProtoWriter scope_out(&named);
  const size_t of_scope = scope_out.Begin(scope_spans::kScope);
  scope_out.Text(scope_::kName, scope);
  scope_out.Text(scope_::kVersion, scope_version);
  scope_out.End(of_scope);
  scope_out.Close();

  // Each message around the spans has its length in front, which includes theirs.
  const size_t scope_bytes = named.size() + span_bytes;
  const size_t all_bytes = about.size() + 1 + ProtoWriter::VarintBytes(scope_bytes) + scope_bytes;
  std::string bytes;
  ProtoWriter out(&bytes);
  out.BeginSized(request::kResourceSpans, all_bytes);
  out.Fields(about);
  out.BeginSized(resource_spans::kScopeSpans, scope_bytes);
  out.Fields(named);
  out.Close();
  return bytes;
}

std::optional<PartialSuccess> ParseExportResponse(std::string_view body) {
  PartialSuccess partial;
  ProtoReader in(body);
  while (const std::optional<ProtoReader::Field> field = in.Next()) {
    if (field->number != response::kPartialSuccess || field->type != WireType::kBytes) continue;
    ProtoReader inner(field->bytes);
    while (const std::optional<ProtoReader::Field> told = inner.Next()) {
      if (told->number == response::kRejectedSpans && told->type == WireType::kVarint)
        partial.rejected = told->value;
      if (told->number == response::kErrorMessage && told->type == WireType::kBytes)
        partial.message = std::string(told->bytes);
    }
    if (!inner.ok()) return std::nullopt;
  }
  if (!in.ok()) return std::nullopt;
  return partial;
}

}  // namespace vllm_router
