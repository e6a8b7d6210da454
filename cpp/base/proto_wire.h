// ProtoWriter and ProtoReader: the wire format of Protocol Buffers, without a schema. Who writes a message names the number of
// each field; a message within a message is written in place, and its length is filled in at its end.
//
//   std::string bytes;
//   ProtoWriter out(&bytes);
//   const size_t resource = out.Begin(1);         0a ..
//   out.Text(1, "service.name");                     0a 0c 73 65 …
//   out.End(resource);                            .. becomes the length
//
//   ProtoReader in(bytes);
//   while (const auto field = in.Next()) if (field->number == 1) … field->bytes
//   if (!in.ok()) …                               the bytes are no message
//
// Cost: a few ns a field; End() moves the message by a byte or more if it has 128 bytes or more. One thread.
// The format: protobuf.dev, "Encoding". Groups, which proto3 does not have, are taken for malformed.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vllm_router {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

inline constexpr size_t kMaxVarintBytes = 10;

class ProtoWriter {
 public:
  // Appends to `out`, which outlives it. Until its end, or Close(), there may be more behind what was written.
  explicit ProtoWriter(std::string* out) : out_(*out), size_(out->size()) {}
  ~ProtoWriter() { Close(); }
  ProtoWriter(const ProtoWriter&) = delete;
  ProtoWriter& operator=(const ProtoWriter&) = delete;

  // Fields of type uint32, uint64, int32, int64, bool and of enumerations; a negative number is written as its 64 bits.
  void Varint(uint32_t field, uint64_t value) {
    char* to = Tag(field, WireType::kVarint, kMaxVarintBytes);
    EndAt(PutVarint(value, to));
  }
  void Fixed32(uint32_t field, uint32_t value) { Fixed(field, WireType::kFixed32, value); }
  void Fixed64(uint32_t field, uint64_t value) { Fixed(field, WireType::kFixed64, value); }
  void Double(uint32_t field, double value) { Fixed64(field, std::bit_cast<uint64_t>(value)); }
  // Strings, bytes, and messages that are written already. A string must be UTF-8: readers reject the message otherwise.
  void Text(uint32_t field, std::string_view value) {
    char* to = Tag(field, WireType::kBytes, kMaxVarintBytes + value.size());
    to = PutVarint(value.size(), to);
    EndAt(std::copy(value.begin(), value.end(), to));
  }
  // A string that may be none: U+FFFD stands for each byte that is no part of a character.
  void TextOf(uint32_t field, std::string_view value);
  // Fields that are written already.
  void Fields(std::string_view written) {
    EndAt(std::copy(written.begin(), written.end(), Room(written.size())));
  }

  // A message within this one, whose length is known: the next `bytes`, which may follow elsewhere.
  void BeginSized(uint32_t field, size_t bytes) {
    EndAt(PutVarint(bytes, Tag(field, WireType::kBytes, kMaxVarintBytes)));
  }
  // A message within this one: all that is written until End(), which gets what Begin() returned.
  size_t Begin(uint32_t field) {
    EndAt(Tag(field, WireType::kBytes, 1) + 1);
    return size_;
  }
  void End(size_t begun) {
    const size_t length = size_ - begun;
    if (length < 0x80) {
      out_[begun - 1] = static_cast<char>(length);
    } else {
      EndLong(begun);
    }
  }

  // For what is laid out at once: room for so many bytes, and the end of what was put there by the functions below.
  char* Reserve(size_t bytes) { return Room(bytes); }
  void Commit(const char* end) { EndAt(end); }
  static char* PutTag(uint32_t field, WireType type, char* to) {
    return PutVarint(uint64_t{field} << 3 | static_cast<uint64_t>(type), to);
  }
  static char* PutVarint(uint64_t value, char* to) {
    for (; value >= 0x80; value >>= 7) *to++ = static_cast<char>(value | 0x80);
    *to++ = static_cast<char>(value);
    return to;
  }
  template <typename T>
  static char* PutFixed(T value, char* to) {
    for (size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<char>(value >> 8 * i & 0xff);
    return to + sizeof(T);
  }
  static char* PutBytes(std::string_view bytes, char* to) {
    return std::copy(bytes.begin(), bytes.end(), to);
  }
  // What PutVarint() takes.
  static constexpr size_t VarintBytes(uint64_t value) {
    return static_cast<size_t>(std::bit_width(value | 1) + 6) / 7;
  }

  // Of the string, with what was written.
  size_t size() const { return size_; }
  // REQUIRES: nothing is written after it.
  void Close() { out_.resize(size_); }

 private:
  static constexpr size_t kGrowth = 512;

  // Where the next byte belongs, with room for so many.
  char* Room(size_t bytes) {
    if (out_.size() - size_ < bytes) out_.resize(size_ + bytes + kGrowth);
    return out_.data() + size_;
  }
  void EndAt(const char* end) { size_ = static_cast<size_t>(end - out_.data()); }
  // Where the value belongs, with room for so many bytes.
  char* Tag(uint32_t field, WireType type, size_t bytes) {
    return PutTag(field, type, Room(kMaxVarintBytes + bytes));
  }
  template <typename T>
  void Fixed(uint32_t field, WireType type, T value) {
    EndAt(PutFixed(value, Tag(field, type, sizeof(T))));
  }
  void EndLong(size_t begun);

  std::string& out_;  // its size may be more than size_
  size_t size_;
};

class ProtoReader {
 public:
  struct Field {
    uint32_t number;
    WireType type;
    uint64_t value;          // of all types but kBytes
    std::string_view bytes;  // of kBytes, within what is read
  };

  explicit ProtoReader(std::string_view bytes) : rest_(bytes) {}

  // Nullopt at the end, and for what is malformed.
  std::optional<Field> Next();
  bool ok() const { return ok_; }

 private:
  std::optional<uint64_t> Raw();
  std::optional<uint64_t> Fixed(size_t size);

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace vllm_router
