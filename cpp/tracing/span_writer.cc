#include "tracing/span_writer.h"

#include <algorithm>
#include <array>

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
constexpr uint32_t kSampledFlag = 0x1;
constexpr uint32_t kHasIsRemote = 0x100;
constexpr uint32_t kIsRemote = 0x200;

constexpr size_t kFraming = 16;     // of an attribute or event, beside its texts
constexpr size_t kRoomForEnd = 64;  // status, dropped attributes

using Id = std::array<char, 16>;

void PutBigEndian(uint64_t value, char* to) {
  for (int i = 7; i >= 0; --i, value >>= 8) to[i] = static_cast<char>(value & 0xff);
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
  Id trace;
  PutBigEndian(head.trace.high, trace.data());
  PutBigEndian(head.trace.low, trace.data() + 8);
  out_.Text(span_::kTraceId, {trace.data(), trace.size()});
  Id id;
  PutBigEndian(head.span, id.data());
  out_.Text(span_::kSpanId, {id.data(), 8});
  if (!head.state.empty()) out_.TextOf(span_::kTraceState, head.state.substr(0, kMaxTracestateBytes));
  if (head.parent != 0) {
    PutBigEndian(head.parent, id.data());
    out_.Text(span_::kParentSpanId, {id.data(), 8});
  }
  out_.TextOf(span_::kName, CutAtCharacter(head.name, kMaxSpanValueBytes));
  out_.Varint(span_::kKind, static_cast<uint64_t>(head.kind));
  out_.Fixed64(span_::kStartTime, static_cast<uint64_t>(head.begin_ns));
  out_.Fixed64(span_::kEndTime, static_cast<uint64_t>(std::max(head.begin_ns, head.end_ns)));
  out_.Fixed32(
      span_::kFlags,
      (head.sampled ? kSampledFlag : 0) | kHasIsRemote | (head.parent_is_remote ? kIsRemote : 0));
}

bool SpanWriter::HasRoom(size_t bytes) {
  return out_.size() - begun_ + bytes + kFraming + kRoomForEnd <= kMaxSpanBytes;
}

size_t SpanWriter::BeginAttribute(std::string_view key) {
  const size_t attribute = out_.Begin(span_::kAttributes);
  out_.Text(attribute_::kKey, key);
  return attribute;
}

void SpanWriter::Text(std::string_view key, std::string_view value) {
  if (value.empty()) return;
  if (!HasRoom(key.size() + kMaxUtf8Growth * std::min(value.size(), kMaxSpanValueBytes))) {
    ++dropped_;
    return;
  }
  const size_t attribute = out_.Begin(span_::kAttributes);
  WriteAttribute(out_, key, value);
  out_.End(attribute);
}

void SpanWriter::Count(std::string_view key, int64_t value) {
  if (!HasRoom(key.size() + sizeof(value))) {
    ++dropped_;
    return;
  }
  const size_t attribute = BeginAttribute(key);
  const size_t any = out_.Begin(attribute_::kValue);
  out_.Varint(attribute_::kCount, static_cast<uint64_t>(value));
  out_.End(any);
  out_.End(attribute);
}

void SpanWriter::Real(std::string_view key, double value) {
  if (!HasRoom(key.size() + sizeof(value))) {
    ++dropped_;
    return;
  }
  const size_t attribute = BeginAttribute(key);
  const size_t any = out_.Begin(attribute_::kValue);
  out_.Double(attribute_::kReal, value);
  out_.End(any);
  out_.End(attribute);
}

void SpanWriter::Switch(std::string_view key, bool value) {
  if (!HasRoom(key.size() + sizeof(value))) {
    ++dropped_;
    return;
  }
  const size_t attribute = BeginAttribute(key);
  const size_t any = out_.Begin(attribute_::kValue);
  out_.Varint(attribute_::kSwitch, value ? 1 : 0);
  out_.End(any);
  out_.End(attribute);
}

void SpanWriter::Event(std::string_view name, int64_t time_ns) {
  if (!HasRoom(name.size())) return;
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

std::string ExportRequest(
    const std::vector<std::pair<std::string, std::string>>& resource, std::string_view scope,
    std::string_view scope_version, std::string_view spans) {
  std::string bytes;
  ProtoWriter out(&bytes);
  const size_t all = out.Begin(request::kResourceSpans);
  const size_t about = out.Begin(resource_spans::kResource);
  std::vector<std::string_view> names;
  for (const auto& [key, value] : resource) {
    if (std::ranges::find(names, key) != names.end()) continue;
    names.push_back(key);
    const size_t attribute = out.Begin(resource_::kAttributes);
    WriteAttribute(out, key, value);
    out.End(attribute);
  }
  out.End(about);
  const size_t of_scope = out.Begin(resource_spans::kScopeSpans);
  const size_t named = out.Begin(scope_spans::kScope);
  out.Text(scope_::kName, scope);
  out.Text(scope_::kVersion, scope_version);
  out.End(named);
  out.Fields(spans);
  out.End(of_scope);
  out.End(all);
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
