// proxy/ for its tests: tables, request ids, and the results of Telemetry and Metrics for records given
// as keywords.
#include <array>
#include <condition_variable>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "admission/tenant_name.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mutex.h"
#include "base/random.h"
#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "bindings/option_values.h"
#include "bindings/py_router.h"
#include "bindings/raise_if_error.h"
#include "bindings/server_options.h"
#include "hashing/keyed_hash.h"
#include "http/head.h"
#include "policy/cache_prediction.h"
#include "proxy/admin/admin.h"
#include "proxy/admin/metrics.h"
#include "proxy/api/cors.h"
#include "proxy/api/error_event.h"
#include "proxy/api/error_response.h"
#include "proxy/api/request_id.h"
#include "proxy/api/routes.h"
#include "proxy/api/server_option_table.h"
#include "proxy/client/backoff.h"
#include "proxy/client/load_report.h"
#include "proxy/client/probe_failure.h"
#include "proxy/events/kv_push_call.h"
#include "proxy/exchange/body_pace.h"
#include "proxy/exchange/request_state.h"
#include "proxy/security/authorizer.h"
#include "proxy/security/key_file.h"
#include "proxy/security/key_set.h"
#include "proxy/server/features.h"
#include "proxy/server/server.h"
#include "proxy/telemetry/access_log_line.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/telemetry/traffic_log.h"
#include "proxy/telemetry/traffic_log_line.h"
#include "proxy/telemetry/traffic_log_salt.h"
#include "proxy/thread/server_limits.h"
#include "proxy/tracing/request_spans.h"

