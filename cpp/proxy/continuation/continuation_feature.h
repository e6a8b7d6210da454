// Streams that go on at another worker, as a feature; off unless --continue-streams says otherwise.
#pragma once

namespace vllm_router {

struct Feature;
struct Request;
struct Step;

extern const Feature kContinuationFeature;
extern const Step kTokenIdsStep;      // in front of the workers
extern const Step kContinuationStep;  // between a worker's head and the relay of its body

// It is on, and the client does not forbid it.
bool MayGoOn(const Request& request);

}  // namespace vllm_router
