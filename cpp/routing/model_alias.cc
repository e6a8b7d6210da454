#include "routing/model_alias.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"
#include "worker/model_catalog.h"

namespace vllm_router {
namespace {

Status Misfit(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(Concat(
      "model_alias is ", Quoted(text), ", ", why, "; write NAME=MODEL, or NAME=MODEL:WEIGHT,MODEL:WEIGHT"));
}

StatusOr<ModelAliases::Alias> ParseAlias(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return Misfit(text, "which has no '='");
  ModelAliases::Alias alias{.name = std::string(text.substr(0, equals)), .targets = {}, .total = 0};
  if (!IsModelName(alias.name)) return Misfit(text, "of which the name is none");
  std::string_view rest = text.substr(equals + 1);
  const bool has_weights = rest.find(',') != std::string_view::npos;
  while (true) {
    const size_t comma = has_weights ? rest.find(',') : std::string_view::npos;
    std::string_view model = rest.substr(0, comma);
    uint64_t weight = 1;
    if (has_weights) {
      const size_t colon = model.rfind(':');
      const std::optional<uint64_t> number =
          colon != std::string_view::npos ? ParseDecimal(model.substr(colon + 1)) : std::nullopt;
      if (!number || *number > ModelAliases::kMaxWeight)
        return Misfit(text, "of which a model has no weight from 0 to 1000000");
      weight = *number;
      model = model.substr(0, colon);
    }
    if (!IsModelName(model)) return Misfit(text, "of which a model's name is none");
    alias.targets.push_back({.model = std::string(model), .weight = weight});
    alias.total += weight;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (alias.targets.size() > ModelAliases::kMostTargets) return Misfit(text, "which has more than 16 models");
  if (alias.total == 0) return Misfit(text, "of which all weights are 0");
  return alias;
}

}  // namespace

StatusOr<ModelAliases> ModelAliases::Parse(std::vector<std::string> texts) {
  ModelAliases parsed;
  if (texts.size() > kMost) {
    return absl::InvalidArgumentError(
        Concat("model_alias has ", texts.size(), " values; at most ", kMost, " are taken"));
  }
  for (const std::string& text : texts) {
    StatusOr<Alias> alias = ParseAlias(text);
    if (!alias.ok()) return alias.status();
    parsed.aliases_.push_back(*std::move(alias));
  }
  std::ranges::sort(parsed.aliases_, {}, &Alias::name);
  const auto twice = std::ranges::adjacent_find(parsed.aliases_, {}, &Alias::name);
  if (twice != parsed.aliases_.end()) return Misfit(twice->name, "a name that is given twice");
  for (const Alias& alias : parsed.aliases_) {
    for (const Target& target : alias.targets) {
      if (parsed.Find(target.model) != nullptr)
        return Misfit(alias.name, "of which a model is an alias itself");
    }
  }
  parsed.texts_ = std::move(texts);
  return parsed;
}

const ModelAliases::Alias* ModelAliases::Find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(aliases_, name, {}, &Alias::name);
  return found != aliases_.end() && found->name == name ? &*found : nullptr;
}

const std::string& ModelAliases::TargetOf(const Alias& alias, uint64_t hash) {
  uint64_t left = hash % alias.total;
  for (const Target& target : alias.targets) {
    if (left < target.weight) return target.model;
    left -= target.weight;
  }
  return alias.targets.back().model;
}

}  // namespace vllm_router
