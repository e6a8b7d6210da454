#include "hashing/keyed_hash.h"

#include <openssl/evp.h>
#include <sys/random.h>

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace vllm_router {
namespace {

static_assert(std::endian::native == std::endian::little, "values go into the cipher as little-endian words");

constexpr size_t kValuesPerTurn = 64;  // 1 KiB on the stack

}  // namespace

struct KeyedHash::Cipher {
  explicit Cipher(const Key& key) : context(EVP_CIPHER_CTX_new()) {
    // Each block is encrypted on its own, without mode and padding.
    const bool ready = context != nullptr &&
                       EVP_EncryptInit_ex2(context, EVP_aes_128_ecb(), key.data(), nullptr, nullptr) == 1 &&
                       EVP_CIPHER_CTX_set_padding(context, 0) == 1;
    ROUTER_CHECK(ready, "OpenSSL has no AES-128");
  }
  ~Cipher() { EVP_CIPHER_CTX_free(context); }
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;

  EVP_CIPHER_CTX* const context;
};

KeyedHash::KeyedHash(const Key& key) : cipher_(std::make_unique<Cipher>(key)) {}

KeyedHash::~KeyedHash() = default;

void KeyedHash::Rename(uint64_t domain, std::span<uint64_t> values) {
  struct Block {
    uint64_t value;
    uint64_t domain;
  };
  std::array<Block, kValuesPerTurn> blocks;
  while (!values.empty()) {
    const size_t count = std::min(values.size(), blocks.size());
    for (size_t i = 0; i < count; ++i) blocks[i] = {values[i], domain};
    auto* const bytes = reinterpret_cast<unsigned char*>(blocks.data());
    const int size = static_cast<int>(count * sizeof(Block));
    int written = 0;
    const bool done =
        EVP_EncryptUpdate(cipher_->context, bytes, &written, bytes, size) == 1 && written == size;
    ROUTER_CHECK(done, "whole blocks are encrypted in place");
    for (size_t i = 0; i < count; ++i) values[i] = __builtin_bswap64(blocks[i].value);
    values = values.subspan(count);
  }
}

std::optional<KeyedHash::Key> DrawKey() {
  KeyedHash::Key key;
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) return std::nullopt;
  return key;
}

}  // namespace vllm_router
