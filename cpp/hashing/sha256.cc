#include "hashing/sha256.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace vllm_router {
namespace {

// Looked up once: by name it takes longer than hashing a kilobyte.
const EVP_MD* Digest() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  ROUTER_CHECK(algorithm != nullptr, "OpenSSL has no SHA-256");
  return algorithm;
}

// Gathers short pieces: a call of OpenSSL takes as long as hashing a block of 64 bytes.
class Gathering {
 public:
  explicit Gathering(EVP_MD_CTX* context) : context_(context) {}

  bool Add(std::string_view piece) {
    if (piece.size() > bytes_.size() - filled_ && !Flush()) return false;
    if (piece.size() > bytes_.size()) return Update(piece);
    filled_ += piece.copy(bytes_.data() + filled_, piece.size());
    return true;
  }
  bool Flush() { return Update({bytes_.data(), std::exchange(filled_, 0)}); }

 private:
  bool Update(std::string_view bytes) { return EVP_DigestUpdate(context_, bytes.data(), bytes.size()) == 1; }

  EVP_MD_CTX* const context_;
  std::array<char, 256> bytes_;
  size_t filled_ = 0;
};

}  // namespace

Digest256 Sha256(std::span<const std::string_view> pieces) {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  thread_local const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
  Digest256 digest;
  bool done = context != nullptr && EVP_DigestInit_ex2(context.get(), Digest(), nullptr) == 1;
  Gathering gathering(context.get());
  for (const std::string_view piece : pieces) done = done && gathering.Add(piece);
  done = done && gathering.Flush() && EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) == 1;
  ROUTER_CHECK(done, "SHA-256 fails only without memory");
  return digest;
}

Digest256 HmacSha256(std::string_view key, std::string_view text) {
  Digest256 digest;
  const void* const done = HMAC(
      Digest(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
      text.size(), digest.data(), nullptr);
  ROUTER_CHECK(done != nullptr, "HMAC fails only without memory");
  return digest;
}

std::string DigestHex(const Digest256& digest) {
  std::string hex;
  for (size_t at = 0; at < digest.size(); at += sizeof(uint64_t)) hex += Hex16(DigestWord(digest, at));
  return hex;
}

}  // namespace vllm_router
