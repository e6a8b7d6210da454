// IndexImage: an index as bytes, for a file or a pickle; and the reader and writer of its payload. The
// format is in docs/reference/index_file.md.
//
//   | "VLLMRIDX" | version u32 | kind u32 | size u64 |   payload, `size` bytes   | XXH3-64 of all before, u64 |
//
// Numbers are little-endian. An image that is cut, longer, changed, of another version or of another
// kind is rejected by OpenIndexImage, with the value and the expected one. The code that reads the
// payload checks its contents again: a checksum protects from accidents, not from forgery. Values; any
// thread.
//
//   ImageWriter writer;
//   writer.Number(uint32_t{7});
//   const std::string image = SealIndexImage(IndexKind::kBlockCacheTracker, std::move(writer));
//   StatusOr<std::string_view> payload = OpenIndexImage(IndexKind::kBlockCacheTracker, image);
//   ImageReader reader(*payload);
//   const auto seven = reader.Number<uint32_t>();
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/status.h"
#include "base/text.h"

namespace vllm_router {

static_assert(std::endian::native == std::endian::little, "images hold numbers as they are in memory");

// Never renumbered.
enum class IndexKind : uint32_t { kBlockCacheTracker = 1, kStringTree = 2, kTokenTree = 3 };
std::string_view IndexKindName(IndexKind kind);

// Version 1 knew no unnamed blocks; apart from them it is the same.
inline constexpr uint32_t kIndexImageVersion = 2;
inline constexpr uint32_t kOldestIndexImageVersion = 1;

class ImageWriter {
 public:
  static constexpr size_t kHeaderBytes = 24;

  template <std::unsigned_integral T>
  void Number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <typename T>
  void Array(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  // Appends what was written to `other`.
  void Append(const ImageWriter& other) { bytes_.append(other.bytes_, kHeaderBytes); }
  std::string_view written() const { return std::string_view(bytes_).substr(kHeaderBytes); }
  // Its size, then its bytes.
  void Text(std::string_view text) {
    Number(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
  }

 private:
  friend std::string SealIndexImage(IndexKind kind, ImageWriter writer);

  std::string bytes_ = std::string(kHeaderBytes, '\0');
};

// After a read beyond the end everything reads as 0 or empty, and ok() says so.
class ImageReader {
 public:
  explicit ImageReader(std::string_view payload) : rest_(payload) {}

  template <std::unsigned_integral T>
  T Number() {
    T value = 0;
    const std::string_view bytes = Bytes(sizeof(T));
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  // A number of items that take at least `least` bytes each; checked against the bytes that are left.
  uint64_t Count(size_t least) {
    const auto count = Number<uint64_t>();
    if (count <= rest_.size() / least) return count;
    Fail();
    return 0;
  }
  std::string_view Bytes(uint64_t size) {
    if (size > rest_.size()) {
      Fail();
      return {};
    }
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  template <typename T>
  void Array(std::span<T> values) {
    const std::string_view bytes = Bytes(values.size_bytes());
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  std::string_view Text() { return Bytes(Number<uint32_t>()); }

  bool ok() const { return ok_; }
  size_t left() const { return rest_.size(); }
  // DataLoss unless all reads succeeded and nothing is left.
  Status End() const;

 private:
  void Fail() {
    ok_ = false;
    rest_ = {};
  }

  std::string_view rest_;
  bool ok_ = true;
};

std::string SealIndexImage(IndexKind kind, ImageWriter writer);
// The payload. DataLoss with a message that is to follow the name of its source.
StatusOr<std::string_view> OpenIndexImage(IndexKind kind, std::string_view image);

// The images in files: at most kMaxIndexFileBytes. FailedPrecondition, with `error`, when the system
// call fails; DataLoss that names the file.
Status SaveIndexFile(const std::string& path, std::string_view image, int* error);
StatusOr<std::string> LoadIndexFile(const std::string& path, int* error);

// DataLoss for the contents of an image, with a message that is to follow its name.
template <typename... Parts>
Status BadImage(const Parts&... parts) {
  return absl::DataLossError(Concat(parts...));
}

// DataLoss of an image, with the name of its source and the remedy.
Status BadIndex(std::string_view source, const Status& what);

}  // namespace vllm_router
