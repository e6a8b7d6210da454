// SettleSearch: how many of a stream's token ids another request may begin with, so that its text goes on where the client's
// ends.
//
//   ids     … about| it| .</|              the client has "…about it."      keep "… it", and swallow the "."
//   ids     … :| F0| 9F| 98|               the client has "…:"              keep "… :", and swallow nothing
//
// Ids run ahead of the text: an engine holds back a character that is incomplete, and what may turn out to be the end of
// reasoning or a tool call. A prompt that ends in half a character makes vLLM 0.32 repeat all of the prompt as text. So
// an engine is asked for the text of the last ids, one id fewer each time, until what the client has ends with it, but for
// letters that its events after these ids brought: these are swallowed when they come again.
//
//   SettleSearch search(tokens, may_swallow);
//   while (!search.found()) {
//     if (!search.IsOpen()) break;                                  // there is none
//     … POST /detokenize {"tokens":[search.Ids()]} …  search.Take(text);
//   }
//
// Compared are up to kLetters, since the kind of the text changed. Where either text repeats itself there, as a run
// of blanks does, the place is in doubt, and there is none. Requests with stop strings, whose engines always hold some text,
// are not continued so. Pure. At most kMostSteps texts are asked for. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "continuation/token_stream.h"

namespace vllm_router {

class SettleSearch {
 public:
  static constexpr size_t kMostSteps = 16;
  static constexpr size_t kIds = 48;  // of whose text the end is compared
  static constexpr size_t kLetters = 24;
  static constexpr size_t kMostSwallowed = 64;  // bytes

  // `tokens` outlives it, and does not change. `may_swallow`: the same tokens come again, as at temperature 0.
  // REQUIRES: tokens.known().
  SettleSearch(const TokenStream& tokens, bool may_swallow);

  bool found() const { return found_; }
  bool IsOpen() const { return !found_ && ids_ > 0 && steps_ < kMostSteps; }
  // The last of the ids in question, as the elements of an array of JSON. REQUIRES: IsOpen().
  std::string Ids() const;
  // Their text.
  void Take(std::string_view text);
  // There is no engine to be asked. An event of one id that brought a text leaves nothing behind, where no parser is.
  void AssumeNoParser();

  // After found(): ids of the output that are kept, and what is swallowed, a view of the stream's text.
  size_t ids() const { return ids_; }
  std::string_view swallowed() const { return swallowed_; }

 private:
  uint64_t Sent() const;

  const TokenStream& tokens_;
  const bool may_swallow_;
  const std::vector<TokenStream::Place> places_;
  size_t ids_;
  size_t steps_ = 0;
  std::string_view swallowed_;
  bool found_;
};

}  // namespace vllm_router
