// A model check of disaggregation/pd_machine.h: the real machine in every order of events, for up to three attempts.
//
// Beside the machine runs a model of the world, which knows only events and actions: what is connected, which
// tickets and claims are out, what the client got. Each step is checked against the world. Equal pairs of
// machine and world are visited once. A violation prints the shortest list of events that leads to it.
//
// The check is checked as well: machines with one deliberate mistake must each break the assertion named
// beside it. No threads here; the program is among the stress programs because sanitizers run those.
#include "disaggregation/pd_machine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stress.h"

namespace vllm_router {
namespace {

using Step = PdActions (*)(PdMachine& machine, const PdEvent& event);

constexpr uint8_t kAttempts = 3;
constexpr uint8_t kAttemptsOfMutants = 2;  // enough for every mistake

// ---- the assertions

constexpr const char* kAllBack = "legs are over and tickets back at the end";
constexpr const char* kOneResponse = "a client gets one response";
constexpr const char* kNoneAfterDeparture = "no response after the client's departure";
constexpr const char* kNoErrorHead = "no error head after a body byte";
constexpr const char* kRetryClean = "no retry with an open leg or ticket";
constexpr const char* kRetryInTime = "no retry after a body byte or a departure";
constexpr const char* kPStays = "P is not closed while a vLLM D waits";
constexpr const char* kNotTogether = "P and a vLLM D that waits are not closed together";
constexpr const char* kEndsWithResponse = "no end without a response";
constexpr const char* kOwnParameters = "parameters are of the same attempt, or of a claim that no D has seen";
constexpr const char* kClaimOnce = "a claim ends exactly once";
constexpr const char* kOrphanUnseen = "an orphaned claim was seen by no D";
constexpr const char* kOneLost = "no D with parameters after one was lost";
constexpr const char* kLocalStays = "a local request gets no parameters";
constexpr const char* kFlowGoesOn = "a response that flows is not cut because P's connection was lost";
constexpr const char* kTransferNeutral = "a transfer that failed does not count against D";
constexpr const char* kDepartureNeutral = "the client's departure and kept legs count for no worker";
constexpr const char* kDeadLegs = "events of legs that are over do nothing";
constexpr const char* kLegsFit = "legs are opened once, and closed or kept while they are open";
constexpr const char* kTicketsFit = "tickets go back once";
constexpr const char* kLeadsToEnd = "every state leads to an end";

// ---- the world

// Bytes only, so that equal worlds have equal bytes.
struct World {
  PdOrder order = PdOrder::kSerial;
  uint8_t attempts = 0;
  bool choosing = true;
  bool p_open = false;  // connected, kept as well
  bool d_open = false;
  bool p_kept = false;
  bool d_kept = false;
  bool p_ticket = false;
  bool d_ticket = false;
  bool d_sent = false;
  bool d_parameters = false;
  bool begun = false;
  bool gone = false;
  bool responded = false;  // it has an error, or D's response to its end, cut or whole
  bool lost = false;       // a D of this request was
  bool local = false;
  bool claim = false;
  bool claim_seen = false;
  bool claim_own = false;  // of this attempt
  bool ended = false;

  bool d_waits() const { return d_open && d_sent && d_parameters && !begun && order != PdOrder::kSglang; }
};

bool IsOfP(PdEventType type) { return type >= PdEventType::kPOkWhole && type <= PdEventType::kPTimeout; }
bool IsOfD(PdEventType type) { return type >= PdEventType::kDSent && type <= PdEventType::kDTimeout; }

// A response of D, or a part of one.
bool IsResponseOfD(PdEventType type) {
  return type >= PdEventType::kDHead && type <= PdEventType::kDEngineDead;
}

// D's connection or reservation is over after it.
bool EndsD(PdEventType type) { return type >= PdEventType::kDDone && type <= PdEventType::kDLost; }

// What cannot come in a response that flows, or once the request has left; the machine ignores it.
bool IsIgnored(const World& world, PdEventType type) {
  if (type == PdEventType::kDIneligible && (world.d_sent || world.d_kept)) return true;
  if (!world.begun || world.gone || world.responded) return false;
  return IsResponseOfD(type) && type != PdEventType::kDDone;
}

// The event happens; then the actions are carried out, in their order. `over`: the machine is, after them. Returns the
// assertion that breaks.
class Checker {
 public:
  Checker(World& world, const PdEvent& event, PdCancelPrefill cancel)
      : world_(world), event_(event), cancel_(cancel), before_(world) {}

