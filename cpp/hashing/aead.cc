#include "hashing/aead.h"

#include <openssl/evp.h>

#include <array>
#include <cstring>
#include <memory>

#include "base/check.h"

namespace vllm_router {
namespace {

constexpr size_t kNonceBytes = 12;
// OpenSSL's lengths are ints, and no message here is near that.
constexpr size_t kMaxBytes = size_t{1} << 30;

using Nonce = std::array<uint8_t, kNonceBytes>;

Nonce NonceOf(uint64_t number) {
  Nonce nonce{};
  std::memcpy(nonce.data() + kNonceBytes - sizeof(number), &number, sizeof(number));
  return nonce;
}

struct Free {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};

EVP_CIPHER_CTX* Context() {
  thread_local const std::unique_ptr<EVP_CIPHER_CTX, Free> context(EVP_CIPHER_CTX_new());
  ROUTER_CHECK(context != nullptr, "a cipher's context takes memory");
  return context.get();
}

// Looked up once: by name it takes longer than sealing a kilobyte.
const EVP_CIPHER* Cipher() {
  static const EVP_CIPHER* const algorithm = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  ROUTER_CHECK(algorithm != nullptr, "OpenSSL has no AES-256-GCM");
  return algorithm;
}

}  // namespace

void AeadSeal(const Digest256& key, uint64_t number, size_t head_bytes, std::string* message) {
  ROUTER_CHECK(head_bytes <= message->size() && message->size() < kMaxBytes, "a message has its head");
  const Nonce nonce = NonceOf(number);
  EVP_CIPHER_CTX* const context = Context();
  auto* const bytes = reinterpret_cast<unsigned char*>(message->data());
  const auto head = static_cast<int>(head_bytes);
  const int text = static_cast<int>(message->size()) - head;
  std::array<unsigned char, kAeadTagBytes> tag;
  int written = 0;
  const bool done =
      EVP_EncryptInit_ex2(context, Cipher(), key.data(), nonce.data(), nullptr) == 1 &&
      EVP_EncryptUpdate(context, nullptr, &written, bytes, head) == 1 &&
      EVP_EncryptUpdate(context, bytes + head, &written, bytes + head, text) == 1 &&
      EVP_EncryptFinal_ex(context, bytes + head + text, &written) == 1 &&
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()), tag.data()) == 1;
  ROUTER_CHECK(done, "encryption fails only without memory");
  message->append(reinterpret_cast<const char*>(tag.data()), tag.size());
}

bool AeadOpen(const Digest256& key, uint64_t number, size_t head_bytes, std::string* message) {
  if (message->size() < head_bytes + kAeadTagBytes || message->size() >= kMaxBytes) return false;
  const Nonce nonce = NonceOf(number);
  EVP_CIPHER_CTX* const context = Context();
  auto* const bytes = reinterpret_cast<unsigned char*>(message->data());
  const auto head = static_cast<int>(head_bytes);
  const int text = static_cast<int>(message->size() - kAeadTagBytes) - head;
  int written = 0;
  const bool authentic =
      EVP_DecryptInit_ex2(context, Cipher(), key.data(), nonce.data(), nullptr) == 1 &&
      EVP_DecryptUpdate(context, nullptr, &written, bytes, head) == 1 &&
      EVP_DecryptUpdate(context, bytes + head, &written, bytes + head, text) == 1 &&
      EVP_CIPHER_CTX_ctrl(
          context, EVP_CTRL_AEAD_SET_TAG, static_cast<int>(kAeadTagBytes), bytes + head + text) == 1 &&
      EVP_DecryptFinal_ex(context, bytes + head + text, &written) == 1;
  message->resize(message->size() - kAeadTagBytes);
  return authentic;
}

}  // namespace vllm_router
