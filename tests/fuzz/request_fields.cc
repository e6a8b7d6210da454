// The JSON body of a hostile client: read in place or as a copy, with its prompt, its prefix or alone, the fields are the same.
#include <string>

#include "fuzz.h"
#include "routing/prefix_digest.h"
#include "routing/request_fields.h"
#include "routing/routing_text.h"
#include "routing/tokenize_call.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view body = AsText(data, size);
  PrefixAnchor anchor;
  PrefixAnchor anchor_in_place;
  const PrefixWanted wanted{kDefaultPrefixLength, &anchor};
  const PrefixWanted wanted_in_place{kDefaultPrefixLength, &anchor_in_place};
  const RequestFields copied = ParseRequestFields(body, /*padded=*/false, nullptr, &wanted);
  // What follows the body in a buffer is the next request, never blanks.
  const std::string buffer = std::string(body) + std::string(256, '}');
  const RequestFields in_place = ParseRequestFields(
      std::string_view(buffer).substr(0, size), /*padded=*/true, nullptr, &wanted_in_place);
  FUZZ_CHECK(anchor.kind == anchor_in_place.kind);
  FUZZ_CHECK(anchor.bytes == anchor_in_place.bytes);
  if (!copied.is_object) FUZZ_CHECK(anchor.kind == PrefixAnchor::Kind::kMissing);

  RoutingText text;
  RoutingText text_in_place;
  const PromptWanted prompt{"", kDefaultRoutingTextLimit, &text};
  const PromptWanted prompt_in_place{"", kDefaultRoutingTextLimit, &text_in_place};
  const RequestFields with_text = ParseRequestFields(body, /*padded=*/false, &prompt);
  const RequestFields with_text_in_place =
      ParseRequestFields(std::string_view(buffer).substr(0, size), /*padded=*/true, &prompt_in_place);
  const RequestFields alone = ParseRequestFields(body, /*padded=*/false);
  // What else is read on the way, and where, changes no field.
  for (const RequestFields* fields : {&in_place, &with_text, &with_text_in_place, &alone}) {
    FUZZ_CHECK(copied.is_object == fields->is_object);
    FUZZ_CHECK(copied.session_params_session_id == fields->session_params_session_id);
    FUZZ_CHECK(copied.user == fields->user);
    FUZZ_CHECK(copied.session_id == fields->session_id);
    FUZZ_CHECK(copied.user_id == fields->user_id);
    FUZZ_CHECK(copied.model == fields->model);
    FUZZ_CHECK(copied.stream == fields->stream);
    FUZZ_CHECK(copied.priority == fields->priority);
    FUZZ_CHECK(copied.max_tokens == fields->max_tokens);
  }
  FUZZ_CHECK(text.kind == text_in_place.kind);
  if (text.kind == RoutingText::Kind::kText) FUZZ_CHECK(text.text == text_in_place.text);
  if (text.kind == RoutingText::Kind::kTokens) FUZZ_CHECK(text.token_ids == text_in_place.token_ids);
  if (!copied.is_object) FUZZ_CHECK(!copied.model && !copied.user && !copied.stream && !copied.max_tokens);

  for (const TokenCall form : {TokenCall::kPrompt, TokenCall::kChat}) {
    const auto call = WriteTokenizeCall(body, /*padded=*/false, form);
    FUZZ_CHECK(call == WriteTokenizeCall(std::string_view(buffer).substr(0, size), /*padded=*/true, form));
  }
  return 0;
}
