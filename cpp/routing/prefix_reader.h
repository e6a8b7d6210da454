// PrefixReader: finds the PrefixAnchor while another reader passes the members of a body to it. Heavy
// (json_reading.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "routing/json_reading.h"
#include "routing/prefix_digest.h"
#include "routing/prompt_members.h"

namespace vllm_router {

class PrefixReader {
 public:
  // `end`: where the body ends. `out` is overwritten.
  PrefixReader(size_t limit, const char* end, PrefixAnchor* out) : limit_(limit), end_(end), out_(out) {}

  // Takes every member of the body, in order, and reads those that concern it. False when a value is
  // malformed: then the position is unknown, so the body must not be read on, and there is no anchor.
  bool Read(std::string_view name, json::ondemand::value& value);
  // After the last member.
  void Finish();

 private:
  // Consecutive pieces, cut at the limit.
  struct Text {
    std::string bytes;
    bool any = false;     // a piece was not empty
    bool full = false;    // text was cut off
    bool broken = false;  // a part was not text
    void Append(std::string_view piece, size_t limit);
    void Clear();
  };

  // These return false when the value is malformed. A well-formed value that no engine would take as a
  // prompt sets `broken`.
  bool ReadPrompt(PromptForm form, json::ondemand::value& value);
  bool ReadMessages(PromptForm form, json::ondemand::value& value);
  bool ReadMessage(json::ondemand::value& value);
  bool ReadFirst(json::ondemand::array& array, bool nested);
  void SetText(std::string_view text);
  bool ReadCompared(json::ondemand::value& value);
  bool ReadSystemParts(json::ondemand::value& value);
  bool ReadContent(json::ondemand::value& value, Text* text);
  bool ReadContentIn(std::string_view place, json::ondemand::value& value, Text* text);
  bool ReadPart(json::ondemand::value& value, Text* text);
  void StartOver(PromptForm form);
  bool Decided() const { return has_lead_ && (lead_.any || has_first_); }

  const size_t limit_;
  const char* const end_;
  PrefixAnchor* const out_;

  PromptForm form_ = PromptForm::kNone;
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
