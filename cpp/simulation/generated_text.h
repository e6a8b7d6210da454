// GeneratedText: what a simulated model says behind a prompt: token ids, and the text that a stream has shown with each
// of them.
//
//   ids     " sea"  " \xc3"  "\xa9"  " oak"  " sky"       each drawn from a hash of all ids before it, the prompt's too
//   shown   " sea"  ""       " é"    " oak"  " sky"       a character waits for its last byte
//
// So a prompt that ends with ids of a response goes on as that response does, but for one with a client's seed, which
// begins again. A word is a blank and three letters, one token; with `wide_text` an eighth of the words are characters of
// several bytes, which two or three tokens divide.
//
// As from engines, text that may be the beginning of a stop string waits for the next token, a character that never gets its
// last byte is not shown, and of a prompt that ends inside a character (only with `wide_text`) the first text is all of the
// prompt, which vLLM 0.32 does by mistake.
//
// Immutable once made; any thread. Cost: 1 ns for each token of the prompt, 50 ns for each that is generated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulation/response_text.h"

namespace vllm_router {

struct GenerationOptions {
  bool wide_text = false;
  std::optional<uint64_t> seed;    // of a request whose temperature is not 0
  std::vector<std::string> stops;  // in the order in which they are looked for; none is empty
};

class GeneratedText {
 public:
  GeneratedText() = default;
  // At most `tokens` tokens; choices 0, 1, … are responses to the same prompt (`n`).
  GeneratedText(
      const SimulatedPrompt& prompt, size_t choice, size_t tokens, const GenerationOptions& options);

  const std::vector<uint32_t>& ids() const { return ids_; }
  // Of a token, and of all; escaped as in a JSON string.
  std::string_view Shown(size_t token) const;
  std::string_view text() const { return text_; }
  // `text()` without the prompt that came along.
  std::string_view own_text() const { return std::string_view(text_).substr(prompt_bytes_); }
  const std::string& stop() const { return stop_; }  // the string that ended it; "": none

 private:
  void Append(std::string_view characters);
  void LookForStop(size_t bytes, const std::vector<std::string>& stops);

  std::vector<uint32_t> ids_;
  std::vector<size_t> shown_;  // bytes of text_ after each token
  std::string text_;
  size_t prompt_bytes_ = 0;
  std::string stop_;
};

}  // namespace vllm_router
