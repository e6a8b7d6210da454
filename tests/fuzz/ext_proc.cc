// Messages of ext_proc: whatever comes, what is read lies inside the message and within its limits, values are found or not, and
// a response made of it is a message.
#include "picker/ext_proc.h"

#include "base/proto_wire.h"
#include "fuzz.h"
#include "picker/endpoint_subset.h"

namespace vllm_router {
namespace {

void CheckValue(const NamedStruct& each, std::string_view key) {
  const std::optional<StructValue> value = FindMetadata({&each, 1}, each.name, key);
  if (!value) return;
  FUZZ_CHECK(Inside(value->bytes, each.bytes));
  const auto subset = EndpointSubset::Read(value);
  if (!subset.ok() || !*subset) return;
  FUZZ_CHECK((*subset)->size() <= kMaxExtProcListed);
  FUZZ_CHECK(!(*subset)->Contains("", 1));
}

// Whether a message and those at `path` within it can be read.
bool IsMessage(std::string_view message, std::span<const uint32_t> path) {
  ProtoReader in(message);
  bool good = true;
  while (const std::optional<ProtoReader::Field> field = in.Next()) {
    if (!path.empty() && field->number == path.front() && field->type == WireType::kBytes)
      good = good && IsMessage(field->bytes, path.subspan(1));
  }
  return good && in.ok();
}

void CheckResponse(const ProcessingRequest& request) {
  if (request.part == ProcessingPart::kNone) return;
  const MetadataField metadata[] = {{.key = "k", .text = request.body}};
  const std::string response = WriteProcessingResponse(
      {.part = request.part,
       .set_headers = request.fields,
       .clear_route_cache = request.end_of_stream,
       .metadata_namespace = "n",
       .metadata = metadata});
  const auto number = static_cast<uint32_t>(request.part);
  const uint32_t path[] = {number, 1, 2, 1, 1};
  FUZZ_CHECK(IsMessage(response, path));
  if (request.part != ProcessingPart::kRequestBody && request.part != ProcessingPart::kResponseBody) return;
  const uint32_t body_path[] = {number, 1, 3, 3};
  const std::string piece = WriteStreamedBody(request.part, request.body, request.end_of_stream);
  FUZZ_CHECK(IsMessage(piece, body_path));
  FUZZ_CHECK(piece.ends_with(request.body));
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view message = AsText(data, size);
  static ProcessingRequest request;  // reused, as in the router
  if (!ReadProcessingRequest(message, &request).ok()) return 0;
  FUZZ_CHECK(request.fields.size() <= kMaxExtProcFields);
  FUZZ_CHECK(
      request.metadata.size() <= kMaxExtProcStructs && request.attributes.size() <= kMaxExtProcStructs);
  FUZZ_CHECK(Inside(request.body, message));
  for (const HeaderField& field : request.fields)
    FUZZ_CHECK(Inside(field.name, message) && Inside(field.value, message));
  for (const auto* structs : {&request.metadata, &request.attributes}) {
    for (const NamedStruct& each : *structs) {
      FUZZ_CHECK(Inside(each.name, message) && Inside(each.bytes, message));
      CheckValue(each, "k");
      CheckValue(each, "x-gateway-destination-endpoint-subset");
    }
  }
  CheckResponse(request);
  return 0;
}
