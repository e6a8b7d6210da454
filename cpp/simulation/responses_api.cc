#include "simulation/responses_api.h"

#include "base/text.h"

namespace vllm_router {

namespace {

using Kind = ReplyPiece::Kind;

void WriteResponsesUsage(const Usage& usage, std::string* out) {
  Text{out} << R"({"input_tokens":)" << usage.prompt_tokens << R"(,"input_tokens_details":{"cached_tokens":)"
            << usage.cached_tokens << R"(},"output_tokens":)" << usage.completion_tokens
            << R"(,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":)"
            << usage.prompt_tokens + usage.completion_tokens << "}";
}

void WritePart(std::string_view text_json, std::string* out) {
  Text{out} << R"({"type":"output_text","annotations":[],"text":")" << text_json << "\"}";
}

void WriteTextItem(std::string_view id, const std::string* text_json, std::string* out) {
  Text{out} << R"({"type":"message","id":"msg_)" << id << R"(","role":"assistant","status":")"
            << (text_json == nullptr ? "in_progress" : "completed") << R"(","content":[)";
  if (text_json != nullptr) WritePart(*text_json, out);
  out->append("]}");
}

void WriteCallItem(const Reply& reply, size_t number, bool complete, std::string* out) {
  const ScriptedCall& call = reply.call(number);
  Text{out} << R"({"type":"function_call","id":"fc_)" << reply.CallId(number) << R"(","call_id":"call_)"
            << reply.CallId(number) << R"(","name":)" << JsonQuoted(call.name) << R"(,"arguments":)"
            << (complete ? JsonQuoted(call.arguments) : "\"\"") << R"(,"status":")"
            << (complete ? "completed" : "in_progress") << "\"}";
}

void WriteItems(const Reply& reply, std::string_view id, std::string* out) {
  if (reply.has_text()) {
    const std::string text = reply.TextJson();
    WriteTextItem(id, &text, out);
  }
  for (size_t i = 0; i < reply.calls(); ++i) {
    if (i > 0 || reply.has_text()) out->append(",");
    WriteCallItem(reply, i, /*complete=*/true, out);
  }
}

// What all events and the whole response say of it.
struct Frame {
  const std::string id;
  const std::string model;  // JSON
  const int64_t created;

  Frame(const SimRequest& request, const AnswerStamp& stamp)
      : id(AnswerId(request.api, stamp.request_id)),
        model(JsonQuoted(request.model)),
        created(stamp.created) {}

  // `reply` and `usage` are those of a response that is complete; null: it has only begun.
  void Write(const Reply* reply, const Usage* usage, std::string* out) const {
    Text{out} << R"({"id":")" << id << R"(","object":"response","created_at":)" << created << R"(,"status":")"
              << (reply == nullptr ? "in_progress" : "completed") << R"(","model":)" << model
              << R"(,"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"output":[)";
    if (reply != nullptr) WriteItems(*reply, id, out);
    out->append("]");
    if (usage != nullptr) {
      out->append(R"(,"usage":)");
      WriteResponsesUsage(*usage, out);
    }
    out->append("}");
  }
};

class ResponsesStream : public ResponseStream {
 public:
  ResponsesStream(const SimRequest& request, const AnswerStamp& stamp)
      : frame_(request, stamp), reply_(request, request.prompts[0], 0), generates_(request.generates) {}

  void Begin(const Usage&, std::string* out) override {
    OpenEvent("response.created", out) << R"(,"response":)";
    frame_.Write(nullptr, nullptr, out);
    out->append("}\n\n");
  }

