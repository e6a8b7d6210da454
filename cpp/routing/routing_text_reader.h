// RoutingTextReader: builds the RoutingText while another reader passes the members of a body to it.
// Heavy (json_reading.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "routing/json_reading.h"
#include "routing/prompt_walker.h"
#include "routing/request_fields.h"
#include "routing/routing_text.h"
#include "routing/tool_order.h"

namespace vllm_router {

class RoutingTextReader : private PromptWalker<RoutingTextReader, std::string> {
 public:
  // The path determines the meaning of `input`; without one, `instructions` beside it means Responses.
  // `wanted.text` is overwritten; its memory is reused.
  RoutingTextReader(const PromptWanted& wanted, std::string_view body);

  // Takes every member of the body, in order, and reads those that concern it.
  void Read(std::string_view name, json::ondemand::value& value);
  // The prompt has more than the body: a stored response or conversation.
  void ContinuesStored() { continues_ = true; }
  // True if it stopped in the middle of a value: then the body must not be read on, and there is no
  // prompt.
  bool broken() const { return broken_; }
  // After the last member.
  void Finish(std::string_view model);

 private:
  friend PromptWalker;

  // Those with a result return false when the value is malformed, or is no prompt that an engine would
  // take.
  void StartOver(PromptForm form);
  bool ReadMessage(json::ondemand::value& value);
  bool ReadMessageContent(json::ondemand::value& value);
  void SetText(std::string_view text, bool alone);
  bool WantsIds() const { return true; }
  void AddId(uint32_t id);
  bool Enough() const { return opening_ended_ || items_.size() > limit_; }
  std::string* Prompt() { return &items_; }
  std::string* System(std::string_view name);
  void StartPart(std::string* parts);
  void AddText(std::string_view text, std::string* parts);
  bool ReadPart(json::ondemand::value& value, std::string* parts);
  bool ReadOther(std::string_view name, json::ondemand::value& value);
  bool NoPrompt() { return false; }
  bool NoContent(std::string* /*parts*/) { return false; }

  bool ReadContext(size_t place, std::string_view name, json::ondemand::value& value);
  bool ReadRenderOption(std::string_view name, json::ondemand::value& value);
  bool ReadTools(json::ondemand::value& value);
  bool ReadTagged(std::string_view tag, json::ondemand::value& value, std::string* parts);
  bool ReadCalls(json::ondemand::value& value, std::string* calls);
  bool ReadCall(json::ondemand::value& value, std::string* calls);
  bool ToolsComeFirst(std::string_view model);
  // How a worker gives the ids of items_, which is complete but not yet cut.
  std::optional<TokenCall> CallForIds(size_t limit) const;

  const bool responses_;  // `input` is a conversation
  const bool pathless_;   // the members determine the meaning of `input`
  const bool anthropic_;  // `messages` are not OpenAI's
  const bool opening_;    // only the items before the model's first are wanted
  const bool scoped_;     // the scope of the model and of the body's salt precedes the prompt
  const ToolOrders* const tool_orders_;
  const size_t limit_;
  const size_t most_;  // maximum bytes of the prompt
  RoutingText* const out_;

  // The parts of one message; their memory is reused for the next one.
  struct Message {
    std::string_view type, role, name;
    std::optional<std::string_view> text;  // the content while it is one string, which is copied only once
    std::string reasoning, content, calls, arguments, result;
    void Clear();
  };

  Message message_;
  std::string items_;     // or the prompt itself
  size_t lead_size_ = 0;  // of items_
  bool framed_ = false;   // items_ is items
  bool tokens_ = false;
  bool broken_ = false;
  bool asked_ = false;          // the opening has an item of the user
  bool opening_ended_ = false;  // the model's first item was there
  bool plain_input_ = false;    // items_ is an `input` that is one string
  bool instructions_ = false;   // a member that only Responses has
  std::string system_;          // Anthropic's and Responses' own member, an item of the lead
  bool is_system_ = false;      // it is Anthropic's
  std::string tools_;
  std::array<std::string, 5> context_;
  std::array<std::string, 4> render_options_;
  bool continues_ = false;                      // what is stored, and not in the body
  std::vector<size_t>* part_starts_ = nullptr;  // where the parts of a tagged content start, if requested
};

}  // namespace vllm_router
