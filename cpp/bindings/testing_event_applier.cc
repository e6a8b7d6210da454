// From KV events to reported blocks, for tests.
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "events/event_applier.h"
#include "events/identity_map.h"
#include "events/removed_blocks.h"
#include "events/trtllm_receiver.h"
#include "index/reported_blocks.h"

namespace vllm_router {

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using Depths = std::array<uint32_t, kTierCount>;
using Chain = std::vector<BlockHash>;

class TestReported {
 public:
  explicit TestReported(uint32_t block_size) : hasher_(block_size), blocks_(hasher_) {}

  void SetWorkers(const std::vector<std::pair<uint32_t, uint16_t>>& workers) {
    std::vector<ReportedBlocks::Known> known;
    for (const auto& [worker, slot] : workers) known.push_back({WorkerId{worker}, WorkerSlot{slot}});
    blocks_.SetWorkers(known);
  }
  // None when the worker has left.
  std::optional<int> AddCache(uint32_t worker) {
    const StatusOr<WorkerSlot> cache = blocks_.AddCache(WorkerId{worker});
    if (cache.status().code() == absl::StatusCode::kNotFound) return std::nullopt;
    return static_cast<int>(ValueOrThrow(cache));
  }
  void SetTrust(uint32_t worker, int trust) {
    blocks_.SetTrust(WorkerId{worker}, static_cast<KvTrust>(trust));
  }
  void SetGpuBlocks(uint32_t worker, const std::vector<std::pair<std::optional<uint32_t>, uint64_t>>& given) {
    std::vector<GpuBlocks> blocks;
    for (const auto& [rank, count] : given) blocks.push_back({rank, count});
    blocks_.SetGpuBlocks(WorkerId{worker}, std::move(blocks));
  }
  std::string Trust(uint16_t slot) const { return std::string(KvTrustName(blocks_.trust(WorkerSlot{slot}))); }

  Chain ChainOf(
      const std::vector<uint32_t>& tokens, std::string_view lora_name, std::string_view salt) const {
    Chain chain(hasher_.CountBlocks(tokens));
    hasher_.Hash(hasher_.Root({.lora_name = lora_name, .cache_salt = salt}), tokens, chain);
    return chain;
  }
  // Depths by worker's slot, of what was learned and what is reported.
  py::dict Merge(const Chain& chain, const std::vector<std::pair<uint16_t, Depths>>& learned) const {
    BlockMatches matches;
    {
      BlockMatches::Adder adder(&matches);
      for (const auto& [slot, depths] : learned) adder.Add(WorkerSlot{slot}, depths);
    }
    blocks_.Merge(chain, true, &matches);
    return DictOf(matches);
  }
  py::dict Match(const Chain& chain) const {  // by cache
    BlockMatches matches;
    blocks_.index().Match(chain, &matches);
    return DictOf(matches);
  }

  ReportedBlocks& blocks() { return blocks_; }
  const ReportedBlocks& blocks() const { return blocks_; }

 private:
  static py::dict DictOf(const BlockMatches& matches) {
    py::dict found;
    for (const BlockMatch& match : matches.entries()) {
      found[py::int_(static_cast<int>(match.owner))] =
          py::make_tuple(match.blocks[0], match.blocks[1], match.blocks[2]);
    }
    return found;
  }

  const BlockHasher hasher_;
  ReportedBlocks blocks_;
};

// Entries have the one place that is their own or two that follow each other or not.
class TestIdentityMap {
 public:
  TestIdentityMap(uint64_t max_entries, uint64_t seed) : map_(max_entries, seed) {}

