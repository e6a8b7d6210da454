#include "response_cache/request_digest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include <absl/container/inlined_vector.h>

#include "base/check.h"

namespace vllm_router {
namespace {

using namespace std::string_view_literals;

static_assert(std::endian::native == std::endian::little, "keys are defined on little-endian numbers");

template <typename Number>
std::array<char, sizeof(Number)> LittleEndian(Number number) {
  return std::bit_cast<std::array<char, sizeof(Number)>>(number);
}

template <size_t kSize>
std::string_view View(const std::array<char, kSize>& bytes) {
  return {bytes.data(), bytes.size()};
}

std::string_view View(const Digest256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// Pieces of which some are written here. No piece moves: their number is known from the start. Those of usual requests
// need no memory.
class Pieces {
 public:
  explicit Pieces(size_t texts) {
    lengths_.reserve(texts);
    pieces_.reserve(2 * texts + 2);
  }
  void Add(std::string_view bytes) { pieces_.push_back(bytes); }
  // F(x)
  void AddText(std::string_view text) {
    ROUTER_CHECK(lengths_.size() < lengths_.capacity(), "room for every length was reserved");
    Add(View(lengths_.emplace_back(LittleEndian<uint64_t>(text.size()))));
    Add(text);
  }
  Digest256 Digest() const { return Sha256(pieces_); }

 private:
  static constexpr size_t kUsualTexts = 32;

  absl::InlinedVector<std::array<char, 8>, kUsualTexts> lengths_;
  absl::InlinedVector<std::string_view, 2 * kUsualTexts + 2> pieces_;
};

std::string BitsOf(double number) { return std::string(View(LittleEndian(number))); }

}  // namespace

CacheKey DigestRequest(const RequestIdentity& identity, std::vector<RequestMember> members) {
  std::ranges::sort(members, {}, &RequestMember::name);
  const std::array<char, 8> generation = LittleEndian(identity.generation);
  const std::array<char, 4> count = LittleEndian(static_cast<uint32_t>(members.size()));
  std::string tenant(1, '\0');
  if (identity.tenant) tenant.assign(1, '\1').append(View(*identity.tenant));

  Pieces pieces(2 * members.size() + 4);
  pieces.Add("vllm-router/response-cache/1\0"sv);
  pieces.AddText(identity.path);
  pieces.AddText(identity.query);
  pieces.AddText(tenant);
  pieces.AddText(View(generation));
  pieces.Add(View(count));
  for (const RequestMember& member : members) {
    pieces.AddText(member.name);
    pieces.AddText(member.value);
  }
  return pieces.Digest();
}

CacheKey DigestFiveParameters(const FiveParameters& parameters) {
  const auto tagged = [](bool present, std::string_view bytes) {
    return present ? std::string(1, '\1').append(bytes) : std::string(1, '\0');
  };
  const Digest256 messages = Sha256({parameters.messages});
  const std::string temperature = parameters.temperature ? BitsOf(*parameters.temperature) : std::string();
  const std::string max_tokens =
      tagged(parameters.max_tokens.has_value(), View(LittleEndian(parameters.max_tokens.value_or(0))));
  const std::string top_p = tagged(parameters.top_p.has_value(), BitsOf(parameters.top_p.value_or(0)));
  const std::string tenant = tagged(parameters.tenant.has_value(), parameters.tenant.value_or(""));
  constexpr std::string_view kZero = "\0"sv;
  return Sha256(
      {parameters.model, kZero, View(messages), kZero, temperature, kZero, max_tokens, kZero, top_p, kZero,
       tenant});
}

Digest256 TenantOfCredential(std::string_view credential) { return Sha256({"tenant\0"sv, credential}); }

Digest256 TenantOfHeader(std::string_view value) { return Sha256({"tenant-header\0"sv, value}); }

Digest256 TenantOfBoth(std::string_view value, std::string_view credential) {
  const Digest256 of_header = TenantOfHeader(value);
  const Digest256 of_credential = TenantOfCredential(credential);
  return Sha256({"tenant-both\0"sv, View(of_header), View(of_credential)});
}

}  // namespace vllm_router
