// Streams that go on at another worker, as a feature; off unless --continue-streams says otherwise.
#pragma once

namespace vllm_router {

struct Feature;
struct Step;

extern const Feature kContinuationFeature;
extern const Step kContinuationStep;  // between a worker's head and the relay of its body

}  // namespace vllm_router
