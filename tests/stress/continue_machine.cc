// A model check of continuation/continue_machine.h: the real machine in every order of events, for all limits up to three
// continuations and two losses.
//
// Beside the machine runs a model of the world, which knows only events and actions: which connections are open, who holds
// a slot, what is sought, what the client got. Each step is checked against the world. Equal pairs of machine and world are
// visited once. A violation prints the shortest list of events that leads to it.
//
// The check is checked as well: machines with one deliberate mistake must each break the assertion named beside it. No
// threads here; the program is among the stress programs because sanitizers run those.
#include "continuation/continue_machine.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stress.h"

namespace vllm_router {
namespace {

using Step = ContinueActions (*)(ContinueMachine& machine, const ContinueEvent& event);
using Type = ContinueEventType;
using Action = ContinueAction;

// ---- the assertions

constexpr const char* kAllBack = "nothing is open, held or sought at the end";
constexpr const char* kOneEnd = "a client gets one end";
constexpr const char* kNoneAfterDeparture = "no end after the client's departure";
constexpr const char* kOnlyMatched = "only a stream that matched takes the place of the old one";
constexpr const char* kRightEnd =
    "the end is that of the old stream, or is written when only that is missing";
constexpr const char* kOldGoesOn = "a stream is not cut while its old connection could go on";
constexpr const char* kNoEarlyCut = "a stream is not cut while a continuation is permitted";
constexpr const char* kPermitted = "no continuation is sought beyond the limits";
constexpr const char* kMostLost = "not more workers are lost than permitted";
constexpr const char* kMostOpened = "not more continuations are opened than permitted";
constexpr const char* kLossReported = "each loss is reported once";
constexpr const char* kMethodOnce = "a method that failed by its nature is not used again";
constexpr const char* kHandoverFirst = "there is no hand-over after a loss, nor where none may be lost";
constexpr const char* kSpokenWins = "an old stream that speaks after a stall ends the hand-over";
constexpr const char* kSpeaksBeside = "an old stream that speaks during a drain changes nothing";
constexpr const char* kStandsStill = "what the client has stands still when another stream takes its place";
constexpr const char* kLegsFit = "connections are opened once, and closed while they are open";
constexpr const char* kReading = "a stream that nothing follows is read";
constexpr const char* kSlotFits = "a slot is held from the opening to the receipt";
constexpr const char* kSeekFits = "a target is sought once, while there is no new stream";
constexpr const char* kDeadEvents = "events of what is over do nothing";
constexpr const char* kGoesOn = "what is not over is read, sought or opened";
constexpr const char* kSameEnd = "the machine is over when the world is";
constexpr const char* kLeadsToEnd = "every state leads to an end";

// ---- the world

ContinueMethods Methods(std::initializer_list<ContinueMethod> each) {
  ContinueMethods methods;
  for (const ContinueMethod method : each) methods.Add(method);
  return methods;
}

ContinueMethods All() {
  return Methods({ContinueMethod::kRerun, ContinueMethod::kTokens, ContinueMethod::kParsedTokens});
}

// Bytes only, so that equal worlds have equal bytes.
struct World {
  bool old_open = true;
  bool old_paused = false;
  bool stalled = false;  // the hand-over is one of a stall
  bool new_open = false;
  bool beside = false;  // likewise, and the old one is not over
  bool new_receipt = false;
  bool slot = false;
  bool sought = false;
  bool ended = false;  // the client has an end
  bool gone = false;
  bool suspected = false;
  uint8_t losses = 0;
  uint8_t opened = 0;
  ContinueMethods left;                            // that have not failed
  ContinueMethods now;                             // that the place permits
  ContinueMethod method = ContinueMethod::kRerun;  // of the new stream

