#include "simulation/tool_script.h"

#include <simdjson.h>

#include <optional>

#include "base/text.h"

namespace vllm_router {

namespace dom = simdjson::dom;

namespace {

constexpr size_t kPieceBytes = 4;  // a token of text; more where a character is longer

Status Invalid(size_t turn, std::string_view reason) {
  return absl::InvalidArgumentError(Concat(
      "tool_script: turn ", turn + 1, " ", reason, R"(; a turn is {"text": "…", "calls": [{"name": "…", )",
      R"("arguments": {…}}]} with a text, calls, or both)"));
}

bool ReadText(dom::element object, std::string_view name, std::string* text) {
  std::string_view value;
  if (object.at_key(name).get(value) != simdjson::SUCCESS) return false;
  *text = value;
  return true;
}

StatusOr<ScriptedCall> ReadCall(dom::element element, size_t turn) {
  ScriptedCall call;
  if (!ReadText(element, "name", &call.name) || call.name.empty())
    return Invalid(turn, "has a call without a \"name\"");
  dom::element arguments;
  if (element.at_key("arguments").get(arguments) != simdjson::SUCCESS) {
    call.arguments = "{}";
  } else if (!arguments.is_object()) {
    return Invalid(turn, Concat("has a call of ", Quoted(call.name), " whose \"arguments\" are no object"));
  } else {
    call.arguments = simdjson::minify(arguments);
  }
  return call;
}

StatusOr<ScriptedTurn> ReadTurn(dom::element element, size_t number) {
  dom::object object;
  if (element.get(object) != simdjson::SUCCESS) return Invalid(number, "is no object");
  for (const auto& [key, value] : object) {
    if (key != "text" && key != "calls")
      return Invalid(number, Concat("has the member ", Quoted(key), ", which means nothing"));
  }
  ScriptedTurn turn;
  const bool has_text = object.at_key("text").error() == simdjson::SUCCESS;
  if (has_text && !ReadText(element, "text", &turn.text))
    return Invalid(number, "has a \"text\" that is none");
  dom::array calls;
  const auto error = object.at_key("calls").get(calls);
  if (error != simdjson::SUCCESS && error != simdjson::NO_SUCH_FIELD)
    return Invalid(number, "has \"calls\" that are no list");
  if (error == simdjson::SUCCESS) {
    for (const dom::element item : calls) {
      StatusOr<ScriptedCall> call = ReadCall(item, number);
      if (!call.ok()) return call.status();
      turn.calls.push_back(*std::move(call));
    }
  }
  if (turn.text.empty() && turn.calls.empty()) return Invalid(number, "says nothing");
  return turn;
}

// Calls `add` with each piece, escaped; never cuts a character.
template <typename Add>
void ForEachPiece(std::string_view text, Add add) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(begin + kPieceBytes, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
    const std::string quoted = JsonQuoted(text.substr(begin, end - begin));
    add(quoted.substr(1, quoted.size() - 2));
    begin = end;
  }
}

}  // namespace

ReplyPiece ScriptedTurn::Piece(size_t token) const {
  const Cut& cut = pieces_[token];
  return {cut.kind, cut.call, cut.json};
}

void ScriptedTurn::CutInPieces() {
  using Kind = ReplyPiece::Kind;
  ForEachPiece(text, [&](std::string json) { pieces_.push_back({Kind::kText, 0, std::move(json)}); });
  for (size_t call = 0; call < calls.size(); ++call) {
    pieces_.push_back({Kind::kCall, call, ""});
    ForEachPiece(calls[call].arguments, [&](std::string json) {
      pieces_.push_back({Kind::kArguments, call, std::move(json)});
    });
  }
}

StatusOr<ToolScript> ToolScript::Parse(std::string_view json) {
  dom::parser parser;
  dom::array turns;
  const auto error = parser.parse(json.data(), json.size()).get(turns);
  if (error != simdjson::SUCCESS || turns.size() == 0) {
    const bool is_json = error == simdjson::SUCCESS || error == simdjson::INCORRECT_TYPE;
    return absl::InvalidArgumentError(Concat(
        "tool_script is ", Quoted(CutAtCharacter(json, 64)), is_json ? "" : ", which is no JSON",
        R"(; it must be a JSON list of one turn or more, as [{"text": "Done."}])"));
  }
  ToolScript script;
  for (const dom::element element : turns) {
    StatusOr<ScriptedTurn> turn = ReadTurn(element, script.turns_.size());
    if (!turn.ok()) return turn.status();
    turn->CutInPieces();
    script.turns_.push_back(*std::move(turn));
  }
  return script;
}

}  // namespace vllm_router
