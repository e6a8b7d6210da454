// ExtProcStream: one HTTP request at the data plane, as the messages of its stream tell it, and the messages in response. It
// decides nothing: its owner picks when may_pick() says so, and tells the choice.
//
//   kHead  --request_headers-->  kWaiting  --Choose()-->  kPicked  --response_headers, its end-->  kPicked
//                                    `------Reject()-->   kOver       (all further messages are ignored)
//
//   switch (*stream.Take(request)) {
//     case ExtProcStream::Progress::kRequest:                  // head() and body() have grown
//       if (stream.must_pick() || KeyIsComplete()) stream.Choose(…);
//     case ExtProcStream::Progress::kResponse: …               // response_status(), served(), response_ended()
//   }
//   for (const std::string& message : stream.TakeMessages()) connection.Send(id, message);
//
// What the data plane expects depends on its body mode, which its first message says:
//
//   NONE, STREAMED, GRPC            a pick on the headers; a response to each message
//   BUFFERED, BUFFERED_PARTIAL      a pick on the body, which comes once the headers have a response; the choice goes with the body's
//   FULL_DUPLEX_STREAMED            a pick whenever there is enough of the body; then all of it is sent back, in pieces
//
// In observability mode nothing is sent. Limits: the body that is kept before the pick, and messages that wait for it. Cost: a
// copy of the head, and of the body before the pick, unless it comes in one large message. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/header_field.h"
#include "base/status.h"
#include "picker/endpoint_subset.h"
#include "picker/ext_proc.h"

namespace vllm_router {

// Names of the endpoint picker protocol (Gateway API Inference Extension, proposal 004, 1.0.0).
inline constexpr std::string_view kDestinationName =
    "x-gateway-destination-endpoint";  // a header, and metadata
inline constexpr std::string_view kDestinationSubsetKey = "x-gateway-destination-endpoint-subset";
inline constexpr std::string_view kDestinationServedKey = "x-gateway-destination-endpoint-served";
inline constexpr std::string_view kDestinationScoresKey = "x-gateway-destination-endpoint-scores";

// A piece of a body that is sent back. Data planes take 64 KiB, and some no more.
inline constexpr size_t kMaxStreamedPiece = 62'000;

struct ExtProcOptions {
  std::string_view metadata_namespace =
      "envoy.lb";  // where the choice is written and the endpoint that served is read
  std::string_view subset_namespace = "envoy.lb.subset_hint";
  size_t max_body_bytes = 256 * 1024 * 1024;  // that are kept before the pick
  // Of a data plane whose first message does not say it.
  BodySendMode assumed_mode = BodySendMode::kFullDuplexStreamed;
};

class ExtProcStream {
 public:
  enum class Progress : uint8_t {
    kNothing,   // the message is taken care of
    kRequest,   // there is more of the request
    kResponse,  // there is more of the response: its head, or its end
  };

  // `options` outlives the stream.
  explicit ExtProcStream(const ExtProcOptions& options) : options_(options) {}
  ExtProcStream(const ExtProcStream&) = delete;  // head() is of its own memory
  ExtProcStream& operator=(const ExtProcStream&) = delete;

  // InvalidArgument: the message cannot come now, or has a malformed subset; ResourceExhausted: more is kept than may be. The
  // stream is to be ended then.
  // `message` is where `request` was read from, if the stream may keep it instead of a copy.
  StatusOr<Progress> Take(const ProcessingRequest& request, std::string* message = nullptr);

  // The data plane waits for no response, so that a choice would be for nothing.
  bool observes() const { return observes_; }
  // Of the request: fields with ":method" and ":path" among them.
  std::span<const HeaderField> head() const { return head_; }
  // What has come of it; empty after the pick, and in observability mode.
  std::string_view body() const { return body_; }  // valid until the next Take()
  bool body_is_whole() const { return body_is_whole_; }
  const std::optional<EndpointSubset>& subset() const { return subset_; }
  // A choice can be told now; no more of the request comes before it.
  bool may_pick() const;
  bool must_pick() const { return state_ == State::kWaiting && no_more_; }

  struct Choice {
    std::span<const std::string> endpoints;     // "ip:port", in the order of attempts; at least one
    std::span<const HeaderField> headers = {};  // more of them for the worker
    std::span<const NamedNumber> scores = {};   // by endpoint; empty: none are written
  };
  // REQUIRES: may_pick().
  void Choose(const Choice& choice);
  // A response to the client instead of a choice. No effect once there is one, or in observability mode.
  void Reject(const ImmediateResponse& response);

  std::optional<int> response_status() const { return response_status_; }
  // Some of a body was sent back, or will be, and the rest has not come: a data plane cannot go on without this stream.
  bool is_amid_body() const {
    if (state_ != State::kPicked) return false;
    const bool sends_back = response_mode_ == BodySendMode::kFullDuplexStreamed;
    return (is_duplex() && !request_ended_) || (sends_back && response_begun_ && !response_ended_);
  }

  // The endpoint that served, or empty: unknown.
  std::string_view served() const { return served_; }
  bool response_ended() const { return response_ended_; }

  std::vector<std::string> TakeMessages() { return std::exchange(messages_, {}); }

 private:
  enum class State : uint8_t { kHead, kWaiting, kPicked, kOver };

  static constexpr size_t kMaxOwed = 1024;
  static constexpr size_t kLargePiece = 64 * 1024;  // of a body; smaller ones are copied

  bool is_duplex() const { return mode_ == BodySendMode::kFullDuplexStreamed; }
  bool is_buffered() const {
    return mode_ == BodySendMode::kBuffered || mode_ == BodySendMode::kBufferedPartial;
  }
  Status TakeHead(const ProcessingRequest& request);
  Status TakeBody(const ProcessingRequest& request, std::string* message);
  void KeepBody(std::string_view piece, std::string* message);
  void DropBody();
  Status Owe(ProcessingPart part);
  void TakeResponseHead(const ProcessingRequest& request);
  // A response that changes nothing.
  void Respond(ProcessingPart part);
  void SendBack(ProcessingPart part, std::string_view body, bool ends);
  void Write(std::string message);

  const ExtProcOptions& options_;
  State state_ = State::kHead;
  BodySendMode mode_ = BodySendMode::kNone;
  BodySendMode response_mode_ = BodySendMode::kNone;
  bool observes_ = false;

  std::string head_bytes_;
  std::vector<HeaderField> head_;  // within head_bytes_
  std::optional<EndpointSubset> subset_;
  std::string body_bytes_;
  std::string_view body_;  // within body_bytes_
  bool body_is_whole_ = false;
  bool body_ends_ = false;            // by its last piece, not by trailers
  bool no_more_ = false;              // of the request, before the pick
  std::vector<ProcessingPart> owed_;  // responses that follow the choice

  std::optional<int> response_status_;
  std::string served_;
  bool request_ended_ = false;
  bool response_begun_ = false;
  bool response_ended_ = false;
  std::vector<std::string> messages_;
};

}  // namespace vllm_router
