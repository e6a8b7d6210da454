#include "grpc/grpc_frame.h"

#include <algorithm>
#include <cstring>

namespace vllm_router {

GrpcFrame::GrpcFrame(std::string message) : message_(std::move(message)) {
  const size_t length = message_.size();
  prefix_ = {
      0, static_cast<char>(length >> 24 & 0xff), static_cast<char>(length >> 16 & 0xff),
      static_cast<char>(length >> 8 & 0xff), static_cast<char>(length & 0xff)};
}

size_t GrpcFrame::Copy(size_t begin, char* to, size_t most) const {
  size_t copied = 0;
  const auto copy = [&](std::string_view part) {
    const size_t bytes = std::min(part.size(), most - copied);
    if (bytes != 0) std::memcpy(to + copied, part.data(), bytes);
    copied += bytes;
  };
  if (begin < kGrpcPrefixBytes) copy({prefix_.data() + begin, kGrpcPrefixBytes - begin});
  copy(std::string_view(message_).substr(begin - std::min(begin, kGrpcPrefixBytes)));
  return copied;
}

std::string GrpcMessageText(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte <= 0x7e && c != '%') {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 0xf];
    }
  }
  return out;
}

GrpcFrameReader::Result GrpcFrameReader::Read(std::string_view* bytes) {
  while (prefix_bytes_ < kGrpcPrefixBytes) {
    if (bytes->empty()) return Result::kNeedMore;
    prefix_[prefix_bytes_++] = static_cast<unsigned char>(bytes->front());
    bytes->remove_prefix(1);
    if (prefix_bytes_ < kGrpcPrefixBytes) continue;
    length_ = size_t{prefix_[1]} << 24 | size_t{prefix_[2]} << 16 | size_t{prefix_[3]} << 8 | prefix_[4];
    if (prefix_[0] != 0) return Result::kCompressed;
    if (length_ > max_message_bytes_) return Result::kTooLarge;
    message_.reserve(std::min(length_, kFirstBytes));
  }
  const size_t taken = std::min(bytes->size(), length_ - message_.size());
  if (message_.size() + taken > kFirstBytes) message_.reserve(length_);  // it comes, so it is not moved again
  message_.append(bytes->substr(0, taken));
  bytes->remove_prefix(taken);
  if (message_.size() < length_) return Result::kNeedMore;
  prefix_bytes_ = 0;
  return Result::kMessage;
}

}  // namespace vllm_router
