// MsgpackWriter: MessagePack values one after the other, each in its shortest form. Who writes a container's
// head writes so many values, or pairs, behind it.
//
//   MsgpackWriter out;
//   out.Map(1);
//   out.Text("seq");
//   out.Unsigned(7);
//   socket.Send(out.Take());         // 81 a3 73 65 71 07
//
// The format: msgpack.org, spec of 2013. One thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace vllm_router {

class MsgpackWriter {
 public:
  void Nil() { out_ += '\xc0'; }
  void Bool(bool value) { out_ += value ? '\xc3' : '\xc2'; }
  void Float(double value) { Tagged('\xcb', std::bit_cast<uint64_t>(value)); }
  void Unsigned(uint64_t value) {
    if (value < 0x80) {
      out_ += static_cast<char>(value);
    } else if (value <= UINT8_MAX) {
      Tagged('\xcc', static_cast<uint8_t>(value));
    } else if (value <= UINT16_MAX) {
      Tagged('\xcd', static_cast<uint16_t>(value));
    } else if (value <= UINT32_MAX) {
      Tagged('\xce', static_cast<uint32_t>(value));
    } else {
      Tagged('\xcf', value);
    }
  }
  void Signed(int64_t value) {
    if (value >= 0) {
      Unsigned(static_cast<uint64_t>(value));
    } else if (value >= -32) {
      out_ += static_cast<char>(value);
    } else {
      Tagged('\xd3', static_cast<uint64_t>(value));
    }
  }
  // Of at most 2^32 - 1 bytes, as the next; of so many elements or pairs.
  void Text(std::string_view text) {
    if (text.size() < 32) {
      out_ += static_cast<char>(0xa0 | text.size());
    } else {
      Tagged('\xdb', static_cast<uint32_t>(text.size()));
    }
    out_ += text;
  }
  void Binary(std::string_view bytes) {
    Tagged('\xc6', static_cast<uint32_t>(bytes.size()));
    out_ += bytes;
  }
  void Array(size_t size) { Container('\x90', '\xdc', size); }
  void Map(size_t size) { Container('\x80', '\xde', size); }

  std::string Take() { return std::move(out_); }

 private:
  // The tag of a container of 32-bit size follows that of one of 16 bits.
  void Container(char small, char tag, size_t size) {
    if (size < 16) {
      out_ += static_cast<char>(static_cast<unsigned char>(small) | size);
    } else if (size <= UINT16_MAX) {
      Tagged(tag, static_cast<uint16_t>(size));
    } else {
      Tagged(static_cast<char>(tag + 1), static_cast<uint32_t>(size));
    }
  }
  template <typename T>
  void Tagged(char tag, T value) {
    out_ += tag;
    for (int shift = static_cast<int>(sizeof(T)) * 8 - 8; shift >= 0; shift -= 8)
      out_ += static_cast<char>(value >> shift & 0xff);
  }

  std::string out_;
};

}  // namespace vllm_router
