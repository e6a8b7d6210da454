// A truncated JSON object, completed: a body too long to be held is routed on its first MiBs, which end anywhere.
//
//   {"model": "m", "messages": [{"role": "user", "content": "Once upo|n a time …
//   {"model": "m", "messages": [{"role": "user", "content": "Once upo"}]}
//
// What was complete stays, a string is closed where it was cut, and what else is incomplete is left out: a name without its
// value, half a number, half an escape, half a character. The brackets still open are closed. Only brackets and strings
// are looked at; whoever parses the result says whether it is JSON.
//
// Pure. Cost: one pass; 0.1 ms per MiB where strings are long, 1 to 2 where all is brackets.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace vllm_router {

struct JsonRepair {
  size_t keep = 0;      // bytes of the text
  std::string closing;  // what to put behind them
};

// None for what is not the prefix of an object, or is nested deeper than 1,000 brackets. An object that has ended is
// kept with all that comes behind it, so that it does not pass for what it is not.
std::optional<JsonRepair> CloseJson(std::string_view text);

// The same in the text's own memory, with the padding that a parser wants behind it; what was there comes back when this
// ends. So 8 MiB of a body stay 8 MiB.
class TruncatedJson {
 public:
  // The last bytes of the text make room for what closes it. REQUIRES: 2 KiB or more.
  explicit TruncatedJson(std::span<char> text);
  ~TruncatedJson();
  TruncatedJson(const TruncatedJson&) = delete;
  TruncatedJson& operator=(const TruncatedJson&) = delete;

  // kBodyPadding readable bytes lie behind it. Empty for what CloseJson() has nothing for.
  std::string_view view() const { return view_; }

 private:
  std::span<char> place_;  // where `replaced_` belongs
  std::string replaced_;
  std::string_view view_;
};

}  // namespace vllm_router
