#include "events/msgpack_cursor.h"

#include <array>
#include <bit>

namespace vllm_router {
namespace {

// First bytes of the format; those between are ranges.
constexpr uint8_t kNil = 0xc0, kFalse = 0xc2, kTrue = 0xc3;
constexpr uint8_t kBin8 = 0xc4, kBin32 = 0xc6;
constexpr uint8_t kExt8 = 0xc7, kExt32 = 0xc9, kFloat32 = 0xca, kFloat64 = 0xcb;
constexpr uint8_t kUint8 = 0xcc, kInt8 = 0xd0, kInt64 = 0xd3;
constexpr uint8_t kFixExt1 = 0xd4, kFixExt16 = 0xd8, kStr8 = 0xd9, kStr32 = 0xdb;
constexpr uint8_t kArray16 = 0xdc, kArray32 = 0xdd, kMap16 = 0xde, kMap32 = 0xdf;

constexpr bool IsFixMap(uint8_t first) { return (first & 0xf0) == 0x80; }
constexpr bool IsFixArray(uint8_t first) { return (first & 0xf0) == 0x90; }
constexpr bool IsFixString(uint8_t first) { return (first & 0xe0) == 0xa0; }

// Of the eight bytes from the first one on, as a big-endian number: (number << skip) >> shift is the value.
struct SmallForm {
  uint8_t bytes = 0;  // 0: another form
  uint8_t skip = 0;
  uint8_t shift = 0;
};
constexpr std::array<SmallForm, 256> kSmallForms = [] {
  std::array<SmallForm, 256> forms{};
  for (size_t first = 0; first < 0x80; ++first) forms[first] = {.bytes = 1, .skip = 0, .shift = 56};
  for (uint8_t width = 0; width < 3; ++width) {
    const auto size = static_cast<uint8_t>(1 << width);
    forms[kUint8 + width] = {
        .bytes = static_cast<uint8_t>(1 + size), .skip = 8, .shift = static_cast<uint8_t>(64 - 8 * size)};
  }
  return forms;
}();

// One load, as the compiler sees it.
uint64_t BigEndian64(const uint8_t* bytes) {
  return uint64_t{bytes[0]} << 56 | uint64_t{bytes[1]} << 48 | uint64_t{bytes[2]} << 40 |
         uint64_t{bytes[3]} << 32 | uint64_t{bytes[4]} << 24 | uint64_t{bytes[5]} << 16 |
         uint64_t{bytes[6]} << 8 | uint64_t{bytes[7]};
}

}  // namespace

MsgpackCursor::Type MsgpackCursor::Peek() const {
  if (done()) return Type::kEnd;
  const uint8_t first = *next_;
  if (first < 0x80 || first >= 0xe0 || (first >= kUint8 && first <= kInt64)) return Type::kInteger;
  if (IsFixMap(first) || first == kMap16 || first == kMap32) return Type::kMap;
  if (IsFixArray(first) || first == kArray16 || first == kArray32) return Type::kArray;
  if (IsFixString(first) || (first >= kStr8 && first <= kStr32)) return Type::kString;
  if (first >= kBin8 && first <= kBin32) return Type::kBinary;
  if (first == kNil) return Type::kNil;
  if (first == kFalse || first == kTrue) return Type::kBool;
  if (first == kFloat32 || first == kFloat64) return Type::kFloat;
  return Type::kOther;
}

bool MsgpackCursor::Argument(size_t size, uint64_t* value) const {
  if (left() < 1 + size) return false;
  uint64_t sum = 0;
  for (size_t i = 1; i <= size; ++i) sum = sum << 8 | next_[i];
  *value = sum;
  return true;
}

bool MsgpackCursor::ReadNil() {
  if (done() || *next_ != kNil) return false;
  ++next_;
  return true;
}

bool MsgpackCursor::ReadBool(bool* value) {
  if (done() || (*next_ != kFalse && *next_ != kTrue)) return false;
  *value = *next_++ == kTrue;
  return true;
}

bool MsgpackCursor::ReadInteger(uint64_t* bits) {
  if (done()) return false;
  const uint8_t first = *next_;
  if (first < 0x80 || first >= 0xe0) {
    *bits = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(first)));
    ++next_;
    return true;
  }
  if (first < kUint8 || first > kInt64) return false;
  const bool is_signed = first >= kInt8;
  const size_t size = size_t{1} << (first - (is_signed ? kInt8 : kUint8));
  uint64_t value;
  if (!Argument(size, &value)) return false;
  if (is_signed) {
    const auto unused = static_cast<unsigned>(64 - 8 * size);
    value = static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
  }
  *bits = value;
  next_ += 1 + size;
  return true;
}

bool MsgpackCursor::ReadUnsigned(uint64_t most, uint64_t* value) {
  const uint8_t* const begin = next_;
  uint64_t bits;
  if (!ReadInteger(&bits)) return false;
  const bool is_signed = *begin >= 0xe0 || (*begin >= kInt8 && *begin <= kInt64);
  if (bits > most || (is_signed && static_cast<int64_t>(bits) < 0)) {
    next_ = begin;
    return false;
  }
  *value = bits;
  return true;
}

