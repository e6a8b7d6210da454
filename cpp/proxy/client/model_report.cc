#include "proxy/client/model_report.h"

#include <boost/json.hpp>
#include <cmath>
#include <string>
#include <utility>

namespace vllm_router {
namespace json = boost::json;
namespace {

std::string TextAt(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

uint64_t CountAt(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(name);
  if (value == nullptr) return 0;
  if (value->is_int64() && value->get_int64() > 0) return static_cast<uint64_t>(value->get_int64());
  return value->is_uint64() ? value->get_uint64() : 0;
}

}  // namespace

std::optional<std::vector<ModelCard>> ModelsInReport(std::string_view text) {
  boost::system::error_code error;
  const json::value report = json::parse(text, error);
  if (error || !report.is_object()) return std::nullopt;
  const json::value* const list = report.get_object().if_contains("data");
  if (list == nullptr || !list->is_array()) return std::nullopt;
  std::vector<ModelCard> cards;
  for (const json::value& entry : list->get_array()) {
    if (!entry.is_object()) continue;
    const json::object& object = entry.get_object();
    ModelCard card{.id = TextAt(object, "id")};
    if (!IsModelName(card.id)) continue;
    card.parent = TextAt(object, "parent");
    card.root = TextAt(object, "root");
    card.owned_by = TextAt(object, "owned_by");
    if (!IsModelName(card.parent) || card.parent == card.id) card.parent.clear();
    if (!IsModelName(card.root)) card.root.clear();
    if (!IsModelName(card.owned_by)) card.owned_by.clear();
    card.max_model_len = CountAt(object, "max_model_len");
    const json::value* const meta = object.if_contains("meta");
    if (card.max_model_len == 0 && meta != nullptr && meta->is_object())
      card.max_model_len = CountAt(meta->get_object(), "n_ctx");
    card.created = static_cast<int64_t>(std::min<uint64_t>(CountAt(object, "created"), uint64_t{1} << 40));
    cards.push_back(std::move(card));
  }
  return cards;
}

}  // namespace vllm_router