  const char* Check(const PdActions& actions, bool over) {
    const PdEventType type = event_.type;
    const bool dead = (IsOfP(type) && !world_.p_open) || (IsOfD(type) && !world_.d_open);
    if (world_.ended || dead || IsIgnored(world_, type)) return actions.empty() ? nullptr : kDeadLegs;
    Happen(actions);
    for (const PdAction action : actions) {
      if (const char* broken = Do(action)) return broken;
    }
    if (const char* broken = After(actions)) return broken;
    if (over) return End();
    Forget();
    return nullptr;
  }

 private:
  void Happen(const PdActions& actions) {
    const PdEventType type = event_.type;
    if (type == PdEventType::kPlanned) Plan(event_.plan);
    if (type == PdEventType::kDSent || IsResponseOfD(type)) world_.d_sent = true;
    if (world_.claim && world_.d_sent && world_.d_parameters && world_.d_open) world_.claim_seen = true;
    const bool lost_now = type == PdEventType::kDLost || type == PdEventType::kDEngineDead ||
                          (type == PdEventType::kDUnreached && world_.d_sent);
    if (lost_now && !world_.d_kept) world_.lost = true;
    if (EndsD(type)) {
      world_.d_open = world_.d_kept = false;
      if (Flows()) world_.responded = true;
    }
    if (IsOfP(type)) HappenAtP(actions);
    if (type == PdEventType::kClientGone) world_.gone = true;
  }

  void HappenAtP(const PdActions& actions) {
    const PdEventType type = event_.type;
    const bool halted = actions.Has(PdAction::kCloseP) || actions.Has(PdAction::kKeepP);
    const bool unread = type == PdEventType::kPTooLarge || type == PdEventType::kPOverBudget;
    if (type == PdEventType::kPTimeout || (unread && halted)) return;  // still connected
    world_.p_open = world_.p_kept = false;
  }

  void Plan(const PdAttempt& plan) {
    ++world_.attempts;
    world_.choosing = false;
    world_.order = plan.order;
    world_.claim_own = false;
    world_.d_ticket = true;
    world_.p_ticket = plan.kind == PdAttemptKind::kPair;
    world_.local |= plan.kind == PdAttemptKind::kLocal;
  }

  const char* Do(PdAction action) {
    switch (action) {
      case PdAction::kCloseD:
        return CloseD();
      case PdAction::kCloseP:
        return EndLeg(world_.p_open, world_.p_kept);
      case PdAction::kKeepD:
        return Keep(world_.d_open, world_.d_kept);
      case PdAction::kKeepP:
        return Keep(world_.p_open, world_.p_kept);
      case PdAction::kReleaseP:
        return std::exchange(world_.p_ticket, false) ? nullptr : kTicketsFit;
      case PdAction::kReleaseD:
        return std::exchange(world_.d_ticket, false) ? nullptr : kTicketsFit;
      case PdAction::kMakeClaim:
        if (world_.claim) return kClaimOnce;
        return MakeClaim();
      case PdAction::kReuseClaim:
        if (!world_.claim) return kClaimOnce;
        return world_.claim_seen ? kOwnParameters : MakeClaim();
      case PdAction::kRedeemClaim:
      case PdAction::kRejectClaim:
      case PdAction::kExpireClaim:
        return std::exchange(world_.claim, false) ? nullptr : kClaimOnce;
      case PdAction::kOrphanClaim:
        if (world_.claim && world_.claim_seen) return kOrphanUnseen;
        return std::exchange(world_.claim, false) ? nullptr : kClaimOnce;
      case PdAction::kOpenP:
        return std::exchange(world_.p_open, true) ? kLegsFit : nullptr;
      case PdAction::kOpenDWith:
        return OpenDWith();
      case PdAction::kOpenDWithout:
        return std::exchange(world_.d_open, true) ? kLegsFit : nullptr;
      case PdAction::kCommit:
        if (world_.gone) return kNoneAfterDeparture;
        if (world_.responded || world_.begun) return kOneResponse;
        world_.begun = true;
        if (!world_.d_open) world_.responded = true;  // it has no body
        return nullptr;
      case PdAction::kRespondP:
      case PdAction::kRespondD:
      case PdAction::kRespond502:
      case PdAction::kRespond503:
      case PdAction::kRespond504:
        if (world_.gone) return kNoneAfterDeparture;
        if (world_.begun) return kNoErrorHead;
        return std::exchange(world_.responded, true) ? kOneResponse : nullptr;
      case PdAction::kRetry:
        if (world_.p_open || world_.d_open || world_.p_ticket || world_.d_ticket) return kRetryClean;
        if (world_.begun || world_.gone || world_.responded) return kRetryInTime;
        world_.choosing = true;
        return nullptr;
      default:
        return nullptr;  // verdicts, and what changes nothing here
    }
  }

