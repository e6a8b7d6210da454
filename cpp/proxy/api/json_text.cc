#include "proxy/api/json_text.h"

#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

// The fewest digits that parse to the same number. JSON cannot express a number that is not finite.
void AppendNumber(double number, std::string* text) {
  if (!std::isfinite(number)) {
    text->append("null");
    return;
  }
  constexpr double kMostPlain = 1e15;
  const bool plain = std::fabs(number) < kMostPlain && (number == 0 || std::fabs(number) >= 1e-6);
  std::array<char, 32> digits;
  const std::to_chars_result end =
      plain ? std::to_chars(digits.data(), digits.data() + digits.size(), number, std::chars_format::fixed)
            : std::to_chars(digits.data(), digits.data() + digits.size(), number);
  const std::string_view written(digits.data(), static_cast<size_t>(end.ptr - digits.data()));
  text->append(written);
  if (written.find_first_of(".e") == std::string_view::npos) text->append(".0");
}

void Append(const json::value& value, std::string* text) {
  switch (value.kind()) {
    case json::kind::double_:
      return AppendNumber(value.get_double(), text);
    case json::kind::string:
      return AppendJsonQuoted(value.get_string(), text);
    case json::kind::array: {
      std::string_view separator = "[";
      for (const json::value& element : value.get_array()) {
        text->append(separator);
        Append(element, text);
        separator = ",";
      }
      text->append(value.get_array().empty() ? "[]" : "]");
      return;
    }
    case json::kind::object: {
      std::string_view separator = "{";
      for (const json::key_value_pair& member : value.get_object()) {
        text->append(separator);
        AppendJsonQuoted(member.key(), text);
        text->push_back(':');
        Append(member.value(), text);
        separator = ",";
      }
      text->append(value.get_object().empty() ? "{}" : "}");
      return;
    }
    default:  // null, true, false and integers
      text->append(json::serialize(value));
  }
}

}  // namespace

std::string JsonText(const json::value& value) {
  std::string text;
  Append(value, &text);
  return text;
}

std::string JsonAgain(std::string_view text) { return JsonText(json::parse(text)); }

}  // namespace vllm_router
