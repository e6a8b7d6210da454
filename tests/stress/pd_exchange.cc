// PdExchange, its legs and all below them under a scheduler: the router's own code on one thread, in as many orders of
// events as there is time for. Clients, workers and the clock are a World (pd_world.h), which does nothing but what is
// chosen here:
//
//   search   every sequence of choices up to a length, shortest first; what leads to a state that was seen is not extended
//   walks    long random sequences, with rare events, several clients and long texts
//
//   stress_pd_exchange                                   # a few seconds, for CI
//   stress_pd_exchange search nixl/stream 100000         # paths of one scenario
//   stress_pd_exchange walks 1000000 7                   # number, seed
//   stress_pd_exchange replay nixl/stream 'client 0 sends' 'P0 #0 accepts' …
//
// After each sequence workers are silent and time passes, until each client has a response or none can come; then
// all must be back: tickets, connections, permits, memory, claims, descriptors. A violation is shortened and printed as
// the command that replays it. What a path has reached is not compared by the whole state of the router, so a search
// may miss what only differs inside; the walks do not leave anything out. No threads here; the program is among the
// stress programs because sanitizers run those.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "pd_world.h"

// Of ASan and TSan; null without them.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace vllm_router {
namespace {

using Path = std::vector<std::string>;

std::vector<Scenario> Scenarios() {
  std::vector<Scenario> scenarios{
      {.name = "nixl/stream", .connector = "nixl"},
      {.name = "nixl/whole", .connector = "nixl", .stream = false},
      {.name = "nixl_push/stream", .connector = "nixl_push", .knows_identities = true},
      {.name = "nixl_push/whole", .connector = "nixl_push", .knows_identities = true, .stream = false},
      {.name = "sglang/stream", .connector = "sglang"},
  };
  const size_t plain = scenarios.size();
  scenarios.push_back({.name = "nixl/merge", .connector = "nixl", .stream = false, .merges = true});
  scenarios.push_back({.name = "nixl/collect", .connector = "nixl", .orphan = PdOrphan::kCollect});
  scenarios.push_back(
      {.name = "nixl/alone", .connector = "nixl", .on_prefill_loss = PdOnPrefillLoss::kLocal});
  scenarios.push_back(
      {.name = "nixl_push/alone",
       .connector = "nixl_push",
       .knows_identities = true,
       .on_prefill_loss = PdOnPrefillLoss::kLocal});
  scenarios.push_back(
      {.name = "nixl_push/merge",
       .connector = "nixl_push",
       .knows_identities = true,
       .stream = false,
       .merges = true});
  for (size_t i = 0; i < plain; ++i) {
    Scenario rare = scenarios[i];
    rare.name += "/rare";
    rare.rare = true;
    rare.clients = 3;
    scenarios.push_back(rare);
    rare.name = scenarios[i].name + "/long";
    rare.long_texts = true;
    scenarios.push_back(rare);
  }
  return scenarios;
}

std::vector<std::string> running;  // printed if the process dies

void PrintCommand(const std::string& scenario, const Path& path) {
  std::fprintf(stderr, "stress_pd_exchange replay %s", scenario.c_str());
  for (const std::string& name : path) std::fprintf(stderr, " '%s'", name.c_str());
  std::fprintf(stderr, "\n");
}

void PrintRunning() {
  std::fprintf(stderr, "the process dies, at the end of:\n");
  if (!running.empty()) PrintCommand(running.front(), Path(running.begin() + 1, running.end()));
}

void OnDeath(int signal) {
  PrintRunning();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

const Choice* Find(const std::vector<Choice>& choices, const std::string& name) {
  for (const Choice& choice : choices) {
    if (choice.name == name) return &choice;
  }
  return nullptr;
}

void Take(World& world, const Choice& choice) {
  running.push_back(choice.name);
  world.Take(choice);
}

struct Outcome {
  std::optional<std::string> violation;
  size_t missing = 0;  // names that were no choice
  std::string state;   // at the end of the path
  std::vector<std::string> choices;
};

Outcome Run(const Scenario& scenario, const Path& path) {
  Outcome outcome;
  running = {scenario.name};
  // What is wrong leaves coroutines behind.
  auto world = std::make_unique<World>(scenario);
  try {
    for (const std::string& name : path) {
      const std::vector<Choice> choices = world->Choices();
      const Choice* const choice = Find(choices, name);
      if (choice == nullptr) {
        ++outcome.missing;
        continue;
      }
      Take(*world, *choice);
    }
    outcome.state = world->Fingerprint();
    for (const Choice& choice : world->Choices()) outcome.choices.push_back(choice.name);
    world->RunOut();
  } catch (const Violation& violation) {
    outcome.violation = violation.what;
    (void)world.release();
  }
  return outcome;
}

// Without each step that is not needed to break the same.
Path Shortened(const Scenario& scenario, Path path) {
  for (bool shorter = true; shorter;) {
    shorter = false;
    for (size_t i = path.size(); i-- > 0;) {
      Path fewer = path;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      const Outcome outcome = Run(scenario, fewer);
      if (!outcome.violation || outcome.missing != 0) continue;
      path = std::move(fewer);
      shorter = true;
    }
  }
  return path;
}

[[noreturn]] void Report(const Scenario& scenario, const Path& path, const std::string& what) {
  std::fprintf(stderr, "%s: not true: %s\nin %zu steps:\n", scenario.name.c_str(), what.c_str(), path.size());
  PrintCommand(scenario.name, path);
  const Path fewer = Shortened(scenario, path);
  const Outcome outcome = Run(scenario, fewer);
  std::fprintf(stderr, "shortened: not true: %s\n", outcome.violation.value_or("(not repeated)").c_str());
  PrintCommand(scenario.name, fewer);
  std::_Exit(1);
}

void Search(const Scenario& scenario, size_t most_paths) {
  std::deque<Path> open{{}};
  std::unordered_set<std::string> seen;
  size_t paths = 0, depth = 0;
  for (; !open.empty() && paths < most_paths; ++paths) {
    const Path path = std::move(open.front());
    open.pop_front();
    const Outcome outcome = Run(scenario, path);
    if (outcome.violation) Report(scenario, path, *outcome.violation);
    depth = path.size();
    if (!seen.insert(outcome.state).second) continue;
    for (const std::string& name : outcome.choices) {
      open.push_back(path);
      open.back().push_back(name);
    }
  }
  std::printf(
      "search %s: %zu paths, %zu states, length %zu%s\n", scenario.name.c_str(), paths, seen.size(), depth,
      open.empty() ? ", all" : "");
  std::fflush(stdout);
}

const Choice& Draw(const std::vector<Choice>& choices, Random& random) {
  uint64_t sum = 0;
  for (const Choice& choice : choices) sum += static_cast<uint64_t>(choice.weight);
  uint64_t drawn = random.Below(sum);
  for (const Choice& choice : choices) {
    if (drawn < static_cast<uint64_t>(choice.weight)) return choice;
    drawn -= static_cast<uint64_t>(choice.weight);
  }
  return choices.back();
}

size_t Walk(const Scenario& scenario, uint64_t seed) {
  constexpr uint64_t kMostSteps = 60;
  Random random(seed);
  const uint64_t steps = 3 + random.Below(kMostSteps);
  Path path;
  running = {scenario.name};
  auto world = std::make_unique<World>(scenario);
  try {
    for (uint64_t i = 0; i < steps; ++i) {
      const std::vector<Choice> choices = world->Choices();
      if (choices.empty()) break;
      const Choice& choice = Draw(choices, random);
      path.push_back(choice.name);
      Take(*world, choice);
    }
    world->RunOut();
  } catch (const Violation& violation) {
    (void)world.release();
    std::fprintf(stderr, "walk with seed %llu\n", static_cast<unsigned long long>(seed));
    Report(scenario, path, violation.what);
  }
  return path.size();
}

void Walks(size_t count, uint64_t seed) {
  const std::vector<Scenario> scenarios = Scenarios();
  size_t steps = 0;
  for (size_t i = 0; i < count; ++i) {
    steps += Walk(scenarios[i % scenarios.size()], seed + i);
    if (i % 10'000 == 9'999) {
      std::printf("%zu walks, %zu steps\n", i + 1, steps);
      std::fflush(stdout);
    }
  }
  std::printf("%zu walks from seed %llu, %zu steps\n", count, static_cast<unsigned long long>(seed), steps);
}

const Scenario* FindScenario(const std::vector<Scenario>& scenarios, const std::string& name) {
  for (const Scenario& scenario : scenarios) {
    if (scenario.name == name) return &scenario;
  }
  std::fprintf(stderr, "no scenario %s; there are:", name.c_str());
  for (const Scenario& scenario : scenarios) std::fprintf(stderr, " %s", scenario.name.c_str());
  std::fprintf(stderr, "\n");
  return nullptr;
}

size_t NumberOr(const std::vector<std::string>& arguments, size_t index, size_t otherwise) {
  return index < arguments.size() ? std::strtoull(arguments[index].c_str(), nullptr, 10) : otherwise;
}

int Main(const std::vector<std::string>& arguments) {
  SetLogLevel(LogLevel::kOff);
  std::signal(SIGABRT, OnDeath);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(PrintRunning);
  } else {
    std::signal(SIGSEGV, OnDeath);
  }
  constexpr size_t kSearchInCi = 120;  // paths of each scenario
  constexpr size_t kWalksInCi = 300;
  const std::vector<Scenario> scenarios = Scenarios();
  const std::string what = arguments.empty() ? "" : arguments[0];
  if (what.empty()) {
    for (const Scenario& scenario : scenarios) {
      if (!scenario.rare) Search(scenario, kSearchInCi);
    }
    Walks(kWalksInCi, 1);
    return 0;
  }
  if (what == "walks") {
    Walks(NumberOr(arguments, 1, kWalksInCi), NumberOr(arguments, 2, 1));
    return 0;
  }
  if ((what != "search" && what != "replay") || arguments.size() < 2) {
    std::fprintf(
        stderr,
        "usage: stress_pd_exchange [walks [N [SEED]] | search SCENARIO [N] | replay SCENARIO STEP…]\n");
    return 2;
  }
  const Scenario* const scenario = FindScenario(scenarios, arguments[1]);
  if (scenario == nullptr) return 2;
  if (what == "search") {
    Search(*scenario, NumberOr(arguments, 2, kSearchInCi));
    return 0;
  }
  const Outcome outcome = Run(*scenario, Path(arguments.begin() + 2, arguments.end()));
  if (outcome.missing != 0) std::printf("%zu steps were not possible\n", outcome.missing);
  std::printf("state: %s\n", outcome.state.c_str());
  for (const std::string& name : outcome.choices) std::printf("next: %s\n", name.c_str());
  std::printf(
      "%s\n", outcome.violation ? ("not true: " + *outcome.violation).c_str() : "all is as it must be");
  return outcome.violation ? 1 : 0;
}

}  // namespace
}  // namespace vllm_router

int main(int count, char** arguments) {
  return vllm_router::Main(std::vector<std::string>(arguments + 1, arguments + count));
}
