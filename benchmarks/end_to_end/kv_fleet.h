// KvFleet: the engines whose KV events kv_stream.cc subscribes to, in a process of their own.
//
//   this process                                     its child
//     EventSubscriber <-- loopback TCP, ZeroMQ ----- KvPublisher and KvEngine of each source
//     applied, incarnation, listening, goal -------> KvFleetState, memory of both
//     next, resident, samples, counts <-------------
//
// A source is at most `window` batches ahead of what the subscriber has applied, so that the fleet publishes as
// fast as the subscriber keeps up and no queue of libzmq overflows. If asked for, batches are lost, engines
// restart and clear their caches:
//
//   lost       never sent, but kept for replays; a share of these losses is longer than the buffer
//   restart    in turn: the ports close and open, and numbers begin with 0 · a second restart right after one, so
//              that the engine is at the subscriber's number when the connection is there again · or beyond it ·
//              numbers begin with 0 on ports that stay open
//   clear      AllBlocksCleared, soon after a loss beyond the buffer: the source may be exact again
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "common.h"
#include "kv_engine.h"
#include "kv_publisher.h"
#include "net/zmq_socket.h"

namespace vllm_router::bench {

struct KvFleetOptions {
  size_t sources = 64;
  KvEngineOptions engine;
  size_t buffer = 64;  // batches kept for replays
  size_t window = 32;
  double lost = 0;             // share of the batches
  double beyond = 0;           // of the losses, that exceed the buffer
  double cleared = 0;          // of the batches
  double restart_seconds = 0;  // between two restarts; 0: none
};

// Zeros are its initial state.
struct KvFleetState {
  static constexpr size_t kMaxSources = 256;
  static constexpr size_t kSamples = 8;

  struct Samples {
    size_t count;
    std::array<KvPrompt, kSamples> prompts;
  };
  struct Source {
    char endpoint[64];
    char replay_endpoint[64];
    // By the subscriber's process.
    std::atomic<bool> listening;
    std::atomic<uint64_t> applied;  // its next number
    std::atomic<uint32_t> incarnation;
    // By the publisher's.
    std::atomic<uint64_t> next;
    std::atomic<bool> gap;  // batches are missing that no replay has, since the last restart or clear
    // Of the time when `next` was set, while the fleet pauses.
    uint64_t resident;
    Samples held;
    Samples gone;
  };

  std::atomic<uint64_t> goal;       // block-ops; the fleet pauses there
  std::atomic<uint64_t> rate;       // block-ops per second; 0: as fast as the subscriber
  std::atomic<uint64_t> published;  // block-ops, those of lost batches included
  std::atomic<uint64_t> paused_at;  // this goal
  std::atomic<bool> ready;
  std::atomic<uint64_t> lost;  // batches
  std::atomic<uint64_t> lost_beyond;
  std::atomic<uint64_t> clears;
  std::array<std::atomic<uint64_t>, 4> restarts;
  std::array<Source, kMaxSources> sources;
};
inline constexpr std::array<const char*, 4> kRestartNames = {"lower", "equal", "higher", "open_ports"};

class KvFleet {
 public:
  KvFleet(const KvFleetOptions& options, KvFleetState* state)
      : options_(options),
        state_(*state),
        context_(ZmqContext::kMaxSockets),
        random_(options.engine.seed),
        next_restart_ns_(NowNanos() + RestartNanos()) {
    for (size_t i = 0; i < options_.sources; ++i) {
      KvEngineOptions engine = options_.engine;
      engine.seed = random_.Next();
      sources_.push_back(std::make_unique<Source>(context_, options_.buffer, engine));
      const KvPublisher& publisher = sources_.back()->publisher;
      CopyText(publisher.endpoint(), state_.sources[i].endpoint);
      CopyText(publisher.replay_endpoint(), state_.sources[i].replay_endpoint);
    }
    state_.ready.store(true);
  }

  [[noreturn]] void Run() {
    for (;;) {
      for (const std::unique_ptr<Source>& source : sources_) source->publisher.ServeReplays();
      const uint64_t goal = state_.goal.load();
      if (state_.published.load() >= goal) {
        Pause(goal);
        continue;
      }
      RestartOne();
      bool published = false;
      for (size_t i = 0; i < sources_.size(); ++i) {
        if (MayPublish(i)) published = PublishNext(i) || published;
      }
      if (!published) Wait();
    }
  }

 private:
  static constexpr uint64_t kSecond = 1'000'000'000;
  enum : size_t { kLower, kEqual, kHigher, kOpenPorts };  // as kRestartNames
  // A restart under the same connection may pass for late batches so long after a replay.
  static constexpr uint64_t kPatienceNs = 11 * kSecond;