  bool over() const { return ended || gone; }
  bool handover() const { return old_open && (sought || new_open); }
};

bool IsOfOld(Type type) { return type <= Type::kOldTimeout; }
bool IsOfSeeking(Type type) { return type >= Type::kAdmitted && type <= Type::kWaitOver; }
bool IsOfNew(Type type) { return type >= Type::kNewReceipt && type <= Type::kNewShort; }
bool IsLoss(Type type) { return type == Type::kOldLost || type == Type::kNewLost; }
// The methods of the event count.
bool TellsPlace(Type type) { return IsOfOld(type) || type == Type::kDrain || type == Type::kStall; }

// The event cannot be in this world; the machine ignores it.
bool IsImpossible(const World& world, Type type) {
  if (world.over()) return true;
  if (IsOfOld(type) && !world.old_open) return true;
  if (world.old_paused && (type == Type::kOldSpoke || type == Type::kOldEnded)) return true;
  if ((type == Type::kDrain || type == Type::kStall) && (world.sought || world.new_open)) return true;
  if (IsOfSeeking(type) && !world.sought) return true;
  if (IsOfNew(type) && !world.new_open) return true;
  if (type == Type::kNewReceipt) return world.new_receipt;
  const bool is_of_text = type >= Type::kNewMatched && type <= Type::kNewShort;
  return is_of_text && !world.new_receipt;
}

// The event happens; then the actions are carried out, in their order. Returns the assertion that breaks.
class Checker {
 public:
  Checker(World& world, const ContinueEvent& event, const ContinueLimits& limits)
      : world_(world), event_(event), limits_(limits) {}

  const char* Check(const ContinueActions& actions, const ContinueMachine& after) {
    if (IsImpossible(world_, event_.type)) return actions.empty() ? nullptr : kDeadEvents;
    Happen();
    const bool moves = world_.handover() && !world_.old_paused && !world_.stalled;
    if (moves && actions.Has(Action::kPromote)) return kStandsStill;
    if (moves && event_.type == Type::kOldSpoke && !actions.empty()) return kSpeaksBeside;
    const bool could_go_on = world_.old_open && event_.type != Type::kOldTimeout;
    for (const Action action : actions) {
      if (action == Action::kCut && could_go_on && !world_.gone) return kOldGoesOn;
      if (const char* broken = Do(action, after)) return broken;
    }
    if (IsLoss(event_.type) != actions.Has(Action::kReportLoss)) return kLossReported;
    if (event_.type == Type::kOldSpoke && world_.stalled && world_.handover()) return kSpokenWins;
    return After(after);
  }

 private:
  void Happen() {
    const Type type = event_.type;
    if (TellsPlace(type) && !world_.sought && !world_.new_open) world_.now = event_.methods;
    if (IsLoss(type)) ++world_.losses;
    if (type == Type::kStall) world_.stalled = true;
    if (type == Type::kOldEnded || type == Type::kOldLost || type == Type::kOldAborted) {
      world_.old_open = world_.old_paused = false;
    }
    if (type >= Type::kOldLost && type <= Type::kOldTimeout && !event_.complete) CountBeside();
    if (IsOfSeeking(type)) world_.sought = false;
    if (type == Type::kAdmitted) world_.slot = true;
    if (type == Type::kNewFailed || type == Type::kNewLost || type == Type::kNewShort)
      world_.new_open = world_.beside = false;
    if (type == Type::kNewReceipt) world_.new_receipt = true;
    const bool fails = type == Type::kNewUnfit || type == Type::kNewDiffers || type == Type::kNewShort;
    if (fails) world_.left.Remove(world_.method);
    if (type == Type::kSuspected) world_.suspected = true;
    if (type == Type::kClientGone) world_.gone = true;
  }

  void CountBeside() {
    if (std::exchange(world_.beside, false)) ++world_.opened;
  }

  bool MaySeek() const {
    return !world_.suspected && world_.losses <= limits_.max_losses &&
           world_.opened < limits_.max_continuations && !world_.left.And(world_.now).empty();
  }