  bool Add(EngineHash hash, const std::vector<uint64_t>& refs) {
    return map_.Add(hash, Refs(refs)) != nullptr;
  }
  void SetRefs(EngineHash hash, const std::vector<uint64_t>& refs) { map_.SetRefs(&At(hash), Refs(refs)); }
  bool HasRefs(EngineHash hash, const std::vector<uint64_t>& refs) {
    return map_.HasRefs(At(hash), Refs(refs));
  }
  std::vector<uint64_t> RefsOf(EngineHash hash, uint32_t count) {
    std::vector<BlockRef> refs;
    map_.AppendRefs(At(hash), count, &refs);
    if (refs.back() != map_.LastRef(At(hash), count)) throw py::value_error("another last one");
    std::vector<uint64_t> bits;
    for (const BlockRef ref : refs) bits.push_back(ref.bits());
    return bits;
  }
  std::optional<std::tuple<uint32_t, bool, bool>> Find(EngineHash hash) {
    const IdentityMap::Entry* const entry = map_.Find(hash);
    if (entry == nullptr) return std::nullopt;
    return std::tuple(map_.Copies(*entry), entry->IsOn(Tier::kHost), entry->IsOn(Tier::kExternal));
  }
  void AddCopy(EngineHash hash) { map_.AddCopy(&At(hash)); }
  void Put(EngineHash hash, int tier) { map_.Put(&At(hash), static_cast<Tier>(tier)); }
  void Take(EngineHash hash, int tier) { map_.Take(&At(hash), static_cast<Tier>(tier)); }
  void TakeAll(EngineHash hash) { map_.TakeAll(&At(hash)); }
  void Erase(EngineHash hash) { map_.Erase(&At(hash)); }
  void Clear() { map_.Clear(); }
  size_t size() const { return map_.size(); }
  size_t on_gpu() const { return map_.on_gpu(); }
  size_t capacity() const { return map_.capacity(); }
  size_t bytes() const { return map_.bytes(); }

 private:
  static std::vector<BlockRef> Refs(const std::vector<uint64_t>& bits) {
    std::vector<BlockRef> refs;
    for (const uint64_t each : bits) refs.emplace_back(each);
    return refs;
  }
  IdentityMap::Entry& At(EngineHash hash) {
    IdentityMap::Entry* const entry = map_.Find(hash);
    if (entry == nullptr) throw py::key_error("unknown hash");
    return *entry;
  }