  struct Source {
    Source(const ZmqContext& context, size_t buffer, const KvEngineOptions& options)
        : publisher(context, buffer), engine(options) {}
    KvPublisher publisher;
    KvEngine engine;
    std::deque<KvPrompt> gone;
    bool last_lost = false;
    bool listening = false;
    bool gated = false;  // until the subscriber has seen the restart
    uint32_t incarnation = 0;
    size_t second_restart = 0;  // 1 + the kind of one that is due
    uint64_t blocked_since_ns = 0;
  };

  static void CopyText(const std::string& from, char (&to)[64]) {
    std::memcpy(to, from.c_str(), std::min(from.size() + 1, sizeof to - 1));
  }
  uint64_t RestartNanos() const { return static_cast<uint64_t>(options_.restart_seconds * 1e9); }
  bool Chance(double share) { return static_cast<double>(random_.Next() >> 11) * 0x1p-53 < share; }

  // What the subscriber told of a source.
  void Notice(size_t i) {
    Source& source = *sources_[i];
    KvFleetState::Source& told = state_.sources[i];
    const bool listening = told.listening.load();
    const uint32_t incarnation = told.incarnation.load();
    if (listening && !source.listening) {
      source.gated = false;
    } else if (listening && incarnation != source.incarnation) {
      if (!source.gated) told.gap.store(true);  // it began anew, and a replay has no more than the buffer
      source.gated = false;
    }
    source.listening = listening;
    source.incarnation = incarnation;
  }

  bool MayPublish(size_t i) {
    Notice(i);
    Source& source = *sources_[i];
    const KvFleetState::Source& told = state_.sources[i];
    if (!source.listening) return source.publisher.next() != 0;
    const uint64_t next = source.publisher.next();
    const uint64_t applied = told.applied.load();
    if (source.second_restart != 0 && !source.gated && next >= options_.buffer / 4) {
      if (applied == next) Restart(i, source.second_restart - 1);
      return false;
    }
    const bool may = source.gated ? next < options_.buffer / 2
                                  : next < applied + options_.window || next < options_.window / 2;
    if (may) {
      source.blocked_since_ns = 0;
    } else if (source.blocked_since_ns == 0) {
      source.blocked_since_ns = NowNanos();
    } else if (NowNanos() - source.blocked_since_ns > kPatienceNs) {
      source.blocked_since_ns = 0;
      return true;
    }
    return may;
  }

  // False: its time has not come.
  bool PublishNext(size_t i) {
    const uint64_t rate = state_.rate.load();
    if (rate != 0) {
      const uint64_t now = NowNanos();
      if (rate != rate_) due_ns_ = now;
      if (now < due_ns_) {
        rate_ = rate;
        return false;
      }
    }
    rate_ = rate;
    const uint64_t before = state_.published.load();
    PublishOrLose(i);
    if (rate != 0) due_ns_ += (state_.published.load() - before) * kSecond / rate;
    return true;
  }

  void PublishOrLose(size_t i) {
    Source& source = *sources_[i];
    KvFleetState::Source& told = state_.sources[i];
    if (source.engine.full() && (Chance(options_.cleared) || (told.gap.load() && Chance(0.02)))) {
      Send(i, source.engine.Clear(), true);
      state_.clears.fetch_add(1);
      if (source.listening) told.gap.store(false);
      return;
    }
    if (!Chance(options_.lost)) return Send(i, source.engine.Step(), true);
    state_.lost.fetch_add(1);
    if (source.gated || !Chance(options_.beyond)) return Send(i, source.engine.Step(), false);
    for (size_t k = 0; k < source.publisher.buffer() + 8; ++k) Send(i, source.engine.Step(), false);
    state_.lost.fetch_add(source.publisher.buffer() + 7);
    state_.lost_beyond.fetch_add(8);
    told.gap.store(true);
    Send(i, source.engine.Step(), true);
  }

  void Send(size_t i, std::string payload, bool sent) {
    Source& source = *sources_[i];
    for (const KvPrompt& prompt : source.engine.evicted()) source.gone.push_back(prompt);
    while (source.gone.size() > KvFleetState::kSamples) source.gone.pop_front();
    source.publisher.Publish(std::move(payload), sent);
    source.last_lost = !sent;
    state_.sources[i].next.store(source.publisher.next());
    state_.published.fetch_add(source.engine.last_ops());
    // What it has not applied must be in the buffer.
    KvFleetState::Source& told = state_.sources[i];
    if (source.listening && !source.gated && told.applied.load() < source.publisher.first())
      told.gap.store(true);
  }

