// One function per source file of this library; module.cc and testing_module.cc call them in order.
#pragma once

#include <pybind11/pybind11.h>

namespace vllm_router {

void BindBlockCacheTracker(pybind11::module_& module);  // block_cache_tracker.cc: BlockCacheTracker
void BindCatalogues(pybind11::module_& module);         // catalogues.cc: policies, kv_connectors
void BindHashBlocks(pybind11::module_& module);         // hash_blocks.cc: hash_blocks
void BindHashRing(pybind11::module_& module);           // hash_ring.cc: HashRing
void BindJoinedPeers(pybind11::module_& module);        // joined_peers.cc: JoinedPeers
void BindPrefixTree(pybind11::module_& module);         // prefix_tree.cc: StringTree, TokenTree
void BindReplay(pybind11::module_& module);      // replay.cc: simulate, in the submodule `_core.replay`
void BindRouter(pybind11::module_& module);      // router.cc: Router, Ticket, batch selection
void BindServer(pybind11::module_& module);      // server.cc: the HTTP server
void BindSimulation(pybind11::module_& module);  // simulation.cc: SimulatedWorker
// testing_<library>.cc: internals that only tests see, in the extension `_core_testing`
void BindTestingAccess(pybind11::module_& testing);     // structures that keep the server within its limits
void BindTestingAdmission(pybind11::module_& testing);  // classes and tenants
void BindTestingBase(pybind11::module_& testing);
void BindTestingClasses(pybind11::module_& testing);  // of priority: their queues and pools
void BindTestingBlockIndex(pybind11::module_& testing);
void BindTestingGrpc(pybind11::module_& testing);
void BindTestingHashing(pybind11::module_& testing);
void BindTestingHttp(pybind11::module_& testing);
void BindTestingEventApplier(pybind11::module_& testing);
void BindTestingEvents(pybind11::module_& testing);
void BindTestingIndex(pybind11::module_& testing);
void BindTestingKvSources(pybind11::module_& testing);
void BindTestingNet(pybind11::module_& testing);
void BindTestingPd(pybind11::module_& testing);
void BindTestingPdMachine(pybind11::module_& testing);
void BindTestingPdRegistrations(pybind11::module_& testing);
void BindTestingPicker(pybind11::module_& testing);
void BindTestingPolicy(pybind11::module_& testing);
void BindTestingPrefixEvents(pybind11::module_& testing);
void BindTestingPeerSync(pybind11::module_& testing);
void BindTestingPrefixTable(pybind11::module_& testing);
void BindTestingPrefixTree(pybind11::module_& testing);
void BindTestingProxy(pybind11::module_& testing);
void BindTestingCache(pybind11::module_& testing);
void BindTestingRedis(pybind11::module_& testing);
void BindTestingRedisResponses(pybind11::module_& testing);
void BindTestingRouting(pybind11::module_& testing);
void BindTestingConditions(pybind11::module_& testing);
void BindTestingContinuation(pybind11::module_& testing);
void BindTestingTokenStreams(pybind11::module_& testing);
void BindTestingHoldout(pybind11::module_& testing);
void BindTestingDashboard(pybind11::module_& testing);
void BindTestingPrograms(pybind11::module_& testing);
void BindTestingReceipts(pybind11::module_& testing);
void BindTestingSessions(pybind11::module_& testing);
void BindTestingSharedPool(pybind11::module_& testing);
void BindTestingSimulation(pybind11::module_& testing);
void BindTestingSourceState(pybind11::module_& testing);
void BindTestingStages(pybind11::module_& testing);
void BindTestingTenants(pybind11::module_& testing);  // and their limits
void BindTestingTracing(pybind11::module_& testing);
void BindTestingWorker(pybind11::module_& testing);
void BindTestingZmq(pybind11::module_& testing);

}  // namespace vllm_router
