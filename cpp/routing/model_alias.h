// ModelAliases: other names of models, of --model-alias.
//
//   fast=Qwen/Qwen3-8B    a request for fast is one for Qwen/Qwen3-8B
//   prod=a:90,b:10        nine of ten sessions get a, the others b
//
// With one target the whole text behind the first '=' is its name, which may have colons. With several each ends in
// :weight, a whole number from 0 to 1,000,000. A target is a model, not another alias. Immutable; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace vllm_router {

class ModelAliases {
 public:
  static constexpr size_t kMost = 256;
  static constexpr size_t kMostTargets = 16;
  static constexpr uint64_t kMaxWeight = 1'000'000;

  struct Target {
    std::string model;
    uint64_t weight = 1;
  };
  struct Alias {
    std::string name;
    std::vector<Target> targets;
    uint64_t total = 1;  // of the weights
  };

  ModelAliases() = default;
  // InvalidArgument names the text that is wrong.
  static StatusOr<ModelAliases> Parse(std::vector<std::string> texts);

  bool empty() const { return aliases_.empty(); }
  const std::vector<std::string>& texts() const { return texts_; }
  std::span<const Alias> aliases() const { return aliases_; }
  const Alias* Find(std::string_view name) const;
  // The model for a session with this hash, or for a random number.
  static const std::string& TargetOf(const Alias& alias, uint64_t hash);

 private:
  std::vector<std::string> texts_;
  std::vector<Alias> aliases_;  // by name
};

}  // namespace vllm_router