  void RestartOne() {
    if (options_.restart_seconds == 0 || NowNanos() < next_restart_ns_) return;
    next_restart_ns_ += RestartNanos();
    const size_t i = restart_source_++ % sources_.size();
    if (!sources_[i]->listening || sources_[i]->gated || sources_[i]->second_restart != 0) return;
    const size_t kind = restart_kind_++ % kRestartNames.size();
    Restart(i, kind == kOpenPorts ? kOpenPorts : kLower);
    if (kind == kEqual || kind == kHigher) sources_[i]->second_restart = 1 + kind;
  }

  void Restart(size_t i, size_t kind) {
    Source& source = *sources_[i];
    KvFleetState::Source& told = state_.sources[i];
    const uint64_t before = source.publisher.next();
    state_.restarts[kind].fetch_add(1);
    if (kind != kOpenPorts) source.publisher.Close();
    source.publisher.Restart();
    for (const KvPrompt& prompt : source.engine.prompts()) source.gone.push_back(prompt);
    source.engine.Restart();
    source.incarnation = told.incarnation.load();
    source.gated = source.listening;
    source.second_restart = 0;
    told.gap.store(!source.listening);
    if (kind == kEqual || kind == kHigher) {
      const uint64_t until = kind == kEqual ? before : before + 4;
      while (source.publisher.next() < until) Send(i, source.engine.Step(), false);
      source.last_lost = true;
    }
    if (kind != kOpenPorts) source.publisher.Open();
  }

  // The last batch of each source is sent, and once a second another one, while the subscriber lacks some.
  void Pause(uint64_t goal) {
    rate_ = 0;  // the next batch is due as soon as the fleet goes on
    const uint64_t now = NowNanos();
    const bool first = state_.paused_at.load() != goal;
    const bool again = now - paused_ns_ > kSecond;
    if (first || again) paused_ns_ = now;
    for (size_t i = 0; i < sources_.size(); ++i) {
      Source& source = *sources_[i];
      KvFleetState::Source& told = state_.sources[i];
      Notice(i);
      source.second_restart = 0;
      const bool lacks = source.listening && told.applied.load() != source.publisher.next();
      const bool talks = (first && source.last_lost) || (again && lacks);
      if (talks) Send(i, source.engine.Step(), true);
      if (!talks && !first) continue;
      told.resident = source.engine.resident();
      told.gone.count = told.held.count = 0;
      for (const KvPrompt& prompt : source.gone) {
        if (told.gone.count < KvFleetState::kSamples) told.gone.prompts[told.gone.count++] = prompt;
      }
      const std::deque<KvPrompt>& prompts = source.engine.prompts();
      for (size_t k = 0; k < KvFleetState::kSamples && !prompts.empty(); ++k)
        told.held.prompts[told.held.count++] =
            prompts[(prompts.size() - 1) * k / (KvFleetState::kSamples - 1)];
      told.next.store(source.publisher.next());
    }
    state_.paused_at.store(goal);
    Wait();
  }

  void Wait() {
    std::vector<ZmqPollItem> items;
    for (const std::unique_ptr<Source>& source : sources_)
      items.push_back({.socket = &source->publisher.replays()});
    ZmqPoll(items, 1);
  }

  const KvFleetOptions options_;
  KvFleetState& state_;
  ZmqContext context_;
  Random random_;
  std::vector<std::unique_ptr<Source>> sources_;
  uint64_t next_restart_ns_;
  size_t restart_source_ = 0;
  size_t restart_kind_ = 0;
  uint64_t rate_ = 0;
  uint64_t due_ns_ = 0;
  uint64_t paused_ns_ = 0;
};

// Starts the fleet in a child process and ends it with this object. REQUIRES: this process has one thread.
class KvFleetProcess {
 public:
  explicit KvFleetProcess(const KvFleetOptions& options) {
    void* const memory =
        ::mmap(nullptr, sizeof(KvFleetState), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) Fail("no memory to share with the publishers");
    state_ = static_cast<KvFleetState*>(memory);
    child_ = ::fork();
    if (child_ < 0) Fail("cannot start the process of the publishers");
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      KvFleet(options, state_).Run();
    }
    while (!state_->ready.load()) {
      ::usleep(1000);
      if (::waitpid(child_, nullptr, WNOHANG) != 0) Fail("the process of the publishers ended");
    }
  }
  ~KvFleetProcess() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    ::munmap(state_, sizeof(KvFleetState));
  }
  KvFleetProcess(const KvFleetProcess&) = delete;
  KvFleetProcess& operator=(const KvFleetProcess&) = delete;

  KvFleetState& state() { return *state_; }

 private:
  KvFleetState* state_ = nullptr;
  pid_t child_ = -1;
};

}  // namespace vllm_router::bench
