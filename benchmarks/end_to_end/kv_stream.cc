// What do KV events cost from the socket to the index, how long until they are visible, and do they stay right?
//
//   kv_stream --mode throughput    block-ops per second of the events thread's CPU time: 50 KB batches over TCP
//   kv_stream --mode latency       a batch until it is visible, at a load of --rate block-ops per second
//   kv_stream --mode match         p99 of a match while --rate block-ops per second are applied, and without
//   kv_stream --mode soak          lost batches, restarts, sources that come and go: is the picture right, and
//                                  is memory flat? Ends with status 1 if not
//
// Engines publish from another process (kv_fleet.h), in the latency mode from a thread of this one. A block-op is
// one block stored or removed. Flags have the defaults of Defaults().
//
// Latency: batches are due at times of a Poisson process, whether or not earlier ones are visible, and count from
// when they were due. The thread that sends them spends the rest of its time on matching the first block of the
// last prompt of each batch under way against the index, so it sees a batch at most one round of matches (0.1 us
// each) after a request could. What a batch needs to reach a thread at all is measured in the same rounds by a
// thread that only receives; "received to visible" is the difference of the medians, and its 99th percentile is at
// most that of "sent to visible".
//
// Match: ReportedBlocks::Merge() of prompts of 48 blocks that four workers hold, one after the other, with two
// readings of the clock around each. Rounds with and without events alternate.
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "common.h"
#include "events/cache_audit.h"
#include "events/event_subscriber.h"
#include "hashing/block_hash.h"
#include "histogram.h"
#include "index/reported_blocks.h"
#include "kv_engine.h"
#include "kv_fleet.h"
#include "kv_publisher.h"
#include "net/zmq_socket.h"

namespace vllm_router::bench {
namespace {

constexpr char kModel[] = "m";
constexpr uint64_t kSecond = 1'000'000'000;

std::map<std::string, std::string> Defaults() {
  return {
      {"mode", "throughput"},
      {"sources", "64"},
      {"blocks", "16000"},        // of each cache
      {"prompts", ""},            // of 48 blocks, that begin in a batch; 9 are 50 KB
      {"ops", ""},                // of a round; of the soak in all
      {"rate", ""},               // block-ops per second
      {"rounds", "5"},            //
      {"seconds", "1"},           // of a round of latency and match
      {"limit-seconds", "3600"},  // for everything; then it fails
      {"soak-seconds", "3000"},   // then the soak ends with fewer block-ops
      {"seed", "1"},
      {"lost", "0.01"},
      {"lost-beyond", "0.01"},
      {"restart-seconds", "10"},
      {"churn-seconds", "5"},
      {"shares", "50"},  // of the soak, after each of which everything is compared
      {"verbose", "0"},
  };
}

std::set<std::string> Threads() {
  std::set<std::string> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    threads.insert(task.path().filename());
  return threads;
}

uint64_t CpuNanosOf(const std::string& thread) {
  uint64_t nanos = 0;
  std::ifstream("/proc/self/task/" + thread + "/schedstat") >> nanos;
  return nanos;
}

uint64_t RssKb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::strtoull(line.c_str() + 8, nullptr, 10);
  }
  return 0;
}

// Of all that the process has allocated and not freed, in every arena.
size_t HeapBytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Deadline of the program.
class Limit {
 public:
  explicit Limit(double seconds) : end_ns_(NowNanos() + static_cast<uint64_t>(seconds * 1e9)) {}
  void Check(const char* what) const {
    if (NowNanos() > end_ns_) Fail(std::string("the time is over while waiting for ") + what);
  }

 private:
  const uint64_t end_ns_;
};

// Our side: the subscriber, and what it writes.
class Subscriber {
 public:
  Subscriber() : reported_(hasher_) {
    const std::set<std::string> before = Threads();
    StatusOr<std::unique_ptr<EventSubscriber>> started = EventSubscriber::Start(&reported_);
    if (!started.ok()) Fail(std::string(started.status().message()));
    subscriber_ = *std::move(started);
    for (const std::string& thread : Threads()) {  // libzmq's begin with its first socket
      if (!before.contains(thread)) thread_ = thread;
    }
  }

  ReportedBlocks& reported() { return reported_; }
  const BlockHasher& hasher() const { return hasher_; }
  EventSubscriber& events() { return *subscriber_; }
  uint64_t CpuNanos() const { return CpuNanosOf(thread_); }

