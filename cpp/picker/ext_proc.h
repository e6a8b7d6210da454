// The messages of Envoy's external processing (ext_proc), as far as an endpoint picker needs them: requests are read, responses
// written.
//
//   POST /envoy.service.ext_proc.v3.ExternalProcessor/Process      a stream of both for each HTTP request at the data plane
//
//   ProcessingRequest request;
//   ROUTER_RETURN_IF_ERROR(ReadProcessingRequest(message, &request));   // views within `message`
//   if (request.part == ProcessingPart::kRequestHeaders) FindHeader(request.fields, ":path");
//   FindMetadata(request.metadata, "envoy.lb.subset_hint", kSubsetKey);
//   const std::string response = WriteProcessingResponse({.part = request.part, .set_headers = choice, …});
//
// Fields by number, from Envoy's api/: envoy/service/ext_proc/v3/external_processor.proto unless another file is named.
//
//   ProcessingRequest      request_headers 2, response_headers 3, request_body 4, response_body 5, request_trailers 6,
//                          response_trailers 7 (one of these), metadata_context 8, attributes 9 (map: string -> Struct),
//                          observability_mode 10, protocol_config 11
//   HttpHeaders            headers 1, end_of_stream 3
//   HttpBody               body 1, end_of_stream 2, end_of_stream_without_message 3
//   HttpTrailers           trailers 1
//   ProtocolConfiguration  request_body_mode 1, response_body_mode 2, send_body_without_waiting_for_header_response 3
//   ProcessingResponse     request_headers 1, response_headers 2 (HeadersResponse), request_body 3, response_body 4 (BodyResponse),
//                          request_trailers 5, response_trailers 6 (TrailersResponse), immediate_response 7 (one of these),
//                          dynamic_metadata 8 (Struct), mode_override 9, override_message_timeout 10 (Duration)
//   HeadersResponse, BodyResponse   response 1 (CommonResponse)
//   CommonResponse         status 1, header_mutation 2, body_mutation 3, clear_route_cache 5
//   TrailersResponse       header_mutation 1
//   HeaderMutation         set_headers 1 (HeaderValueOption), remove_headers 2
//   BodyMutation           body 1, clear_body 2, streamed_response 3
//   StreamedBodyResponse   body 1, end_of_stream 2
//   ImmediateResponse      status 1 (HttpStatus), headers 2 (HeaderMutation), body 3, details 5
//   HttpStatus             code 1                                                envoy/type/v3/http_status.proto
//   HeaderMap              headers 1 (HeaderValue)                               envoy/config/core/v3/base.proto
//   HeaderValue            key 1, value 2, raw_value 3                           likewise; Envoy sets raw_value
//   HeaderValueOption      header 1, append_action 3 (OVERWRITE_IF_EXISTS_OR_ADD 2)   likewise
//   Metadata               filter_metadata 1 (map: string -> Struct)             likewise
//   ProcessingMode         request_header_mode 1, response_header_mode 2, request_body_mode 3, response_body_mode 4,
//                          request_trailer_mode 5, response_trailer_mode 6       envoy/extensions/filters/http/ext_proc/v3/processing_mode.proto
//   Struct, Value, ListValue   fields 1 (map: string -> Value); null 1, number 2, string 3, bool 4, struct 5, list 6; values 1
//                                                                                google/protobuf/struct.proto
//   Duration               seconds 1, nanos 2                                    google/protobuf/duration.proto
//
// Other fields are skipped, and so are those whose wire type is another; of a field that may stand once the last is taken.
// Bounds: the message's own (GrpcLimits::max_message_bytes), and the constants below. Nothing recurses. Cost: 20 ns a header to
// read; no copy of a body. Functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/header_field.h"
#include "base/status.h"