  IdentityMap map_;
};

// True for a batch, and what it told.
std::optional<std::pair<bool, bool>> ApplyPayload(
    EventApplier& self, const py::bytes& payload, int64_t now_ns) {
  static KvBatch batch;  // with the GIL; reused, as in the router
  const std::string_view text = payload;
  if (!DecodeKvBatch({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, &batch))
    return std::nullopt;
  const EventApplier::Result result = self.Apply(batch, now_ns);
  return std::pair(result.cleared, result.contradiction);
}

py::dict FiguresOf(const EventApplier& self) {
  const EventApplier::Figures& figures = self.figures();
  py::dict dropped;
  for (size_t i = 0; i < kKvEventDropCount; ++i) {
    if (figures.dropped[i] != 0)
      dropped[py::str(KvEventDropName(static_cast<KvEventDrop>(i)))] = figures.dropped[i];
  }
  return py::dict(
      "stored"_a = figures.stored_blocks, "removed"_a = figures.removed_blocks,
      "unknown_removed"_a = figures.unknown_removed, "contradictions"_a = figures.contradictions,
      "stale_refs"_a = figures.stale_refs, "dropped"_a = dropped, "block_size"_a = self.engine_block_size(),
      "known"_a = self.known_blocks(), "known_on_gpu"_a = self.known_gpu_blocks(),
      "orphans"_a = self.orphan_blocks(), "tiers"_a = self.TierCounts(), "bytes"_a = self.bytes());
}

}  // namespace

void BindTestingEventApplier(py::module_& testing) {
  py::class_<TestReported>(testing, "ReportedBlocks")
      .def(py::init<uint32_t>(), "block_size"_a = 16)
      .def("set_workers", &TestReported::SetWorkers)
      .def("add_cache", &TestReported::AddCache)
      .def(
          "remove_cache",
          [](TestReported& self, uint16_t cache) { self.blocks().RemoveCache(WorkerSlot{cache}); })
      .def(
          "has_cache",
          [](const TestReported& self, uint32_t worker, uint16_t cache) {
            return self.blocks().HasCache(WorkerId{worker}, WorkerSlot{cache});
          })
      .def("set_trust", &TestReported::SetTrust)
      .def("trust", &TestReported::Trust)
      .def("set_gpu_blocks", &TestReported::SetGpuBlocks)
      .def(
          "gpu_blocks",
          [](const TestReported& self, uint32_t worker, std::optional<uint32_t> rank) {
            return self.blocks().GpuBlocksOf(WorkerId{worker}, rank);
          },
          "worker"_a, "rank"_a = py::none())
      .def(
          "insert",
          [](TestReported& self, uint16_t cache, int tier, const Chain& chain) {
            const InsertResult result = self.blocks().index().Insert(
                WorkerSlot{cache}, static_cast<Tier>(tier), BlockRef(), chain,
                static_cast<BlockRef*>(nullptr));
            return result.inserted;
          })
      .def(
          "sweep",
          [](TestReported& self) {
            while (self.blocks().index().Sweep(1000)) {
            }
          })
      .def("merge", &TestReported::Merge, "chain"_a, "learned"_a = std::vector<std::pair<uint16_t, Depths>>())
      .def("match", &TestReported::Match)
      .def("chain", &TestReported::ChainOf, "tokens"_a, "lora_name"_a = "", "cache_salt"_a = "")
      .def(
          "counts", [](const TestReported& self,
                       uint32_t worker) { return self.blocks().BlockCounts(WorkerId{worker}); })
      .def("pairs", [](const TestReported& self) { return self.blocks().index().stats().pairs; })
      .def("check", [](const TestReported& self) { return self.blocks().index().CheckInvariants(); })
      .def(
          "owe", [](TestReported& self, uint32_t worker,
                    uint64_t blocks) { self.blocks().Owe(WorkerId{worker}, blocks); })
      .def_property_readonly("active", [](const TestReported& self) { return self.blocks().active(); });

  py::class_<TestIdentityMap>(testing, "IdentityMap")
      .def(py::init<uint64_t, uint64_t>(), "max_entries"_a = 1'000'000, "seed"_a = 1)
      .def("add", &TestIdentityMap::Add)
      .def("set_refs", &TestIdentityMap::SetRefs)
      .def("has_refs", &TestIdentityMap::HasRefs)
      .def("refs", &TestIdentityMap::RefsOf, "hash"_a, "count"_a = 1)
      .def("find", &TestIdentityMap::Find)
      .def("add_copy", &TestIdentityMap::AddCopy)
      .def("put", &TestIdentityMap::Put)
      .def("take", &TestIdentityMap::Take)
      .def("take_all", &TestIdentityMap::TakeAll)
      .def("erase", &TestIdentityMap::Erase)
      .def("clear", &TestIdentityMap::Clear)
      .def("__len__", &TestIdentityMap::size)
      .def_property_readonly("on_gpu", &TestIdentityMap::on_gpu)
      .def_property_readonly("capacity", &TestIdentityMap::capacity)
      .def_property_readonly("bytes", &TestIdentityMap::bytes);

  py::class_<RemovedBlocks>(testing, "RemovedBlocks")
      .def(py::init<size_t>())
      .def(
          "add",
          [](RemovedBlocks& self, EngineHash name, std::pair<EngineHash, BlockHash> parent,
             const Chain& hashes) {
            self.Add(name, {parent.first, parent.second}, hashes);
          })
      .def(
          "find",
          [](const RemovedBlocks& self,
             EngineHash name) -> std::optional<std::tuple<std::pair<EngineHash, BlockHash>, Chain>> {
            const std::optional<RemovedBlocks::Block> found = self.Find(name);
            if (!found) return std::nullopt;
            return std::tuple(
                std::pair(found->parent.name, found->parent.hash),
                Chain(found->hashes.begin(), found->hashes.end()));
          })
      .def("clear", &RemovedBlocks::Clear)
      .def("__len__", &RemovedBlocks::size)
      .def_property_readonly("bytes", &RemovedBlocks::bytes);

  py::class_<EventApplier>(testing, "EventApplier")
      .def(
          py::init([](TestReported& reported, uint32_t worker, std::string model, bool counts_copies,
                      uint64_t max_blocks, size_t max_removed_blocks, size_t max_orphan_blocks,
                      int64_t orphan_ns) {
            return new EventApplier(
                &reported.blocks(), WorkerId{worker},
                {.model = std::move(model),
                 .counts_copies = counts_copies,
                 .max_blocks = max_blocks,
                 .max_removed_blocks = max_removed_blocks,
                 .max_orphan_blocks = max_orphan_blocks,
                 .orphan_ns = orphan_ns});
          }),
          py::keep_alive<1, 2>(), "reported"_a, "worker"_a, "model"_a = "m", "counts_copies"_a = true,
          "max_blocks"_a = 1'000'000, "max_removed_blocks"_a = 8192, "max_orphan_blocks"_a = 4096,
          "orphan_ns"_a = 600'000'000'000)
      .def("apply", &ApplyPayload, "payload"_a, "now_ns"_a = 0)
      .def("new_incarnation", &EventApplier::NewIncarnation)
      .def_property_readonly(
          "cache",
          [](const EventApplier& self) -> std::optional<int> {
            if (!self.cache()) return std::nullopt;
            return static_cast<int>(*self.cache());
          })
      .def("figures", &FiguresOf);

  // Sources are (worker, endpoint, rank, any_rank).
  py::class_<TrtllmReceiver>(testing, "TrtllmReceiver")
      .def(
          py::init([](TestReported& reported) { return new TrtllmReceiver(&reported.blocks()); }),
          py::keep_alive<1, 2>())
      .def(
          "set_sources",
          [](TrtllmReceiver& self,
             const std::vector<std::tuple<uint32_t, std::string, uint32_t, bool>>& given) {
            std::vector<KvSource> sources;
            for (const auto& [worker, endpoint, rank, any_rank] : given) {
              sources.push_back(
                  {.kind = KvSourceKind::kTrtllm,
                   .worker = WorkerId{worker},
                   .rank = rank,
                   .any_rank = any_rank,
                   .endpoint = endpoint,
                   .model = "m"});
            }
            self.SetSources(sources, 0);
          })
      .def(
          "take",
          [](TrtllmReceiver& self, std::string_view endpoint, const py::bytes& response, int64_t now_ns) {
            const TrtllmReceiver::Result result = self.Take(endpoint, std::string_view(response), now_ns);
            return py::dict(
                "malformed"_a = result.malformed, "events"_a = result.events, "lost"_a = result.lost,
                "restarted"_a = result.restarted);
          })
      .def("miss", &TrtllmReceiver::Miss)
      .def("lose", &TrtllmReceiver::Lose)
      .def("report_outage", &TrtllmReceiver::ReportOutage)
      .def(
          "resync", [](TrtllmReceiver& self, uint32_t worker,
                       int64_t now_ns) { self.Resync(WorkerId{worker}, now_ns); })
      .def("watch", &TrtllmReceiver::Watch)
      .def("report", [](const TrtllmReceiver& self, int64_t now_ns) {
        py::list report;
        for (const KvSourceStatus& status : self.Report(now_ns)) {
          py::dict dropped;
          for (const auto& [reason, count] : status.dropped) dropped[py::str(std::string(reason))] = count;
          py::dict incarnations;
          for (const auto& [cause, count] : status.incarnations)
            incarnations[py::str(std::string(cause))] = count;
          report.append(py::dict(
              "worker"_a = static_cast<uint32_t>(status.source.worker), "rank"_a = status.source.rank,
              "trust"_a = KvTrustName(status.trust), "connected"_a = status.connected,
              "reconnects"_a = status.reconnects, "next"_a = status.next_number,
              "lost"_a = status.lost_batches, "incarnation"_a = status.incarnation,
              "incarnations"_a = incarnations, "block_size"_a = status.block_size,
              "coverage"_a = status.coverage, "unknown_removed"_a = status.unknown_removed_blocks,
              "blocks"_a = status.blocks, "orphans"_a = status.orphan_blocks, "dropped"_a = dropped));
        }
        return report;
      });
}

}  // namespace vllm_router