  // Of a worker of its own, whose slot is the number of the source.
  void Add(size_t slot, const std::string& endpoint, const std::string& replay_endpoint, uint64_t blocks) {
    const WorkerId worker{next_worker_++};
    sources_[slot] = {
        .worker = worker,
        .url = "http://w" + std::to_string(slot),
        .endpoint = endpoint,
        .replay_endpoint = replay_endpoint,
        .model = kModel};
    TellWorkers();
    reported_.SetGpuBlocks(worker, {{.rank = std::nullopt, .blocks = blocks}});
  }
  void AddWorkerWithoutSource(size_t slot) {
    without_source_[slot] = WorkerId{next_worker_++};
    TellWorkers();
  }
  WorkerId WorkerWithoutSource(size_t slot) const { return without_source_.at(slot); }
  void Remove(size_t slot) { sources_.erase(slot); }
  bool Has(size_t slot) const { return sources_.contains(slot); }
  WorkerId WorkerOf(size_t slot) const { return sources_.at(slot).worker; }

  void TellWorkers() {
    std::vector<ReportedBlocks::Known> known;
    for (const auto& [slot, source] : sources_)
      known.push_back({source.worker, static_cast<WorkerSlot>(slot)});
    for (const auto& [slot, worker] : without_source_)
      known.push_back({worker, static_cast<WorkerSlot>(slot)});
    reported_.SetWorkers(known);
  }
  void TellSources() {
    std::vector<KvSource> sources;
    for (const auto& [slot, source] : sources_) sources.push_back(source);
    subscriber_->SetSources(std::move(sources));
  }

  // The last report, by slot, of the sources that there are.
  std::map<size_t, KvSourceStatus> Report() const {
    std::map<size_t, KvSourceStatus> statuses;
    for (KvSourceStatus& status : subscriber_->Report()) {
      const size_t slot = std::strtoull(status.source.url.c_str() + 8, nullptr, 10);
      const auto found = sources_.find(slot);
      if (found != sources_.end() && found->second.worker == status.source.worker)
        statuses.emplace(slot, std::move(status));
    }
    return statuses;
  }