namespace vllm_router {
namespace {

namespace py = pybind11;

// Requests, and how many of them wait.
std::optional<std::pair<int64_t, int64_t>> PairFrom(const std::optional<ReportedLoad>& load) {
  return load ? std::optional(std::pair(load->requests, load->waiting)) : std::nullopt;
}

// Text that RequestInfo views lives forever there; here the texts come from Python.
std::string_view Forever(const std::string& text) {
  static auto* const texts = new std::set<std::string>;
  return *texts->insert(text).first;
}

template <typename Enum>
Enum ByName(const std::string& name, int count, std::string_view (*name_of)(Enum)) {
  for (int i = 0; i < count; ++i) {
    if (name_of(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  throw py::value_error("there is no " + name);
}

std::string_view LabelOf(Route route) { return RouteOf(route).label; }
std::string_view UnitName(MatchUnit unit) { return MatchUnitName(unit); }

// A worker that a test keeps after it left the fleet.
struct WorkerHandle {
  std::shared_ptr<Worker> worker;
};

WorkerHandle MakeWorker(const std::string& url) {
  StatusOr<WorkerUrl> parsed = ParseWorkerUrl(url);
  if (!parsed.ok()) throw py::value_error(parsed.status().ToString());
  return {
      std::make_shared<Worker>(WorkerId{0}, *std::move(parsed), kWeightOne, std::make_shared<WorkerLoad>())};
}

WorkerHandle FindWorker(PyRouter& router, const std::string& url) {
  const std::shared_ptr<const FleetView> fleet = router.router().fleet();
  const std::optional<uint32_t> position = fleet->Find(url);
  if (!position.has_value()) throw py::value_error("there is no worker " + url);
  return {fleet->members()[*position].worker};
}

template <typename T>
std::optional<T> Optional(const py::handle& value) {
  return value.is_none() ? std::nullopt : std::optional<T>(value.cast<T>());
}

RequestInfo MakeRecord(const py::kwargs& fields) {
  RequestInfo record;
  for (const auto& [key, value] : fields) {
    const auto name = key.cast<std::string>();
    const std::map<std::string, int64_t RequestInfo::*> times = {
        {"wall_us", &RequestInfo::wall_us},
        {"head_ns", &RequestInfo::head_ns},
        {"body_ns", &RequestInfo::body_ns},
        {"queue_ns", &RequestInfo::queue_ns},
        {"chosen_ns", &RequestInfo::chosen_ns},
        {"connected_ns", &RequestInfo::connected_ns},
        {"sent_ns", &RequestInfo::sent_ns},
        {"answered_ns", &RequestInfo::responded_ns},
        {"first_body_ns", &RequestInfo::first_body_ns},
        {"end_ns", &RequestInfo::end_ns},
        {"cache_ns", &RequestInfo::cache_ns}};
    const std::map<std::string, std::string RequestInfo::*> texts = {
        {"request_id", &RequestInfo::request_id},
        {"client", &RequestInfo::client},
        {"method", &RequestInfo::method},
        {"path", &RequestInfo::path},
        {"model", &RequestInfo::model}};
    const std::map<std::string, std::string_view RequestInfo::*> words = {
        {"error", &RequestInfo::error},     {"rule", &RequestInfo::bad_request_rule},
        {"step", &RequestInfo::stopped_at}, {"refusal", &RequestInfo::refusal},
        {"cache", &RequestInfo::cache},     {"cache_reason", &RequestInfo::cache_reason}};
    const std::map<std::string, bool RequestInfo::*> switches = {
        {"stream", &RequestInfo::stream},
        {"reused", &RequestInfo::reused},
        {"stale_retry", &RequestInfo::stale_retry}};
    const std::map<std::string, uint32_t RequestInfo::*> counts = {
        {"attempts", &RequestInfo::attempts},
        {"retries", &RequestInfo::retries},
        {"keepalives", &RequestInfo::keepalives},
        {"client_stalls", &RequestInfo::client_stalls},
        {"worker_stalls", &RequestInfo::worker_stalls}};
    const std::map<std::string, uint64_t RequestInfo::*> sizes = {
        {"bytes_in", &RequestInfo::bytes_in}, {"bytes_out", &RequestInfo::bytes_out}};
    const std::map<std::string, std::optional<uint64_t> RequestInfo::*> tokens = {
        {"prompt_tokens", &RequestInfo::prompt_tokens},
        {"completion_tokens", &RequestInfo::completion_tokens},
        {"cached_tokens", &RequestInfo::cached_tokens}};
    const std::map<std::string, std::string_view PdInfo::*> pd_words = {
        {"pd", &PdInfo::kind}, {"pd_local", &PdInfo::local}, {"claim", &PdInfo::claim}};
    const std::map<std::string, int64_t PdInfo::*> pd_times = {
        {"prefill_ns", &PdInfo::prefill_ns},
        {"prefill_end_ns", &PdInfo::prefill_end_ns},
        {"handoff_ns", &PdInfo::handoff_ns}};
    const std::map<std::string, uint32_t PdInfo::*> pd_tokens = {
        {"pd_uncached_tokens", &PdInfo::uncached_tokens}, {"pd_saved_tokens", &PdInfo::saved_tokens}};
    const bool is_of_pair = pd_words.contains(name) || pd_times.contains(name) || pd_tokens.contains(name) ||
                            name == "pair_id" || name == "prefill_worker" || name == "prefill_status";
    const std::map<std::string, std::string_view IdentityInfo::*> client_words = {
        {"priority_class", &IdentityInfo::priority_class},
        {"claimed_class", &IdentityInfo::claimed_class},
        {"dispatch", &IdentityInfo::dispatch}};
    const bool is_of_client = name == "tenant" || name == "evictions" || client_words.contains(name);
    if (is_of_client && record.identity == nullptr) record.identity = std::make_unique<IdentityInfo>();
    if (is_of_pair && record.pd == nullptr) record.pd = std::make_unique<PdInfo>();
    if (name == "tenant") {
      record.identity->tenant = value.cast<std::string>();
    } else if (name == "evictions") {
      record.identity->evictions = value.cast<uint32_t>();
    } else if (is_of_client) {
      (*record.identity).*client_words.at(name) = Forever(value.cast<std::string>());
    } else if (pd_words.contains(name)) {
      (*record.pd).*pd_words.at(name) = Forever(value.cast<std::string>());
    } else if (pd_times.contains(name)) {
      (*record.pd).*pd_times.at(name) = value.cast<int64_t>();
    } else if (pd_tokens.contains(name)) {
      (*record.pd).*pd_tokens.at(name) = value.cast<uint32_t>();
    } else if (name == "pair_id") {
      record.pd->pair_id = value.cast<std::string>();
    } else if (name == "prefill_worker") {
      record.pd->prefill = value.cast<WorkerHandle>().worker;
    } else if (name == "prefill_status") {
      record.pd->prefill_status = value.cast<int>();
    } else if (times.contains(name)) {
      record.*times.at(name) = value.cast<int64_t>();
    } else if (texts.contains(name)) {
      record.*texts.at(name) = value.cast<std::string>();
    } else if (words.contains(name)) {
      record.*words.at(name) = Forever(value.cast<std::string>());
    } else if (switches.contains(name)) {
      record.*switches.at(name) = value.cast<bool>();
    } else if (counts.contains(name)) {
      record.*counts.at(name) = value.cast<uint32_t>();
    } else if (sizes.contains(name)) {
      record.*sizes.at(name) = value.cast<uint64_t>();
    } else if (tokens.contains(name)) {
      record.*tokens.at(name) = Optional<uint64_t>(value);
    } else if (name == "events") {
      record.events = value.cast<uint64_t>();
    } else if (name == "prompt") {
      auto [blocks, tokens, session] = value.cast<std::tuple<std::vector<uint64_t>, uint32_t, std::string>>();
      record.prompt = std::make_unique<PromptReading>(
          PromptReading{.blocks = std::move(blocks), .tokens = tokens, .session_key = std::move(session)});
    } else if (name == "names") {
      const auto [session, parent, agent] = value.cast<std::tuple<std::string, std::string, std::string>>();
      record.session =
          std::make_unique<SessionInfo>(SessionInfo{.session = session, .parent = parent, .agent = agent});
    } else if (name == "program_wait_ns") {  // behind the names
      record.session->program_wait_ns = value.cast<int64_t>();
    } else if (name == "status") {
      record.status = value.cast<int>();
    } else if (name == "route") {
      record.route = ByName<Route>(value.cast<std::string>(), kRouteCount, &LabelOf);
    } else if (name == "end") {
      record.end = ByName<ExchangeEnd>(value.cast<std::string>(), kExchangeEndCount, &ExchangeEndName);
    } else if (name == "attempts_made") {
      for (const auto& [worker, status, error] :
           value.cast<std::vector<std::tuple<WorkerHandle, int, std::string>>>()) {
        record.attempts_made.push_back(
            {.worker = worker.worker,
             .chosen_ns = record.chosen_ns,
             .error = Forever(error),
             .status = status});
      }
    } else if (name == "worker") {
      record.worker = value.cast<WorkerHandle>().worker;
    } else if (name == "continued") {
      const auto [times, why, method, tokens, end, gap_ns, first] = value.cast<
          std::tuple<uint32_t, std::string, std::string, uint64_t, std::string, int64_t, WorkerHandle>>();
      record.continued = std::make_unique<ContinuedInfo>(ContinuedInfo{
          .first_worker = first.worker,
          .why = Forever(why),
          .method = Forever(method),
          .end = Forever(end),
          .times = times,
          .tokens = tokens,
          .gap_ns = gap_ns});
    } else if (name == "reason") {
      if (!record.decision.has_value()) record.decision.emplace();
      record.decision->reason = ByName<Reason>(value.cast<std::string>(), kReasonCount, &ReasonName);
    } else if (name == "arm") {
      if (!record.decision.has_value()) record.decision.emplace();
      record.decision->arm = ByName<Arm>(value.cast<std::string>(), 3, &ArmName);
    } else if (name == "match") {
      const auto [unit, matched, total] = value.cast<std::tuple<std::string, uint64_t, uint64_t>>();
      if (!record.decision.has_value()) record.decision.emplace();
      record.decision->unit = ByName<MatchUnit>(unit, 4, &UnitName);
      record.decision->blocks_are_tokens = true;
      record.decision->matched = matched;
      record.decision->total = total;
    } else {
      throw py::type_error("a record has no " + name);
    }
  }
  return record;
}

// As MakeRecord's fields: those of a trace, and of its attempts.
RequestTrace MakeTrace(const py::dict& fields) {
  RequestTrace trace;
  trace.trace = {.high = fields["high"].cast<uint64_t>(), .low = fields["low"].cast<uint64_t>()};
  trace.span = fields["span"].cast<uint64_t>();
  trace.parent = fields["parent"].cast<uint64_t>();
  trace.sampled = true;
  trace.state = fields["state"].cast<std::string>();
  trace.tls = fields["tls"].cast<bool>();
  trace.minor_version = fields["minor_version"].cast<int>();
  using Part = std::tuple<std::string, int64_t, int64_t>;
  for (const auto& [name, begin_ns, end_ns] : fields["parts"].cast<std::vector<Part>>())
    trace.parts.push_back({.name = Forever(name), .begin_ns = begin_ns, .end_ns = end_ns});
  return trace;
}

AttemptInfo MakeAttempt(const py::dict& fields) {
  AttemptInfo attempt;
  attempt.worker = fields["worker"].cast<WorkerHandle>().worker;
  const auto phase = fields["phase"].cast<std::string>();
  attempt.phase = phase == "prefill"  ? AttemptPhase::kPrefill
                  : phase == "decode" ? AttemptPhase::kDecode
                                      : AttemptPhase::kInference;
  attempt.chosen_ns = fields["chosen_ns"].cast<int64_t>();
  attempt.sent_ns = fields["sent_ns"].cast<int64_t>();
  attempt.first_body_ns = fields["first_body_ns"].cast<int64_t>();
  attempt.end_ns = fields["end_ns"].cast<int64_t>();
  attempt.status = fields["status"].cast<int>();
  attempt.error = Forever(fields["error"].cast<std::string>());
  attempt.span_id = fields["span_id"].cast<uint64_t>();
  return attempt;
}

// The telemetries of some threads and the metrics page made of them, with a clock that the test moves.
class Lanes {
 public:
  Lanes(const PyRouter& router, size_t count, bool access_log, const std::string& record_log) {
    if (access_log) {
      log_ = std::make_unique<LineWriter>([this](std::string_view lines) {
        MutexLock lock(mutex_);
        stuck_signal_.wait(lock.native(), [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !stuck_; });
        written_.append(lines);
      });
    }
    if (!record_log.empty()) records_ = ValueOrThrow(TrafficLog::Open({.path = record_log}));
    const Logs logs{.access = log_.get(), .records = records_.get()};
    std::vector<const Telemetry*> views;
    for (size_t i = 0; i < count; ++i) {
      telemetries_.push_back(std::make_unique<Telemetry>(router.router().policy().name(), logs));
      views.push_back(telemetries_.back().get());
    }
    metrics_ = std::make_unique<Metrics>(
        router.shared(), views, limits_, clock_, ServerFiles{.records = records_.get()});
  }
  ~Lanes() { SetStuck(false); }
  Telemetry& thread(size_t i) { return *telemetries_.at(i); }
  std::string Text() const { return metrics_->Text(); }
  void Advance(int64_t nanos) { clock_.Advance(nanos); }

  // The output of the log, once it has caught up; a log that is stuck does not.
  std::string Written() {
    log_->WaitUntilWritten(10'000);
    MutexLock lock(mutex_);
    return written_;
  }
  bool WaitForRecords(int64_t timeout_ms) { return records_->writer().WaitUntilWritten(timeout_ms); }
  void SetStuck(bool stuck) {
    MutexLock lock(mutex_);
    stuck_ = stuck;
    stuck_signal_.notify_all();
  }

 private:
  ManualClock clock_;
  ServerLimits limits_{ServerOptions{}};
  Mutex mutex_;
  std::condition_variable stuck_signal_;
  bool stuck_ ABSL_GUARDED_BY(mutex_) = false;
  std::string written_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<LineWriter> log_;
  std::unique_ptr<TrafficLog> records_;
  std::vector<std::unique_ptr<Telemetry>> telemetries_;
  std::unique_ptr<Metrics> metrics_;
};

py::dict RouteAsDict(Route route) {
  const RouteInfo& info = RouteOf(route);
  py::dict dict;
  dict["label"] = info.label;
  dict["own"] = info.own;
  dict["inference"] = info.inference;
  dict["computes"] = info.computes;
  dict["generates"] = info.generates;
  dict["allow"] = info.allow;
  dict["anthropic"] = IsAnthropic(route);
  dict["id_prefix"] = info.id_prefix;
  constexpr std::array<std::string_view, 4> kAccesses = {"anybody", "client", "admin", "admin port"};
  dict["access"] = kAccesses[static_cast<size_t>(info.access)];
  return dict;
}

void BindRequestSpans(py::module_& testing) {
  testing.def(
      "request_spans",
      [](const py::dict& trace, const std::vector<py::dict>& attempts, bool genai, const py::kwargs& fields) {
        RequestInfo record = MakeRecord(fields);
        record.trace = std::make_unique<RequestTrace>(MakeTrace(trace));
        for (const py::dict& attempt : attempts) record.attempts_made.push_back(MakeAttempt(attempt));
        KeyedHash names(KeyedHash::Key{});
        std::string bytes;
        const size_t count = WriteRequestSpans(
            {.info = record,
             .request_id = record.request_id,
             .client = record.client,
             .policy = "auto",
             .block_size = 16,
             .conversations = genai ? &names : nullptr},
            &bytes);
        return py::make_tuple(count, py::bytes(bytes));
      });
  testing.def("predicted_tokens", [](uint32_t block_size, const py::kwargs& fields) {
    const RequestInfo record = MakeRecord(fields);
    const auto found = record.decision ? PredictionOf(*record.decision, record.prompt_tokens, block_size)
                                       : std::optional<CachePrediction>();
    return found ? std::optional(found->cached) : std::nullopt;
  });
}

void BindTables(py::module_& testing) {
  Admin::AddRoutes(Features());
  BindRequestSpans(testing);
  testing.def("routes", [] {
    py::list routes;
    for (int i = 0; i < kRouteCount; ++i) {
      const auto route = static_cast<Route>(i);
      if (!RouteOf(route).label.empty()) routes.append(RouteAsDict(route));
    }
    return routes;
  });
  testing.def("find_route", [](const std::string& path) { return RouteAsDict(FindRoute(path)); });
  testing.def("method_allowed", [](const std::string& allow, const std::string& method) {
    return MethodAllowed(allow, method);
  });

  testing.def("exchange_ends", [] {
    std::vector<std::string_view> names;
    for (int i = 0; i < kExchangeEndCount; ++i) names.push_back(ExchangeEndName(static_cast<ExchangeEnd>(i)));
    return names;
  });

  testing.def("error_rows", [] {
    py::list rows;
    for (int i = 0; i < kHttpErrorCount; ++i) {
      const ErrorRow& row = ErrorOf(static_cast<HttpError>(i));
      rows.append(py::make_tuple(row.status, row.type, row.code, row.message, row.retry_after));
    }
    return rows;
  });
  testing.def("error_body", [](const std::string& message, const std::string& type, const std::string& code) {
    return py::bytes(ErrorBody(message, type, code));
  });
  testing.def(
      "error_body_for", [](const std::string& path, int status, const std::string& message,
                           const std::string& code, const std::string& request_id) {
        return py::bytes(ErrorBodyFor(
            FindRoute(path), {.status = status,
                              .message = message,
                              .type = "server_error",
                              .code = code,
                              .request_id = request_id}));
      });

  py::class_<AbortedResponses>(testing, "AbortedResponses")
      .def(py::init<>())
      .def(
          "count",
          [](AbortedResponses& self, double now, uint32_t failures, double window, uint32_t worker) {
            const BreakerOptions options{
                .failure_threshold = failures, .window_ms = static_cast<int64_t>(window * 1000)};
            return self.Count(WorkerId{worker}, options, static_cast<int64_t>(now * 1e9));
          },
          py::arg("now"), py::arg("failures"), py::arg("window"), py::arg("worker") = 0);
  testing.def("error_events", [](const std::string& path, int status, const std::string& body) {
    return py::bytes(ErrorEvents(FindRoute(path), status, body));
  });
  testing.def("error_event", [](const std::string& path, int status, const std::string& body) {
    return py::bytes(ErrorEvent(FindRoute(path), status, body));
  });
  testing.def("whole_as_events", [](const std::string& path, const std::string& body) {
    return py::bytes(WholeAsEvents(FindRoute(path), body));
  });

  using Pairs = std::vector<std::pair<std::string, std::string>>;
  testing.def(
      "key_of",
      [](const Pairs& pairs, bool websocket) -> std::optional<std::string> {
        RequestHead head;
        head.websocket = websocket;
        for (const auto& [name, value] : pairs) head.fields.push_back({name, value});
        const std::optional<std::string_view> key = KeyOf(head);
        return key.has_value() ? std::optional<std::string>(*key) : std::nullopt;
      },
      py::arg("fields"), py::arg("websocket") = false);
  testing.def(
      "cors_fields", [](const std::vector<std::string>& allowed, const std::string& origin,
                        const std::string& access, bool preflight) {
        const Access who = access == "admin" ? Access::kAdmin : Access::kClient;
        std::map<std::string, std::string> fields;
        const Cors cors(allowed);
        RequestHead head;
        head.fields.push_back({"Origin", origin});
        for (const HeaderField& field :
             preflight ? cors.PreflightFieldsFor(head, who, "GET, DELETE") : cors.FieldsFor(origin, who)) {
          fields.emplace(field.name, field.value);
        }
        return fields;
      });
  testing.def("cors_is_cross_site", [](const std::vector<std::string>& allowed, const Pairs& pairs) {
    std::vector<HeaderField> fields;
    for (const auto& [name, value] : pairs) fields.push_back({name, value});
    return Cors(allowed).IsCrossSite(fields);
  });
  testing.def(
      "choose_request_id", [](const Pairs& pairs, const std::vector<std::string>& names,
                              const std::string& prefix, Random& random) {
        std::vector<HeaderField> fields;
        for (const auto& [name, value] : pairs) fields.push_back({name, value});
        const RequestId id = ChooseRequestId(fields, names, prefix, random);
        return py::make_tuple(id.id, std::string(id.header_name), std::string(id.to_worker()));
      });
}

py::object DescribeGrant(const KeyGrant* grant) {
  if (grant == nullptr) return py::none();
  py::dict shown;
  const auto name = [&shown](const char* attribute, const std::optional<PriorityClass>& priority_class) {
    if (priority_class) shown[attribute] = PriorityClassName(*priority_class);
  };
  if (!grant->tenant.empty()) shown["tenant"] = grant->tenant;
  name("class", grant->priority_class);
  name("max_class", grant->max_class);
  if (grant->trusted) shown["trusted"] = true;
  return shown;
}

void BindKeys(py::module_& testing) {
  py::class_<KeySet>(testing, "KeySet")
      .def(
          py::init([](const py::bytes& text, const std::string& name, bool takes_attributes) {
            const auto attributes =
                takes_attributes ? KeySet::Attributes::kTaken : KeySet::Attributes::kRejected;
            return ValueOrThrow(KeySet::Parse(std::string_view(text), name, attributes));
          }),
          py::arg("text"), py::arg("name") = "keys.txt", py::arg("takes_attributes") = true)
      .def("__len__", &KeySet::size)
      .def("__eq__", [](const KeySet& a, const KeySet& b) { return a == b; })
      .def_property_readonly("has_attributes", &KeySet::has_attributes)
      // The tenant's name by the key, and the attributes; None: it is not there.
      .def(
          "find",
          [](const KeySet& keys, const std::string& key) -> py::object {
            const std::optional<KeyMatch> match = keys.Find(key);
            if (!match) return py::none();
            return py::make_tuple(TenantOfKey(match->digest), DescribeGrant(match->grant.get()));
          })
      .def("__contains__", &KeySet::Contains);
  py::class_<KeyValidityCache>(testing, "KeyValidityCache")
      .def(py::init<int64_t, int64_t, size_t>())
      .def("__len__", &KeyValidityCache::size)
      .def(
          "remember",
          [](KeyValidityCache& verdicts, const std::string& key, const std::string& verdict, int64_t now) {
            const KeyValidity said = verdict == "yes"  ? KeyValidity::kYes
                                     : verdict == "no" ? KeyValidity::kNo
                                                       : KeyValidity::kUnknown;
            verdicts.Remember(Sha256({key}), {.validity = said}, now);
          })
      .def("find", [](const KeyValidityCache& verdicts, const std::string& key, int64_t now) -> py::object {
        const std::optional<KeyVerdict> found = verdicts.Find(Sha256({key}), now);
        if (!found.has_value()) return py::none();
        const KeyValidity validity = found->validity;
        return py::str(
            validity == KeyValidity::kYes  ? "yes"
            : validity == KeyValidity::kNo ? "no"
                                           : "unknown");
      });
  py::class_<KeyFile>(testing, "KeyFile")
      .def(py::init([](const std::string& flag, const std::string& path) {
        return ValueOrThrow(KeyFile::Open("client_keys", flag, path));
      }))
      .def("poll", &KeyFile::Poll, py::arg("now") = 0)
      .def(
          "reload", [](KeyFile& file, int64_t now) { return file.Reload(now).ok(); }, py::arg("now") = 0)
      .def_property_readonly("reloads_done", [](const KeyFile& file) { return file.reloads_done().count(); })
      .def_property_readonly(
          "reloads_failed", [](const KeyFile& file) { return file.reloads_failed().count(); })
      .def_property_readonly("last_success", &KeyFile::last_success_s)
      .def("__len__", [](const KeyFile& file) { return file.keys().Load()->size(); })
      .def("__contains__", [](const KeyFile& file, const std::string& key) {
        return file.keys().Load()->Contains(key);
      });
}

// Says when it is destroyed.
template <int kNumber>
struct Witness {
  Witness(std::string name, std::vector<std::string>* log) : name(std::move(name)), log(log) {}
  Witness(const Witness&) = delete;
  ~Witness() { log->push_back(name); }
  std::string name;
  std::vector<std::string>* log;
};

// What is found of three types before and after two of them are kept, and in which order those end.
py::dict UseRequestState() {
  std::vector<std::string> ended;
  py::dict seen;
  {
    RequestState state;
    const auto name = [](const auto* kept) -> py::object {
      return kept == nullptr ? py::object(py::none()) : py::object(py::str(kept->name));
    };
    seen["empty"] = name(state.Find<Witness<1>>());
    state.Emplace<Witness<1>>("first", &ended);
    Witness<2>& second = state.Emplace<Witness<2>>("second", &ended);
    second.name = "changed";
    seen["kept"] = py::make_tuple(
        name(state.Find<Witness<1>>()), name(state.Find<Witness<2>>()), name(state.Find<Witness<3>>()));
  }
  seen["ended"] = ended;
  return seen;
}

}  // namespace

void BindTestingProxy(py::module_& testing) {
  // The payload in MessagePack of a push in JSON.
  testing.def("kv_push_payload", [](const std::string& body) {
    const StatusOr<KvPushCall> call = ReadKvPushCall(body);
    if (!call.ok()) throw py::value_error(std::string(call.status().message()));
    return py::bytes(call->payload);
  });
  testing.def("server_options", [] {
    py::dict rows = OptionRows(FixedOptionTable());
    rows.attr("update")(OptionRows(SettingsTable()));
    return rows;
  });
  // By name, those in force: of numbers the value, of words the number.
  testing.def("settings", [](Server& server) {
    const std::shared_ptr<const Settings> settings = server.settings().Load();
    py::dict values;
    for (const OptionSpec<Settings>& spec : SettingsTable()) {
      values[py::str(std::string(spec.name))] = std::visit(
          [](const auto& value) -> py::object {
            if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
              return py::none();
            } else {
              return py::cast(value);
            }
          },
          spec.member.get(*settings));
    }
    return values;
  });
  testing.def(
      "publish_settings",
      [](Server& server, const py::kwargs& changes) {
        ServerOptions options;
        static_cast<Settings&>(options) = *server.settings().Load();
        server.settings().Publish(ToServerOptions(changes, options));
      },
      py::arg("server"));
  py::class_<BodyPace>(testing, "BodyPace")
      .def(py::init<uint64_t, int64_t>(), py::arg("bytes_per_second"), py::arg("window_ms"))
      .def("arrived", &BodyPace::Arrived)
      .def("waited", &BodyPace::Waited)
      .def_property_readonly(
          "rate",
          [](const BodyPace& pace) {
            constexpr std::array<const char*, 3> kNames = {"moving", "slow", "too_slow"};
            return kNames[static_cast<size_t>(pace.rate())];
          })
      .def_property_readonly("ms_to_next_step", &BodyPace::ms_to_next_step);
  testing.attr("MOST_REPORTED_LOAD") = kMostReportedLoad;
  testing.def(
      "load_in_metrics",
      [](const std::string& text, std::optional<uint32_t> rank) {
        return PairFrom(LoadInMetrics(text, rank));
      },
      py::arg("text"), py::arg("rank") = py::none());
  testing.def(
      "kv_use_in_metrics",
      [](const std::string& text, std::optional<uint32_t> rank) {
        const std::optional<ReportedLoad> load = LoadInMetrics(text, rank);
        return load ? load->kv_use : std::nullopt;
      },
      py::arg("text"), py::arg("rank") = py::none());
  // `status` 0: no response, for that reason. `key`: "sent", "none" or "withheld".
  testing.def(
      "probe_failure",
      [](std::string_view worker, std::string_view target, int status, std::string_view key,
         const std::string& reason) {
        const WorkerUrl url = ValueOrRaise(ParseWorkerUrl(worker));
        StatusOr<HttpResponse> response = HttpResponse{.status = status};
        if (status == 0) response = absl::UnavailableError(reason);
        const HttpClient::KeyUse use = key == "sent"   ? HttpClient::KeyUse::kSent
                                       : key == "none" ? HttpClient::KeyUse::kNone
                                                       : HttpClient::KeyUse::kWithheld;
        return ProbeFailure(url, target, response, use);
      },
      py::arg("worker"), py::arg("target"), py::arg("status"), py::arg("key") = "none",
      py::arg("reason") = "");
  testing.attr("MOST_CACHE_TOKENS") = kMostCacheTokens;
  testing.def(
      "cache_in_metrics",
      [](const std::string& text, std::optional<uint32_t> rank) {
        const std::optional<ReportedCache> cache = CacheInMetrics(text, rank);
        return cache ? std::optional(std::pair(cache->tokens, cache->block_tokens)) : std::nullopt;
      },
      py::arg("text"), py::arg("rank") = py::none());
  testing.def("gpu_blocks_in_metrics", [](const std::string& text, std::optional<uint32_t> rank) {
    std::vector<std::pair<std::optional<uint32_t>, uint64_t>> blocks;
    for (const GpuBlocks& each : CacheInMetrics(text, rank).value_or(ReportedCache()).gpu_blocks)
      blocks.emplace_back(each.rank, each.blocks);
    return blocks;
  });
  testing.def("load_in_get_load", [](const std::string& json) { return PairFrom(LoadInGetLoad(json)); });
  testing.def("load_in_load", [](const std::string& json) { return PairFrom(LoadInLoad(json)); });
  py::class_<LoadSource>(testing, "LoadSource")
      .def(py::init<>())
      .def("begin", &LoadSource::Begin)
      .def("target", [](const LoadSource& source) { return std::string(source.target()); })
      .def("lacks", &LoadSource::Lacks);
  py::class_<Backoff>(testing, "Rest")
      .def(py::init<>())
      .def("over", &Backoff::over)
      .def("worked", &Backoff::Worked)
      .def("failed", &Backoff::Failed)
      .def("unknown", &Backoff::Unknown);

  BindTables(testing);
  BindKeys(testing);

  py::class_<WorkerHandle>(testing, "WorkerHandle").def(py::init(&MakeWorker)).def_static("of", &FindWorker);

  testing.def(
      "access_line", [](const std::string& format, const std::string& policy, const py::kwargs& fields) {
        AccessLogLine line(policy);
        std::string out;
        const RequestInfo record = MakeRecord(fields);
        constexpr uint64_t kNumber = 7;
        format == "json" ? line.AppendJson(record, kNumber, &out) : line.AppendText(record, kNumber, &out);
        return py::bytes(out);
      });

  testing.def("record_line", [](const KeyedHash::Key& key, uint32_t block_size, const py::kwargs& fields) {
    TrafficLogLine line(key, block_size);
    std::string out;
    fields.empty() ? line.AppendHead(&out) : line.Append(MakeRecord(fields), &out);
    return out;
  });
  testing.def("read_or_make_salt", [](const std::string& path) {
    const KeyedHash::Key key = ValueOrThrow(ReadOrMakeSalt(path));
    return py::bytes(reinterpret_cast<const char*>(key.data()), key.size());
  });
  testing.def("request_state", &UseRequestState);

  py::class_<TrafficLog>(testing, "TrafficLog")
      .def(
          py::init([](const std::string& path, const std::string& salt_path, uint32_t block_size) {
            return ValueOrThrow(
                TrafficLog::Open({.path = path, .salt_path = salt_path, .block_size = block_size}));
          }),
          py::arg("path"), py::arg("salt_path") = "", py::arg("block_size") = 16)
      .def(
          "write",
          [](TrafficLog& log, std::string lines) {
            return log.writer().Take(&lines) && log.writer().WaitUntilWritten(10'000);
          },
          py::call_guard<py::gil_scoped_release>())
      .def("reopen", [](TrafficLog& log) { return log.Reload(0).ok(); })
      .def_property_readonly("written", &TrafficLog::written)
      .def_property_readonly("lost", &TrafficLog::lost);

  py::class_<Lanes>(testing, "Lanes")
      .def(
          py::init<const PyRouter&, size_t, bool, const std::string&>(), py::arg("router"),
          py::arg("count") = 1, py::arg("access_log") = false, py::arg("record_log") = "")
      .def(
          "decided",
          [](Lanes& threads, size_t thread, const WorkerHandle& worker, const std::string& reason) {
            threads.thread(thread).Decided(
                worker.worker, {.reason = ByName<Reason>(reason, kReasonCount, &ReasonName)});
          })
      .def(
          "record", [](Lanes& threads, size_t thread,
                       const py::kwargs& fields) { threads.thread(thread).Record(MakeRecord(fields)); })
      .def(
          "record_often",  // without the interpreter's lock, beside other threads
          [](Lanes& threads, size_t thread, uint64_t times, const py::kwargs& fields) {
            const RequestInfo record = MakeRecord(fields);
            py::gil_scoped_release release;
            for (uint64_t i = 0; i < times; ++i) threads.thread(thread).Record(record);
          })
      .def(
          "set_gauge",
          [](Lanes& threads, size_t thread, const std::string& name, int64_t value) {
            Telemetry& telemetry = threads.thread(thread);
            const std::map<std::string, std::atomic<int64_t>*> gauges = {
                {"client_connections", &telemetry.connections.clients},
                {"in_flight", &telemetry.in_flight},
                {"upstream_open", &telemetry.connections.upstream_open},
                {"upstream_idle", &telemetry.connections.upstream_idle}};
            gauges.at(name)->store(value);
          })
      .def("has_lines", [](Lanes& threads, size_t thread) { return !threads.thread(thread).lines.empty(); })
      .def("flush", [](Lanes& threads, size_t thread) { threads.thread(thread).lines.Flush(); })
      .def("wait_for_records", &Lanes::WaitForRecords, py::call_guard<py::gil_scoped_release>())
      .def("written", [](Lanes& threads) { return py::bytes(threads.Written()); })
      .def("set_stuck", &Lanes::SetStuck)
      .def(
          "advance",
          [](Lanes& threads, double seconds) { threads.Advance(static_cast<int64_t>(seconds * 1e9)); })
      .def("text", &Lanes::Text, py::call_guard<py::gil_scoped_release>());
}

}  // namespace vllm_router
