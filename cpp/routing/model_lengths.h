// ModelLengths: bytes per token of each model (worker/bytes_per_token.h), by a hash of its name in a
// table of a fixed size. Models that share a slot share a mean; clients cannot make the table grow.
// Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "hashing/hash.h"
#include "worker/bytes_per_token.h"

namespace vllm_router {

class ModelLengths {
 public:
  static constexpr size_t kPlaces = 256;

  // `model` may be empty: requests without a model.
  BytesPerToken& Of(std::string_view model) { return places_[Xxh3(model) % kPlaces]; }

 private:
  std::array<BytesPerToken, kPlaces> places_;
};

}  // namespace vllm_router
