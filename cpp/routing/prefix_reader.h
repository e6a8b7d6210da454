// PrefixReader: finds the PrefixAnchor while another reader passes the members of a body to it. Heavy
// (json_reading.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "routing/json_reading.h"
#include "routing/prefix_digest.h"
#include "routing/prompt_walker.h"

namespace vllm_router {

// Consecutive pieces, cut at the limit.
struct PrefixText {
  std::string bytes;
  bool any = false;     // a piece was not empty
  bool full = false;    // text was cut off
  bool broken = false;  // a part was not text
  void Append(std::string_view piece, size_t limit);
  void Clear();
};

class PrefixReader : private PromptWalker<PrefixReader, PrefixText> {
 public:
  // `end`: where the body ends. `out` is overwritten.
  PrefixReader(size_t limit, const char* end, PrefixAnchor* out)
      : PromptWalker(end), limit_(limit), out_(out) {}

  // Takes every member of the body, in order, and reads those that concern it. False when a value is
  // malformed: then the position is unknown, so the body must not be read on, and there is no anchor.
  bool Read(std::string_view name, json::ondemand::value& value) { return ReadMember(name, value); }
  // After the last member.
  void Finish();

 private:
  friend PromptWalker;
  using Text = PrefixText;

  // A well-formed value that no engine would take as a prompt sets `broken`, and the walk goes on.
  void StartOver(PromptForm form);
  bool ReadMessage(json::ondemand::value& value);
  void SetText(std::string_view text, bool alone);
  bool WantsIds() const;
  void AddId(uint32_t id) { ids_.push_back(id); }
  bool Enough() const { return prompt_broken_ || (has_lead_ && (lead_.any || has_first_)); }
  Text* Prompt() { return &first_; }
  Text* System(std::string_view name);
  void StartPart(Text* /*text*/) {}
  void AddText(std::string_view piece, Text* text) { text->Append(piece, limit_); }
  bool ReadPart(json::ondemand::value& value, Text* text);
  bool ReadOther(std::string_view /*name*/, json::ondemand::value& /*value*/) { return true; }
  bool NoPrompt() { return prompt_broken_ = true; }
  bool NoContent(Text* text) { return text->broken = true; }

  const size_t limit_;
  PrefixAnchor* const out_;

  Text system_;              // Anthropic's own member
  Text instructions_;        // Responses'
  Text system_instruction_;  // Gemini's
  Text lead_;                // the first message with the role system or developer
  Text first_;               // the first of another role, or the prompt
  bool has_lead_ = false;
  bool has_first_ = false;
  std::vector<uint32_t> ids_;
  // Until a better form, or a repetition of the member, replaces it.
  bool prompt_broken_ = false;
};

}  // namespace vllm_router