  const char* Do(Action action, const ContinueMachine& after) {
    if (action >= Action::kFinish && world_.gone) return kNoneAfterDeparture;
    if (action >= Action::kFinish && world_.ended) return kOneEnd;
    switch (action) {
      case Action::kReportLoss:
        return nullptr;
      case Action::kCancelSeek:
        return Lower(world_.sought, kSeekFits);
      case Action::kCloseNew:
        world_.beside = false;
        return Lower(world_.new_open, kLegsFit);
      case Action::kReleaseSlot:
        return Lower(world_.slot, kSlotFits);
      case Action::kCloseOld:
        world_.old_paused = false;
        return Lower(world_.old_open, kLegsFit);
      case Action::kPauseOld:
        if (!world_.old_open || world_.stalled || event_.type != Type::kNewMatched) return kLegsFit;
        return Raise(world_.old_paused, kLegsFit);
      case Action::kResumeOld:
        if (!world_.old_open) return kLegsFit;
        return Lower(world_.old_paused, kLegsFit);
      case Action::kPromote:
        if (event_.type != Type::kNewMatched) return kOnlyMatched;
        world_.new_receipt = false;
        CountBeside();
        if (world_.opened > limits_.max_continuations) return kMostOpened;
        if (const char* broken = Lower(world_.new_open, kLegsFit)) return broken;
        return Raise(world_.old_open, kLegsFit);
      case Action::kSeek:
        return Seek();
      case Action::kOpen:
        if (event_.type != Type::kAdmitted) return kSeekFits;
        world_.method = after.method();
        world_.new_receipt = false;
        if (!world_.left.And(world_.now).Has(world_.method)) return kMethodOnce;
        world_.beside = world_.old_open;
        if (!world_.beside) ++world_.opened;
        if (world_.opened + world_.beside > limits_.max_continuations) return kMostOpened;
        return Raise(world_.new_open, kLegsFit);
      case Action::kFinish:
        return event_.type == Type::kOldEnded ? End() : kRightEnd;
      case Action::kWriteEnd:
        return event_.complete ? End() : kRightEnd;
      case Action::kCut:
        if (MaySeek() && event_.type != Type::kNoTarget && event_.type != Type::kWaitOver) return kNoEarlyCut;
        return End();
    }
    return nullptr;
  }

  const char* Seek() {
    if (world_.new_open || world_.slot) return kSeekFits;
    if (event_.type == Type::kDrain || event_.type == Type::kStall) {
      if (world_.losses != 0 || limits_.max_losses == 0) return kHandoverFirst;
    }
    if (!MaySeek()) return kPermitted;
    return Raise(world_.sought, kSeekFits);
  }

  const char* End() {
    world_.ended = true;
    return nullptr;
  }

  static const char* Lower(bool& what, const char* otherwise) {
    return std::exchange(what, false) ? nullptr : otherwise;
  }
  static const char* Raise(bool& what, const char* otherwise) {
    return std::exchange(what, true) ? otherwise : nullptr;
  }

  const char* After(const ContinueMachine& after) {
    if (world_.losses > 1 + limits_.max_losses) return kMostLost;
    if (after.over() != world_.over()) return kSameEnd;
    if (!world_.handover()) world_.stalled = false;
    if (!world_.new_open) {  // what does not count any more makes no other state
      world_.new_receipt = false;
      world_.method = ContinueMethod::kRerun;
    }
    if (world_.over()) {
      const bool busy = world_.old_open || world_.new_open || world_.slot || world_.sought;
      return busy ? kAllBack : nullptr;
    }
    if (world_.slot != (world_.new_open && !world_.new_receipt)) return kSlotFits;
    if (world_.old_paused && !world_.handover()) return kReading;
    if (!world_.old_open && !world_.sought && !world_.new_open) return kGoesOn;
    return nullptr;
  }

