// IdLog: the token ids of a prompt or of a text, in few bytes: seven bits of an id in each byte, the lowest first.
//
//   5, 300, 151645   ─▶   05 | ac 02 | dd a0 09          an eighth bit says that the id goes on
//
//   IdLog log;
//   log.Add(5);
//   log.ForEach([](uint32_t id) { … });
//
// Ids of today's vocabularies take one to three bytes. Cost: some instructions per id. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vllm_router {

// The elements of an array of ids, as JSON spells it. nullopt: it is none, or an id exceeds 32 bits.
std::optional<std::vector<uint32_t>> ReadIds(std::string_view array);

class IdLog {
 public:
  void Add(uint32_t id) {
    for (; id >= kMore; id >>= kBits) bytes_ += static_cast<char>(id | kMore);
    bytes_ += static_cast<char>(id);
    ++count_;
  }
  void Add(const std::vector<uint32_t>& ids) {
    for (const uint32_t id : ids) Add(id);
  }
  // Keeps so many, the first ones. REQUIRES: count <= count().
  void Truncate(size_t count);

  size_t count() const { return count_; }
  size_t capacity() const { return bytes_.capacity(); }  // bytes of memory

  template <typename Use>
  void ForEach(Use use) const {
    ForEachFrom(0, use);
  }
  // The last ones of the first `end`, at most `most`. REQUIRES: end <= count().
  std::vector<uint32_t> Before(size_t end, size_t most) const;
  // As the elements of an array of JSON: "5,300", behind what is there, with a comma between them.
  void AppendTo(std::string* list) const;

 private:
  static constexpr uint32_t kMore = 0x80;
  static constexpr uint32_t kBits = 7;

  template <typename Use>
  void ForEachFrom(size_t at, Use use) const {
    uint32_t id = 0;
    uint32_t shift = 0;
    for (; at < bytes_.size(); ++at) {
      const auto byte = static_cast<unsigned char>(bytes_[at]);
      id |= (byte & (kMore - 1)) << shift;
      shift += kBits;
      if ((byte & kMore) != 0) continue;
      use(id);
      id = shift = 0;
    }
  }
  size_t PlaceOf(size_t count) const;

  std::string bytes_;
  size_t count_ = 0;
};

}  // namespace vllm_router
