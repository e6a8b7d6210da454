#include "simulation/chat_api.h"

#include "base/text.h"

namespace vllm_router {

namespace {

// Ids as JSON, null unless the client wants them.
std::string IdsJson(bool wanted, std::span<const uint32_t> ids) {
  if (!wanted) return "null";
  std::string json;
  WriteIds(ids, &json);
  return json;
}

const std::vector<uint32_t>& PromptOf(const SimRequest& request, size_t choice) {
  return request.prompts[choice / request.choices_per_prompt].tokens;
}

void WriteMessageOf(const Reply& reply, std::string* out) {
  Text text{out};
  text << R"({"role":"assistant","content":)";
  if (reply.has_text() || reply.calls() == 0) {
    text << "\"" << reply.TextJson() << "\"";
  } else {
    text << "null";
  }
  for (size_t i = 0; i < reply.calls(); ++i) {
    const ScriptedCall& call = reply.call(i);
    text << (i == 0 ? R"(,"tool_calls":[)" : ",") << R"({"id":"call_)" << reply.CallId(i)
         << R"(","type":"function","function":{"name":)" << JsonQuoted(call.name) << R"(,"arguments":)"
         << JsonQuoted(call.arguments) << "}}";
  }
  text << (reply.calls() == 0 ? "}" : "]}");
}

class ChatStream : public ResponseStream {
 public:
  ChatStream(const SimRequest& request, const AnswerStamp& stamp)
      : is_chat_(request.api == Api::kChat),
        include_usage_(request.include_usage),
        return_token_ids_(request.return_token_ids),
        end_(EndJson(request)),
        fingerprint_(JsonQuoted(stamp.fingerprint)),
        replies_(RepliesOf(request)) {
    Text{&head_} << R"(data: {"id":")" << AnswerId(request.api, stamp.request_id) << R"(","object":")"
                 << (is_chat_ ? "chat.completion.chunk" : "text_completion") << R"(","created":)"
                 << stamp.created << R"(,"model":)" << JsonQuoted(request.model) << R"(,"choices":[)";
    before_ = head_ + R"({"index":)";
    for (size_t choice = 0; choice < replies_.size(); ++choice) {
      prompt_ids_.push_back(IdsJson(return_token_ids_, PromptOf(request, choice)));
    }
  }

  void Begin(const Usage&, std::string* out) override {
    if (!is_chat_) return;
    for (size_t choice = 0; choice < replies_.size(); ++choice) {
      Text{out} << before_ << choice << R"(,"delta":{"role":"assistant","content":""})" << kOpen
                << R"(}],"prompt_token_ids":)" << prompt_ids_[choice] << R"(,"prompt_text":null})"
                << "\n\n";
    }
  }

  void Token(size_t token, std::string* out) override {
    for (size_t choice = 0; choice < replies_.size(); ++choice) {
      const Reply& reply = replies_[choice];
      const ReplyPiece piece = reply.Piece(token);
      Text text{out};
      text << before_ << choice;
      switch (piece.kind) {
        case ReplyPiece::Kind::kText:
          text << (is_chat_ ? R"(,"delta":{"content":")" : R"(,"text":")") << piece.json
               << (is_chat_ ? "\"}" : "\"");
          break;
        case ReplyPiece::Kind::kCall:
          text << R"(,"delta":{"tool_calls":[{"index":)" << piece.call << R"(,"id":"call_)"
               << reply.CallId(piece.call) << R"(","type":"function","function":{"name":)"
               << JsonQuoted(reply.call(piece.call).name) << R"(,"arguments":""}}]})";
          break;
        case ReplyPiece::Kind::kArguments:
          text << R"(,"delta":{"tool_calls":[{"index":)" << piece.call << R"(,"function":{"arguments":")"
               << piece.json << R"("}}]})";
          break;
      }
      text << kOpen << (is_chat_ ? "" : R"(,"stop_reason":null)");
      WriteIdMembers(choice, IdsJson(return_token_ids_, reply.Ids(token)), out);
      text << "}]}\n\n";
    }
  }

  void End(const Usage& usage, std::string* out) override {
    for (size_t choice = 0; choice < replies_.size(); ++choice) {
      Text{out} << before_ << choice << (is_chat_ ? R"(,"delta":{})" : R"(,"text":"")")
                << R"(,"logprobs":null,)" << end_;
      WriteIdMembers(choice, IdsJson(return_token_ids_, {}), out);
      Text{out} << R"(}],"system_fingerprint":)" << fingerprint_ << "}\n\n";
    }
    if (include_usage_) {
      Text{out} << head_ << R"(],"usage":)";
      WriteUsage(usage, out);
      out->append("}\n\n");
    }
    out->append("data: [DONE]\n\n");
  }

 private:
  static constexpr std::string_view kOpen = R"(,"logprobs":null,"finish_reason":null)";

  // A completion says its prompt's with its first event, a chat before.
  void WriteIdMembers(size_t choice, std::string_view ids, std::string* out) {
    if (!is_chat_) {
      Text{out} << R"(,"prompt_token_ids":)" << prompt_ids_[choice];
      prompt_ids_[choice] = "null";
    }
    Text{out} << R"(,"token_ids":)" << ids;
  }

  const bool is_chat_;
  const bool include_usage_;
  const bool return_token_ids_;
  const std::string end_;          // JSON
  const std::string fingerprint_;  // JSON
  const std::vector<Reply> replies_;
  std::string head_;                     // of every event, up to the list of choices
  std::string before_;                   // up to the number of the choice
  std::vector<std::string> prompt_ids_;  // JSON, of each choice
};

}  // namespace

void WriteChat(const SimRequest& request, const AnswerStamp& stamp, const Usage& usage, std::string* out) {
  const bool is_chat = request.api == Api::kChat;
  Text text{out};
  text << R"({"id":")" << AnswerId(request.api, stamp.request_id) << R"(","object":")"
       << (is_chat ? "chat.completion" : "text_completion") << R"(","created":)" << stamp.created
       << R"(,"model":)" << JsonQuoted(request.model) << R"(,"choices":[)";
  const std::vector<Reply> replies = RepliesOf(request);
  for (size_t index = 0; index < replies.size(); ++index) {
    text << (index == 0 ? "" : ",") << R"({"index":)" << index
         << (is_chat ? R"(,"message":)" : R"(,"text":)");
    if (is_chat) {
      WriteMessageOf(replies[index], out);
    } else {
      text << "\"" << replies[index].TextJson() << "\"";
    }
    const bool with_ids = request.return_token_ids;
    text << R"(,"logprobs":null,)" << EndJson(request) << R"(,"token_ids":)"
         << IdsJson(with_ids, replies[index].Ids());
    if (!is_chat) text << R"(,"prompt_token_ids":)" << IdsJson(with_ids, PromptOf(request, index));
    text << "}";
  }
  text << R"(],"system_fingerprint":)" << JsonQuoted(stamp.fingerprint) << R"(,"usage":)";
  WriteUsage(usage, out);
  if (is_chat) text << R"(,"prompt_token_ids":)" << IdsJson(request.return_token_ids, PromptOf(request, 0));
  text << "}";
}

std::unique_ptr<ResponseStream> StreamChat(const SimRequest& request, const AnswerStamp& stamp) {
  return std::make_unique<ChatStream>(request, stamp);
}

}  // namespace vllm_router