  static const char* EndLeg(bool& open, bool& kept) {
    kept = false;
    return std::exchange(open, false) ? nullptr : kLegsFit;
  }
  // A response that flows is cut by it.
  const char* CloseD() {
    if (Flows() && before_.p_open && IsLossOfP()) return kFlowGoesOn;
    if (Flows()) world_.responded = true;
    return EndLeg(world_.d_open, world_.d_kept);
  }
  bool Flows() const { return world_.begun && !world_.gone && !world_.responded; }
  static const char* Keep(bool open, bool& kept) {
    return !open || std::exchange(kept, true) ? kLegsFit : nullptr;
  }

  const char* MakeClaim() {
    world_.claim = true;
    world_.claim_seen = false;
    world_.claim_own = true;
    return nullptr;
  }

  const char* OpenDWith() {
    if (world_.lost) return kOneLost;
    if (world_.local) return kLocalStays;
    const bool own = world_.claim && !world_.claim_seen && world_.claim_own;
    const bool both = event_.type == PdEventType::kPlanned && event_.plan.kind == PdAttemptKind::kPair;
    if (world_.order == PdOrder::kSerial ? !own : !both) return kOwnParameters;
    world_.d_parameters = true;
    return std::exchange(world_.d_open, true) ? kLegsFit : nullptr;
  }

  const char* End() {
    world_.ended = true;
    if (world_.p_open || world_.d_open || world_.p_ticket || world_.d_ticket) return kAllBack;
    if (world_.claim) return kClaimOnce;
    return world_.responded || world_.gone ? nullptr : kEndsWithResponse;
  }

  // What does not matter any more, so that more worlds are equal.
  void Forget() {
    if (!world_.d_open) world_.d_sent = world_.d_parameters = false;
    if (!world_.claim) world_.claim_seen = world_.claim_own = false;
  }

  bool IsLossOfP() const {
    const PdEventType type = event_.type;
    return type == PdEventType::kPLost || type == PdEventType::kPUnreached || type == PdEventType::kPTimeout;
  }

  const char* After(const PdActions& actions) const {
    if (const char* broken = Verdicts(actions)) return broken;
    return Closed(actions);
  }

  const char* Verdicts(const PdActions& actions) const {
    const PdEventType type = event_.type;
    const bool verdict_p = actions.Has(PdAction::kPFailed) || actions.Has(PdAction::kPSucceeded);
    const bool verdict_d = actions.Has(PdAction::kDFailed) || actions.Has(PdAction::kDSucceeded);
    const bool kept = (IsOfP(type) && before_.p_kept) || (IsOfD(type) && before_.d_kept);
    if ((type == PdEventType::kClientGone || kept) && (verdict_p || verdict_d)) return kDepartureNeutral;
    const bool failed = type == PdEventType::kDError || type == PdEventType::kDErrorEvent ||
                        (type == PdEventType::kDTimeout && before_.d_sent);
    const bool transfer = before_.d_open && before_.d_parameters && !before_.begun;
    return failed && transfer && actions.Has(PdAction::kDFailed) ? kTransferNeutral : nullptr;
  }

  const char* Closed(const PdActions& actions) const {
    const bool forced =
        event_.type == PdEventType::kKeepOver || cancel_ == PdCancelPrefill::kAlways || !before_.p_open;
    if (forced || !actions.Has(PdAction::kCloseP)) return nullptr;
    if (world_.d_waits()) return kPStays;
    const bool waited = before_.d_waits() && world_.order == PdOrder::kConcurrent;
    return waited && actions.Has(PdAction::kCloseD) ? kNotTogether : nullptr;
  }

