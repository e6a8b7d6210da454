// UsageSink: puts prefill's count of the prompt's tokens into the usage of a stream of decode (--pd-usage merge).
//
//   data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":9,"total_tokens":10}}     from decode
//   data: {"choices":[],"usage":{"prompt_tokens":70,"completion_tokens":9,"total_tokens":79}}    to the client
//
// It waits for the ends of lines, as clients do: what comes of a line goes on when the line is complete, or has
// 64 KiB. All other lines, and usages that do not fit (disaggregation/merged_response.h), pass unchanged. Cost: a search in
// each piece; 5 us for a line with a usage. One thread.
#pragma once

#include <string>
#include <string_view>

#include "proxy/exchange/body_sink.h"

namespace vllm_router {

class UsageSink final : public BodySink {
 public:
  // `usage`: of UsageOf(); may be empty at first. Both must outlive it.
  UsageSink(const std::string& usage, BodySink& next) : usage_(usage), next_(next) {}

  Took Write(std::string_view data, bool last) override;
  Task<Took> Flush() override { return next_.Flush(); }

 private:
  void AddLine(std::string_view line);

  const std::string& usage_;
  BodySink& next_;
  std::string held_;     // of a line whose end has not come
  std::string out_;      // what the next one takes
  bool passes_ = false;  // the rest of a long line
};

}  // namespace vllm_router
