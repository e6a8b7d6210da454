// The connector `shared_store`: both workers read and write one store of KV blocks (LMCache, MooncakeStore, offloading
// tiers) that finds blocks by their tokens, so neither is told anything. The prefill worker's response means that the
// blocks are in the store.
#pragma once

#include "disaggregation/kv_connector.h"

namespace vllm_router {

const KvConnector& SharedStoreConnector();

}  // namespace vllm_router