  World& world_;
  const PdEvent& event_;
  PdCancelPrefill cancel_;
  World before_;
};

// ---- the search

struct State {
  PdMachine machine;
  World world;
};
static_assert(std::has_unique_object_representations_v<PdMachine>);
static_assert(std::has_unique_object_representations_v<World>);

using Key = std::string;
Key KeyOf(const State& state) {
  Key key(sizeof(PdMachine) + sizeof(World), '\0');
  std::memcpy(key.data(), &state.machine, sizeof(PdMachine));
  std::memcpy(key.data() + sizeof(PdMachine), &state.world, sizeof(World));
  return key;
}

struct Visited {
  State state;
  size_t parent;
  PdEvent event;
  std::vector<size_t> next;
};

struct Result {
  size_t states = 0;
  size_t transitions = 0;
  std::set<std::string> broken;
  std::string first_path;
  PdActions done;  // in any step
};

std::string Name(const PdEvent& event) {
  constexpr const char* kKinds[] = {" pair", " decode_only", " local", " bypass"};
  constexpr const char* kOrders[] = {" serial", " concurrent", " sglang"};
  std::string name(PdEventName(event.type));
  if (event.type == PdEventType::kPlanned) {
    name += kKinds[static_cast<size_t>(event.plan.kind)];
    name += kOrders[static_cast<size_t>(event.plan.order)];
    if (event.plan.rebindable) name += " rebindable";
  }
  if (event.p_readable) name += " p_readable";
  if (event.p_unreached) name += " p_unreached";
  if (event.timed_out) name += " timed_out";
  return name;
}

// All events but plans, with all their properties.
std::vector<PdEvent> Events() {
  std::vector<PdEvent> events;
  for (int i = static_cast<int>(PdEventType::kNoOtherPair); i < kPdEventCount; ++i) {
    const auto type = static_cast<PdEventType>(i);
    events.push_back({.type = type});
    if (type == PdEventType::kPUnreached || type == PdEventType::kDUnreached) {
      events.push_back({.type = type, .timed_out = true});
    }
    if (type == PdEventType::kNoOtherPair) events.push_back({.type = type, .p_unreached = true});
    if (type == PdEventType::kClientGone) events.push_back({.type = type, .p_readable = true});
  }
  return events;
}

// The plans that a host may make now: an attempt's order is its own, as a connector may change it.
std::vector<PdEvent> Plans(const State& state, bool sglang, uint8_t attempts) {
  std::vector<PdEvent> plans;
  const auto add = [&plans](
                       PdAttemptKind kind, PdOrder order, bool rebindable, bool decode_can_prefill = true) {
    plans.push_back(
        {.type = PdEventType::kPlanned,
         .plan = {
             .kind = kind,
             .order = order,
             .rebindable = rebindable,
             .decode_can_prefill = decode_can_prefill}});
  };
  if (!state.world.choosing || state.world.responded || state.world.gone) return plans;
  if (state.world.attempts == attempts) return plans;
  const PdAttemptKind next = state.machine.retry().next;
  if (sglang) {
    add(PdAttemptKind::kPair, PdOrder::kSglang, false, /*decode_can_prefill=*/false);
    return plans;
  }
  add(PdAttemptKind::kLocal, PdOrder::kSerial, false);
  if (next == PdAttemptKind::kDecodeOnly) add(PdAttemptKind::kDecodeOnly, PdOrder::kSerial, true);
  if (next == PdAttemptKind::kLocal) return plans;
  add(PdAttemptKind::kBypass, PdOrder::kSerial, false);
  add(PdAttemptKind::kPair, PdOrder::kSerial, false);
  add(PdAttemptKind::kPair, PdOrder::kSerial, true);
  add(PdAttemptKind::kPair, PdOrder::kConcurrent, false);
  return plans;
}

std::string PathTo(const std::vector<Visited>& visited, size_t at, const PdEvent& last) {
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
    if (visited[i].state.world.ended) {
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
  return static_cast<size_t>(std::ranges::count(ends, false));
}

// Ends early once the assertion `until` is broken.
Result Search(Step step, PdCancelPrefill cancel, bool sglang, uint8_t attempts, const char* until = nullptr) {
  Result result;
  const std::vector<PdEvent> events = Events();
  std::vector<Visited> visited{{.state = {PdMachine(cancel), {}}, .parent = 0, .event = {}, .next = {}}};
  std::unordered_map<Key, size_t> known{{KeyOf(visited[0].state), 0}};
  const auto visit = [&](size_t at, const PdEvent& event) {
    State state = visited[at].state;
    ++result.transitions;
    const PdActions actions = step(state.machine, event);
    for (const PdAction action : actions) result.done.Add(action);
    if (const char* broken = Checker(state.world, event, cancel).Check(actions, state.machine.over())) {
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
    if (visited[at].state.world.ended) continue;
    for (const PdEvent& event : Plans(visited[at].state, sglang, attempts)) visit(at, event);
    for (const PdEvent& event : events) visit(at, event);
  }
  result.states = visited.size();
  if (result.broken.empty() && CountStuck(visited) != 0) result.broken.insert(kLeadsToEnd);
  return result;
}

// ---- machines with a mistake

PdActions Right(PdMachine& machine, const PdEvent& event) { return machine.Step(event); }

PdActions WithoutAction(PdActions actions, PdAction action) {
  actions.Remove(action);
  return actions;
}

PdActions InsteadOf(PdActions actions, PdAction action, PdAction instead) {
  if (!actions.Has(action)) return actions;
  actions.Remove(action);
  actions.Add(instead);
  return actions;
}

PdEvent As(PdEvent event, PdEventType type) {
  event.type = type;
  return event;
}

bool Begun(const PdMachine& machine) { return machine.client() == PdClient::kBegun; }

struct Mutant {
  const char* mistake;
  const char* breaks;
  Step step;
};

constexpr Mutant kMutants[] = {
    {"the reservation is forgotten at the client's departure", kAllBack,
     [](PdMachine& machine, const PdEvent& event) {
       const PdActions actions = machine.Step(event);
       const bool departs = event.type == PdEventType::kClientGone;
       return departs ? WithoutAction(actions, PdAction::kReleaseD) : actions;
     }},
    {"an error follows a response that prefill's failure has cut", kNoErrorHead,
     [](PdMachine& machine, const PdEvent& event) {
       const bool begun = Begun(machine);
       PdActions actions = machine.Step(event);
       if (begun && event.type == PdEventType::kPError && actions.Has(PdAction::kCloseD)) {
         actions.Add(PdAction::kRespond502);
       }
       return actions;
     }},
    {"the client's departure has no effect", kNoneAfterDeparture,
     [](PdMachine& machine, const PdEvent& event) {
       return event.type == PdEventType::kClientGone ? PdActions() : machine.Step(event);
     }},
    {"D is left open when P fails", kRetryClean,
     [](PdMachine& machine, const PdEvent& event) {
       const PdActions actions = machine.Step(event);
       return event.type == PdEventType::kPLost ? WithoutAction(actions, PdAction::kCloseD) : actions;
     }},
    {"a response that was cut is retried", kRetryInTime,
     [](PdMachine& machine, const PdEvent& event) {
       const bool begun = Begun(machine);
       PdActions actions = machine.Step(event);
       if (begun && event.type == PdEventType::kDLost && !actions.empty()) actions.Add(PdAction::kRetry);
       return actions;
     }},
    {"P is closed at the client's departure though D waits", kPStays,
     [](PdMachine& machine, const PdEvent& event) {
       return InsteadOf(machine.Step(event), PdAction::kKeepP, PdAction::kCloseP);
     }},
    {"both are closed at a timeout", kNotTogether,
     [](PdMachine& machine, const PdEvent& event) {
       const PdActions actions = machine.Step(event);
       const bool timeout = event.type == PdEventType::kDTimeout;
       return timeout ? InsteadOf(actions, PdAction::kKeepP, PdAction::kCloseP) : actions;
     }},
    {"the last attempt's failure is kept from the client", kEndsWithResponse,
     [](PdMachine& machine, const PdEvent& event) {
       return WithoutAction(machine.Step(event), PdAction::kRespond502);
     }},
    {"D gets parameters that P never sent", kOwnParameters,
     [](PdMachine& machine, const PdEvent& event) {
       const PdActions actions = machine.Step(event);
       const bool none = event.type == PdEventType::kPOkWithout;
       return none ? InsteadOf(actions, PdAction::kOpenDWithout, PdAction::kOpenDWith) : actions;
     }},
    {"blocks that D has fetched stay claimed", kClaimOnce,
     [](PdMachine& machine, const PdEvent& event) {
       return WithoutAction(machine.Step(event), PdAction::kRedeemClaim);
     }},
    {"a claim that D has seen is handed on", kOrphanUnseen,
     [](PdMachine& machine, const PdEvent& event) {
       return InsteadOf(machine.Step(event), PdAction::kExpireClaim, PdAction::kOrphanClaim);
     }},
    {"a lost D counts as a failed transfer", kOneLost,
     [](PdMachine& machine, const PdEvent& event) {
       const bool loss = event.type == PdEventType::kDLost && !Begun(machine);
       return machine.Step(loss ? As(event, PdEventType::kDError) : event);
     }},
    {"a transfer that failed counts against D", kTransferNeutral,
     [](PdMachine& machine, const PdEvent& event) {
       PdActions actions = machine.Step(event);
       if (event.type == PdEventType::kDError && !actions.empty()) actions.Add(PdAction::kDFailed);
       return actions;
     }},
    {"a departure counts against D", kDepartureNeutral,
     [](PdMachine& machine, const PdEvent& event) {
       PdActions actions = machine.Step(event);
       if (event.type == PdEventType::kClientGone && actions.Has(PdAction::kCloseD)) {
         actions.Add(PdAction::kDFailed);
       }
       return actions;
     }},
    {"a local request gets parameters", kLocalStays,
     [](PdMachine& machine, const PdEvent& event) {
       const PdActions actions = machine.Step(event);
       return event.type == PdEventType::kPlanned
                  ? InsteadOf(actions, PdAction::kOpenDWithout, PdAction::kOpenDWith)
                  : actions;
     }},
    {"P's lost connection aborts a response that flows", kFlowGoesOn,
     [](PdMachine& machine, const PdEvent& event) {
       const bool loss = event.type == PdEventType::kPLost && Begun(machine);
       return machine.Step(loss ? As(event, PdEventType::kPError) : event);
     }},
    {"the ticket of P goes back when it has gone back", kTicketsFit,
     [](PdMachine& machine, const PdEvent& event) {
       PdActions actions = machine.Step(event);
       if (event.type == PdEventType::kDFirstByte && actions.Has(PdAction::kCommit)) {
         actions.Add(PdAction::kReleaseP);
       }
       return actions;
     }},
    {"a response begins twice", kOneResponse,
     [](PdMachine& machine, const PdEvent& event) {
       const bool begun = Begun(machine);
       PdActions actions = machine.Step(event);
       if (begun && event.type == PdEventType::kDDone && !actions.empty()) actions.Add(PdAction::kCommit);
       return actions;
     }},
    {"a kept leg of D is closed again", kLegsFit,
     [](PdMachine& machine, const PdEvent& event) {
       PdActions actions = machine.Step(event);
       if (event.type == PdEventType::kDDone) actions.Add(PdAction::kCloseD);
       return actions;
     }},
    {"a leg that is over fails once more", kDeadLegs,
     [](PdMachine& machine, const PdEvent& event) {
       const bool over = machine.p() == PdLeg::kOk && event.type == PdEventType::kPLost;
       PdActions actions = machine.Step(event);
       if (over) actions.Add(PdAction::kPFailed);
       return actions;
     }},
    {"a kept leg is never given up", kLeadsToEnd,
     [](PdMachine& machine, const PdEvent& event) {
       const bool of_p = IsOfP(event.type) && machine.p() == PdLeg::kKept;
       return of_p || event.type == PdEventType::kKeepOver ? PdActions() : machine.Step(event);
     }},
};

}  // namespace
}  // namespace vllm_router

int main() {
  using namespace vllm_router;
  constexpr const char* kCancels[] = {"auto", "always", "never"};
  PdActions done;
  for (const bool sglang : {false, true}) {
    for (const PdCancelPrefill cancel :
         {PdCancelPrefill::kAuto, PdCancelPrefill::kAlways, PdCancelPrefill::kNever}) {
      const Result result = Search(&Right, cancel, sglang, kAttempts);
      std::printf(
          "%s, cancel_prefill %s: %zu states, %zu transitions\n", sglang ? "sglang" : "vllm",
          kCancels[static_cast<size_t>(cancel)], result.states, result.transitions);
      if (!result.broken.empty()) std::fprintf(stderr, "broken: %s\n", result.first_path.c_str());
      STRESS_CHECK(result.broken.empty());
      STRESS_CHECK(result.states > 100);
      for (const PdAction action : result.done) done.Add(action);
    }
  }
  for (int i = 0; i < kPdActionCount; ++i) {
    const auto action = static_cast<PdAction>(i);
    if (!done.Has(action))
      std::fprintf(stderr, "never done: %s\n", std::string(PdActionName(action)).c_str());
    STRESS_CHECK(done.Has(action));
  }
  for (const Mutant& mutant : kMutants) {
    const Result result =
        Search(mutant.step, PdCancelPrefill::kAuto, /*sglang=*/false, kAttemptsOfMutants, mutant.breaks);
    const bool caught = result.broken.contains(mutant.breaks);
    if (!caught) std::fprintf(stderr, "not caught: %s, by: %s\n", mutant.mistake, mutant.breaks);
    STRESS_CHECK(caught);
    std::printf(
        "%s: caught by \"%s\" after %zu transitions\n", mutant.mistake, mutant.breaks, result.transitions);
  }
  return 0;
}