  World& world_;
  const ContinueEvent& event_;
  const ContinueLimits& limits_;
};

// ---- the search

struct State {
  ContinueMachine machine;
  World world;
};
static_assert(std::has_unique_object_representations_v<ContinueMachine>);
static_assert(std::has_unique_object_representations_v<World>);

std::string KeyOf(const State& state) {
  std::string key(sizeof(ContinueMachine) + sizeof(World), '\0');
  std::memcpy(key.data(), &state.machine, sizeof(ContinueMachine));
  std::memcpy(key.data() + sizeof(ContinueMachine), &state.world, sizeof(World));
  return key;
}

struct Visited {
  State state;
  size_t parent;
  ContinueEvent event;
  std::vector<size_t> next;
};

struct Result {
  size_t states = 0;
  size_t transitions = 0;
  std::set<std::string> broken;
  std::string first_path;
  ContinueActions done;                                     // in any step
  std::set<std::pair<ContinueState, ContinueLeg>> reached;  // of the machine
  std::set<ContinueCut> cuts;
};

std::string Name(const ContinueEvent& event) {
  std::string name(ContinueEventName(event.type));
  if (event.complete) name += " complete";
  if (TellsPlace(event.type) && event.methods.empty()) name += " no_method";
  return name;
}

std::vector<ContinueEvent> Events() {
  std::vector<ContinueEvent> events;
  for (int i = 0; i < kContinueEventCount; ++i) {
    const auto type = static_cast<Type>(i);
    events.push_back({.type = type, .methods = TellsPlace(type) ? All() : ContinueMethods()});
    if (!TellsPlace(type)) continue;
    events.push_back({.type = type});
    events.push_back({.type = type, .methods = Methods({ContinueMethod::kParsedTokens})});
    const bool may_be_complete =
        type == Type::kOldLost || type == Type::kOldAborted || type == Type::kOldTimeout;
    if (may_be_complete) events.push_back({.type = type, .complete = true, .methods = All()});
  }
  return events;
}

std::string PathTo(const std::vector<Visited>& visited, size_t at, const ContinueEvent& last) {
  std::vector<std::string> names{Name(last)};
  for (; at != 0; at = visited[at].parent) names.push_back(Name(visited[at].event));
  std::string path;
  for (auto name = names.rbegin(); name != names.rend(); ++name) path += "\n    " + *name;
  return path;
}

// Each state from which none of the ends can be reached.
size_t CountStuck(const std::vector<Visited>& visited) {
  std::vector<std::vector<size_t>> before(visited.size());
  std::vector<size_t> open;
  std::vector<bool> ends(visited.size());
  for (size_t i = 0; i < visited.size(); ++i) {
    for (const size_t next : visited[i].next) before[next].push_back(i);
    if (visited[i].state.world.ended) {  // a client's departure would hide that a stream hangs
      ends[i] = true;
      open.push_back(i);
    }
  }
  while (!open.empty()) {
    const size_t at = open.back();
    open.pop_back();
    for (const size_t previous : before[at]) {
      if (ends[previous]) continue;
      ends[previous] = true;
      open.push_back(previous);
    }
  }
  size_t stuck = 0;
  for (size_t i = 0; i < visited.size(); ++i) stuck += !ends[i] && !visited[i].state.world.gone;
  return stuck;
}

// Ends early once the assertion `until` is broken.
Result Search(Step step, const ContinueLimits& limits, const char* until = nullptr) {
  Result result;
  const std::vector<ContinueEvent> events = Events();
  World world;
  world.losses = limits.losses;
  world.left = limits.methods;
  std::vector<Visited> visited{
      {.state = {ContinueMachine(limits), world}, .parent = 0, .event = {}, .next = {}}};
  std::unordered_map<std::string, size_t> known{{KeyOf(visited[0].state), 0}};
  const auto visit = [&](size_t at, const ContinueEvent& event) {
    State state = visited[at].state;
    ++result.transitions;
    const ContinueActions actions = step(state.machine, event);
    for (const Action action : actions) result.done.Add(action);
    if (const char* broken = Checker(state.world, event, limits).Check(actions, state.machine)) {
      if (result.broken.empty()) result.first_path = std::string(broken) + PathTo(visited, at, event);
      result.broken.insert(broken);
      return;
    }
    const auto [place, is_new] = known.emplace(KeyOf(state), visited.size());
    visited[at].next.push_back(place->second);
    if (is_new) visited.push_back({.state = state, .parent = at, .event = event, .next = {}});
  };
  for (size_t at = 0; at < visited.size(); ++at) {
    if (until != nullptr && result.broken.contains(until)) return result;
    const ContinueMachine machine = visited[at].state.machine;
    result.reached.emplace(machine.state(), machine.old_leg());
    result.cuts.insert(machine.why());
    if (visited[at].state.world.over()) continue;
    for (const ContinueEvent& event : events) visit(at, event);
  }
  result.states = visited.size();
  if (result.broken.empty() && CountStuck(visited) != 0) result.broken.insert(kLeadsToEnd);
  return result;
}

// ---- machines with a mistake

ContinueActions Right(ContinueMachine& machine, const ContinueEvent& event) { return machine.Step(event); }

ContinueActions WithoutAction(ContinueActions actions, Action action) {
  actions.Remove(action);
  return actions;
}

ContinueEvent As(ContinueEvent event, Type type) {
  event.type = type;
  return event;
}

ContinueLimits LimitsOfMutants() {
  return {.methods = All(), .max_continuations = 2, .max_losses = 1, .losses = 0};
}

struct Mutant {
  const char* mistake;
  const char* breaks;
  Step step;
};

constexpr Mutant kMutants[] = {
    {"the new connection is forgotten at the client's departure", kAllBack,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       const ContinueActions actions = machine.Step(event);
       return event.type == Type::kClientGone ? WithoutAction(actions, Action::kCloseNew) : actions;
     }},
    {"the search for a target goes on without a request", kAllBack,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       return WithoutAction(machine.Step(event), Action::kCancelSeek);
     }},
    {"a slot is held behind the receipt", kSlotFits,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       const ContinueActions actions = machine.Step(event);
       return event.type == Type::kNewReceipt ? WithoutAction(actions, Action::kReleaseSlot) : actions;
     }},
    {"a client that has gone gets an end", kNoneAfterDeparture,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       ContinueActions actions = machine.Step(event);
       if (event.type == Type::kClientGone && actions.Has(Action::kCancelSeek)) actions.Add(Action::kCut);
       return actions;
     }},
    {"a stream that differs goes to the client", kOnlyMatched,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       return machine.Step(event.type == Type::kNewDiffers ? As(event, Type::kNewMatched) : event);
     }},
    {"a failed attempt of a hand-over cuts the stream", kOldGoesOn,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       const bool fails = machine.is_handover() && event.type == Type::kNewFailed;
       ContinueActions actions = machine.Step(event);
       if (!fails || actions.empty()) return actions;
       actions.Remove(Action::kResumeOld);
       actions.Add(Action::kCloseOld);
       actions.Add(Action::kCut);
       return actions;
     }},
    {"a paused stream stays paused", kReading,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       return WithoutAction(machine.Step(event), Action::kResumeOld);
     }},
    {"a loss of the new worker counts as a failure", kLossReported,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       return machine.Step(event.type == Type::kNewLost ? As(event, Type::kNewFailed) : event);
     }},
    {"losses are reported, and not counted", kPermitted,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       const bool is_possible = machine.old_leg() != ContinueLeg::kNone && !machine.over();
       if (event.type != Type::kOldLost || !is_possible) return machine.Step(event);
       ContinueActions actions = machine.Step(As(event, Type::kOldAborted));
       if (!actions.Has(Action::kCut)) actions.Add(Action::kReportLoss);
       return actions;
     }},
    {"the old stream stays open beside the one that took its place", kLegsFit,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       const ContinueActions actions = machine.Step(event);
       return event.type == Type::kNewMatched ? WithoutAction(actions, Action::kCloseOld) : actions;
     }},
    {"an old stream that speaks is not heard", kSpokenWins,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       return event.type == Type::kOldSpoke ? ContinueActions() : machine.Step(event);
     }},
    {"an old stream that speaks during a drain is heard", kSpeaksBeside,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       ContinueActions actions = machine.Step(event);
       if (event.type == Type::kOldSpoke && machine.is_handover()) actions.Add(Action::kCloseNew);
       return actions;
     }},
    {"the first match of a drain is taken for the last", kStandsStill,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       const ContinueActions actions = machine.Step(event);
       return actions.Has(Action::kPauseOld) ? machine.Step(event) : actions;
     }},
    {"what was opened is forgotten when it matched", kPermitted,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       const ContinueActions actions = machine.Step(event);
       if (actions.Has(Action::kPromote)) machine = ContinueMachine(LimitsOfMutants());
       return actions;
     }},
    {"what was lost is forgotten when a stream matched", kHandoverFirst,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       const ContinueActions actions = machine.Step(event);
       if (actions.Has(Action::kPromote)) machine = ContinueMachine(LimitsOfMutants());
       return actions;
     }},
    {"a suspected request is continued", kPermitted,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       const bool is_live = machine.state() == ContinueState::kLive;
       return event.type == Type::kSuspected && is_live ? ContinueActions() : machine.Step(event);
     }},
    {"nothing follows when there is no target", kGoesOn,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       return event.type == Type::kNoTarget ? ContinueActions() : machine.Step(event);
     }},
    {"a method that differed is used again", kMethodOnce,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       const bool differs = event.type == Type::kNewDiffers && machine.state() == ContinueState::kVerifying;
       return machine.Step(differs ? As(event, Type::kNewTimeout) : event);
     }},
    {"a stream is cut when a first attempt fails", kNoEarlyCut,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       ContinueActions actions = machine.Step(event);
       if (event.type != Type::kNewFailed || !actions.Has(Action::kSeek)) return actions;
       actions.Remove(Action::kSeek);
       actions.Add(Action::kCut);
       return actions;
     }},
    {"a stream that lacks its text gets an end", kRightEnd,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       ContinueActions actions = machine.Step(event);
       if (!actions.Has(Action::kCut)) return actions;
       actions.Remove(Action::kCut);
       actions.Add(Action::kWriteEnd);
       return actions;
     }},
    {"a stream ends twice", kOneEnd,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       ContinueActions actions = machine.Step(event);
       if (actions.Has(Action::kWriteEnd)) actions.Add(Action::kCut);
       return actions;
     }},
    {"events of the new stream count before it is opened", kDeadEvents,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       ContinueActions actions = machine.Step(event);
       if (event.type == Type::kNewLost && actions.empty()) actions.Add(Action::kReportLoss);
       return actions;
     }},
    {"a target is sought a second time", kSeekFits,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       ContinueActions actions = machine.Step(event);
       if (event.type == Type::kOldLost && machine.state() == ContinueState::kSeeking)
         actions.Add(Action::kSeek);
       return actions;
     }},
    {"the machine does not know that it is over", kSameEnd,
     [](ContinueMachine& machine, const ContinueEvent& event) {
       const ContinueMachine before = machine;
       const ContinueActions actions = machine.Step(event);
       if (actions.Has(Action::kFinish)) machine = before;
       return actions;
     }},
};

}  // namespace
}  // namespace vllm_router

