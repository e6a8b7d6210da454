// ToolScript: what a simulated model says in place of its own text where a request has tools, so that an agent works
// through a task against it: it runs the tools that the script calls and sends their results for the next turn.
//
//   [{"text": "I look.", "calls": [{"name": "bash", "arguments": {"command": "ls"}}]},
//    {"text": "Done."}]
//
//   StatusOr<ToolScript> script = ToolScript::Parse(json);
//   script->Turn(0).calls[0].name;      // "bash"
//   script->Turn(7).text;               // "Done.": the last turn repeats
//
// Which turn is next stands in the conversation itself: it is the number of responses since the user's last message
// (ResponseCount). So the worker keeps nothing, and any worker with the script can continue.
//
// Immutable after Parse; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace vllm_router {

struct ScriptedCall {
  std::string name;
  std::string arguments;  // a JSON object
};

// What one token of a response adds.
struct ReplyPiece {
  enum class Kind : uint8_t { kText, kCall, kArguments };
  Kind kind = Kind::kText;
  size_t call = 0;          // number among the turn's calls; not of kText
  std::string_view json{};  // text or arguments, escaped as in a JSON string; of kCall nothing
};

struct ScriptedTurn {
  std::string text;
  std::vector<ScriptedCall> calls;

  // The tokens of the turn: the text, then each call with its arguments, in pieces of four bytes or a little more.
  size_t tokens() const { return pieces_.size(); }
  ReplyPiece Piece(size_t token) const;

 private:
  friend class ToolScript;
  struct Cut {
    ReplyPiece::Kind kind;
    size_t call;
    std::string json;
  };
  void CutInPieces();
  std::vector<Cut> pieces_;
};

class ToolScript {
 public:
  // InvalidArgument, with the reason and the remedy, for what is no list of turns.
  static StatusOr<ToolScript> Parse(std::string_view json);

  const ScriptedTurn& Turn(size_t number) const { return turns_[std::min(number, turns_.size() - 1)]; }

 private:
  std::vector<ScriptedTurn> turns_;  // at least one
};

// Counts a conversation's responses since the user's last message. Several items in a row are one response; tool
// results end it and are no message of the user.
class ResponseCount {
 public:
  void AddUser() { *this = {}; }
  void AddAssistant() {
    if (!in_response_) ++count_;
    in_response_ = true;
  }
  void AddResult() { in_response_ = false; }
  size_t count() const { return count_; }

 private:
  size_t count_ = 0;
  bool in_response_ = false;
};

}  // namespace vllm_router
