#include "index/index_image.h"

#include "base/limits.h"
#include "base/text.h"
#include "base/whole_file.h"
#include "hashing/hash.h"

namespace vllm_router {
namespace {

constexpr std::string_view kMagic = "VLLMRIDX";
constexpr size_t kVersionAt = 8;
constexpr size_t kKindAt = 12;
constexpr size_t kSizeAt = 16;
constexpr size_t kHeaderBytes = ImageWriter::kHeaderBytes;
constexpr size_t kChecksumBytes = 8;
constexpr size_t kLeastBytes = kHeaderBytes + kChecksumBytes;

template <typename T>
T NumberAt(std::string_view image, size_t at) {
  T value;
  std::memcpy(&value, image.data() + at, sizeof(value));
  return value;
}

template <typename T>
void PutNumber(T value, size_t at, std::string* image) {
  std::memcpy(image->data() + at, &value, sizeof(value));
}

std::string_view KindName(uint32_t kind) { return IndexKindName(static_cast<IndexKind>(kind)); }

}  // namespace

std::string_view IndexKindName(IndexKind kind) {
  switch (kind) {
    case IndexKind::kBlockCacheTracker:
      return "BlockCacheTracker";
    case IndexKind::kStringTree:
      return "StringTree";
    case IndexKind::kTokenTree:
      return "TokenTree";
  }
  return "unknown";
}

std::string SealIndexImage(IndexKind kind, ImageWriter writer) {
  std::string image = std::move(writer.bytes_);
  std::memcpy(image.data(), kMagic.data(), kMagic.size());
  PutNumber(kIndexImageVersion, kVersionAt, &image);
  PutNumber(static_cast<uint32_t>(kind), kKindAt, &image);
  PutNumber(uint64_t{image.size() - kHeaderBytes}, kSizeAt, &image);
  const uint64_t checksum = Xxh3(image);
  image.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  return image;
}

StatusOr<std::string_view> OpenIndexImage(IndexKind kind, std::string_view image) {
  if (image.size() < kLeastBytes) {
    return BadImage(
        "it has ", image.size(), " bytes; an index has at least ", kLeastBytes, ", so it was truncated");
  }
  if (!image.starts_with(kMagic)) {
    return BadImage("it does not start with ", kMagic, ", so it is not an index of vllm-router");
  }
  const auto version = NumberAt<uint32_t>(image, kVersionAt);
  if (version < kOldestIndexImageVersion || version > kIndexImageVersion) {
    return BadImage(
        "its version is ", version, "; this vllm-router reads versions ", kOldestIndexImageVersion, " to ",
        kIndexImageVersion);
  }
  const auto size = NumberAt<uint64_t>(image, kSizeAt);
  if (size != image.size() - kLeastBytes) {
    const bool cut = size > image.size() - kLeastBytes;
    return BadImage(
        "its payload has ", image.size() - kLeastBytes, " bytes and its header says ", size,
        cut ? "; it was truncated" : "; something follows its end");
  }
  const auto expected = NumberAt<uint64_t>(image, image.size() - kChecksumBytes);
  const uint64_t found = Xxh3(image.substr(0, image.size() - kChecksumBytes));
  if (found != expected) {
    return BadImage(
        "its XXH3-64 is ", found, " and its last 8 bytes say ", expected,
        "; it was changed after it was saved");
  }
  const auto its_kind = NumberAt<uint32_t>(image, kKindAt);
  if (its_kind != static_cast<uint32_t>(kind)) {
    return BadImage(
        "its kind is ", its_kind, " (", KindName(its_kind), "); here a ", IndexKindName(kind), " is loaded");
  }
  return image.substr(kHeaderBytes, size);
}

Status ImageReader::End() const {
  if (!ok_) return absl::DataLossError("a length in it exceeds the data that follows");
  if (!rest_.empty()) {
    return BadImage("its payload goes on for ", rest_.size(), " bytes after its last item");
  }
  return absl::OkStatus();
}

Status SaveIndexFile(const std::string& path, std::string_view image, int* error) {
  if (image.size() > kMaxIndexFileBytes) {
    return absl::InvalidArgumentError(Concat(
        "the index would take ", image.size(), " bytes in ", Quoted(path), "; at most ", kMaxIndexFileBytes,
        " are saved: evict some of it first"));
  }
  return WriteWholeFile(path, image, error);
}

StatusOr<std::string> LoadIndexFile(const std::string& path, int* error) {
  StatusOr<std::string> image = ReadWholeFile(path, kMaxIndexFileBytes, error);
  if (image.ok() || !absl::IsDataLoss(image.status())) return image;
  return BadImage(std::string(image.status().message()), "; name the file that save() wrote");
}

Status BadIndex(std::string_view source, const Status& what) {
  return BadImage(
      source, " is not usable: ", std::string(what.message()),
      "; save it again, or start with an empty index");
}

}  // namespace vllm_router