int main() {
  using namespace vllm_router;
  ContinueActions done;
  std::set<std::pair<ContinueState, ContinueLeg>> reached;
  std::set<ContinueCut> cuts;
  size_t states = 0;
  for (const ContinueMethods& methods : {All(), Methods({ContinueMethod::kRerun}), ContinueMethods()}) {
    for (uint8_t max_continuations = 0; max_continuations <= 3; ++max_continuations) {
      for (uint8_t max_losses = 0; max_losses <= 2; ++max_losses) {
        for (uint8_t losses = 0; losses <= std::min<uint8_t>(max_losses, 1); ++losses) {
          const ContinueLimits limits{
              .methods = methods,
              .max_continuations = max_continuations,
              .max_losses = max_losses,
              .losses = losses};
          const Result result = Search(&Right, limits);
          if (!result.broken.empty()) {
            std::fprintf(
                stderr, "max_continuations %d, max_losses %d, losses %d, broken: %s\n", max_continuations,
                max_losses, losses, result.first_path.c_str());
          }
          STRESS_CHECK(result.broken.empty());
          states += result.states;
          for (const ContinueAction action : result.done) done.Add(action);
          reached.insert(result.reached.begin(), result.reached.end());
          cuts.insert(result.cuts.begin(), result.cuts.end());
        }
      }
    }
  }
  std::printf("%zu states\n", states);
  STRESS_CHECK(states > 1000);
  for (int i = 0; i < kContinueActionCount; ++i) {
    const auto action = static_cast<ContinueAction>(i);
    if (!done.Has(action)) {
      std::fprintf(stderr, "never done: %s\n", std::string(ContinueActionName(action)).c_str());
    }
    STRESS_CHECK(done.Has(action));
  }
  // A stream that flows is read; three states with each of three legs, and one with a paused one; three ends without one.
  STRESS_CHECK(reached.size() == 1 + 3 * 3 + 1 + 3);
  STRESS_CHECK(cuts.size() == kContinueCutCount);
  for (const Mutant& mutant : kMutants) {
    const Result result = Search(mutant.step, LimitsOfMutants(), mutant.breaks);
    const bool caught = result.broken.contains(mutant.breaks);
    if (!caught) std::fprintf(stderr, "not caught: %s, by: %s\n", mutant.mistake, mutant.breaks);
    STRESS_CHECK(caught);
    std::printf(
        "%s: caught by \"%s\" after %zu transitions\n", mutant.mistake, mutant.breaks, result.transitions);
  }
  return 0;
}
