// What do prefix trees cost, and a plain one (plain_tree.h)? Chats that grow, made once and given to both in one run;
// equal checksums say that they found the same.
//
// By default the sizes are small, to see that everything works; PREFIX_TREE_BENCH=full takes those of
// docs/explanation/prefix_tree.md.
#include "index/prefix_tree.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/random.h"
#include "base/text.h"
#include "plain_tree.h"

namespace vllm_router::bench {
namespace {

bool IsFull() {
  const char* const size = std::getenv("PREFIX_TREE_BENCH");
  return size != nullptr && std::string_view(size) == "full";
}

uint64_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

uint64_t Nanos(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}
uint64_t Now() { return Nanos(CLOCK_MONOTONIC); }

template <typename Unit>
struct Request {
  std::vector<Unit> text;
  uint32_t worker;
};

// Chats of about `length` units that grow over five turns, of which six in ten begin with one of 64 system prompts; nine
// requests in ten go where their chat went before.
template <typename Unit>
std::vector<Request<Unit>> MakeChats(size_t length, uint32_t workers, size_t requests) {
  Random random(7);
  const auto extend = [&](std::vector<Unit>* text, size_t by) {
    for (size_t i = 0; i < by; ++i) {
      text->push_back(
          static_cast<Unit>(std::is_same_v<Unit, char> ? 'a' + random.Below(26) : random.Below(128'000)));
    }
  };
  std::vector<std::vector<Unit>> systems(64);
  for (auto& system : systems) extend(&system, length / 4 + random.Below(length / 4));
  struct Chat {
    std::vector<Unit> text;
    uint32_t worker = 0;
    int turns = 5;
  };
  std::vector<Chat> pool(std::max<size_t>(16, requests / 40));
  std::vector<Request<Unit>> made;
  for (size_t i = 0; i < requests; ++i) {
    Chat& chat = pool[random.Below(pool.size())];
    if (chat.turns == 5) {
      const uint64_t a = random.Below(64);
      chat = {.worker = static_cast<uint32_t>(random.Below(workers)), .turns = 0};
      if (random.Below(10) < 6) chat.text = systems[a * a / 64];
      extend(&chat.text, length / 2 + random.Below(length / 8) - std::min(chat.text.size(), length / 2));
    }
    const bool stays = random.Below(10) > 0;
    made.push_back({chat.text, stays ? chat.worker : static_cast<uint32_t>(random.Below(workers))});
    extend(&chat.text, length / 5 + random.Below(length / 10 + 1));
    ++chat.turns;
  }
  return made;
}

template <typename Unit>
constexpr uint32_t kPage = std::is_same_v<Unit, char> ? 1 : 16;

size_t Requests(size_t bytes) { return (IsFull() ? size_t{32} : size_t{4}) * 1024 * 1024 / bytes + 40; }

struct Times {
  std::vector<uint64_t> match;
  std::vector<uint64_t> insert;

  void Report(benchmark::State& state) {
    const auto median = [](std::vector<uint64_t>* times) {
      std::nth_element(
          times->begin(), times->begin() + static_cast<ptrdiff_t>(times->size() / 2), times->end());
      return static_cast<double>((*times)[times->size() / 2]);
    };
    state.counters["match_ns"] = median(&match);
    state.counters["insert_ns"] = median(&insert);
  }
};

template <typename Unit>
class OurTree {
 public:
  OurTree(uint32_t workers, uint64_t max_size) : tree_({.max_size = max_size, .page_size = kPage<Unit>}) {
    for (uint32_t i = 0; i < workers; ++i) owners_.push_back(tree_.AddWorker().value());
  }
  size_t Match(std::span<const Unit> text, PrefixMatches* matches) {
    tree_.Match(text, matches);
    return matches->best();
  }
  void Insert(std::span<const Unit> text, uint32_t worker, const PrefixMatches* matches) {
    tree_.Insert(text, owners_[worker], {}, matches);
  }
  PrefixTree<Unit>& tree() { return tree_; }
  WorkerSlot owner(uint32_t worker) const { return owners_[worker]; }

 private:
  PrefixTree<Unit> tree_;
  std::vector<WorkerSlot> owners_;
};

std::vector<std::string> Names(uint32_t workers) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < workers; ++i)
    names.push_back(Concat("http://10.0.", i / 256, ".", i % 256, ":8000"));
  return names;
}

// Match, then insert, without a limit that matters; medians of the second half.
template <typename Unit>
void BM_OurTree(benchmark::State& state) {
  const auto length = static_cast<size_t>(state.range(0)) / sizeof(Unit);
  const auto workers = static_cast<uint32_t>(state.range(1));
  const auto requests = MakeChats<Unit>(length, workers, Requests(length * sizeof(Unit)));
  for (auto _ : state) {
    OurTree<Unit> ours(workers, uint64_t{1} << 40);
    PrefixMatches matches;
    Times times;
    uint64_t checksum = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::vector<Unit> text = requests[i].text;
      const uint64_t begin = Now();
      checksum += (i + 1) * ours.Match(text, &matches);
      const uint64_t matched = Now();
      ours.Insert(text, requests[i].worker, &matches);
      if (i < requests.size() / 2) continue;
      times.match.push_back(matched - begin);
      times.insert.push_back(Now() - matched);
    }
    times.Report(state);
    const PrefixTreeStats stats = ours.tree().stats();
    state.counters["nodes"] = static_cast<double>(stats.nodes);
    state.counters["bytes_per_distinct"] =
        static_cast<double>(stats.memory) / static_cast<double>(stats.size);
    state.SetLabel("checksum " + Hex16(checksum));
  }
}

template <typename Unit>
void BM_PlainTree(benchmark::State& state) {
  const auto length = static_cast<size_t>(state.range(0)) / sizeof(Unit);
  const auto workers = static_cast<uint32_t>(state.range(1));
  const auto requests = MakeChats<Unit>(length, workers, Requests(length * sizeof(Unit)));
  const std::vector<std::string> names = Names(workers);
  for (auto _ : state) {
    const uint64_t before = HeapBytes();
    PlainTree<Unit> plain(kPage<Unit>);
    Times times;
    times.match.reserve(requests.size());
    times.insert.reserve(requests.size());
    uint64_t checksum = 0;
    std::string worker;
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::vector<Unit> text = requests[i].text;
      const uint64_t begin = Now();
      checksum += (i + 1) * plain.Match(text, &worker);
      const uint64_t matched = Now();
      plain.Insert(text, names[requests[i].worker]);
      if (i < requests.size() / 2) continue;
      times.match.push_back(matched - begin);
      times.insert.push_back(Now() - matched);
    }
    const uint64_t bytes = HeapBytes() - before - requests.size() * 16;
    times.Report(state);
    state.counters["nodes"] = static_cast<double>(plain.nodes());
    state.counters["bytes_per_distinct"] = static_cast<double>(bytes) / static_cast<double>(plain.size());
    state.SetLabel("checksum " + Hex16(checksum));
  }
}

// One shared tree, match and insert on each thread; per second of processor time, all threads together.
template <typename Step>
void RunThreads(benchmark::State& state, size_t count, Step step) {
  const auto threads = static_cast<size_t>(state.range(0));
  std::vector<double> rates(threads);
  {
    std::vector<std::jthread> running;
    for (size_t t = 0; t < threads; ++t) {
      running.emplace_back([&, t] {
        const uint64_t begin = Nanos(CLOCK_THREAD_CPUTIME_ID);
        size_t done = 0;
        for (size_t i = t; i < count; i += threads, ++done) step(i);
        rates[t] =
            static_cast<double>(done) * 1e9 / static_cast<double>(Nanos(CLOCK_THREAD_CPUTIME_ID) - begin);
      });
    }
  }
  double sum = 0;
  for (const double rate : rates) sum += rate;
  state.counters["per_second"] = sum;
}

void BM_OurTreeThreads(benchmark::State& state) {
  const auto requests = MakeChats<char>(1024, 64, Requests(1024));
  for (auto _ : state) {
    OurTree<char> ours(64, uint64_t{1} << 40);
    RunThreads(state, requests.size(), [&](size_t i) {
      static thread_local PrefixMatches matches;
      ours.Match(requests[i].text, &matches);
      ours.Insert(requests[i].text, requests[i].worker, &matches);
    });
  }
}

void BM_PlainTreeThreads(benchmark::State& state) {
  const auto requests = MakeChats<char>(1024, 64, Requests(1024));
  const std::vector<std::string> names = Names(64);
  for (auto _ : state) {
    PlainTree<char> plain(1);
    RunThreads(state, requests.size(), [&](size_t i) {
      static thread_local std::string worker;
      plain.Match(requests[i].text, &worker);
      plain.Insert(requests[i].text, names[requests[i].worker]);
    });
  }
}

// A full tree of so many nodes: what an insert costs that must make room, and the longest of them. Processor time, since
// others may run here; so what is longest is not how long somebody was not running.
void BM_Evict(benchmark::State& state) {
  const auto nodes = static_cast<uint64_t>(state.range(0));
  const auto order = static_cast<EvictionOrder>(state.range(1));
  constexpr size_t kLength = 64;
  for (auto _ : state) {
    StringTree tree({.max_size = nodes * kLength, .eviction = order});
    std::vector<WorkerSlot> owners;
    for (int i = 0; i < 64; ++i) owners.push_back(tree.AddWorker().value());
    Random random(3);
    std::string text(kLength, ' ');
    const auto fill = [&](std::string* text) {
      for (char& c : *text) c = static_cast<char>(random.Below(256));
    };
    while (tree.size() + 4 * kLength < nodes * kLength) {
      fill(&text);
      tree.Insert(text, owners[random.Below(64)]);
    }
    const uint64_t evicted = tree.stats().evicted;
    const size_t inserts = IsFull() ? 200'000 : 2'000;
    uint64_t longest = 0;
    uint64_t total = 0;
    for (size_t i = 0; i < inserts; ++i) {
      fill(&text);
      const WorkerSlot owner = owners[random.Below(64)];
      const uint64_t begin = Nanos(CLOCK_THREAD_CPUTIME_ID);
      tree.Insert(text, owner);
      const uint64_t took = Nanos(CLOCK_THREAD_CPUTIME_ID) - begin;
      longest = std::max(longest, took);
      total += took;
    }
    const auto pairs = static_cast<double>(tree.stats().evicted - evicted);
    state.counters["insert_ns"] = static_cast<double>(total) / static_cast<double>(inserts);
    state.counters["evicted_per_second"] = pairs * 1e9 / static_cast<double>(total);
    state.counters["longest_us"] = static_cast<double>(longest) / 1e3;
    state.counters["nodes"] = static_cast<double>(tree.stats().nodes);
    // The largest prompt pushes out thousands of small ones; what others wait for is one turn at the mutex.
    std::string large(1 << 20, ' ');
    fill(&large);
    uint64_t begin = Nanos(CLOCK_THREAD_CPUTIME_ID);
    tree.Insert(large, owners[0]);
    state.counters["megabyte_us"] = static_cast<double>(Nanos(CLOCK_THREAD_CPUTIME_ID) - begin) / 1e3;
    tree.RemoveWorker(owners[1]);
    longest = 0;
    for (bool more = true; more;) {
      begin = Nanos(CLOCK_THREAD_CPUTIME_ID);
      more = tree.Trim(256, nodes * kLength);
      longest = std::max(longest, Nanos(CLOCK_THREAD_CPUTIME_ID) - begin);
    }
    state.counters["sweep_slice_us"] = static_cast<double>(longest) / 1e3;
  }
}

void BM_PlainEvict(benchmark::State& state) {
  const auto nodes = static_cast<uint64_t>(state.range(0));
  const std::vector<std::string> names = Names(64);
  for (auto _ : state) {
    PlainTree<char> plain(1);
    Random random(3);
    std::string text(64, ' ');
    while (plain.size() < nodes * 64) {
      for (char& c : text) c = static_cast<char>(random.Below(256));
      plain.Insert(text, names[random.Below(64)]);
    }
    const uint64_t before = plain.nodes();
    const uint64_t begin = Nanos(CLOCK_THREAD_CPUTIME_ID);
    plain.Evict(plain.size() * 9 / 10);
    const auto took = static_cast<double>(Nanos(CLOCK_THREAD_CPUTIME_ID) - begin);
    state.counters["evicted_per_second"] = static_cast<double>(before - plain.nodes()) * 1e9 / took;
    state.counters["longest_us"] = took / 1e3;
  }
}

void Lengths(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"bytes", "workers"})->Iterations(1)->Unit(benchmark::kMillisecond);
  for (const int64_t bytes : {1024, 8192, 65'536, 524'288}) {
    for (const int64_t workers : {8, 256}) bench->Args({bytes, workers});
  }
}