namespace vllm_router {

inline constexpr std::string_view kExtProcPath = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

inline constexpr size_t kMaxExtProcFields =
    256;  // headers or trailers of a message; Envoy's default maximum is 100
inline constexpr size_t kMaxExtProcStructs = 64;     // namespaces of metadata, and of attributes
inline constexpr size_t kMaxExtProcListed = 16'384;  // strings of one list, such as endpoints of a subset

// What a message is about, and the response to it.
enum class ProcessingPart : uint8_t {
  kNone,  // of a request that names none of the following
  kRequestHeaders,
  kResponseHeaders,
  kRequestBody,
  kResponseBody,
  kRequestTrailers,
  kResponseTrailers,
};

enum class BodySendMode : uint8_t {
  kNone = 0,
  kStreamed = 1,
  kBuffered = 2,
  kBufferedPartial = 3,
  kFullDuplexStreamed = 4,
  kGrpc = 5,
};

enum class HeaderSendMode : uint8_t { kDefault = 0, kSend = 1, kSkip = 2 };

// A Struct under a name: a namespace of metadata, or a filter's attributes.
struct NamedStruct {
  std::string_view name;
  std::string_view bytes;  // of the Struct
};

// The filter's configuration at the data plane; modes that are not known are kNone.
struct ProcessingProtocol {
  BodySendMode request_body = BodySendMode::kNone;
  BodySendMode response_body = BodySendMode::kNone;
  bool sends_body_early = false;  // without waiting for the response to the headers
};

struct ProcessingRequest {
  ProcessingPart part = ProcessingPart::kNone;
  std::vector<HeaderField> fields;  // of headers and trailers: names in lower case, ":path" among them
  std::string_view body;
  bool end_of_stream = false;  // of headers: there is no body; of a body: it ends with this piece
  std::vector<NamedStruct> metadata;
  std::vector<NamedStruct> attributes;
  bool observability_mode = false;             // the data plane waits for no response
  std::optional<ProcessingProtocol> protocol;  // in the first message of a stream
};

// Overwrites `request`, and reuses its memory. InvalidArgument: `message` is malformed; ResourceExhausted: it has more of something
// than the constants above allow.
Status ReadProcessingRequest(std::string_view message, ProcessingRequest* request);

// A Value of google.protobuf.Struct.
struct StructValue {
  enum class Kind : uint8_t { kNull, kNumber, kString, kBool, kStruct, kList };
  Kind kind = Kind::kNull;
  double number = 0;       // of kNumber
  bool boolean = false;    // of kBool
  std::string_view bytes;  // the text of kString; the message of kStruct and kList
};

// The value of `key` in the last of `structs` that is called `name`. Nullopt: there is none, or the Struct is malformed.
std::optional<StructValue> FindMetadata(
    std::span<const NamedStruct> structs, std::string_view name, std::string_view key);

// Appends the strings of a ListValue to `texts`; values of other kinds are left out. InvalidArgument: it is malformed;
// ResourceExhausted: it has more than kMaxExtProcListed.
Status ReadStrings(std::string_view list, std::vector<std::string_view>* texts);

// A field of dynamic metadata: a text, or a Struct of numbers if there are any.
struct NamedNumber {
  std::string_view name;
  double number = 0;
};
struct MetadataField {
  std::string_view key;
  std::string_view text = {};
  std::span<const NamedNumber> numbers = {};
};

// Replaces the filter's own modes for the rest of the stream. kDefault leaves them; of a body there is no such value.
struct ModeOverride {
  HeaderSendMode response_headers = HeaderSendMode::kDefault;
  BodySendMode request_body = BodySendMode::kNone;
  BodySendMode response_body = BodySendMode::kNone;
  HeaderSendMode request_trailers = HeaderSendMode::kDefault;
  HeaderSendMode response_trailers = HeaderSendMode::kDefault;
};

struct ProcessingResponse {
  ProcessingPart part = ProcessingPart::kRequestHeaders;
  std::span<const HeaderField> set_headers = {};  // each replaces those of its name
  std::span<const std::string_view> remove_headers = {};
  bool clear_route_cache = false;  // of headers and bodies: the route is chosen anew
  // Written as dynamic_metadata[name_space][key].
  std::string_view metadata_namespace = {};
  std::span<const MetadataField> metadata = {};
  std::optional<ModeOverride> mode_override = {};  // in response to headers
};
// REQUIRES: a part other than kNone; names of headers, namespace and keys are UTF-8.
std::string WriteProcessingResponse(const ProcessingResponse& response);

// A response to a body, with the bytes that stand for some of it: of FULL_DUPLEX_STREAMED, where all bytes are sent back, in pieces
// of the picker's choice. REQUIRES: kRequestBody or kResponseBody.
std::string WriteStreamedBody(ProcessingPart part, std::string_view body, bool end_of_stream);

// More time for the response to the message at hand, in milliseconds, at least 1; once for each.
std::string WriteTimeoutOverride(uint64_t milliseconds);

// A response of the picker's own to the client, which ends the stream's work.
struct ImmediateResponse {
  int status = 503;  // of HTTP
  std::span<const HeaderField> headers = {};
  std::string_view body = {};
  std::string_view details = {};  // for the data plane's log
};
std::string WriteImmediateResponse(const ImmediateResponse& response);

}  // namespace vllm_router
