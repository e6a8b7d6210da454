#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "bindings/json_text.h"
#include "bindings/option_values.h"
#include "bindings/py_router.h"
#include "routing/body_budget.h"
#include "routing/concurrency_limiter.h"
#include "routing/explanation.h"
#include "routing/model_alias.h"
#include "routing/model_member.h"
#include "routing/prefill_pace.h"
#include "routing/prefix_digest.h"
#include "routing/rate_limit.h"
#include "routing/request_fields.h"
#include "routing/request_quarantine.h"
#include "routing/retry_budget.h"
#include "routing/retry_plan.h"
#include "routing/router_option_table.h"
#include "routing/routing_text.h"
#include "routing/scale_signals.h"
#include "routing/session_key.h"
#include "routing/stored_path.h"
#include "routing/ticket.h"
#include "routing/ticket_leases.h"
#include "routing/token_cache.h"
#include "routing/tokenize_call.h"
#include "routing/truncated_json.h"

namespace vllm_router {
namespace {

namespace py = pybind11;
using namespace py::literals;

using Pairs = std::vector<std::pair<std::string, std::string>>;

// A request that owns its storage.
struct OwnedRequest {
  Pairs headers;
  std::string path;
  std::optional<std::string> session_id;
  std::optional<std::string> body;
  uint64_t body_bytes;
  std::optional<std::string> prompt;
  std::optional<std::vector<uint32_t>> token_ids;
  std::string model;
  std::vector<HeaderField> fields;

  RequestView View() {
    for (const auto& [name, value] : headers) fields.push_back({name, value});
    RequestView view{
        .headers = fields,
        .path = path,
        .session_id = session_id,
        .body = body,
        .body_bytes = body_bytes,
        .prompt = prompt,
        .model = model};
    if (token_ids) view.token_ids = *token_ids;
    return view;
  }
};

OwnedRequest RequestFrom(const py::kwargs& parts) {
  OwnedRequest request{};
  for (const auto& [key, value] : parts) {
    const auto name = key.cast<std::string>();
    if (name == "headers") {
      request.headers = value.cast<Pairs>();
    } else if (name == "path") {
      request.path = value.cast<std::string>();
    } else if (name == "session_id") {
      request.session_id = value.cast<std::string>();
    } else if (name == "body") {
      request.body = value.cast<std::string>();
    } else if (name == "body_bytes") {
      request.body_bytes = value.cast<uint64_t>();
    } else if (name == "prompt") {
      request.prompt = value.cast<std::string>();
    } else if (name == "token_ids") {
      request.token_ids = value.cast<std::vector<uint32_t>>();
    } else if (name == "model") {
      request.model = value.cast<std::string>();
    } else {
      throw py::type_error("a request has no " + name);
    }
  }
  return request;
}

constexpr std::array<std::string_view, 4> kTokenCalls = {"prompt", "chat", "messages", "responses"};

TokenCall TokenCallNamed(std::string_view name) {
  const auto found = std::ranges::find(kTokenCalls, name);
  if (found == kTokenCalls.end()) throw py::value_error("no such call");
  return static_cast<TokenCall>(found - kTokenCalls.begin());
}

const char* SourceName(RoutingKey::HashKeySource source) {
  switch (source) {
    case RoutingKey::HashKeySource::kMissing:
      return "missing";
    case RoutingKey::HashKeySource::kSession:
      return "session";
    case RoutingKey::HashKeySource::kBody:
      return "body";
  }
  return "?";
}

py::object FieldsOf(const std::string& body, bool padded, bool with_text, char behind) {
  std::string roomy = body;
  // Bytes behind the body must be readable and must not matter, so they are made as misleading as
  // possible.
  if (padded) roomy.append(kBodyPadding, behind);
  RoutingText text;
  const PromptWanted prompt{"", kDefaultRoutingTextLimit, &text};
  const RequestFields fields =
      ParseRequestFields({roomy.data(), body.size()}, padded, with_text ? &prompt : nullptr);
  if (!fields.is_object) return py::none();
  return py::dict(
      "session_params_session_id"_a = fields.session_params_session_id, "user"_a = fields.user,
      "session_id"_a = fields.session_id, "user_id"_a = fields.user_id,
      "conversation_id"_a = fields.conversation_id, "prompt_cache_key"_a = fields.prompt_cache_key,
      "conversation"_a = fields.conversation, "metadata_session_id"_a = fields.metadata_session_id,
      "model"_a = fields.model, "stream"_a = fields.stream, "priority"_a = fields.priority,
      "max_tokens"_a = fields.max_tokens);
}

ToolOrder ToolOrderNamed(std::string_view name) {
  return name == "first" ? ToolOrder::kFirst : name == "after" ? ToolOrder::kAfter : ToolOrder::kUnknown;
}

// The prompt of a body, as bytes or as a list of ids, with the other results; None when there is none.
py::object ReadRoutingText(
    const std::string& body, const std::string& path, size_t limit, bool padded, bool opening,
    const std::string& tools) {
  std::string roomy = body + std::string(kBodyPadding, ' ');
  RoutingText text;
  const ToolOrders orders(ToolOrderNamed(tools));
  const PromptWanted wanted{path, limit, &text, /*scoped=*/false, opening, &orders};
  ParseRequestFields({roomy.data(), body.size()}, padded, &wanted);
  if (text.kind == RoutingText::Kind::kMissing) return py::none();
  py::dict found(
      "cache_salt"_a = py::bytes(text.cache_salt), "media"_a = text.media,
      "token_call"_a = text.token_call
                           ? py::object(py::str(kTokenCalls[static_cast<size_t>(*text.token_call)]))
                           : py::object(py::none()),
      "render_options"_a = py::bytes(text.render_options), "lacks_tool_order"_a = text.lacks_tool_order);
  if (text.kind == RoutingText::Kind::kTokens) {
    found["token_ids"] = text.token_ids;
  } else {
    found["text"] = py::bytes(text.text);
  }
  return found;
}

// The input of a body's prefix digest: its tag and the bytes behind it; None when there is none.
py::object ReadPrefixAnchor(const std::string& body, size_t limit, bool padded, bool with_text) {
  std::string roomy = body;
  if (padded) roomy.append(kBodyPadding, '"');
  PrefixAnchor anchor;
  RoutingText text;
  const PromptWanted prompt{"", kDefaultRoutingTextLimit, &text};
  const PrefixWanted wanted{limit, &anchor};
  ParseRequestFields({roomy.data(), body.size()}, padded, with_text ? &prompt : nullptr, &wanted);
  if (anchor.kind == PrefixAnchor::Kind::kMissing) return py::none();
  return py::make_tuple(std::string(1, static_cast<char>(anchor.kind)), py::bytes(anchor.bytes));
}

SessionKeyFinder MakeFinder(
    const std::string& order, std::vector<std::string> headers, bool aliases, bool compat,
    const std::string& fallback, const std::string& digest_function) {
  SessionKeyOptions options;
  options.fallback =
      fallback == "body" ? SessionKeyOptions::Fallback::kBody : SessionKeyOptions::Fallback::kOpening;
  options.order =
      order == "reference" ? SessionKeyOptions::Order::kReference : SessionKeyOptions::Order::kSeed;
  options.headers = std::move(headers);
  options.aliases = aliases;
  options.compat = compat;
  options.digest_function = HashFunctionByName(digest_function).value();
  return SessionKeyFinder(options);
}

// Chooses nothing; records how its decisions ended.
class Listener final : public Policy {
 public:
  std::string_view name() const override { return "listener"; }
  KeyParts Needs() const override { return KeyParts::kNone; }
  std::optional<Decision> Choose(const RoutingKey&, const FleetView&) override { return std::nullopt; }
  void Observe(const Decision&, const Outcome& outcome) override {
    heard[static_cast<size_t>(outcome.end)].fetch_add(1, std::memory_order_relaxed);
  }