size_t MsgpackCursor::ReadSmall(std::span<uint32_t> numbers) {
  const uint8_t* next = next_;
  size_t count = 0;
  // No branch depends on the lengths, which follow no pattern.
  for (; count < numbers.size() && end_ - next >= 8; ++count) {
    const SmallForm form = kSmallForms[*next];
    if (form.bytes == 0) break;
    numbers[count] = static_cast<uint32_t>(BigEndian64(next) << form.skip >> form.shift);
    next += form.bytes;
  }
  next_ = next;
  return count;
}

bool MsgpackCursor::ReadNumber(double* value) {
  if (done()) return false;
  uint64_t bits;
  if (*next_ == kFloat64) {
    if (!Argument(8, &bits)) return false;
    *value = std::bit_cast<double>(bits);
    next_ += 9;
    return true;
  }
  if (*next_ == kFloat32) {
    if (!Argument(4, &bits)) return false;
    *value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    next_ += 5;
    return true;
  }
  const uint8_t first = *next_;
  if (!ReadInteger(&bits)) return false;
  const bool is_signed = first >= 0xe0 || first >= kInt8;
  *value = is_signed ? static_cast<double>(static_cast<int64_t>(bits)) : static_cast<double>(bits);
  return true;
}

bool MsgpackCursor::Take(size_t head, uint64_t size, std::string_view* bytes) {
  if (left() < head || left() - head < size) return false;
  *bytes = {reinterpret_cast<const char*>(next_ + head), static_cast<size_t>(size)};
  next_ += head + size;
  return true;
}

bool MsgpackCursor::ReadString(std::string_view* text) {
  if (done()) return false;
  const uint8_t first = *next_;
  if (IsFixString(first)) return Take(1, first & 0x1f, text);
  if (first < kStr8 || first > kStr32) return false;
  const size_t width = size_t{1} << (first - kStr8);
  uint64_t size;
  return Argument(width, &size) && Take(1 + width, size, text);
}

bool MsgpackCursor::ReadBinary(std::string_view* bytes) {
  if (done() || *next_ < kBin8 || *next_ > kBin32) return false;
  const size_t width = size_t{1} << (*next_ - kBin8);
  uint64_t size;
  return Argument(width, &size) && Take(1 + width, size, bytes);
}

bool MsgpackCursor::ReadArray(uint32_t* count) {
  if (done()) return false;
  const uint8_t first = *next_;
  uint64_t elements = first & 0x0f;
  size_t width = 0;
  if (!IsFixArray(first)) {
    if (first != kArray16 && first != kArray32) return false;
    width = first == kArray16 ? 2 : 4;
    if (!Argument(width, &elements)) return false;
  }
  if (elements > left() - 1 - width) return false;
  *count = static_cast<uint32_t>(elements);
  next_ += 1 + width;
  return true;
}

bool MsgpackCursor::ReadMap(uint32_t* count) {
  if (done()) return false;
  const uint8_t first = *next_;
  uint64_t pairs = first & 0x0f;
  size_t width = 0;
  if (!IsFixMap(first)) {
    if (first != kMap16 && first != kMap32) return false;
    width = first == kMap16 ? 2 : 4;
    if (!Argument(width, &pairs)) return false;
  }
  if (2 * pairs > left() - 1 - width) return false;
  *count = static_cast<uint32_t>(pairs);
  next_ += 1 + width;
  return true;
}

bool MsgpackCursor::Skip() {
  const uint8_t* const begin = next_;
  if (SkipNested(kMaxDepth)) return true;
  next_ = begin;
  return false;
}

bool MsgpackCursor::SkipNested(int depth) {
  uint64_t number;
  double real;
  bool truth;
  std::string_view bytes;
  uint32_t count;
  switch (Peek()) {
    case Type::kEnd:
      return false;
    case Type::kNil:
      return ReadNil();
    case Type::kBool:
      return ReadBool(&truth);
    case Type::kInteger:
      return ReadInteger(&number);
    case Type::kFloat:
      return ReadNumber(&real);
    case Type::kString:
      return ReadString(&bytes);
    case Type::kBinary:
      return ReadBinary(&bytes);
    case Type::kArray:
    case Type::kMap: {
      const bool is_map = Peek() == Type::kMap;
      if (depth == 0 || !(is_map ? ReadMap(&count) : ReadArray(&count))) return false;
      for (uint64_t i = is_map ? 2 * uint64_t{count} : count; i != 0; --i) {
        if (!SkipNested(depth - 1)) return false;
      }
      return true;
    }
    case Type::kOther:
      break;
  }
  // An extension: its type, then 1, 2, 4, 8 or 16 bytes, or as many as it says.
  const uint8_t first = *next_;
  if (first >= kFixExt1 && first <= kFixExt16) return Take(2, uint64_t{1} << (first - kFixExt1), &bytes);
  if (first < kExt8 || first > kExt32) return false;
  const size_t width = size_t{1} << (first - kExt8);
  return Argument(width, &number) && Take(2 + width, number, &bytes);
}

}  // namespace vllm_router
