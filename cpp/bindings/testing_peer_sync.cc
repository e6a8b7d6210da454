#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/load_for_test.h"
#include "hashing/aead.h"
#include "index/coarse_index.h"
#include "peer_sync/frame.h"
#include "peer_sync/peer_sync.h"
#include "policy/decision_buffer.h"
#include "policy/policy_registry.h"
#include "policy/pool.h"

namespace vllm_router {

namespace py = pybind11;
using namespace py::literals;

namespace {

using HashList = std::vector<uint64_t>;
// requests, waiting, queued_prefill, expected_output, context
using CountsTuple = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>;

LoadCounts CountsOf(const CountsTuple& tuple) {
  const auto& [requests, waiting, queued_prefill, expected_output, context] = tuple;
  return {requests, waiting, queued_prefill, expected_output, context};
}

CountsTuple CountsTupleOf(const LoadCounts& counts) {
  return {counts.requests, counts.waiting, counts.queued_prefill, counts.expected_output, counts.context};
}

int64_t PeerNanos(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

void RaiseStatus(const Status& status) {
  if (absl::IsPermissionDenied(status)) {
    PyErr_SetString(PyExc_PermissionError, std::string(status.message()).c_str());
    throw py::error_already_set();
  }
  if (!status.ok()) throw py::value_error(std::string(status.message()));
}

// kind, holds, receives_api_key, weight, timeout_ms, at_ms, router, URL; of a worker with a stage also stage,
// bootstrap port, 0 for none, and kv_group.
using FactTuple = py::tuple;

AdminFact FactOf(const FactTuple& tuple) {
  AdminFact fact = {
      .kind = static_cast<AdminFact::Kind>(tuple[0].cast<uint8_t>()),
      .url = tuple[7].cast<std::string>(),
      .holds = tuple[1].cast<bool>(),
      .weight = tuple[3].cast<uint32_t>(),
      .receives_api_key = tuple[2].cast<bool>(),
      .timeout_ms = tuple[4].cast<uint32_t>(),
      .at_ms = tuple[5].cast<uint64_t>(),
      .router = tuple[6].cast<uint64_t>()};
  if (tuple.size() == 8) return fact;
  fact.role.stage = static_cast<Stage>(tuple[8].cast<uint8_t>());
  if (const auto port = tuple[9].cast<uint16_t>(); port != 0) fact.role.bootstrap_port = port;
  fact.role.kv_group = tuple[10].cast<py::bytes>();
  return fact;
}

py::tuple FactTupleOf(const AdminFact& fact) {
  const py::tuple tuple = py::make_tuple(
      static_cast<uint8_t>(fact.kind), fact.holds, fact.receives_api_key, fact.weight, fact.timeout_ms,
      fact.at_ms, fact.router, py::bytes(fact.url));
  if (fact.role.stage == Stage::kAll) return tuple;
  return tuple + py::make_tuple(
                     static_cast<uint8_t>(fact.role.stage), fact.role.bootstrap_port.value_or(0),
                     py::bytes(fact.role.kv_group));
}

PeerFrame FrameOf(const py::dict& given) {
  PeerFrame frame;
  frame.full = given["full"].cast<bool>();
  frame.bye = given["bye"].cast<bool>();
  frame.fingerprint = given["fingerprint"].cast<uint64_t>();
  frame.router = given["router"].cast<uint64_t>();
  frame.sequence = given["sequence"].cast<uint64_t>();
  frame.sent_ms = given["sent_ms"].cast<uint64_t>();
  frame.interval_ms = given["interval_ms"].cast<uint32_t>();
  for (const auto& [index, incarnation, url] :
       given["names"].cast<std::vector<std::tuple<uint32_t, uint64_t, std::string>>>())
    frame.names.push_back({index, incarnation, url});
  for (const auto& [index, counts] : given["loads"].cast<std::vector<std::pair<uint32_t, CountsTuple>>>())
    frame.loads.push_back({index, CountsOf(counts)});
  for (const auto& [index, tokens, kind, strides] :
       given["decisions"].cast<std::vector<std::tuple<uint32_t, uint32_t, uint8_t, HashList>>>()) {
    frame.decisions.push_back(
        {index, tokens, static_cast<PeerFrame::Kind>(kind), static_cast<uint32_t>(strides.size())});
    frame.strides.insert(frame.strides.end(), strides.begin(), strides.end());
  }
  for (const auto& [index, incarnation] :
       given["forgotten"].cast<std::vector<std::pair<uint32_t, uint64_t>>>())
    frame.forgotten.push_back({index, incarnation});
  for (const auto& [index, cause] : given["suspects"].cast<std::vector<std::pair<uint32_t, uint8_t>>>())
    frame.suspects.push_back({index, static_cast<PeerFrame::Cause>(cause)});
  for (const auto& [router, sequence] : given["seen"].cast<std::vector<std::pair<uint64_t, uint64_t>>>())
    frame.seen.push_back({router, sequence});
  for (const auto& [name, version] : given["about"].cast<std::vector<std::pair<std::string, std::string>>>())
    frame.about.push_back({name, version});
  for (const auto& [section, payload] : given["topics"].cast<std::vector<std::pair<uint8_t, std::string>>>())
    frame.topics.push_back({.section = section, .payload = payload});
  for (const py::handle fact : given["facts"]) frame.facts.push_back(FactOf(fact.cast<FactTuple>()));
  for (const py::handle fact : given["staged"]) frame.staged.push_back(FactOf(fact.cast<FactTuple>()));
  return frame;
}

py::dict FrameDict(const PeerFrame& frame) {
  py::list names, loads, decisions, forgotten, suspects, seen, about, facts, staged, topics;
  for (const auto& name : frame.names) names.append(py::make_tuple(name.index, name.incarnation, name.url));
  for (const auto& load : frame.loads) loads.append(py::make_tuple(load.index, CountsTupleOf(load.counts)));
  auto at = frame.strides.begin();
  for (const auto& decision : frame.decisions) {
    const auto end = at + decision.strides;
    decisions.append(py::make_tuple(
        decision.index, decision.prompt_tokens, static_cast<uint8_t>(decision.kind), HashList(at, end)));
    at = end;
  }
  for (const auto& worker : frame.forgotten)
    forgotten.append(py::make_tuple(worker.index, worker.incarnation));
  for (const auto& suspect : frame.suspects)
    suspects.append(py::make_tuple(suspect.index, static_cast<uint8_t>(suspect.cause)));
  for (const auto& one : frame.seen) seen.append(py::make_tuple(one.router, one.sequence));
  for (const auto& one : frame.about)
    about.append(py::make_tuple(py::bytes(one.name), py::bytes(one.version)));
  for (const AdminFact& fact : frame.facts) facts.append(FactTupleOf(fact));
  for (const AdminFact& fact : frame.staged) staged.append(FactTupleOf(fact));
  for (const PeerFrame::Topic& topic : frame.topics)
    topics.append(py::make_tuple(topic.section, py::bytes(topic.payload)));
  return py::dict(
      "full"_a = frame.full, "bye"_a = frame.bye, "fingerprint"_a = frame.fingerprint,
      "router"_a = frame.router, "sequence"_a = frame.sequence, "sent_ms"_a = frame.sent_ms,
      "interval_ms"_a = frame.interval_ms, "names"_a = names, "loads"_a = loads, "decisions"_a = decisions,
      "forgotten"_a = forgotten, "suspects"_a = suspects, "seen"_a = seen, "about"_a = about,
      "facts"_a = facts, "staged"_a = staged, "topics"_a = topics);
}

// Tells what it was given, once, and keeps what it hears: the router, how long ago in seconds, and the payload.
class ListTopic final : public PeerTopic {
 public:
  uint8_t section() const override { return kLastTopicSection; }
  std::string Tell(bool /*full*/, int64_t /*now_ns*/) override { return std::exchange(next, {}); }
  void Hear(const PeerWord& word, int64_t now_ns) override {
    heard.append(py::make_tuple(
        word.router, static_cast<double>(now_ns - word.told_ns) / 1e9, py::bytes(std::string(word.payload))));
  }
  void Turn(bool connected, uint32_t routers, int64_t /*now_ns*/) override { turn = {connected, routers}; }

  std::string next;
  std::pair<bool, uint32_t> turn{false, 0};
  py::list heard;
};

// A router without requests: a fleet, an index, and what it tells and hears. Times in seconds.
class PeerRouter {
 public:
  PeerRouter(
      uint64_t number, uint32_t block_size, uint32_t stride_tokens, uint64_t max_blocks,
      const std::string& key, uint64_t max_tick_bytes, const std::string& policy) {
    PolicyOptions options{
        .policy = policy,
        .block_size = block_size,
        .max_blocks_per_worker = max_blocks,
        .peer_sync_stride_tokens = stride_tokens};
    StatusOr<PolicyParts> parts = MakePolicy(options);
    RaiseStatus(parts.status());
    pool_ = std::make_unique<Pool>(*std::move(parts));
    KvIndex* const index = pool_->index();
    sync_ = std::make_unique<PeerSync>(
        PeerSyncOptions{
            .router = number,
            .fingerprint = index != nullptr ? PeerSync::FingerprintOf(*index) : 0,
            .secret = key,
            .name = "router-" + std::to_string(number),
            .version = "1",
            .max_tick_bytes = max_tick_bytes},
        index);
    sync_->AddTopic(&topic_);
  }

  // The whole list, each with the name of its engine's life.
  void Declare(const std::vector<std::pair<std::string, std::string>>& workers) {
    std::vector<WorkerDeclaration> list;
    for (const auto& [url, incarnation] : workers)
      list.emplace_back(DeclareWorker(url).value()).incarnation = incarnation;
    std::vector<std::string> absent;
    for (const FleetView::Member& member : pool_->fleet()->members())
      absent.push_back(member.worker->url.url);
    RaiseStatus(pool_->registry().Reconcile("file", list, true, absent, 0).status());
    sync_->SetFleet(*pool_->fleet());
  }

  const Worker& worker(const std::string& url) const {
    const auto fleet = pool_->fleet();
    const std::optional<uint32_t> position = fleet->Find(url);
    if (!position) throw py::value_error("no worker " + url);
    return fleet->worker(*position);
  }

  std::pair<std::string, uint64_t> Choose(const HashList& blocks) {
    const auto fleet = pool_->fleet();
    RoutingKey key;
    key.has_blocks = true;
    key.blocks = blocks;
    key.usable_blocks = blocks.size();
    key.prompt_tokens = static_cast<uint32_t>(blocks.size()) * pool_->index()->hasher().block_size() + 1;
    const std::optional<Decision> decision = pool_->policy().Choose(key, *fleet);
    decisions_.push_back(*decision);
    return {fleet->worker(decision->position).url.url, decision->matched};
  }
  void End(size_t number, const std::string& end, uint64_t output_tokens) {
    pool_->policy().Observe(
        decisions_.at(number),
        {.end = EndByName(end).value(), .status = 200, .output_tokens = output_tokens});
  }

  Pool& pool() { return *pool_; }
  PeerSync& sync() { return *sync_; }
  ListTopic& topic() { return topic_; }

 private:
  ListTopic topic_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<PeerSync> sync_;
  std::vector<Decision> decisions_;
};

py::list PeersOf(const PeerTable& table, double now) {
  constexpr const char* kStates[] = {"live", "late", "gone"};
  py::list peers;
  for (const auto& [router, peer] : table.peers()) {
    peers.append(py::dict(
        "router"_a = router, "state"_a = kStates[static_cast<size_t>(peer.StateAt(PeerNanos(now)))],
        "sequence"_a = peer.sequence, "gaps"_a = peer.gaps, "names"_a = peer.names.size(),
        "seen"_a = peer.seen, "name"_a = peer.name, "version"_a = peer.version));
  }
  return peers;
}

py::dict CountsDict(const PeerSyncCounts& counts) {
  return py::dict(
      "frames_sent"_a = counts.frames_sent, "frames_read"_a = counts.frames_read,
      "frames_malformed"_a = counts.frames_malformed, "frames_refused"_a = counts.frames_refused,
      "frames_repeated"_a = counts.frames_repeated, "frames_not_heard"_a = counts.frames_not_heard,
      "decisions_sent"_a = counts.decisions_sent, "decisions_over_budget"_a = counts.decisions_over_budget,
      "decisions_applied"_a = counts.decisions_applied, "decisions_foreign"_a = counts.decisions_foreign,
      "decisions_unknown_worker"_a = counts.decisions_unknown_worker);
}

std::vector<py::bytes> BytesOf(const std::vector<std::string>& frames) {
  return {frames.begin(), frames.end()};
}

}  // namespace

void BindTestingPeerSync(py::module_& testing) {
  py::class_<CoarseIndex>(testing, "CoarseIndex")
      .def(
          py::init([](uint32_t stride_blocks, uint64_t max_blocks) {
            return std::make_unique<CoarseIndex>(CoarseIndexOptions{
                .stride_blocks = stride_blocks, .tracker = {.max_blocks_per_worker = max_blocks}});
          }),
          py::arg("stride_blocks"), py::arg("max_blocks"))
      .def_static(
          "strides_of",
          [](const HashList& blocks, uint32_t stride_blocks) {
            HashList strides;
            CoarseIndex::StridesOf(blocks, stride_blocks, &strides);
            return strides;
          })
      .def("add", [](CoarseIndex& self, uint16_t slot) { self.Add(WorkerSlot{slot}); })
      .def("remove", [](CoarseIndex& self, uint16_t slot) { self.Remove(WorkerSlot{slot}); })
      .def("forget", [](CoarseIndex& self, uint16_t slot) { self.Forget(WorkerSlot{slot}); })
      .def("clear", &CoarseIndex::Clear)
      .def(
          "set_capacity", [](CoarseIndex& self, uint16_t slot,
                             uint64_t blocks) { self.SetCapacityOf(WorkerSlot{slot}, blocks); })
      .def(
          "record",
          [](CoarseIndex& self, uint16_t slot, const HashList& strides, size_t unnamed) {
            self.Record(WorkerSlot{slot}, strides, unnamed);
          },
          "slot"_a, "strides"_a, "unnamed"_a = 0)
      .def(
          "record_open",
          [](CoarseIndex& self, uint16_t slot, const HashList& strides, size_t unnamed) {
            return self.RecordOpen(WorkerSlot{slot}, strides, unnamed);
          },
          "slot"_a, "strides"_a, "unnamed"_a = 0)
      .def("confirm", &CoarseIndex::Confirm)
      .def("withdraw", &CoarseIndex::Withdraw)
      // Matches as blocks by slot, of all tiers alike.
      .def(
          "refine",
          [](const CoarseIndex& self, const HashList& blocks, const std::map<uint16_t, uint32_t>& given) {
            BlockMatches matches;
            for (const auto& [slot, held] : given) matches.Raise(WorkerSlot{slot}, {held, held, held});
            self.Refine(blocks, &matches);
            std::map<uint16_t, uint32_t> refined;
            for (const BlockMatch& match : std::as_const(matches).entries())
              refined[static_cast<uint16_t>(match.owner)] = match.longest();
            return refined;
          })
      .def_property_readonly("strides", &CoarseIndex::strides)
      .def_property_readonly("bytes", &CoarseIndex::bytes);

  py::class_<DecisionBuffer>(testing, "DecisionBuffer")
      .def(py::init<>())
      .def(
          "add",
          [](DecisionBuffer& self, uint32_t worker, uint32_t tokens, const HashList& strides) {
            return self.Add(WorkerId{worker}, tokens, strides);
          },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "take",
          [](DecisionBuffer& self) {
            DecisionBuffer::Batch batch;
            self.Take(&batch);
            std::vector<std::tuple<uint32_t, uint32_t, HashList>> taken;
            auto at = batch.strides.begin();
            for (const DecisionBuffer::Entry& entry : batch.entries) {
              taken.emplace_back(
                  static_cast<uint32_t>(entry.worker), entry.prompt_tokens, HashList(at, at + entry.strides));
              at += entry.strides;
            }
            return taken;
          })
      .def_property_readonly("dropped", &DecisionBuffer::dropped);

  py::class_<AdminFacts>(testing, "AdminFacts")
      .def(py::init<>())
      .def("merge", [](AdminFacts& self, const FactTuple& fact) { return self.Merge(FactOf(fact)); })
      .def("counts", [](const AdminFacts& self, const FactTuple& fact) { return self.Counts(FactOf(fact)); })
      .def(
          "forget",
          [](AdminFacts& self, uint64_t now_ms, const std::set<std::string>& known) {
            self.Forget(now_ms, [&](const std::string& url) { return known.contains(url); });
          })
      .def("all", [](const AdminFacts& self) {
        py::list known;
        for (const auto& [key, fact] : self.all()) known.append(FactTupleOf(fact));
        return known;
      });

  testing.def(
      "aead_seal",
      [](const py::bytes& key, uint64_t number, const std::string& head, const std::string& text) {
        Digest256 digest{};
        const auto given = std::string_view(key);
        std::copy_n(given.begin(), std::min(given.size(), digest.size()), digest.begin());
        std::string message = head + text;
        AeadSeal(digest, number, head.size(), &message);
        return py::bytes(message);
      },
      py::arg("key"), py::arg("number"), py::arg("head"), py::arg("text"));
  testing.def(
      "aead_open",
      [](const py::bytes& key, uint64_t number, size_t head_bytes, std::string message) -> py::object {
        Digest256 digest{};
        const auto given = std::string_view(key);
        std::copy_n(given.begin(), std::min(given.size(), digest.size()), digest.begin());
        if (!AeadOpen(digest, number, head_bytes, &message)) return py::none();
        return py::bytes(message);
      },
      py::arg("key"), py::arg("number"), py::arg("head_bytes"), py::arg("message"));
  testing.def(
      "write_peer_frame",
      [](const py::dict& frame, const std::string& key) {
        std::string bytes;
        WriteFrame(FrameOf(frame), key, &bytes);
        return py::bytes(bytes);
      },
      py::arg("frame"), py::arg("key") = "");
  testing.def(
      "read_peer_frame",
      [](const py::bytes& bytes, const std::string& key) {
        PeerFrame frame;
        RaiseStatus(ReadFrame(std::string_view(bytes), key, &frame));
        return FrameDict(frame);
      },
      py::arg("bytes"), py::arg("key") = "");

  py::class_<PeerRouter>(testing, "PeerRouter")
      .def(
          py::init<
              uint64_t, uint32_t, uint32_t, uint64_t, const std::string&, uint64_t, const std::string&>(),
          py::arg("number"), py::kw_only(), py::arg("block_size") = 1, py::arg("stride_tokens") = 4,
          py::arg("max_blocks") = 1000, py::arg("key") = "", py::arg("max_tick_bytes") = 0,
          py::arg("policy") = "auto")
      .def("declare", &PeerRouter::Declare)
      .def(
          "set_load",
          [](PeerRouter& self, const std::string& url, const CountsTuple& counts) {
            LoadForTest::Set(self.worker(url).load, CountsOf(counts));
          })
      // What peers have open there.
      .def(
          "peer_load",
          [](PeerRouter& self, const std::string& url) {
            const WorkerLoad& load = self.worker(url).load;
            const LoadCounts own = load.own();
            return CountsTuple(
                load.requests() - own.requests, load.waiting_requests() - own.waiting,
                load.queued_prefill() - own.queued_prefill, load.expected_output() - own.expected_output,
                load.context() - own.context);
          })
      .def("choose", &PeerRouter::Choose)
      .def("end", &PeerRouter::End, py::arg("number"), py::arg("end"), py::arg("output_tokens") = 0)
      .def(
          "write_frames",
          [](PeerRouter& self, double now) {
            std::vector<std::string> frames;
            self.sync().WriteFrames(PeerNanos(now), static_cast<uint64_t>(now * 1e3), &frames);
            return BytesOf(frames);
          })
      .def(
          "write_bye",
          [](PeerRouter& self, double now) {
            std::vector<std::string> frames;
            self.sync().WriteBye(PeerNanos(now), static_cast<uint64_t>(now * 1e3), &frames);
            return BytesOf(frames);
          })
      // None: the index has no strides.
      .def(
          "write_snapshot",
          [](PeerRouter& self, uint64_t taken_ms) -> py::object {
            std::string bytes;
            if (!self.sync().WriteSnapshot(*self.pool().fleet(), taken_ms, &bytes)) return py::none();
            return py::bytes(bytes);
          },
          py::arg("taken_ms") = 0)
      .def(
          "read_snapshot",
          [](PeerRouter& self, const py::bytes& bytes) {
            const StatusOr<uint64_t> taken =
                self.sync().ReadSnapshot(std::string_view(bytes), *self.pool().fleet());
            RaiseStatus(taken.status());
            return *taken;
          },
          py::arg("bytes"))
      .def("trust_facts_until", [](PeerRouter& self, uint64_t ms) { self.sync().TrustFactsUntil(ms); })
      .def(
          "tell_fact",
          [](PeerRouter& self, const FactTuple& fact) { return self.sync().TellFact(FactOf(fact)); })
      // Those that the frame told and this router did not know.
      .def(
          "read_facts",
          [](PeerRouter& self, const py::bytes& frame, double now) {
            std::vector<AdminFact> facts;
            RaiseStatus(self.sync().Read(std::string_view(frame), PeerNanos(now), nullptr, &facts));
            py::list read;
            for (const AdminFact& fact : facts) read.append(FactTupleOf(fact));
            return read;
          })
      .def(
          "facts",
          [](PeerRouter& self) {
            py::list known;
            for (const auto& [key, fact] : self.sync().facts().all()) known.append(FactTupleOf(fact));
            return known;
          })
      // URLs that are suspected by the sender.
      .def(
          "read",
          [](PeerRouter& self, const py::bytes& frame, double now, double age) {
            std::vector<std::shared_ptr<Worker>> suspects;
            RaiseStatus(self.sync().Read(
                std::string_view(frame), PeerNanos(now), &suspects, nullptr, PeerNanos(age)));
            std::vector<std::string> urls;
            for (const auto& worker : suspects) urls.push_back(worker->url.url);
            return urls;
          },
          "frame"_a, "now"_a, "age"_a = 0)
      .def("tell_topic", [](PeerRouter& self, const py::bytes& payload) { self.topic().next = payload; })
      .def_property_readonly("topic_turn", [](PeerRouter& self) { return self.topic().turn; })
      .def_property_readonly("heard_topic", [](PeerRouter& self) { return self.topic().heard; })
      .def("update", [](PeerRouter& self, double now) { self.sync().Update(PeerNanos(now)); })
      .def(
          "set_connected", [](PeerRouter& self, bool connected,
                              double now) { self.sync().SetConnected(connected, PeerNanos(now)); })
      .def(
          "tell_forgotten",
          [](PeerRouter& self, const std::string& url) { self.sync().TellForgotten(self.worker(url).id); })
      .def(
          "tell_suspect",
          [](PeerRouter& self, const std::string& url, uint8_t cause) {
            self.sync().TellSuspect(self.worker(url).id, static_cast<PeerFrame::Cause>(cause));
          })
      // Workers of the fleet, which a list that lacks them may have left to drain.
      .def_property_readonly(
          "urls",
          [](PeerRouter& self) {
            std::vector<std::string> urls;
            for (const FleetView::Member& member : self.pool().fleet()->members())
              urls.push_back(member.worker->url.url);
            return urls;
          })
      .def_property_readonly(
          "fingerprint", [](PeerRouter& self) { return PeerSync::FingerprintOf(*self.pool().index()); })
      .def_property_readonly(
          "strides", [](PeerRouter& self) { return self.pool().index()->coarse()->strides(); })
      .def_property_readonly("alone", [](PeerRouter& self) { return self.sync().alone(); })
      .def("peers", [](PeerRouter& self, double now) { return PeersOf(self.sync().peers(), now); })
      .def("counts", [](PeerRouter& self) { return CountsDict(self.sync().counts()); })
      .def_property_readonly(
          "unknown_workers", [](PeerRouter& self) { return self.sync().peers().unknown_workers(); });
}

}  // namespace vllm_router