  void ObserveFirstToken(const Decision&, int64_t) override {
    first_tokens.fetch_add(1, std::memory_order_relaxed);
  }

  std::array<std::atomic<int>, 4> heard{};
  std::atomic<int> first_tokens{0};
};

// Tickets on one worker, by number, so that a test can move and drop them as C++ code would.
class TicketHarness {
 public:
  size_t Make(uint32_t prefill, uint32_t output, uint32_t context) {
    tickets_.push_back(std::make_unique<Ticket>(
        listener_, worker_, Decision{},
        LoadShare{.queued_prefill = prefill, .expected_output = output, .context = context}));
    return tickets_.size() - 1;
  }
  size_t MakeEmpty() {
    tickets_.push_back(std::make_unique<Ticket>());
    return tickets_.size() - 1;
  }
  int FirstTokens() const { return listener_->first_tokens.load(); }
  void FirstToken(size_t number) { tickets_.at(number)->FirstToken(); }
  bool Finish(size_t number, const std::string& end) {
    return tickets_.at(number)->Finish({.end = EndByName(end).value()});
  }
  bool Finished(size_t number) { return tickets_.at(number)->finished(); }
  size_t Move(size_t number) {
    tickets_.push_back(std::make_unique<Ticket>(std::move(*tickets_.at(number))));
    return tickets_.size() - 1;
  }
  // To a ticket of the harness's other worker.
  bool MoveTo(size_t number, uint32_t prefill, uint32_t output, uint32_t context) {
    return tickets_.at(number)->MoveTo(Ticket(
        listener_, other_, Decision{.worker = other_->id},
        LoadShare{.queued_prefill = prefill, .expected_output = output, .context = context}));
  }
  void Assign(size_t to, size_t from) { *tickets_.at(to) = std::move(*tickets_.at(from)); }
  void Drop(size_t number) { tickets_.at(number).reset(); }
  void SetLease(size_t number, int64_t due) { leases_.Set(tickets_.at(number).get(), due); }
  void RemoveLease(size_t number) { leases_.Remove(tickets_.at(number).get()); }
  size_t Expire(int64_t now) { return leases_.Expire(now); }
  py::tuple Leases() const {
    const int64_t next = leases_.next_due();
    return py::make_tuple(next == TicketLeases::kNever ? py::none() : py::cast(next), leases_.expired());
  }