  void Token(size_t token, std::string* out) override {
    if (!generates_) return;
    const ReplyPiece piece = reply_.Piece(token);
    if (piece.kind == Kind::kCall || !item_is_open_) OpenItem(piece, out);
    if (piece.kind == Kind::kText) {
      OpenItemEvent("response.output_text.delta", out)
          << R"(,"content_index":0,"delta":")" << piece.json << "\"}\n\n";
    } else if (piece.kind == Kind::kArguments) {
      OpenItemEvent("response.function_call_arguments.delta", out)
          << R"(,"delta":")" << piece.json << "\"}\n\n";
    }
  }

  void End(const Usage& usage, std::string* out) override {
    CloseItem(out);
    OpenEvent("response.completed", out) << R"(,"response":)";
    frame_.Write(&reply_, &usage, out);
    out->append("}\n\n");
  }

 private:
  Text OpenEvent(std::string_view type, std::string* out) {
    Text text{out};
    text << "event: " << type << "\ndata: "
         << R"({"type":")" << type << R"(","sequence_number":)" << sequence_++;
    return text;
  }

  // Of something in the open item.
  Text OpenItemEvent(std::string_view type, std::string* out) {
    Text text = OpenEvent(type, out);
    text << R"(,"item_id":")" << item_id_ << R"(","output_index":)" << item_;
    return text;
  }

  void OpenItem(const ReplyPiece& piece, std::string* out) {
    CloseItem(out);
    item_is_open_ = true;
    opened_ = piece;
    const bool is_text = piece.kind == Kind::kText;
    item_id_ = is_text ? "msg_" + frame_.id : "fc_" + reply_.CallId(piece.call);
    OpenEvent("response.output_item.added", out) << R"(,"output_index":)" << item_ << R"(,"item":)";
    if (is_text) {
      WriteTextItem(frame_.id, nullptr, out);
    } else {
      WriteCallItem(reply_, piece.call, /*complete=*/false, out);
    }
    out->append("}\n\n");
    if (!is_text) return;
    OpenItemEvent("response.content_part.added", out) << R"(,"content_index":0,"part":)";
    WritePart("", out);
    out->append("}\n\n");
  }

  void CloseItem(std::string* out) {
    if (!item_is_open_) return;
    item_is_open_ = false;
    const bool is_text = opened_.kind == Kind::kText;
    const std::string text = is_text ? reply_.TextJson() : "";
    if (is_text) {
      OpenItemEvent("response.output_text.done", out)
          << R"(,"content_index":0,"text":")" << text << "\"}\n\n";
      OpenItemEvent("response.content_part.done", out) << R"(,"content_index":0,"part":)";
      WritePart(text, out);
      out->append("}\n\n");
    } else {
      const ScriptedCall& call = reply_.call(opened_.call);
      OpenItemEvent("response.function_call_arguments.done", out)
          << R"(,"name":)" << JsonQuoted(call.name) << R"(,"arguments":)" << JsonQuoted(call.arguments)
          << "}\n\n";
    }
    OpenEvent("response.output_item.done", out) << R"(,"output_index":)" << item_ << R"(,"item":)";
    if (is_text) {
      WriteTextItem(frame_.id, &text, out);
    } else {
      WriteCallItem(reply_, opened_.call, /*complete=*/true, out);
    }
    out->append("}\n\n");
    ++item_;
  }

  const Frame frame_;
  const Reply reply_;
  const bool generates_;
  uint64_t sequence_ = 0;
  uint64_t item_ = 0;
  bool item_is_open_ = false;
  ReplyPiece opened_;  // the piece that opened the item
  std::string item_id_;
};

}  // namespace

void WriteResponse(
    const SimRequest& request, const AnswerStamp& stamp, const Usage& usage, std::string* out) {
  const Reply reply(request, request.prompts[0], 0);
  Frame(request, stamp).Write(&reply, &usage, out);
}

std::unique_ptr<ResponseStream> StreamResponse(const SimRequest& request, const AnswerStamp& stamp) {
  return std::make_unique<ResponsesStream>(request, stamp);
}

void WriteOutputItems(const SimRequest& request, std::string_view request_id, std::string* out) {
  WriteItems(Reply(request, request.prompts[0], 0), AnswerId(request.api, request_id), out);
}

}  // namespace vllm_router
