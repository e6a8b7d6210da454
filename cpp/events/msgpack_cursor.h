// MsgpackCursor: reads msgpack values one after the other from bytes that the caller keeps, without
// an object per value: most of a KV event is token ids, and most of those are one byte each.
//
//   MsgpackCursor cursor(payload);
//   uint32_t count;
//   if (!cursor.ReadArray(&count)) ...       // false: another type, or cut off; the cursor has not moved
//   while (count-- != 0) cursor.Skip();
//
// Every Read* either takes a whole value (of a container its head) or leaves the cursor where it is. A
// container's count is never above the number of bytes left, since an element has at least one, so a count
// may be trusted for a reservation. Cost: 1 to 3 ns per value. The format: msgpack.org, spec of 2013.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace vllm_router {

class MsgpackCursor {
 public:
  enum class Type : uint8_t { kEnd, kNil, kBool, kInteger, kFloat, kString, kBinary, kArray, kMap, kOther };

  static constexpr int kMaxDepth = 16;  // of containers that Skip() enters

  explicit MsgpackCursor(std::span<const uint8_t> bytes)
      : next_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool done() const { return next_ == end_; }
  size_t left() const { return static_cast<size_t>(end_ - next_); }
  Type Peek() const;  // kEnd: no byte is left; kOther: an extension, or a byte that begins no value

  bool ReadNil();
  bool ReadBool(bool* value);
  // The two's complement bits of a signed one; any integer of the format fits.
  bool ReadInteger(uint64_t* bits);
  // At most `most`, and not negative.
  bool ReadUnsigned(uint64_t most, uint64_t* value);
  // Fills `numbers` from the front with unsigned integers of at most 32 bits, up to one of another form or near the
  // end of the bytes, and returns how many: 1 to 2 ns each, where ReadUnsigned() takes 10 to 20.
  size_t ReadSmall(std::span<uint32_t> numbers);
  bool ReadNumber(double* value);  // float or integer
  bool ReadString(std::string_view* text);
  bool ReadBinary(std::string_view* bytes);
  bool ReadArray(uint32_t* count);
  bool ReadMap(uint32_t* count);  // of pairs
  // A whole value with what it contains. False: it is cut off, or nested deeper than kMaxDepth.
  bool Skip();

 private:
  // The unsigned number of `size` bytes, big-endian, behind the first byte. False: it is cut off.
  bool Argument(size_t size, uint64_t* value) const;
  // The text or bytes behind a head of `head` bytes.
  bool Take(size_t head, uint64_t size, std::string_view* bytes);
  bool SkipNested(int depth);

  const uint8_t* next_;
  const uint8_t* end_;
};

}  // namespace vllm_router