  py::tuple Load() const { return LoadOf(*worker_); }
  py::tuple OtherLoad() const { return LoadOf(*other_); }
  static py::tuple LoadOf(const Worker& worker) {
    const WorkerLoad& load = worker.load;
    return py::make_tuple(
        load.open_requests(), load.own_queued_prefill(), load.own_expected_output(), load.own_context());
  }
  py::dict Heard() const {
    py::dict heard;
    for (size_t end = 0; end < listener_->heard.size(); ++end) {
      heard[py::str(std::string(EndName(static_cast<Outcome::End>(end))))] = listener_->heard[end].load();
    }
    return heard;
  }
  // The other holders of the worker and the policy are tickets.
  py::tuple Owners() const { return py::make_tuple(worker_.use_count() - 1, listener_.use_count() - 1); }

  // Each round: one ticket, and two threads per call that race for it, one of them moving it to the
  // other worker and back. Returns how often Finish() returned true.
  int Race(int rounds) {
    std::atomic<int> wins{0};
    for (int round = 0; round < rounds; ++round) {
      Ticket ticket(
          listener_, worker_, Decision{}, {.queued_prefill = 5, .expected_output = 3, .context = 5});
      std::atomic<int> ready{0};
      const auto start = [&ready] {
        ready.fetch_add(1);
        while (ready.load() < 5) std::this_thread::yield();
      };
      std::vector<std::thread> threads;
      for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
          start();
          if (ticket.Finish({})) wins.fetch_add(1);
        });
        threads.emplace_back([&] {
          start();
          ticket.FirstToken();
        });
      }
      threads.emplace_back([&] {
        start();
        bool open = true;
        for (int i = 0; open && i < 4; ++i) {
          open = ticket.MoveTo(Ticket(
              listener_, i % 2 == 0 ? other_ : worker_, Decision{},
              {.queued_prefill = 5, .expected_output = 3, .context = 5}));
        }
      });
      for (std::thread& thread : threads) thread.join();
    }
    return wins.load();
  }

 private:
  std::shared_ptr<Worker> worker_ =
      std::make_shared<Worker>(WorkerId{0}, WorkerUrl{}, kWeightOne, std::make_shared<WorkerLoad>());
  std::shared_ptr<Worker> other_ =
      std::make_shared<Worker>(WorkerId{1}, WorkerUrl{}, kWeightOne, std::make_shared<WorkerLoad>());
  std::shared_ptr<Listener> listener_ = std::make_shared<Listener>();
  std::vector<std::unique_ptr<Ticket>> tickets_;
  TicketLeases leases_;
};

// A plan that owns its options.
struct PlanHarness {
  RetryOptions options;
  bool repeatable;
  RetryPlan plan;
};

std::unique_ptr<PlanHarness> MakePlan(bool repeatable, bool retry_lost, const py::kwargs& given) {
  auto harness = std::unique_ptr<PlanHarness>(new PlanHarness{{}, repeatable, RetryPlan(RetryOptions{})});
  RetryOptions& options = harness->options;
  for (const auto& [key, value] : given) {
    const auto name = key.cast<std::string>();
    if (name == "max_tries")
      options.max_attempts = value.cast<uint32_t>();
    else if (name == "lost_retries")
      options.lost_retries = value.cast<uint32_t>();
    else if (name == "initial_backoff_ms")
      options.initial_backoff_ms = value.cast<int64_t>();
    else if (name == "max_backoff_ms")
      options.max_backoff_ms = value.cast<int64_t>();
    else if (name == "backoff_multiplier")
      options.backoff_multiplier = value.cast<double>();
    else if (name == "jitter_factor")
      options.jitter_factor = value.cast<double>();
    else if (name == "disabled")
      options.disabled = value.cast<bool>();
    else
      throw py::type_error("retries have no option " + name);
  }
  harness->plan = RetryPlan(harness->options, retry_lost);
  return harness;
}

AttemptFailure FailureByName(const std::string& name) {
  constexpr std::string_view kNames[] = {
      "connect", "broken", "lost", "bad_answer", "send_timeout", "first_byte_timeout", "status", "drained"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<AttemptFailure>(i);
  }
  throw py::value_error("no failure is called " + name);
}

