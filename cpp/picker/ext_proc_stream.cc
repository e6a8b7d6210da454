#include "picker/ext_proc_stream.h"

#include "base/check.h"
#include "base/text.h"

namespace vllm_router {
namespace {

// Where Envoy puts attributes that its filter is configured to send.
constexpr std::string_view kFilterName = "envoy.filters.http.ext_proc";
constexpr std::string_view kUpstreamAddress = "upstream.address";

std::string TextIn(std::span<const NamedStruct> structs, std::string_view name, std::string_view key) {
  const std::optional<StructValue> value = FindMetadata(structs, name, key);
  return value && value->kind == StructValue::Kind::kString ? std::string(value->bytes) : std::string();
}

Status OutOfOrder(std::string_view what, std::string_view when) {
  return absl::InvalidArgumentError(
      Concat(what, " came ", when, "; a stream has the parts of one request in their order"));
}

}  // namespace

StatusOr<ExtProcStream::Progress> ExtProcStream::Take(
    const ProcessingRequest& request, std::string* message) {
  if (state_ == State::kOver || request.part == ProcessingPart::kNone) return Progress::kNothing;
  if (state_ == State::kHead && request.part != ProcessingPart::kRequestHeaders)
    return OutOfOrder("a part of a request or response", "before request_headers");
  const bool was_waiting = state_ != State::kPicked;
  switch (request.part) {
    case ProcessingPart::kRequestHeaders:
      ROUTER_RETURN_IF_ERROR(TakeHead(request));
      request_ended_ = request.end_of_stream;
      return Progress::kRequest;
    case ProcessingPart::kRequestBody:
      ROUTER_RETURN_IF_ERROR(TakeBody(request, message));
      request_ended_ |= request.end_of_stream;
      return was_waiting ? Progress::kRequest : Progress::kNothing;
    case ProcessingPart::kRequestTrailers:
      request_ended_ = true;
      if (!was_waiting) {
        Respond(request.part);
        return Progress::kNothing;
      }
      if (is_buffered() && owed_.empty())
        return OutOfOrder("request_trailers", "without the body, whose response has the choice");
      ROUTER_RETURN_IF_ERROR(Owe(request.part));
      body_is_whole_ = no_more_ = true;
      return Progress::kRequest;
    case ProcessingPart::kResponseHeaders:
      response_begun_ = true;
      TakeResponseHead(request);
      return Progress::kResponse;
    case ProcessingPart::kResponseBody:
      if (response_mode_ == BodySendMode::kFullDuplexStreamed) {
        SendBack(request.part, request.body, request.end_of_stream);
      } else {
        Respond(request.part);
      }
      break;
    case ProcessingPart::kResponseTrailers:
      Respond(request.part);
      response_ended_ = true;
      return Progress::kResponse;
    case ProcessingPart::kNone:
      break;
  }
  if (!request.end_of_stream) return Progress::kNothing;
  response_ended_ = true;
  return Progress::kResponse;
}

bool ExtProcStream::may_pick() const { return state_ == State::kWaiting && (is_duplex() || no_more_); }

void ExtProcStream::Choose(const Choice& choice) {
  ROUTER_CHECK(may_pick() && !choice.endpoints.empty(), "a choice is told once there can be one");
  std::string endpoints;
  for (const std::string& endpoint : choice.endpoints) {
    if (!endpoints.empty()) endpoints += ',';
    endpoints += endpoint;
  }
  std::vector<HeaderField> headers = {{.name = kDestinationName, .value = endpoints}};
  headers.insert(headers.end(), choice.headers.begin(), choice.headers.end());
  std::vector<MetadataField> metadata = {{.key = kDestinationName, .text = endpoints}};
  if (!choice.scores.empty()) metadata.push_back({.key = kDestinationScoresKey, .numbers = choice.scores});
  // A buffered body comes after the response to the headers, so the choice is in its own.
  const bool with_body = is_buffered() && !owed_.empty() && owed_.front() == ProcessingPart::kRequestBody;
  if (with_body) owed_.erase(owed_.begin());
  Write(WriteProcessingResponse(
      {.part = with_body ? ProcessingPart::kRequestBody : ProcessingPart::kRequestHeaders,
       .set_headers = headers,
       .clear_route_cache = true,
       .metadata_namespace = options_.metadata_namespace,
       .metadata = metadata}));
  state_ = State::kPicked;
  if (is_duplex()) SendBack(ProcessingPart::kRequestBody, body_, body_ends_);
  DropBody();
  for (const ProcessingPart part : std::exchange(owed_, {})) Respond(part);
}

void ExtProcStream::Reject(const ImmediateResponse& response) {
  if (state_ == State::kPicked || state_ == State::kOver || observes_) return;
  Write(WriteImmediateResponse(response));
  state_ = State::kOver;
  DropBody();
}

Status ExtProcStream::TakeHead(const ProcessingRequest& request) {
  if (state_ != State::kHead) return OutOfOrder("request_headers", "twice");
  StatusOr<std::optional<EndpointSubset>> subset =
      EndpointSubset::Read(FindMetadata(request.metadata, options_.subset_namespace, kDestinationSubsetKey));
  if (!subset.ok()) return subset.status();
  subset_ = *std::move(subset);
  size_t bytes = 0;
  for (const HeaderField& field : request.fields) bytes += field.name.size() + field.value.size();
  head_bytes_.reserve(bytes);  // so that views stay valid
  const auto keep = [this](std::string_view text) {
    const size_t begin = head_bytes_.size();
    head_bytes_ += text;
    return std::string_view(head_bytes_.data() + begin, text.size());
  };
  head_.reserve(request.fields.size());
  for (const HeaderField& field : request.fields) {
    const std::string_view name = keep(field.name);
    head_.push_back({.name = name, .value = keep(field.value)});
  }
  mode_ = request.protocol ? request.protocol->request_body : options_.assumed_mode;
  if (request.protocol) response_mode_ = request.protocol->response_body;
  observes_ = request.observability_mode;
  state_ = State::kWaiting;
  if (request.end_of_stream) {
    body_is_whole_ = no_more_ = true;
  } else if (is_buffered()) {
    Respond(ProcessingPart::kRequestHeaders);
  } else {
    no_more_ = !is_duplex();
  }
  return absl::OkStatus();
}

Status ExtProcStream::TakeBody(const ProcessingRequest& request, std::string* message) {
  if (state_ == State::kPicked) {
    if (is_duplex()) {
      SendBack(request.part, request.body, request.end_of_stream);
    } else {
      Respond(request.part);
    }
    return absl::OkStatus();
  }
  if (body_is_whole_) return OutOfOrder("request_body", "behind the end of the request");
  if (!is_duplex() && !is_buffered()) return Owe(request.part);
  if (request.body.size() > options_.max_body_bytes - body_.size()) {
    return absl::ResourceExhaustedError(Concat(
        "the body of a request has more than ", options_.max_body_bytes,
        " bytes before a worker is chosen; send less"));
  }
  if (!observes_) KeepBody(request.body, message);
  body_ends_ = request.end_of_stream;
  // A buffered body comes in one message, of which BUFFERED_PARTIAL may leave some out.
  body_is_whole_ = request.end_of_stream;
  no_more_ = request.end_of_stream || is_buffered();
  return is_buffered() ? Owe(request.part) : absl::OkStatus();
}

void ExtProcStream::KeepBody(std::string_view piece, std::string* message) {
  if (piece.empty()) return;
  if (body_.empty() && message != nullptr && piece.size() >= kLargePiece) {
    body_bytes_ =
        std::move(*message);  // its bytes stay where they are, since they are too many for the string itself
    body_ = piece;
    return;
  }
  if (body_.size() != body_bytes_.size()) body_bytes_ = std::string(body_);
  body_bytes_ += piece;
  body_ = body_bytes_;
}

void ExtProcStream::DropBody() {
  body_ = {};
  std::string().swap(
      body_bytes_);  // a string that is assigned keeps its memory, here until the response ends
}

Status ExtProcStream::Owe(ProcessingPart part) {
  if (owed_.size() == kMaxOwed) {
    return absl::ResourceExhaustedError(Concat(
        "more than ", kMaxOwed,
        " messages of a request wait for the choice of a worker; wait for responses"));
  }
  owed_.push_back(part);
  return absl::OkStatus();
}

void ExtProcStream::TakeResponseHead(const ProcessingRequest& request) {
  const std::optional<uint64_t> status =
      ParseDecimal(FindHeader(request.fields, ":status").value_or(std::string_view()));
  if (status && *status >= 100 && *status <= 999) response_status_ = static_cast<int>(*status);
  served_ = TextIn(request.metadata, options_.metadata_namespace, kDestinationServedKey);
  if (served_.empty()) served_ = TextIn(request.attributes, kFilterName, kUpstreamAddress);
  if (request.end_of_stream) response_ended_ = true;
  Respond(request.part);
}

void ExtProcStream::Respond(ProcessingPart part) { Write(WriteProcessingResponse({.part = part})); }

void ExtProcStream::SendBack(ProcessingPart part, std::string_view body, bool ends) {
  if (body.empty() && ends) Write(WriteStreamedBody(part, {}, true));
  while (!body.empty()) {
    const std::string_view piece = body.substr(0, kMaxStreamedPiece);
    body.remove_prefix(piece.size());
    Write(WriteStreamedBody(part, piece, ends && body.empty()));
  }
}

void ExtProcStream::Write(std::string message) {
  if (!observes_) messages_.push_back(std::move(message));
}

}  // namespace vllm_router
