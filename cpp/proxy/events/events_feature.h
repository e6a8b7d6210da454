// KV events and events about prefixes: their sources, what the index learns of them, and the prefix index that routers share
// in a Redis.
#pragma once

namespace vllm_router {

class PrefixTable;
class Router;
struct Feature;
struct FixedOptions;
struct Step;

extern const Feature kEventsFeature;
extern const Step kSharedPrefixesStep;

// Null: the policy matches no blocks, or there is no prefix index.
PrefixTable* PrefixTableOf(const Router& router);
// The prefix index is in Redis.
bool SharesPrefixIndex(const FixedOptions& options, const Router& router);

}  // namespace vllm_router