int64_t Nanos(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

void BindRetryPlan(py::module_& testing) {
  py::class_<PlanHarness>(testing, "RetryPlan")
      .def(py::init(&MakePlan), "repeatable"_a, "retry_lost"_a = true)
      .def(
          "next",
          [](PlanHarness& self, Random& random, const std::string& how, int status,
             std::optional<int64_t> retry_after_ms, bool untried_left,
             double since_first_sent) -> std::optional<double> {
            const std::optional<int64_t> pause = self.plan.Next(
                {.how = FailureByName(how),
                 .status = status,
                 .retry_after_ms = retry_after_ms,
                 .untried_left = untried_left,
                 .repeatable = self.repeatable,
                 .first_sent_ns = 1},
                1 + Nanos(since_first_sent), random);
            if (!pause) return std::nullopt;
            return static_cast<double>(*pause) / 1e9;
          },
          "dice"_a, "how"_a, "status"_a = 0, "retry_after_ms"_a = py::none(), "untried_left"_a = false,
          "since_first_sent"_a = 0.0)
      .def_property_readonly("failures", [](const PlanHarness& self) { return self.plan.failures(); })
      .def_property_readonly("exhausted", [](const PlanHarness& self) { return self.plan.exhausted(); });
  py::class_<RetryBudget, std::shared_ptr<RetryBudget>>(testing, "RetryBudget")
      .def(py::init<double>(), "share"_a)
      .def("set_share", &RetryBudget::SetShare, "share"_a)
      .def("take", [](RetryBudget& self, double now) { return self.Take(Nanos(now)); });
  py::class_<RetryBudget::Thread>(testing, "RetryBudgetThread")
      .def(py::init<RetryBudget&>(), "budget"_a, py::keep_alive<1, 2>())
      .def("count_request", [](RetryBudget::Thread& self, double now) { self.CountRequest(Nanos(now)); })
      .def(
          "take",
          [](RetryBudget::Thread& self, double now, uint64_t underway) {
            return self.Take(Nanos(now), underway);
          },
          "now"_a, "underway"_a = 0);
  testing.def("parse_retry_after", &ParseRetryAfter);

  py::class_<PrefillPace>(testing, "PrefillPace")
      .def(py::init<>())
      .def(
          "follow",
          [](PrefillPace& self, uint64_t alone, uint64_t tokens, uint64_t micros, uint64_t streamed,
             uint64_t whole, double passed) {
            self.Follow(
                {.alone = alone,
                 .alone_tokens = tokens,
                 .alone_micros = micros,
                 .streamed_wait = streamed,
                 .whole_wait = whole},
                Nanos(passed));
          },
          "alone"_a = 0, "tokens"_a = 0, "micros"_a = 0, "streamed"_a = 0, "whole"_a = 0, "passed"_a = 1.0)
      .def("add", &PrefillPace::Add, "other"_a)
      .def_property_readonly("tokens_per_second", &PrefillPace::tokens_per_second);

  py::class_<ScaleOptions>(testing, "ScaleOptions")
      .def(
          py::init([](double target, double target_wait_secs, uint32_t min, uint32_t max) {
            return ScaleOptions{
                .target = target, .target_wait_secs = target_wait_secs, .min = min, .max = max};
          }),
          "target"_a = 0.8, "target_wait_secs"_a = 1.0, "min"_a = 0, "max"_a = 0);
  py::class_<ScaleInput>(testing, "ScaleInput")
      .def(py::init<>())
      .def_readwrite("ready", &ScaleInput::ready)
      .def_readwrite("pending", &ScaleInput::pending)
      .def_readwrite("down", &ScaleInput::down)
      .def_readwrite("unknown", &ScaleInput::unknown)
      .def_readwrite("waiting", &ScaleInput::waiting)
      .def_readwrite("requests", &ScaleInput::requests)
      .def_readwrite("queued", &ScaleInput::queued)
      .def_readwrite("slots", &ScaleInput::slots)
      .def_readwrite("prefill_seconds", &ScaleInput::prefill_seconds)
      .def_readwrite("kv_use", &ScaleInput::kv_use)
      .def_readwrite("polls_kv", &ScaleInput::polls_kv)
      .def_readwrite("hears_routers", &ScaleInput::hears_routers)
      .def_readwrite("demand", &ScaleInput::demand);
  // (saturation, desired replicas, stale)
  py::class_<ScaleSignals>(testing, "ScaleSignals")
      .def(py::init<>())
      .def(
          "update",
          [](ScaleSignals& self, const ScaleInput& input, const ScaleOptions& options, double now) {
            const ScaleReading reading = self.Update(input, options, Nanos(now));
            return py::make_tuple(reading.saturation, reading.desired, reading.stale);
          },
          "input"_a, "options"_a, "now"_a);
  const auto described = [](const ModelMember& found) {
    constexpr std::string_view kKinds[] = {"no object", "missing", "name", "other"};
    return py::make_tuple(
        kKinds[static_cast<size_t>(found.kind)], py::bytes(found.name), found.offset, found.length,
        found.whole);
  };
  testing.def("find_model_member", [described](const py::bytes& body) {
    return described(FindModelMember(std::string(body)));
  });
  testing.def("find_model_in_form", [described](const std::string& type, const py::bytes& body) {
    return described(FindModelInForm(type, std::string(body)));
  });
  testing.def(
      "resolve_alias", [](const std::vector<std::string>& texts, const std::string& name, uint64_t hash) {
        const StatusOr<ModelAliases> aliases = ModelAliases::Parse(texts);
        if (!aliases.ok()) throw py::value_error(std::string(aliases.status().message()));
        const ModelAliases::Alias* const alias = aliases->Find(name);
        return alias != nullptr ? std::optional(ModelAliases::TargetOf(*alias, hash)) : std::nullopt;
      });
}

void BindRequestQuarantine(py::module_& testing) {
  py::class_<RequestQuarantine>(testing, "RequestQuarantine")
      .def(
          py::init([](size_t max_requests, size_t max_clients, bool suspect_pending) {
            return std::make_unique<RequestQuarantine>(QuarantineOptions{
                .max_requests = max_requests,
                .max_clients = max_clients,
                .suspect_pending = suspect_pending});
          }),
          "max_requests"_a = 10'000, "max_clients"_a = 10'000, "suspect_pending"_a = true)
      .def(
          "report_loss",
          [](RequestQuarantine& self, uint64_t digest, uint64_t size, uint64_t host, uint64_t client,
             const std::string& request_id, double now, double sent) {
            self.ReportLoss(
                {.digest = {digest, digest},
                 .bytes = size,
                 .host = host,
                 .client = client,
                 .sent_ns = Nanos(sent),
                 .request_id = request_id},
                Nanos(now));
          },
          "digest"_a, "size"_a, "host"_a, "client"_a, "request_id"_a, "now"_a, "sent"_a = 0)
      .def(
          "report_down",
          [](RequestQuarantine& self, uint64_t host, double now) {
            std::vector<std::pair<std::string, double>> quarantined;
            for (auto& one : self.ReportDown(host, Nanos(now))) {
              quarantined.emplace_back(
                  std::move(one.request_id), static_cast<double>(one.restricted_ns) / 1e9);
            }
            return quarantined;
          },
          "host"_a, "now"_a)
      .def(
          "report_up",
          [](RequestQuarantine& self, uint64_t host, double since, double now) {
            self.ReportUp(host, Nanos(since), Nanos(now));
          },
          "host"_a, "since"_a, "now"_a)
      .def(
          "is_suspected",
          [](RequestQuarantine& self, uint64_t digest, double now) {
            return self.IsSuspected({digest, digest}, Nanos(now));
          },
          "digest"_a, "now"_a)
      .def("may_know", &RequestQuarantine::MayKnow, "size"_a)
      .def("may_forget", &RequestQuarantine::MayForget, "size"_a)
      .def(
          "report_success",
          [](RequestQuarantine& self, uint64_t digest, uint64_t host, double now) {
            constexpr const char* kNames[] = {"", "quarantine", "restriction"};
            return kNames[static_cast<size_t>(self.ReportSuccess({digest, digest}, host, Nanos(now)))];
          },
          "digest"_a, "host"_a, "now"_a)
      .def_property_readonly("active", &RequestQuarantine::active)
      .def(
          "enter",
          [](RequestQuarantine& self, uint64_t client, double now) {
            constexpr const char* kNames[] = {"free", "entered", "busy"};
            return kNames[static_cast<size_t>(self.Enter(client, Nanos(now)))];
          },
          "client"_a, "now"_a)
      .def("leave", &RequestQuarantine::Leave, "client"_a)
      .def(
          "counts",
          [](RequestQuarantine& self, double now) {
            const RequestQuarantine::Counts counts = self.CountAll(Nanos(now));
            return std::tuple(
                counts.quarantined, counts.restricted, counts.quarantines, counts.losses, counts.lifted);
          },
          "now"_a);
  testing.def("digest_of_request", [](const std::string& path, const std::string& body) {
    const RequestDigest digest = DigestOfRequest(path, body);
    return std::pair(digest.high, digest.low);
  });
}

// Waiters of a ConcurrencyLimiter by number, and those granted since the last call.
class AdmissionHarness {
 public:
  AdmissionHarness(uint64_t permits, uint32_t line) : admission_(permits, line) {}

  // (the result, the waiter's number)
  std::pair<const char*, size_t> Enter(uint64_t amount) {
    waiters_.push_back(std::make_unique<One>(*this, waiters_.size(), amount));
    return {Name(admission_.Enter(waiters_.back()->waiter, amount)), waiters_.size() - 1};
  }
  bool TryAcquire(uint64_t amount) { return admission_.TryAcquire(amount); }
  void Release(uint64_t amount) { admission_.Release(amount); }
  bool Leave(size_t number) { return admission_.Leave(waiters_.at(number)->waiter); }
  const char* Requeue(size_t number) {
    One& one = *waiters_.at(number);
    return Name(admission_.Requeue(one.waiter, one.amount));
  }
  void WakeNext() { admission_.WakeNext(); }
  void Wake(size_t number) { admission_.Wake(waiters_.at(number)->waiter); }
  void SetLimits(uint64_t permits, uint32_t line) { admission_.SetLimits(permits, line); }
  std::vector<size_t> TakeGranted() { return std::exchange(granted_, {}); }
  const ConcurrencyLimiter& admission() const { return admission_; }

 private:
  struct One {
    One(AdmissionHarness& harness, size_t number, uint64_t amount)
        : harness(harness), number(number), amount(amount) {}
    AdmissionHarness& harness;
    const size_t number;
    const uint64_t amount;
    ConcurrencyLimiter::Waiter waiter{
        [](void* context) {
          auto* one = static_cast<One*>(context);
          one->harness.granted_.push_back(one->number);
        },
        this};
  };
  static const char* Name(ConcurrencyLimiter::Entry entry) {
    switch (entry) {
      case ConcurrencyLimiter::Entry::kHeld:
        return "held";
      case ConcurrencyLimiter::Entry::kWaiting:
        return "waiting";
      case ConcurrencyLimiter::Entry::kFull:
        return "full";
      case ConcurrencyLimiter::Entry::kNever:
        return "never";
    }
    return "?";
  }

  ConcurrencyLimiter admission_;
  std::vector<std::unique_ptr<One>> waiters_;
  std::vector<size_t> granted_;
};

// Members of a BodyBudget by number, and those granted since the last call.
class BodyBudgetHarness {
 public:
  explicit BodyBudgetHarness(uint64_t total) : budget_(total) {}

  size_t Add() {
    members_.push_back(std::make_unique<One>(*this, members_.size()));
    return members_.size() - 1;
  }
  const char* Grow(size_t number, uint64_t to, uint64_t need) {
    switch (budget_.Grow(Of(number), to, need)) {
      case BodyBudget::Entry::kHeld:
        return "held";
      case BodyBudget::Entry::kWaiting:
        return "waiting";
      case BodyBudget::Entry::kNever:
        return "never";
    }
    return "?";
  }
  bool TryKeep(size_t number, uint64_t bytes) { return budget_.TryKeep(Of(number), bytes); }
  bool GrowNow(size_t number, uint64_t to) { return budget_.GrowNow(Of(number), to); }
  void Complete(size_t number, uint64_t bytes) { budget_.Complete(Of(number), bytes); }
  void Release(size_t number) { budget_.Release(Of(number)); }
  bool Leave(size_t number) { return budget_.Leave(Of(number)); }
  std::vector<size_t> TakeGranted() { return std::exchange(granted_, {}); }
  const BodyBudget& budget() const { return budget_; }

 private:
  struct One {
    One(BodyBudgetHarness& harness, size_t number) : harness(harness), number(number) {}
    BodyBudgetHarness& harness;
    const size_t number;
    BodyBudget::Member member{
        [](void* context) {
          auto* one = static_cast<One*>(context);
          one->harness.granted_.push_back(one->number);
        },
        this};
  };
  BodyBudget::Member& Of(size_t number) { return members_.at(number)->member; }

  BodyBudget budget_;
  std::vector<std::unique_ptr<One>> members_;
  std::vector<size_t> granted_;
};

std::vector<TextPrefix> PrefixesOf(
    const std::string& model, const std::string& call, const std::string& text) {
  std::vector<TextPrefix> prefixes;
  NamePrefixes(model, TokenCallNamed(call), /*options=*/{}, text, &prefixes);
  return prefixes;
}

// The key's blocks and what is known of its text.
py::dict BlocksOf(const PyRouter& router, const py::kwargs& parts) {
  OwnedRequest request = RequestFrom(parts);
  const RoutingKey key = router.router().MakeKey(request.View());
  return py::dict(
      "blocks"_a = key.blocks, "usable"_a = key.usable_blocks, "prompt_tokens"_a = key.prompt_tokens,
      "lacks_ids"_a = key.untokenized_prompt.has_value(), "lacks_tool_order"_a = key.lacks_tool_order);
}

}  // namespace

