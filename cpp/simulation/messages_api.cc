#include "simulation/messages_api.h"

#include "base/text.h"

namespace vllm_router {

namespace {

// `input_tokens` are those that were not in the cache.
void WriteMessagesUsage(const Usage& usage, std::string* out) {
  Text{out} << R"({"input_tokens":)" << usage.prompt_tokens - usage.cached_tokens << R"(,"output_tokens":)"
            << usage.completion_tokens << R"(,"cache_creation_input_tokens":0,"cache_read_input_tokens":)"
            << usage.cached_tokens << "}";
}

std::string_view StopReason(const SimRequest& request) {
  if (request.turn != nullptr && !request.turn->calls.empty()) return "tool_use";
  return request.length_was_asked ? "max_tokens" : "end_turn";
}

// The block of a call, with its arguments or, at the begin of a stream, {}.
void WriteToolUse(const Reply& reply, size_t number, std::string_view input, std::string* out) {
  Text{out} << R"({"type":"tool_use","id":"toolu_)" << reply.CallId(number) << R"(","name":)"
            << JsonQuoted(reply.call(number).name) << R"(,"input":)" << input << "}";
}

class MessageStream : public ResponseStream {
 public:
  MessageStream(const SimRequest& request, const AnswerStamp& stamp)
      : stop_reason_(StopReason(request)),
        id_(AnswerId(request.api, stamp.request_id)),
        model_(JsonQuoted(request.model)),
        reply_(request, request.prompts[0], 0) {}

  void Begin(const Usage& usage, std::string* out) override {
    Text{out} << "event: message_start\ndata: "
              << R"({"type":"message_start","message":{"id":")" << id_
              << R"(","type":"message","role":"assistant","model":)" << model_
              << R"(,"content":[],"stop_reason":null,"stop_sequence":null,"usage":)";
    WriteMessagesUsage({usage.prompt_tokens, usage.cached_tokens, 0}, out);
    out->append("}}\n\n");
  }

  void Token(size_t token, std::string* out) override {
    const ReplyPiece piece = reply_.Piece(token);
    const bool is_call = piece.kind == ReplyPiece::Kind::kCall;
    if (is_call || !block_is_open_) OpenBlock(piece, out);
    if (is_call) return;
    const bool is_text = piece.kind == ReplyPiece::Kind::kText;
    Text{out} << "event: content_block_delta\ndata: "
              << R"({"type":"content_block_delta","index":)" << block_
              << (is_text ? R"(,"delta":{"type":"text_delta","text":")"
                          : R"(,"delta":{"type":"input_json_delta","partial_json":")")
              << piece.json << "\"}}\n\n";
  }

  void End(const Usage& usage, std::string* out) override {
    CloseBlock(out);
    Text{out} << "event: message_delta\ndata: "
              << R"({"type":"message_delta","delta":{"stop_reason":")" << stop_reason_
              << R"(","stop_sequence":null},"usage":)";
    WriteMessagesUsage(usage, out);
    Text{out} << "}\n\nevent: message_stop\ndata: "
              << R"({"type":"message_stop"})"
              << "\n\n";
  }

 private:
  void OpenBlock(const ReplyPiece& piece, std::string* out) {
    CloseBlock(out);
    block_is_open_ = true;
    Text{out} << "event: content_block_start\ndata: "
              << R"({"type":"content_block_start","index":)" << block_ << R"(,"content_block":)";
    if (piece.kind == ReplyPiece::Kind::kText) {
      out->append(R"({"type":"text","text":""})");
    } else {
      WriteToolUse(reply_, piece.call, "{}", out);
    }
    out->append("}\n\n");
  }

  void CloseBlock(std::string* out) {
    if (!block_is_open_) return;
    block_is_open_ = false;
    Text{out} << "event: content_block_stop\ndata: "
              << R"({"type":"content_block_stop","index":)" << block_ << "}\n\n";
    ++block_;
  }

  const std::string_view stop_reason_;
  const std::string id_;
  const std::string model_;  // JSON
  const Reply reply_;
  uint64_t block_ = 0;
  bool block_is_open_ = false;
};

}  // namespace

void WriteMessage(const SimRequest& request, const AnswerStamp& stamp, const Usage& usage, std::string* out) {
  const Reply reply(request, request.prompts[0], 0);
  Text text{out};
  text << R"({"id":")" << AnswerId(request.api, stamp.request_id)
       << R"(","type":"message","role":"assistant","model":)" << JsonQuoted(request.model)
       << R"(,"content":[)";
  if (reply.has_text()) text << R"({"type":"text","text":")" << reply.TextJson() << "\"}";
  for (size_t i = 0; i < reply.calls(); ++i) {
    if (out->back() != '[') text << ",";
    WriteToolUse(reply, i, reply.call(i).arguments, out);
  }
  text << R"(],"stop_reason":")" << StopReason(request) << R"(","stop_sequence":null,"usage":)";
  WriteMessagesUsage(usage, out);
  text << "}";
}

std::unique_ptr<ResponseStream> StreamMessage(const SimRequest& request, const AnswerStamp& stamp) {
  return std::make_unique<MessageStream>(request, stamp);
}

}  // namespace vllm_router
