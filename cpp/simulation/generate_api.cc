#include "simulation/generate_api.h"

namespace vllm_router {

namespace {

constexpr std::string_view kNoRouting =
    R"(,"routed_experts":null,"sampling_mask":null,"weight_versions":null)";

std::string_view ModeJson(const SimRequest& request) {
  return request.with_text ? R"("output_mode":"text")" : R"("output_mode":"tokens")";
}

class GenerateStream : public ResponseStream {
 public:
  GenerateStream(const SimRequest& request, const AnswerStamp& stamp)
      : head_(Concat(R"(data: {"request_id":")", AnswerId(request.api, stamp.request_id), "\"")),
        mode_(ModeJson(request)),
        end_(EndJson(request)),
        with_text_(request.with_text),
        include_usage_(request.include_usage),
        replies_(RepliesOf(request)) {
    if (!request.return_token_ids) return;
    prompt_ids_ = R"(,"prompt_token_ids":)";
    WriteIds(request.prompts[0].tokens, &prompt_ids_);
  }

  void Begin(const Usage& /*usage*/, std::string* /*out*/) override {}

  void Token(size_t token, std::string* out) override {
    for (size_t choice = 0; choice < replies_.size(); ++choice) {
      const Reply& reply = replies_[choice];
      Write(
          choice, R"("finish_reason":null,"stop_reason":null)", reply.Ids(token), reply.Piece(token).json,
          out);
      prompt_ids_.clear();
    }
  }

  void End(const Usage& usage, std::string* out) override {
    for (size_t choice = 0; choice < replies_.size(); ++choice) Write(choice, end_, {}, "", out);
    if (include_usage_) {
      Text{out} << head_ << R"(,"usage":)";
      WriteUsage(usage, out);
      Text{out} << "," << mode_ << R"(,"choices":[]})"
                << "\n\n";
    }
    out->append("data: [DONE]\n\n");
  }

 private:
  void Write(
      size_t choice, std::string_view end, const std::vector<uint32_t>& ids, std::string_view json,
      std::string* out) const {
    Text text{out};
    text << head_ << R"(,"usage":null)" << prompt_ids_ << "," << mode_ << R"(,"choices":[{"index":)" << choice
         << "," << end << R"(,"token_ids":)";
    WriteIds(ids, out);
    text << kNoRouting;
    if (with_text_) text << R"(,"text":")" << json << "\"";
    text << R"(,"logprobs":null}]})"
         << "\n\n";
  }

  const std::string head_;
  const std::string_view mode_;
  const std::string end_;
  const bool with_text_;
  const bool include_usage_;
  const std::vector<Reply> replies_;
  std::string prompt_ids_;  // a member of the first event
};

}  // namespace

void WriteGenerated(
    const SimRequest& request, const AnswerStamp& stamp, const Usage& usage, std::string* out) {
  Text text{out};
  text << R"({"request_id":")" << AnswerId(request.api, stamp.request_id) << R"(","model":)"
       << JsonQuoted(request.model) << R"(,"created":)" << stamp.created << R"(,"usage":)";
  WriteUsage(usage, out);
  text << R"(,"prompt_token_ids":)";
  if (request.return_token_ids) {
    WriteIds(request.prompts[0].tokens, out);
  } else {
    text << "null";
  }
  text << "," << ModeJson(request) << R"(,"choices":[)";
  const std::vector<Reply> replies = RepliesOf(request);
  for (size_t index = 0; index < replies.size(); ++index) {
    text << (index == 0 ? "" : ",") << R"({"index":)" << index << "," << EndJson(request)
         << R"(,"token_ids":)";
    WriteIds(replies[index].Ids(), out);
    text << kNoRouting;
    if (request.with_text) text << R"(,"text":")" << replies[index].TextJson() << "\"";
    text << R"(,"logprobs":null})";
  }
  text << "]}";
}

std::unique_ptr<ResponseStream> StreamGenerated(const SimRequest& request, const AnswerStamp& stamp) {
  return std::make_unique<GenerateStream>(request, stamp);
}

}  // namespace vllm_router