  void WaitUntilConnected(const Limit& limit, const std::function<void()>& meanwhile) {
    for (;;) {
      meanwhile();
      const std::map<size_t, KvSourceStatus> report = Report();
      const auto exact = [](const auto& entry) { return entry.second.trust == KvTrust::kExact; };
      if (report.size() == sources_.size() && std::ranges::all_of(report, exact)) return;
      limit.Check("the connections to all sources");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  // How many leading blocks of the prompt each worker holds.
  const BlockMatches& Match(const KvPrompt& prompt, size_t blocks) {
    std::vector<BlockHash> chain(blocks);
    hasher_.Hash(hasher_.Root({.lora_name = kModel}), TokensOf(prompt.seed, 0, blocks), chain);
    matches_.Clear();
    reported_.Merge(chain, true, &matches_);
    return matches_;
  }

 private:
  BlockHasher hasher_{kBlockTokens};
  ReportedBlocks reported_;
  std::unique_ptr<EventSubscriber> subscriber_;
  std::string thread_;
  std::map<size_t, KvSource> sources_;
  std::map<size_t, WorkerId> without_source_;
  uint32_t next_worker_ = 1;
  BlockMatches matches_;
};

std::string Describe(const KvSourceStatus& status) {
  std::string text = " lost " + std::to_string(status.lost_batches);
  for (const auto* counts : {&status.replays, &status.incarnations, &status.dropped}) {
    for (const auto& [label, count] : *counts) text += " " + std::string(label) + " " + std::to_string(count);
  }
  return text;
}

// The subscriber of a fleet.
class Stream {
 public:
  Stream(const Flags& flags, const KvFleetOptions& options)
      : options_(options), limit_(flags.Number("limit-seconds")), fleet_(options) {
    for (size_t i = 0; i < options.sources; ++i) {
      AddSource(i);
      state().sources[i].listening.store(true);
    }
    subscriber_.TellSources();
    subscriber_.WaitUntilConnected(limit_, [this] { Acknowledge(); });
  }

  Subscriber& subscriber() { return subscriber_; }
  KvFleetState& state() { return fleet_.state(); }
  const Limit& limit() const { return limit_; }
  const std::map<size_t, KvSourceStatus>& report() const { return report_; }

  void AddSource(size_t i) {
    const KvFleetState::Source& told = state().sources[i];
    subscriber_.Add(i, told.endpoint, told.replay_endpoint, options_.engine.blocks);
  }

  // Tells the fleet how far the subscriber is.
  void Acknowledge() {
    report_ = subscriber_.Report();
    for (const auto& [slot, status] : report_) {
      KvFleetState::Source& told = state().sources[slot];
      told.applied.store(status.next_number);
      told.incarnation.store(status.incarnation);
    }
  }

  void Pass() {
    Acknowledge();
    limit_.Check("events");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  // Until `goal` block-ops have been published; no longer than until everything is applied.
  void PublishUntil(uint64_t goal) {
    state().goal.store(goal);
    while (state().paused_at.load() != goal) Pass();
    while (!AllApplied()) Pass();
  }

  bool AllApplied() const {
    if (report_.size() != CountListening()) return false;
    for (const auto& [slot, status] : report_) {
      const KvFleetState::Source& told = const_cast<KvFleetProcess&>(fleet_).state().sources[slot];
      if (status.next_number != told.next.load() || status.held_bytes != 0) return false;
    }
    return true;
  }

  // Sources of which nothing is known, or that are not exact although the engine kept all that is missing.
  size_t CountDoubted() {
    return static_cast<size_t>(std::ranges::count_if(report_, [this](const auto& entry) {
      const KvTrust trust = entry.second.trust;
      return !IsUsable(trust) || (trust != KvTrust::kExact && !state().sources[entry.first].gap.load());
    }));
  }

  size_t CountListening() const {
    size_t count = 0;
    for (size_t i = 0; i < options_.sources; ++i) count += subscriber_.Has(i);
    return count;
  }

  // The number of differences between what is known of each source and what it holds. REQUIRES: the fleet pauses.
  int CountDifferences() {
    int differences = 0;
    const auto differs = [&](size_t slot, const std::string& what) {
      std::printf("DIFFERENCE: source %zu: %s\n", slot, what.c_str());
      ++differences;
    };
    for (const auto& [slot, status] : report_) {
      const KvFleetState::Source& told = state().sources[slot];
      const std::string trust(KvTrustName(status.trust));
      if (status.trust != KvTrust::kExact) {
        if (!IsUsable(status.trust) || !told.gap.load())
          differs(
              slot,
              "it is " + trust + " at batch " + std::to_string(status.next_number) + ":" + Describe(status));
        continue;
      }
      const uint64_t known = subscriber_.reported().BlockCounts(status.source.worker)[0];
      if (known != told.resident) {
        differs(
            slot,
            "it holds " + std::to_string(told.resident) + " blocks, and known are " + std::to_string(known));
      }
      for (size_t k = 0; k < told.held.count; ++k) {
        const KvPrompt& prompt = told.held.prompts[k];
        const BlockMatches& matches = subscriber_.Match(prompt, options_.engine.chain);
        const BlockMatch* const match = matches.Find(static_cast<WorkerSlot>(slot));
        const size_t depth = match != nullptr ? match->longest() : 0;
        if (depth != prompt.blocks || matches.size() != 1) {
          differs(
              slot, "of a prompt it holds " + std::to_string(prompt.blocks) + " blocks, and matched are " +
                        std::to_string(depth) + " for " + std::to_string(matches.size()) + " workers");
        }
      }
      for (size_t k = 0; k < told.gone.count; ++k) {
        if (!subscriber_.Match(told.gone.prompts[k], options_.engine.chain).empty())
          differs(slot, "a prompt that it evicted is matched");
      }
    }
    return differences;
  }

 private:
  const KvFleetOptions options_;
  const Limit limit_;
  KvFleetProcess fleet_;  // before there are threads
  Subscriber subscriber_;
  std::map<size_t, KvSourceStatus> report_;
};

KvFleetOptions FleetOptions(const Flags& flags, const char* prompts) {
  const std::string& given = flags.Text("prompts");
  return {
      .sources = std::min<size_t>(flags.Count("sources"), KvFleetState::kMaxSources - 1),
      .engine = {
          .seed = flags.Count("seed"),
          .blocks = flags.Count("blocks"),
          .prompts = std::strtoull(given.empty() ? prompts : given.c_str(), nullptr, 10)}};
}

double NumberOr(const Flags& flags, const char* name, double otherwise) {
  return flags.Text(name).empty() ? otherwise : flags.Number(name);
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

int Finish(Stream* stream) {
  const int differences = stream->CountDifferences();
  std::printf("differences between the engines' caches and the index: %d\n", differences);
  return differences == 0 ? 0 : 1;
}

// All caches full.
uint64_t Fill(Stream* stream, const KvFleetOptions& options) {
  const uint64_t goal =
      options.sources * (options.engine.blocks + options.engine.prompts * options.engine.chain);
  stream->PublishUntil(goal);
  return stream->state().published.load();
}

int Throughput(const Flags& flags) {
  const KvFleetOptions options = FleetOptions(flags, "9");
  Stream stream(flags, options);
  const auto ops = static_cast<uint64_t>(NumberOr(flags, "ops", 40e6));
  uint64_t published = Fill(&stream, options);
  std::vector<double> rates;
  for (uint64_t round = 0; round < flags.Count("rounds"); ++round) {
    const uint64_t cpu = stream.subscriber().CpuNanos();
    const uint64_t begin = NowNanos();
    stream.PublishUntil(published + ops);
    const auto wall = static_cast<double>(NowNanos() - begin) / 1e3;
    const auto used = static_cast<double>(stream.subscriber().CpuNanos() - cpu) / 1e3;
    const auto done = static_cast<double>(stream.state().published.load() - published);
    published = stream.state().published.load();
    rates.push_back(done / used);
    std::printf(
        "throughput: %.0f block-ops, %.2f M/s of the thread's CPU (%.1f ns each), %.2f M/s of wall time\n",
        done, done / used, 1000 * used / done, done / wall);
  }
  const double best = rates.empty() ? 0 : *std::ranges::max_element(rates);
  std::printf("throughput: best %.2f, median %.2f M block-ops/s\n", best, Median(rates));
  return Finish(&stream);
}

int MatchWhileWriting(const Flags& flags) {
  constexpr size_t kPrompts = 1024;
  constexpr size_t kHolders = 4;
  const KvFleetOptions options = FleetOptions(flags, "9");
  Stream stream(flags, options);
  Fill(&stream, options);
  // The prompts that are matched belong to a worker whose events never come: nothing changes them.
  Subscriber& subscriber = stream.subscriber();
  ReportedBlocks& reported = subscriber.reported();
  std::vector<std::vector<BlockHash>> chains;
  Random random(flags.Count("seed") + 1);
  for (size_t i = 0; i < kPrompts; ++i) {
    chains.emplace_back(options.engine.chain);
    subscriber.hasher().Hash(
        subscriber.hasher().Root({.lora_name = kModel}), TokensOf(random.Next(), 0, options.engine.chain),
        chains.back());
  }
  for (size_t holder = 0; holder < kHolders; ++holder) {
    const size_t slot = KvFleetState::kMaxSources + holder;
    subscriber.AddWorkerWithoutSource(slot);
    const WorkerId worker = subscriber.WorkerWithoutSource(slot);
    reported.SetTrust(worker, KvTrust::kExact);
    const WorkerSlot cache = reported.AddCache(worker).value();
    for (const std::vector<BlockHash>& chain : chains)
      reported.index().Insert(cache, Tier::kGpu, BlockRef(), chain, static_cast<BlockRef*>(nullptr));
  }
  BlockMatches matches;
  uint64_t matched = 0;
  const auto measure = [&](Histogram* histogram) {
    const uint64_t end = NowNanos() + static_cast<uint64_t>(flags.Number("seconds") * 1e9);
    for (uint64_t now = NowNanos(); now < end;) {
      const std::vector<BlockHash>& chain = chains[random.Below(kPrompts)];
      matches.Clear();
      const uint64_t begin = NowNanos();
      reported.Merge(chain, true, &matches);
      now = NowNanos();
      histogram->Add(now - begin);
      matched += matches.size();
    }
  };
  const auto rate = static_cast<uint64_t>(NumberOr(flags, "rate", 1e6));
  stream.state().rate.store(rate);
  std::vector<double> ratios;
  for (uint64_t round = 0; round < flags.Count("rounds"); ++round) {
    Histogram quiet;
    measure(&quiet);
    // Acknowledgements come from this thread, so nothing but the rate may stop the fleet meanwhile.
    const uint64_t before = stream.state().published.load();
    const uint64_t begin = NowNanos();
    std::atomic<bool> measured{false};
    std::thread acknowledging([&] {
      while (!measured.load()) {
        stream.Acknowledge();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
    stream.state().goal.store(UINT64_MAX);
    Histogram writing;
    measure(&writing);
    measured.store(true);
    acknowledging.join();
    const double seconds = static_cast<double>(NowNanos() - begin) / 1e9;
    const uint64_t published = stream.state().published.load();
    stream.PublishUntil(published);
    ratios.push_back(writing.Percentile(0.99) / quiet.Percentile(0.99));
    std::printf(
        "match: quiet p50 %.2f p99 %.2f us; at %.2f M block-ops/s p50 %.2f p99 %.2f us; p99 %.2f times\n",
        quiet.Percentile(0.5), quiet.Percentile(0.99),
        static_cast<double>(published - before) / seconds / 1e6, writing.Percentile(0.5),
        writing.Percentile(0.99), ratios.back());
  }
  std::printf(
      "match: p99 best %.2f, median %.2f times that without events; %llu workers matched\n",
      ratios.empty() ? 0 : *std::ranges::min_element(ratios), Median(ratios),
      static_cast<unsigned long long>(matched));
  return Finish(&stream);
}

// ---- Latency ---------------------------------------------------------------------------------------------

struct Due {
  uint64_t ns;
  size_t source;
  std::string payload;
  BlockHash marker;
};

// Sends each when it is due, and `is_visible(due)` tells of those under way, the oldest of each source first.
template <typename IsVisible>
void SendOpenLoop(
    std::vector<Due>* dues, std::vector<std::unique_ptr<KvPublisher>>* publishers, const Limit& limit,
    const IsVisible& is_visible, Histogram* histogram) {
  std::vector<std::deque<std::pair<uint64_t, const Due*>>> under_way(publishers->size());
  size_t waiting = 0;
  const auto look = [&] {
    for (auto& queue : under_way) {
      while (!queue.empty() && is_visible(*queue.front().second)) {
        histogram->Add(NowNanos() - queue.front().first);
        queue.pop_front();
        --waiting;
      }
    }
  };
  const uint64_t begin = NowNanos();
  for (Due& due : *dues) {
    const uint64_t at = begin + due.ns;
    while (NowNanos() < at) {
      if (waiting != 0) look();
    }
    (*publishers)[due.source]->Publish(std::move(due.payload));
    under_way[due.source].emplace_back(at, &due);
    ++waiting;
  }
  while (waiting != 0) {
    look();
    limit.Check("batches to become visible");
  }
}

// A thread that receives and does nothing else: what ZeroMQ alone costs.
class Receiver {
 public:
  explicit Receiver(const std::vector<std::unique_ptr<KvPublisher>>& publishers)
      : context_(ZmqContext::kMaxSockets), seen_(publishers.size()) {
    for (const std::unique_ptr<KvPublisher>& publisher : publishers) {
      sockets_.push_back(
          ZmqSocket::Open(context_, ZmqSocketType::kSub, {.receive_limit = 64, .subscriptions = {""}})
              .value());
      if (!sockets_.back().Connect(publisher->endpoint()).ok()) Fail("cannot connect to a publisher");
    }
    thread_ = std::thread([this] { Run(); });
  }
  ~Receiver() {
    stopping_.store(true);
    thread_.join();
  }
  uint64_t seen(size_t source) const { return seen_[source].load(std::memory_order_acquire); }

 private:
  void Run() {
    std::vector<std::string> frames;
    std::vector<ZmqPollItem> items;
    for (const ZmqSocket& socket : sockets_) items.push_back({.socket = &socket});
    while (!stopping_.load()) {
      ZmqPoll(items, 10);
      for (size_t i = 0; i < items.size(); ++i) {
        while (items[i].readable && sockets_[i].Receive(3, &frames) == ZmqReceive::kMessage)
          seen_[i].store(seen_[i].load(std::memory_order_relaxed) + 1, std::memory_order_release);
      }
    }
  }

  ZmqContext context_;
  std::vector<ZmqSocket> sockets_;
  std::vector<std::atomic<uint64_t>> seen_;  // batches
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

int Latency(const Flags& flags) {
  const KvFleetOptions options = FleetOptions(flags, "1");
  const Limit limit(flags.Number("limit-seconds"));
  Subscriber subscriber;
  ZmqContext context(ZmqContext::kMaxSockets);
  std::vector<std::unique_ptr<KvPublisher>> publishers;
  std::vector<std::unique_ptr<KvEngine>> engines;
  Random random(flags.Count("seed"));
  for (size_t i = 0; i < options.sources; ++i) {
    KvEngineOptions engine = options.engine;
    engine.seed = random.Next();
    engines.push_back(std::make_unique<KvEngine>(engine));
    publishers.push_back(std::make_unique<KvPublisher>(context, options.buffer));
    subscriber.Add(i, publishers[i]->endpoint(), publishers[i]->replay_endpoint(), engine.blocks);
  }
  subscriber.TellSources();
  const auto serve = [&] {
    for (const std::unique_ptr<KvPublisher>& publisher : publishers) publisher->ServeReplays();
  };
  subscriber.WaitUntilConnected(limit, serve);
  const auto settle = [&] {
    for (;;) {
      serve();
      const std::map<size_t, KvSourceStatus> report = subscriber.Report();
      const auto done = [&](const auto& e) { return e.second.next_number == publishers[e.first]->next(); };
      if (std::ranges::all_of(report, done)) return;
      limit.Check("the subscriber");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  };
  for (bool full = false; !full; settle()) {
    full = true;
    for (size_t i = 0; i < options.sources; ++i) {
      for (size_t k = 0; k < options.window; ++k) publishers[i]->Publish(engines[i]->Step());
      full = full && engines[i]->full();
    }
  }

  const double rate = NumberOr(flags, "rate", 8.5e6 / 4);
  const double batch_ops = 2.0 * static_cast<double>(options.engine.chain * options.engine.prompts);
  const BlockHash root = subscriber.hasher().Root({.lora_name = kModel});
  const auto prepare = [&] {
    std::vector<Due> dues;
    double at = 0;
    while (at < flags.Number("seconds")) {
      at += -std::log(1.0 - static_cast<double>(random.Next() >> 11) * 0x1p-53) * batch_ops / rate;
      const size_t source = random.Below(options.sources);
      Due due{
          .ns = static_cast<uint64_t>(at * 1e9),
          .source = source,
          .payload = engines[source]->Step(),
          .marker = 0};
      subscriber.hasher().Hash(
          root, TokensOf(engines[source]->prompts().back().seed, 0, 1), {&due.marker, 1});
      dues.push_back(std::move(due));
    }
    return dues;
  };

  std::vector<double> medians;
  std::vector<double> tails;
  std::vector<double> bare;
  const BlockIndex& index = subscriber.reported().index();
  for (uint64_t round = 0; round < flags.Count("rounds"); ++round) {
    Histogram visible;
    std::vector<Due> dues = prepare();
    const size_t bytes = dues.front().payload.size();
    BlockMatches matches;
    const auto is_matched = [&](const Due& due) {
      index.Match({&due.marker, 1}, &matches);
      return !matches.empty();
    };
    SendOpenLoop(&dues, &publishers, limit, is_matched, &visible);
    settle();
    medians.push_back(visible.Percentile(0.5));
    tails.push_back(visible.Percentile(0.99));
    std::printf(
        "latency: %zu batches of %zu B, sent to visible p50 %.0f p90 %.0f p99 %.0f us\n", dues.size(), bytes,
        visible.Percentile(0.5), visible.Percentile(0.9), visible.Percentile(0.99));
  }
  // The same load for a thread that only receives.
  subscriber.events().SetSources({});
  while (!subscriber.Report().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  Receiver receiver(publishers);
  std::vector<uint64_t> begun(options.sources, 0);
  for (size_t i = 0; i < options.sources; ++i) {  // until it hears them
    while (receiver.seen(i) == 0) {
      publishers[i]->Publish(engines[i]->Step());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      limit.Check("the receiver");
    }
  }
  for (uint64_t round = 0; round < flags.Count("rounds"); ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::vector<uint64_t> expected(options.sources);
    for (size_t i = 0; i < options.sources; ++i) expected[i] = receiver.seen(i);
    std::vector<Due> dues = prepare();
    for (Due& due : dues) due.marker = ++expected[due.source];
    Histogram received;
    const auto is_seen = [&](const Due& due) { return receiver.seen(due.source) >= due.marker; };
    SendOpenLoop(&dues, &publishers, limit, is_seen, &received);
    bare.push_back(received.Percentile(0.5));
    std::printf(
        "latency: sent to received alone p50 %.0f p90 %.0f p99 %.0f us\n", received.Percentile(0.5),
        received.Percentile(0.9), received.Percentile(0.99));
  }
  const auto best = [](const std::vector<double>& values) {
    return values.empty() ? 0 : *std::ranges::min_element(values);
  };
  std::printf(
      "latency: sent to visible p50 best %.0f median %.0f us, p99 best %.0f median %.0f us; received to "
      "visible p50 "
      "best %.0f median %.0f us\n",
      best(medians), Median(medians), best(tails), Median(tails), best(medians) - best(bare),
      Median(medians) - Median(bare));
  return 0;
}

// ---- Soak ------------------------------------------------------------------------------------------------

class Soak {
 public:
  Soak(const Flags& flags, const KvFleetOptions& options)
      : flags_(flags), options_(options), random_(flags.Count("seed") + 2), stream_(flags, options) {}

  int Run() {
    const auto ops = static_cast<uint64_t>(NumberOr(flags_, "ops", 1e9));
    begun_ns_ = next_line_ns_ = NowNanos();
    next_churn_ns_ = begun_ns_ + ChurnNanos();
    end_ns_ = begun_ns_ + static_cast<uint64_t>(flags_.Number("soak-seconds") * 1e9);
    const uint64_t shares = flags_.Count("shares");
    int failures = 0;
    // At the end of each share.
    std::vector<double> rss_mb;
    std::vector<double> used_mb;
    for (uint64_t share = 1; share <= shares && NowNanos() < end_ns_; ++share) {
      PublishUntil(ops * share / shares);
      const double untrimmed = static_cast<double>(RssKb()) / 1e3;
      ::malloc_trim(0);
      rss_mb.push_back(static_cast<double>(RssKb()) / 1e3);
      used_mb.push_back(static_cast<double>(HeapBytes()) / 1e6);
      std::printf(
          "share %llu of %llu: RSS %.1f MB, without what malloc keeps for later %.1f MB, in use %.1f MB\n",
          static_cast<unsigned long long>(share), static_cast<unsigned long long>(shares), untrimmed,
          rss_mb.back(), used_mb.back());
      failures += stream_.CountDifferences();
    }
    failures += CheckGrowth("in use", used_mb, 0.02) + CheckGrowth("RSS", rss_mb, 0.1);
    for (const auto& [slot, status] : stream_.report()) {
      if (status.trust == KvTrust::kWaiting) failures += Failed("a source is waiting");
    }
    Line();
    failures += RemoveAll();
    std::printf("soak: %s\n", failures == 0 ? "passed" : "FAILED");
    return failures == 0 ? 0 : 1;
  }

 private:
  uint64_t ChurnNanos() const { return static_cast<uint64_t>(flags_.Number("churn-seconds") * 1e9); }

  static int Failed(const char* what) {
    std::printf("FAILED: %s\n", what);
    return 1;
  }

  // The second fifth of the values against the last one. What is in use varies by 3 % with the phase of tables that
  // grow by half, and RSS by 10 % with how the heap is fragmented; medians vary less.
  static int CheckGrowth(const char* what, const std::vector<double>& mb, double most) {
    const size_t fifth = mb.size() / 5;
    if (fifth == 0) return 0;
    const double warm =
        Median({mb.begin() + static_cast<ptrdiff_t>(fifth), mb.begin() + 2 * static_cast<ptrdiff_t>(fifth)});
    const double last = Median({mb.end() - static_cast<ptrdiff_t>(fifth), mb.end()});
    std::printf(
        "memory %s: median of the second fifth of the shares %.1f MB, of the last %.1f MB, %+.2f %%\n", what,
        warm, last, 100 * (last / warm - 1));
    return last > (1 + most) * warm ? Failed("memory grew") : 0;
  }

  void PublishUntil(uint64_t goal) {
    KvFleetState& state = stream_.state();
    state.goal.store(goal);
    while (state.paused_at.load() != goal) {
      Churn();
      Pass();
      if (NowNanos() < end_ns_ || goal <= state.published.load()) continue;
      goal = state.published.load();
      state.goal.store(goal);
    }
    if (away_) Join();
    constexpr uint64_t kStableNs = 2 * kSecond;  // the fleet saw that nothing is lacking
    for (uint64_t since = NowNanos(); NowNanos() - since < kStableNs;) {
      Pass();
      if (!stream_.AllApplied()) since = NowNanos();
    }
    // An audit that found too many blocks stands until the next one, which may begin anew what it found.
    const uint64_t next_audit = NowNanos() + CacheAudit::kPeriodNanos + kStableNs;
    while ((stream_.CountDoubted() != 0 || !stream_.AllApplied()) && NowNanos() < next_audit) Pass();
  }

  void Pass() {
    stream_.Pass();
    const uint64_t now = NowNanos();
    if (now < next_line_ns_) return;
    next_line_ns_ = now + 10 * kSecond;
    Line();
  }

  // A source leaves, with its worker, and comes back as that of another worker.
  void Churn() {
    if (ChurnNanos() == 0 || NowNanos() < next_churn_ns_) return;
    next_churn_ns_ = NowNanos() + ChurnNanos() / 2;
    if (away_) return Join();
    away_slot_ = random_.Below(options_.sources);
    away_ = true;
    stream_.state().sources[away_slot_].listening.store(false);
    const auto gone = stream_.report().find(away_slot_);
    if (gone != stream_.report().end()) Count(gone->second);
    stream_.subscriber().Remove(away_slot_);
    if (churns_ % 2 == 0) {
      stream_.subscriber().TellSources();
      stream_.subscriber().TellWorkers();
    } else {
      stream_.subscriber().TellWorkers();
      stream_.subscriber().TellSources();
    }
    ++churns_;
  }

  void Join() {
    away_ = false;
    KvFleetState::Source& told = stream_.state().sources[away_slot_];
    told.applied.store(0);
    told.incarnation.store(0);
    told.gap.store(true);  // a replay may not reach back to the start
    stream_.AddSource(away_slot_);
    stream_.subscriber().TellSources();
    told.listening.store(true);
  }

  // What a source that leaves has counted.
  void Count(const KvSourceStatus& status) {
    lost_ += status.lost_batches;
    for (const auto& [label, count] : status.replays) replays_[std::string(label)] += count;
    for (const auto& [label, count] : status.incarnations) incarnations_[std::string(label)] += count;
    for (const auto& [label, count] : status.dropped) dropped_[std::string(label)] += count;
  }

  static std::string Text(const std::map<std::string, uint64_t>& counts) {
    std::string text;
    for (const auto& [label, count] : counts) text += " " + label + " " + std::to_string(count);
    return text.empty() ? " none" : text;
  }

  void Line() {
    const KvFleetState& state = stream_.state();
    std::map<std::string, uint64_t> trusts;
    uint64_t held = 0;
    uint64_t orphans = 0;
    uint64_t blocks = 0;
    const auto sums = std::tuple(lost_, replays_, incarnations_, dropped_);
    for (const auto& [slot, status] : stream_.report()) {
      ++trusts[std::string(KvTrustName(status.trust))];
      held += status.held_bytes;
      orphans += status.orphan_blocks;
      blocks += status.blocks[0];
      if (flags_.Count("verbose") > 0 && status.trust_seconds > 3 && !IsUsable(status.trust)) {
        std::printf(
            "source %zu is %s for %.0f s, connected %d, at batch %llu of %llu, holds %llu B;%s\n", slot,
            std::string(KvTrustName(status.trust)).c_str(), status.trust_seconds, status.connected,
            static_cast<unsigned long long>(status.next_number),
            static_cast<unsigned long long>(state.sources[slot].next.load()),
            static_cast<unsigned long long>(status.held_bytes), Describe(status).c_str());
      }
      Count(status);
    }
    const double seconds = static_cast<double>(NowNanos() - begun_ns_) / 1e9;
    const auto published = static_cast<double>(state.published.load());
    std::map<std::string, uint64_t> restarts;
    for (size_t i = 0; i < kRestartNames.size(); ++i) restarts[kRestartNames[i]] = state.restarts[i].load();
    std::printf(
        "%.0f s: %.1f M block-ops, %.2f M/s, events thread %.0f %%; RSS %.1f MB; trust%s; held %llu B, "
        "orphans %llu, "
        "blocks %llu; batches lost by the fleet %llu, for good %llu, by us %llu; replays%s; incarnations%s; "
        "dropped%s; "
        "restarts%s; clears %llu; sources that left %llu\n",
        seconds, published / 1e6, published / 1e6 / std::max(seconds, 1e-3),
        static_cast<double>(stream_.subscriber().CpuNanos()) / seconds / 1e7,
        static_cast<double>(RssKb()) / 1e3, Text(trusts).c_str(), static_cast<unsigned long long>(held),
        static_cast<unsigned long long>(orphans), static_cast<unsigned long long>(blocks),
        static_cast<unsigned long long>(state.lost.load()),
        static_cast<unsigned long long>(state.lost_beyond.load()), static_cast<unsigned long long>(lost_),
        Text(replays_).c_str(), Text(incarnations_).c_str(), Text(dropped_).c_str(), Text(restarts).c_str(),
        static_cast<unsigned long long>(state.clears.load()), static_cast<unsigned long long>(churns_));
    std::fflush(stdout);
    std::tie(lost_, replays_, incarnations_, dropped_) = sums;
  }

  // Nothing must be left of workers that have left.
  int RemoveAll() {
    Subscriber& subscriber = stream_.subscriber();
    for (size_t i = 0; i < options_.sources; ++i) {
      stream_.state().sources[i].listening.store(false);
      subscriber.Remove(i);
    }
    subscriber.TellSources();
    while (!subscriber.events().Report().empty()) {
      stream_.limit().Check("the end of all sources");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    subscriber.TellWorkers();
    while (subscriber.reported().index().Sweep(65'536)) {
    }
    const BlockIndexStats stats = subscriber.reported().index().stats();
    const std::string broken = subscriber.reported().index().CheckInvariants();
    std::printf(
        "all workers removed: owners %llu, runs %llu, blocks %llu, pairs %llu, %s; index %llu B, stale refs "
        "%llu\n",
        static_cast<unsigned long long>(stats.owners), static_cast<unsigned long long>(stats.runs),
        static_cast<unsigned long long>(stats.blocks), static_cast<unsigned long long>(stats.pairs),
        subscriber.reported().active() ? "active" : "not active",
        static_cast<unsigned long long>(stats.bytes), static_cast<unsigned long long>(stats.stale_refs));
    int failures = 0;
    if (stats.owners + stats.runs + stats.blocks + stats.pairs != 0) failures += Failed("something is left");
    if (subscriber.reported().active()) failures += Failed("a worker is left");
    if (!broken.empty()) failures += Failed(broken.c_str());
    return failures;
  }

  const Flags& flags_;
  const KvFleetOptions options_;
  Random random_;
  Stream stream_;
  uint64_t begun_ns_ = 0;
  uint64_t next_line_ns_ = 0;
  uint64_t next_churn_ns_ = 0;
  uint64_t end_ns_ = 0;
  bool away_ = false;
  size_t away_slot_ = 0;
  uint64_t churns_ = 0;
  // Of sources that left.
  uint64_t lost_ = 0;
  std::map<std::string, uint64_t> replays_;
  std::map<std::string, uint64_t> incarnations_;
  std::map<std::string, uint64_t> dropped_;
};

int RunSoak(const Flags& flags) {
  KvFleetOptions options = FleetOptions(flags, "9");
  options.engine.late_tails = true;
  options.lost = flags.Number("lost");
  options.beyond = flags.Number("lost-beyond");
  options.cleared = 0.0001;
  options.restart_seconds = flags.Number("restart-seconds");
  return Soak(flags, options).Run();
}

int Main(int argc, char** argv) {
  const Flags flags(argc, argv, Defaults());
  RaiseFileLimit();
  if (flags.Count("verbose") == 0) (void)ConfigureLog({.level = LogLevel::kError});
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string& mode = flags.Text("mode");
  if (mode == "throughput") return Throughput(flags);
  if (mode == "latency") return Latency(flags);
  if (mode == "match") return MatchWhileWriting(flags);
  if (mode == "soak") return RunSoak(flags);
  Fail("--mode is " + mode + "; there are: throughput latency match soak");
}

}  // namespace
}  // namespace vllm_router::bench

int main(int argc, char** argv) { return vllm_router::bench::Main(argc, argv); }