void Threads(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"threads"})->Iterations(1)->Unit(benchmark::kMillisecond)->Arg(1)->Arg(2);
}

int64_t Nodes() { return IsFull() ? 1'000'000 : 10'000; }

void Orders(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"nodes", "order"})->Iterations(1)->Unit(benchmark::kMillisecond);
  for (int64_t order = 0; order < 6; ++order) bench->Args({Nodes(), order});
}

BENCHMARK_TEMPLATE(BM_OurTree, char)->Name("StringTree")->Apply(Lengths);
BENCHMARK_TEMPLATE(BM_PlainTree, char)->Name("PlainTree/text")->Apply(Lengths);
BENCHMARK_TEMPLATE(BM_OurTree, uint32_t)->Name("TokenTree")->Apply(Lengths);
BENCHMARK_TEMPLATE(BM_PlainTree, uint32_t)->Name("PlainTree/tokens")->Apply(Lengths);
BENCHMARK(BM_OurTreeThreads)->Name("StringTree/match_and_insert")->Apply(Threads);
BENCHMARK(BM_PlainTreeThreads)->Name("PlainTree/match_and_insert")->Apply(Threads);
BENCHMARK(BM_Evict)->Name("StringTree/evict")->Apply(Orders);
BENCHMARK(BM_PlainEvict)
    ->Name("PlainTree/evict")
    ->ArgNames({"nodes"})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond)
    ->Arg(Nodes());

}  // namespace
}  // namespace vllm_router::bench