void BindTestingRouting(py::module_& testing) {
  testing.def("router_options", [] { return OptionRows(RouterOptionTable()); });
  BindRetryPlan(testing);
  BindRequestQuarantine(testing);
  testing.attr("TOKEN_CACHE_ENTRY_BYTES") = TokenCache::kEntryBytes;
  testing.attr("MAX_NAMED_ITEMS") = kMaxNamedItems;
  testing.attr("MAX_TOKENIZED_IDS") = kMaxTokenizedIds;
  py::class_<BodyBudgetHarness>(testing, "BodyBudget")
      .def(py::init<uint64_t>(), "total"_a)
      .def("add", &BodyBudgetHarness::Add)
      .def("grow", &BodyBudgetHarness::Grow, "number"_a, "to"_a, "need"_a)
      .def("try_keep", &BodyBudgetHarness::TryKeep, "number"_a, "bytes"_a)
      .def("grow_now", &BodyBudgetHarness::GrowNow, "number"_a, "to"_a)
      .def("complete", &BodyBudgetHarness::Complete, "number"_a, "bytes"_a)
      .def("release", &BodyBudgetHarness::Release, "number"_a)
      .def("leave", &BodyBudgetHarness::Leave, "number"_a)
      .def("take_granted", &BodyBudgetHarness::TakeGranted)
      .def_property_readonly("in_use", [](const BodyBudgetHarness& one) { return one.budget().in_use(); })
      .def_property_readonly("waiting", [](const BodyBudgetHarness& one) { return one.budget().waiting(); });
  py::class_<TokenCache>(testing, "TokenCache")
      .def(py::init<size_t>(), "capacity_bytes"_a)
      // (ids, how many bytes of the text they cover), or None
      .def(
          "find",
          [](TokenCache& cache, const std::string& model, const std::string& call,
             const std::string& text) -> py::object {
            const TokenCache::Known known = cache.Find(PrefixesOf(model, call, text));
            if (known.ids == nullptr) return py::none();
            return py::make_tuple(*known.ids, known.text_size);
          })
      .def(
          "store",
          [](TokenCache& cache, const std::string& model, const std::string& call, const std::string& text,
             std::vector<uint32_t> ids) {
            cache.Store(PrefixesOf(model, call, text).back().name, std::move(ids));
          })
      .def("stats", [](const TokenCache& cache) {
        const TokenCache::Stats stats = cache.stats();
        return py::dict(
            "entries"_a = stats.entries, "bytes"_a = stats.bytes, "whole"_a = stats.whole,
            "partial"_a = stats.partial, "unknown"_a = stats.unknown, "evicted"_a = stats.evicted);
      });
  // Ends of the named prefixes of a text.
  testing.def("named_prefixes", [](const std::string& text) {
    std::vector<size_t> sizes;
    for (const TextPrefix& prefix : PrefixesOf("", "chat", text)) sizes.push_back(prefix.size);
    return sizes;
  });
  testing.def(
      "write_tokenize_call",
      [](const std::string& body, const std::string& call, bool padded) -> py::object {
        std::string roomy = body;
        if (padded) roomy.append(kBodyPadding, '"');
        const auto json = WriteTokenizeCall({roomy.data(), body.size()}, padded, TokenCallNamed(call));
        return json ? py::object(py::bytes(*json)) : py::object(py::none());
      },
      "body"_a, "call"_a, "padded"_a = true);
  testing.def("write_tool_probe", [](const std::string& model, bool second) {
    return py::bytes(WriteToolProbe(model, second));
  });
  testing.def(
      "compare_tool_probes", [](const std::vector<uint32_t>& first, const std::vector<uint32_t>& second) {
        return CompareToolProbes(first, second) == ToolOrder::kFirst ? "first" : "after";
      });
  testing.def(
      "learn_tool_order", [](const PyRouter& router, const std::string& model, const std::string& order) {
        router.router().tool_orders().Learn(model, ToolOrderNamed(order));
      });
  testing.def("parse_tokenize_answer", [](const std::string& answer) {
    return ValueOrThrow(ParseTokenizeResponse(answer));
  });
  // As if a worker had returned the ids of this request's text.
  testing.def("learn_tokens", [](const PyRouter& router, std::vector<uint32_t> ids, const py::kwargs& parts) {
    OwnedRequest request = RequestFrom(parts);
    const RoutingKey key = router.router().MakeKey(request.View());
    if (!key.untokenized_prompt) return false;
    router.router().token_cache()->Store(key.untokenized_prompt->name, std::move(ids));
    return true;
  });
  testing.def("make_blocks", &BlocksOf);
  testing.attr("MAX_PARSED_BODY_BYTES") = kMaxParsedBodyBytes;
  testing.attr("BODY_PADDING") = kBodyPadding;
  testing.def(
      "routing_text", &ReadRoutingText, "body"_a, "path"_a = "", "limit"_a = kDefaultRoutingTextLimit,
      "padded"_a = true, "opening"_a = false, "tools"_a = "after");
  testing.def(
      "prefix_anchor", &ReadPrefixAnchor, "body"_a, "limit"_a = kDefaultPrefixLength, "padded"_a = true,
      "with_text"_a = false);
  testing.def("words_of_reason", [](const std::string& name) {
    for (int i = 0; i < kReasonCount; ++i) {
      const auto reason = static_cast<Reason>(i);
      if (ReasonName(reason) == name)
        return py::make_tuple(ExplainDecision("http://w", "p", {.reason = reason}), MethodOf(reason));
    }
    throw py::value_error("no reason " + name);
  });
  testing.def(
      "request_fields", &FieldsOf, "body"_a, "padded"_a = false, "with_text"_a = false, "behind"_a = '"');

  py::class_<SessionKeyFinder>(testing, "SessionKeyFinder")
      .def(
          py::init(&MakeFinder), py::kw_only(), "order"_a = "seed", "headers"_a = std::vector<std::string>{},
          "aliases"_a = true, "compat"_a = false, "fallback"_a = "opening", "digest_function"_a = "furc")
      .def(
          "find_in_headers",
          [](const SessionKeyFinder& finder, Pairs headers) {
            OwnedRequest request{.headers = std::move(headers)};
            return finder.FindInHeaders(request.View().headers);
          })
      .def(
          "has_header",
          [](const SessionKeyFinder& finder, Pairs headers) {
            OwnedRequest request{.headers = std::move(headers)};
            return finder.HasHeader(request.View().headers);
          })
      // (key, its source, whether the body was parsed for it)
      .def("find", [](const SessionKeyFinder& finder, const py::kwargs& parts) {
        OwnedRequest request = RequestFrom(parts);
        RoutingKey key;
        std::optional<RequestFields> parsed;
        finder.Find(request.View(), &key, &parsed);
        return py::make_tuple(key.hash_key, SourceName(key.hash_key_source), parsed.has_value());
      });

  py::class_<TicketHarness>(testing, "TicketHarness")
      .def(py::init<>())
      .def("make", &TicketHarness::Make, "prefill"_a, "output"_a, "context"_a)
      .def("make_empty", &TicketHarness::MakeEmpty)
      .def("first_token", &TicketHarness::FirstToken)
      .def("finish", &TicketHarness::Finish, "number"_a, "end"_a = "finished")
      .def("finished", &TicketHarness::Finished)
      .def("move", &TicketHarness::Move)
      .def("move_to", &TicketHarness::MoveTo, "number"_a, "prefill"_a, "output"_a, "context"_a)
      .def_property_readonly("other_load", &TicketHarness::OtherLoad)
      .def("assign", &TicketHarness::Assign, "to"_a, "from_"_a)
      .def("drop", &TicketHarness::Drop)
      .def("set_lease", &TicketHarness::SetLease, "number"_a, "due"_a)
      .def("remove_lease", &TicketHarness::RemoveLease)
      .def("expire", &TicketHarness::Expire, "now"_a)
      .def_property_readonly("leases", &TicketHarness::Leases)
      .def("race", &TicketHarness::Race, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("load", &TicketHarness::Load)
      .def_property_readonly("heard", &TicketHarness::Heard)
      .def_property_readonly("first_tokens", &TicketHarness::FirstTokens)
      .def_property_readonly("owners", &TicketHarness::Owners);

  py::class_<AdmissionHarness>(testing, "ConcurrencyLimiter")
      .def(py::init<uint64_t, uint32_t>(), "permits"_a, "line"_a)
      .def("enter", &AdmissionHarness::Enter, "amount"_a = 1)
      .def("try_acquire", &AdmissionHarness::TryAcquire, "amount"_a = 1)
      .def("release", &AdmissionHarness::Release, "amount"_a = 1)
      .def("wake", &AdmissionHarness::Wake, "number"_a)
      .def("leave", &AdmissionHarness::Leave)
      .def("step_back", &AdmissionHarness::Requeue)
      .def("nudge", &AdmissionHarness::WakeNext)
      .def("set_limits", &AdmissionHarness::SetLimits)
      .def("take_granted", &AdmissionHarness::TakeGranted)
      .def_property_readonly("full", [](const AdmissionHarness& one) { return one.admission().full(); })
      .def_property_readonly("in_use", [](const AdmissionHarness& one) { return one.admission().in_use(); })
      .def_property_readonly(
          "waiting", [](const AdmissionHarness& one) { return one.admission().waiting(); });

  testing.def("stored_path_of", [](const std::string& path) { return std::string(StoredPathOf(path)); });
  testing.def("looks_stored", [](const std::string& path) { return LooksStored(path); });
  testing.def("has_plain_id", [](const std::string& path) { return HasPlainId(path); });
  testing.def("stores_nothing", [](const std::string& body) {
    const std::string padded = body + std::string(kBodyPadding, '"');
    return StoresNothing({padded.data(), body.size()});
  });
  testing.def("continued_path", [](const std::string& body) {
    std::optional<py::bytes> path;
    if (const std::optional<std::string> found = ContinuedPath(body, /*padded=*/false)) path.emplace(*found);
    return path;
  });
  testing.def("created_id", [](const std::string& beginning, bool event_stream) {
    std::optional<py::bytes> id;
    if (const std::optional<std::string> found = CreatedId(beginning, event_stream)) id.emplace(*found);
    return id;
  });

  // (bytes to keep, the closing text)
  testing.def("close_json", [](const std::string& text) {
    std::optional<std::pair<size_t, py::bytes>> closed;
    if (const std::optional<JsonRepair> beginning = CloseJson(text))
      closed.emplace(beginning->keep, beginning->closing);
    return closed;
  });

  // (the text completed in place, the text afterwards)
  testing.def("make_json_whole", [](std::string text) {
    std::string whole;
    {
      const TruncatedJson made({text.data(), text.size()});
      whole = made.view();
      if (!made.view().empty() && made.view().data() != text.data()) throw std::logic_error("it was copied");
    }
    return std::pair(py::bytes(whole), py::bytes(text));
  });

  py::class_<RateLimit>(testing, "RateLimit")
      .def(py::init<uint32_t>(), "per_second"_a)
      .def("set_rate", &RateLimit::SetRate, "per_second"_a)
      .def("take", &RateLimit::Take, "now_ns"_a)
      .def("settle", &RateLimit::Settle, "routers"_a)
      .def("lease", &RateLimit::Lease, "tokens"_a, "again_ns"_a)
      .def("share_out", &RateLimit::ShareOut, "routers"_a, "now_ns"_a, "phase"_a);

  testing.def("make_key", [](const PyRouter& router, const py::kwargs& parts) {
    OwnedRequest request = RequestFrom(parts);
    const RoutingKey key = router.router().MakeKey(request.View());
    py::object prompt = py::none();
    if (key.prompt.kind == Prompt::Kind::kText) {
      prompt = py::bytes(key.prompt.text().data(), key.prompt.text().size());
    } else if (key.prompt.kind == Prompt::Kind::kTokens) {
      prompt = py::cast(std::vector(key.prompt.tokens().begin(), key.prompt.tokens().end()));
    }
    return py::dict(
        "prompt"_a = prompt, "scope"_a = key.prompt.scope, "framed"_a = key.prompt.framed,
        "hash_key"_a = key.hash_key, "source"_a = SourceName(key.hash_key_source),
        "prompt_tokens"_a = key.prompt_tokens, "expected_output"_a = key.expected_output,
        "prefix_digest"_a = key.prefix_digest ? py::object(py::bytes(
                                                    reinterpret_cast<const char*>(key.prefix_digest->data()),
                                                    key.prefix_digest->size()))
                                              : py::object(py::none()));
  });
  // (blocks, tokens, session key)
  testing.def("read_prompt", [](const PyRouter& router, const py::kwargs& parts) {
    OwnedRequest request = RequestFrom(parts);
    const RequestView view = request.View();
    PromptReading reading;
    router.router().ReadPrompt(view, router.router().MakeKey(view), &reading);
    return py::make_tuple(reading.blocks, reading.tokens, reading.session_key);
  });
  testing.def("needs_body", [](const PyRouter& router, Pairs headers) {
    OwnedRequest request{.headers = std::move(headers)};
    return router.router().NeedsBody(request.View().headers);
  });
  testing.def(
      "end_of_exit", [](const py::object& type) { return std::string(EndName(OutcomeOfExit(type).end)); });
  testing.def(
      "json_text",
      [](const py::object& value, bool dump_objects) {
        std::string text;
        AppendJson(value, &text, dump_objects ? JsonObjects::kDumped : JsonObjects::kRefused);
        return py::bytes(text);
      },
      "value"_a, "dump_objects"_a = false);
}

}  // namespace vllm_router
