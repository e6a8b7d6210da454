#include "base/proto_wire.h"

#include <array>
#include <cstring>

#include "base/utf8.h"

namespace vllm_router {
namespace {

constexpr uint64_t kMaxFieldNumber = (uint64_t{1} << 29) - 1;

}  // namespace

void ProtoWriter::TextOf(uint32_t field, std::string_view value) {
  const size_t begun = Begin(field);
  EndAt(CopyValidUtf8(value, Room(kMaxUtf8Growth * value.size())));
  End(begun);
}

// The byte that Begin() left for the length does not suffice.
void ProtoWriter::EndLong(size_t begun) {
  const size_t length = size_ - begun;
  std::array<char, kMaxVarintBytes> bytes;  // NOLINT(*-member-init): PutVarint writes it
  const auto more = static_cast<size_t>(PutVarint(length, bytes.data()) - bytes.data()) - 1;
  Room(more);
  std::memmove(out_.data() + begun + more, out_.data() + begun, length);
  std::memcpy(out_.data() + begun - 1, bytes.data(), more + 1);
  size_ += more;
}

std::optional<uint64_t> ProtoReader::Raw() {
  uint64_t value = 0;
  for (size_t i = 0; i < kMaxVarintBytes && i < rest_.size(); ++i) {
    const auto byte = static_cast<unsigned char>(rest_[i]);
    value |= uint64_t{byte & 0x7fu} << 7 * i;  // bits beyond 64 are dropped, as protobuf does
    if (byte < 0x80) {
      rest_.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> ProtoReader::Fixed(size_t size) {
  if (rest_.size() < size) return std::nullopt;
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= uint64_t{static_cast<unsigned char>(rest_[i])} << 8 * i;
  rest_.remove_prefix(size);
  return value;
}

std::optional<ProtoReader::Field> ProtoReader::Next() {
  if (!ok_ || rest_.empty()) return std::nullopt;
  ok_ = false;
  const std::optional<uint64_t> tag = Raw();
  if (!tag || *tag >> 3 == 0 || *tag >> 3 > kMaxFieldNumber) return std::nullopt;
  Field field{
      .number = static_cast<uint32_t>(*tag >> 3), .type = WireType(*tag & 7), .value = 0, .bytes = {}};
  std::optional<uint64_t> value;
  switch (field.type) {
    case WireType::kVarint:
    case WireType::kBytes:
      value = Raw();
      break;
    case WireType::kFixed64:
      value = Fixed(8);
      break;
    case WireType::kFixed32:
      value = Fixed(4);
      break;
  }
  if (!value) return std::nullopt;
  if (field.type == WireType::kBytes) {
    if (*value > rest_.size()) return std::nullopt;
    field.bytes = rest_.substr(0, *value);
    rest_.remove_prefix(*value);
  } else {
    field.value = *value;
  }
  ok_ = true;
  return field;
}

}  // namespace vllm_router
