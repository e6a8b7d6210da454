// Prefill/decode disaggregation: requests that two workers serve, one computing the prompt's KV blocks (prefill), the other
// the tokens (decode) (docs/explanation/disaggregation.md).
#pragma once

namespace vllm_router {

struct Feature;
struct IoThread;
struct Step;

extern const Feature kDisaggregationFeature;
extern const Step kStagedPathStep;
extern const Step kStagesStep;

// What pairs need of a thread: the claims on prefill's blocks, and who pushes blocks.
void AddPairParts(IoThread* thread);

}  // namespace vllm_router
