#include "net/ip_range.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr uint32_t kBitsOfIpv6 = 128;
constexpr uint32_t kBitsBeforeIpv4 = 96;

}  // namespace

bool IpRange::Read(std::string_view address, Bytes* bytes, bool* is_dotted) {
  if (address.find('\0') != std::string_view::npos) return false;
  const std::string text(address.substr(0, address.find('%')));  // without the interface of a link-local one
  *bytes = {};
  *is_dotted = ::inet_pton(AF_INET, text.c_str(), bytes->data() + kBitsBeforeIpv4 / 8) == 1;
  if (!*is_dotted) return ::inet_pton(AF_INET6, text.c_str(), bytes->data()) == 1;
  (*bytes)[10] = (*bytes)[11] = 0xff;
  return true;
}

bool IpRange::IsIpv4(const Bytes& bytes) {
  return std::all_of(bytes.begin(), bytes.begin() + 10, [](uint8_t byte) { return byte == 0; }) &&
         bytes[10] == 0xff && bytes[11] == 0xff;
}

StatusOr<IpRange> IpRange::Parse(std::string_view option, std::string_view text) {
  IpRange range;
  bool is_dotted = false;
  const size_t slash = text.find('/');
  bool fits = Read(text.substr(0, slash), &range.first_, &is_dotted);
  range.bits_ = kBitsOfIpv6;
  if (fits && slash != std::string_view::npos) {
    const std::string_view bits = text.substr(slash + 1);
    const uint32_t before = is_dotted ? kBitsBeforeIpv4 : 0;
    const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), range.bits_);
    fits = error == std::errc() && end == bits.data() + bits.size() && range.bits_ <= kBitsOfIpv6 - before;
    range.bits_ += before;
  }
  range.is_ipv4_ = range.bits_ >= kBitsBeforeIpv4 && IsIpv4(range.first_);
  if (fits) return range;
  return absl::InvalidArgumentError(Concat(
      option, " is ", Quoted(text), "; it must be an IP address or a range of them, such as 10.0.0.0/8"));
}

bool IpRange::Contains(std::string_view address) const {
  Bytes bytes{};
  bool is_dotted = false;
  if (!Read(address, &bytes, &is_dotted) || IsIpv4(bytes) != is_ipv4_) return false;
  const size_t whole = bits_ / 8;
  if (!std::equal(bytes.begin(), bytes.begin() + whole, first_.begin())) return false;
  const uint32_t rest = bits_ % 8;
  return rest == 0 || (bytes[whole] ^ first_[whole]) >> (8 - rest) == 0;
}

}  // namespace vllm_router
