// Router, Ticket and Batch: the Python classes for decisions. python/vllm_router/router.py adds names,
// checks of options and documentation; a call of `select` goes straight to this file.
#include <absl/container/flat_hash_map.h>
#include <absl/container/inlined_vector.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/text.h"
#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/callables.h"
#include "bindings/errors.h"
#include "bindings/index_file.h"
#include "bindings/json_text.h"
#include "bindings/kv_events.h"
#include "bindings/option_values.h"
#include "bindings/py_router.h"
#include "bindings/stats_dict.h"
#include "bindings/worker_declaration.h"
#include "index/block_cache_tracker.h"
#include "policy/cache_aware.h"
#include "policy/prefix_aware.h"
#include "routing/explanation.h"
#include "routing/model_member.h"
#include "routing/router_option_table.h"

namespace vllm_router {

namespace py = pybind11;
using namespace py::literals;

namespace {

// ---- The caller's description of a request -----------------------------------------------------------

// A mapping of names to values, or pairs of them (as ASGI has them); names and values are str or bytes.
class Headers {
 public:
  void Read(py::handle given) {
    if (given.is_none()) return;
    if (PyDict_Check(given.ptr())) {
      PyObject* name = nullptr;
      PyObject* value = nullptr;
      Py_ssize_t position = 0;
      while (PyDict_Next(given.ptr(), &position, &name, &value) != 0) Add(name, value);
      return;
    }
    if (PyUnicode_Check(given.ptr()) || PyBytes_Check(given.ptr())) Refuse(given);
    const py::object pairs = py::hasattr(given, "items") ? py::object(given.attr("items")())
                                                         : py::reinterpret_borrow<py::object>(given);
    kept_ = py::reinterpret_steal<py::object>(PySequence_Tuple(pairs.ptr()));
    if (!kept_) {
      PyErr_Clear();
      Refuse(given);
    }
    for (const py::handle pair : py::reinterpret_borrow<py::tuple>(kept_)) {
      if ((!PyTuple_Check(pair.ptr()) && !PyList_Check(pair.ptr())) ||
          PySequence_Fast_GET_SIZE(pair.ptr()) != 2) {
        throw py::type_error("headers holds " + Show(pair) + "; each entry must be a pair (name, value)");
      }
      Add(PySequence_Fast_GET_ITEM(pair.ptr(), 0), PySequence_Fast_GET_ITEM(pair.ptr(), 1));
    }
  }

  std::span<const HeaderField> fields() const { return {fields_.data(), fields_.size()}; }

  // Copies names and values, so that they can be read without the GIL.
  void Own() {
    copies_.clear();
    for (const HeaderField& field : fields_) copies_.append(field.name).append(field.value);
    std::string_view rest = copies_;
    const auto take = [&rest](size_t size) {
      const std::string_view taken = rest.substr(0, size);
      rest.remove_prefix(size);
      return taken;
    };
    for (HeaderField& field : fields_) field = {take(field.name.size()), take(field.value.size())};
  }

 private:
  [[noreturn]] static void Refuse(py::handle given) {
    throw py::type_error(
        "headers is of type " + TypeName(given) +
        "; pass a mapping of names to values, or pairs (name, value)");
  }

  void Add(py::handle name, py::handle value) {
    if (value.is_none() || IsMissing(value)) return;
    const std::optional<std::string_view> name_text = TextView(name);
    const std::optional<std::string_view> value_text = TextView(value);
    if (!name_text || !value_text) {
      throw py::type_error(
          "headers holds " + Show(name) + ": " + Show(value) + "; names and values must be str or bytes");
    }
    fields_.push_back({*name_text, *value_text});
  }

  absl::InlinedVector<HeaderField, 16> fields_;
  py::object kept_;
  std::string copies_;
};

// The members `messages` and `model` as the body that a client would send.
std::string ChatBody(py::handle messages, py::handle model) {
  if (!PyList_Check(messages.ptr()) && !PyTuple_Check(messages.ptr())) {
    throw py::type_error(
        "messages is of type " + TypeName(messages) +
        "; it must be a list of messages, each a dict with role and content, or an object with model_dump() "
        "or "
        "__dict__");
  }
  for (const py::handle message : py::reinterpret_borrow<py::sequence>(messages)) {
    if (PyUnicode_Check(message.ptr()) || PyBytes_Check(message.ptr()) ||
        PyNumber_Check(message.ptr()) != 0 || PyList_Check(message.ptr()) || PyTuple_Check(message.ptr()) ||
        message.is_none()) {
      throw py::type_error(
          "messages holds a " + TypeName(message) +
          "; each message is a dict with role and content, or an object with model_dump() or __dict__");
    }
  }
  std::string body = "{";
  if (!model.is_none()) {
    body += "\"model\":";
    AppendJson(model, &body);
    body += ',';
  }
  body += "\"messages\":";
  AppendJson(messages, &body, JsonObjects::kDumped);
  return body += '}';
}

void RefuseTogether(const char* first, const char* second) {
  throw py::type_error(
      std::string("got both ") + first + " and " + second +
      "; they exclude each other: pass one of body, prompt and messages");
}

// ---- One decision ------------------------------------------------------------------------------------

// Adds the positions of `url` or of its ranks; none for a URL that is not (or no longer) in the fleet.
void FindWorkers(std::string_view url, const FleetView& fleet, std::vector<uint32_t>* positions) {
  // Nearly always it is a ticket's worker_url; otherwise parsing finds other spellings of a known one.
  if (const std::optional<uint32_t> position = fleet.Find(url)) return positions->push_back(*position);
  const StatusOr<WorkerUrl> named = ParseWorkerUrl(url);
  if (!named.ok()) return;
  for (uint32_t position = 0; position < fleet.members().size(); ++position) {
    const WorkerUrl& known = fleet.worker(position).url;
    if (SameHost(known, *named) && (!named->rank || named->rank == known.rank))
      positions->push_back(position);
  }
}

// `what`: the argument's name, exclude or among.
std::vector<uint32_t> Positions(const std::string& what, py::handle urls, const FleetView& fleet) {
  if (PyUnicode_Check(urls.ptr()) || PyBytes_Check(urls.ptr())) {
    throw py::type_error(
        what + " is " + Show(urls) + "; it must be a collection of worker URLs: pass [" + Show(urls) + "]");
  }
  std::vector<uint32_t> positions;
  for (const py::handle item : py::iter(urls)) {
    const std::optional<std::string_view> url = TextView(item);
    if (!url) throw py::type_error(what + " holds " + Show(item) + "; it must hold worker URLs as str");
    FindWorkers(*url, fleet, &positions);
  }
  return positions;
}

bool IsEmptyTuple(py::handle value) {
  return PyTuple_Check(value.ptr()) && PyTuple_GET_SIZE(value.ptr()) == 0;
}

// The part of the fleet that a decision is restricted to; empty: all of it.
std::optional<FleetView> Narrowed(py::handle exclude, py::handle among, const FleetView& fleet) {
  std::optional<FleetView> smaller;
  if (!among.is_none()) {
    std::vector<uint8_t> named(fleet.members().size());
    for (const uint32_t position : Positions("among", among, fleet)) named[position] = 1;
    std::vector<uint32_t> others;
    for (uint32_t position = 0; position < named.size(); ++position) {
      if (named[position] == 0) others.push_back(position);
    }
    smaller = fleet.Without(others);
  }
  if (!IsEmptyTuple(exclude) && !exclude.is_none()) {
    smaller = (smaller ? *smaller : fleet).Without(Positions("exclude", exclude, fleet));
  }
  return smaller;
}

// A request as the caller gives it.
struct Given {
  const py::object& body;
  const py::object& prompt;
  const py::object& messages;
  const py::object& token_ids;
  const py::object& headers;
  const py::object& model;
  const py::object& path;
  const py::object& shared_ranges;
  const py::object& cost_override;
};

// The same as the core reads it, and the memory that its parts and the key point into.
struct Asked {
  Asked() = default;
  Asked(const Asked&) = delete;

  size_t size() const {
    return (request.body ? request.body->size() : 0) + (request.prompt ? request.prompt->size() : 0) +
           (request.token_ids ? request.token_ids->size_bytes() : 0);
  }

  RoutingKey key;
  RequestView request;
  Headers headers;
  SharedHits shared_hits;
  CostOverride cost_override;
  Bytes bytes;
  std::string written;
  std::vector<uint32_t> copied;
};

std::optional<std::string_view> PathOf(py::handle path) {
  if (path.is_none()) return std::nullopt;
  const std::optional<std::string_view> text = TextView(path);
  if (!text) {
    throw py::type_error(
        "path is of type " + TypeName(path) +
        "; it must be the request's path as str, such as "
        "'/v1/responses'");
  }
  return text->substr(0, text->find('?'));
}

std::optional<std::string_view> ModelName(py::handle model) {
  const std::optional<std::string_view> name = TextView(model);
  if (!name && !model.is_none()) {
    throw py::type_error("model is of type " + TypeName(model) + "; it must be str or bytes, or None");
  }
  return name;
}

// "a", "b" and 3 more
std::string NamesOf(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + Quoted(names[i]);
  if (names.size() > kMost) text += Concat(" and ", names.size() - kMost, " more");
  return text;
}

// The part of the fleet that serves the model, as the server finds it (proxy/exchange/requested_model.h).
std::shared_ptr<const FleetView> Serving(
    const std::shared_ptr<const FleetView>& fleet, std::string_view model) {
  const ModelPools& pools = *fleet->models();
  if (model.empty() && pools.names->bases.size() == 1) model = pools.names->bases.front();
  if (model.empty()) return fleet;
  constexpr int64_t kForever = std::numeric_limits<int64_t>::max();  // what is forgotten is not in the pools
  switch (pools.Resolve(model, SteadyClock().NowNanos(), kForever)) {
    case ModelPools::Result::kPool:
      return pools.ViewOf(fleet, *pools.Find(model));
    case ModelPools::Result::kAnything:
      return pools.anything;
    case ModelPools::Result::kAsleep:
      Throw(absl::UnavailableError(Concat(
          "no worker serves the model ", Quoted(model), " now; add one, or wait until one has joined")));
    case ModelPools::Result::kUnknown: {
      std::vector<std::string> served;
      for (const std::string& name : pools.names->order) {
        if (pools.Find(name)->is_listed()) served.push_back(name);
      }
      ThrowAs(
          "ModelNotFoundError", Concat(
                                    "the model ", Quoted(model),
                                    " is served by no worker of the fleet; they serve ", NamesOf(served)));
    }
    case ModelPools::Result::kAll:
    case ModelPools::Result::kForwarded:
      break;
  }
  return fleet;
}

// The same of a request. Its names are read only where workers serve different models.
std::shared_ptr<const FleetView> Serving(std::shared_ptr<const FleetView> fleet, const Given& given) {
  if (!fleet->models()->decides()) return fleet;
  if (!given.model.is_none()) return Serving(fleet, ModelName(given.model).value_or(""));
  if (given.body.is_none()) return Serving(fleet, "");
  if (PyDict_Check(given.body.ptr())) {
    const py::object name =
        py::reinterpret_borrow<py::object>(PyDict_GetItemString(given.body.ptr(), "model"));
    return Serving(fleet, name ? TextView(name).value_or("") : "");
  }
  Bytes bytes;
  if (!bytes.Hold(given.body)) return fleet;  // rejected below
  return Serving(fleet, FindModelMember(bytes.view()).name);
}

// The workers of which a request gets one. A fleet with stages has two for each; callers choose the prefill worker.
std::shared_ptr<const FleetView> Choosable(PyRouter& self, const Given& given) {
  const std::shared_ptr<const FleetView>& whole = self.fleet();
  return whole->stages() != nullptr ? whole->stages()->prefill : Serving(whole, given);
}

// Where the policy does not read the part of a request that the argument `what` is.
void CheckReads(const Router& router, KeyParts part, std::string_view what) {
  if (Has(router.needs(), part)) return;
  throw py::value_error(Concat(
      what, " is given, which only kv_logit and kv_aware read; the policy is ", router.policy().name()));
}

// A pair of block numbers.
BlockRange RangeOf(py::handle pair) {
  const auto wrong = [&] {
    throw py::value_error(
        "shared_ranges holds " + Show(pair) +
        "; it must hold pairs (begin, end) of block numbers, 0 <= begin <= end <= 4294967295");
  };
  if (!PySequence_Check(pair.ptr()) || PySequence_Size(pair.ptr()) != 2) wrong();
  std::array<uint32_t, 2> ends{};
  for (size_t i = 0; i < 2; ++i) {
    const py::object item =
        py::reinterpret_steal<py::object>(PySequence_GetItem(pair.ptr(), static_cast<Py_ssize_t>(i)));
    const long long number = PyIndex_Check(item.ptr()) != 0 ? PyNumber_AsSsize_t(item.ptr(), nullptr) : -1;
    if (number < 0 || number > UINT32_MAX) wrong();
    ends[i] = static_cast<uint32_t>(number);
  }
  if (ends[0] > ends[1]) wrong();
  return {ends[0], ends[1]};
}

SharedHits SharedHitsOf(py::handle pairs) {
  std::vector<BlockRange> ranges;
  for (const py::handle pair : py::iter(pairs)) ranges.push_back(RangeOf(pair));
  return SharedHits(std::move(ranges));
}

CostOverride CostOverrideOf(py::handle given) {
  if (!PyDict_Check(given.ptr())) {
    throw py::type_error(
        "override is of type " + TypeName(given) + "; pass a dict, such as {'router_temperature': 0.5}");
  }
  CostOverride made;
  // A copy, which a value's __float__ cannot change.
  const auto copy = py::reinterpret_steal<py::dict>(PyDict_Copy(given.ptr()));
  for (const auto& [name, value] : copy) {
    const std::optional<std::string_view> text = TextView(name);
    if (!text) throw py::type_error("override holds " + Show(name) + "; names of options are str");
    const double number = PyBool_Check(value.ptr()) ? -1 : PyFloat_AsDouble(value.ptr());
    if (number == -1 && (PyErr_Occurred() != nullptr || PyBool_Check(value.ptr()))) {
      PyErr_Clear();
      throw py::type_error("override holds " + Show(value) + " as " + Show(name) + "; it must be a number");
    }
    ThrowIfError(made.Set(*text, number));
  }
  return made;
}

constexpr KeyParts kPromptParts = KeyParts::kPrompt | KeyParts::kBlocks | KeyParts::kPrefixDigest;

// The first argument by position is the body, and new users often pass a prompt there.
void WarnOfPlainText(std::string_view body) {
  const std::string_view text = TrimBlanks(body);
  if (text.empty() || text.front() == '{') return;
  constexpr const char* kWords =
      "body is a str that is no JSON object, so no prompt is found in it; pass a plain text as prompt=";
  if (PyErr_WarnEx(PyExc_UserWarning, kWords, 1) != 0) throw py::error_already_set();
}

// Fills `asked->request`: with `whole` every given part, otherwise those that the policy needs.
void ReadRequest(const Router& router, const Given& given, bool whole, Asked* asked) {
  const auto& [body, prompt, messages, token_ids, given_headers, model, path, ranges, cost] = given;
  if (!body.is_none() && !prompt.is_none()) RefuseTogether("body", "prompt");
  if (!body.is_none() && !messages.is_none()) RefuseTogether("body", "messages");
  if (!prompt.is_none() && !messages.is_none()) RefuseTogether("prompt", "messages");
  const std::optional<std::string_view> target = PathOf(path);
  if (!ranges.is_none()) {
    CheckReads(router, KeyParts::kSharedHits, "shared_ranges");
    asked->shared_hits = SharedHitsOf(ranges);
    asked->request.shared_hits = &asked->shared_hits;
  }
  if (!cost.is_none()) {
    CheckReads(router, KeyParts::kCostOverride, "override");
    asked->cost_override = CostOverrideOf(cost);
    asked->request.cost_override = &asked->cost_override;
  }
  if (router.needs() == KeyParts::kNone && !whole) return;

  RequestView& request = asked->request;
  asked->headers.Read(given_headers);
  const bool needs_text = whole || router.NeedsBody(asked->headers.fields());
  const bool needs_session = Has(router.needs(), KeyParts::kSession | KeyParts::kBodyDigest);
  if (whole || needs_session) request.headers = asked->headers.fields();
  if (target) request.path = *target;
  if (!needs_text && !Has(router.needs(), KeyParts::kPromptTokens)) return;

  Bytes& bytes = asked->bytes;
  std::string& written = asked->written;
  if (!body.is_none()) {
    if (PyDict_Check(body.ptr())) {
      AppendJson(body, &written);
      request.body = written;
    } else if (bytes.Hold(body)) {
      request.body = bytes.view();
      if (PyUnicode_Check(body.ptr()) && Has(router.needs(), kPromptParts)) WarnOfPlainText(*request.body);
    } else {
      throw py::type_error(
          "body is of type " + TypeName(body) + "; pass the JSON as bytes or str, or a dict");
    }
  } else if (!messages.is_none()) {
    asked->headers.Own();  // objects among the messages may run Python code
    written = ChatBody(messages, model);
    request.body = written;
  } else if (!prompt.is_none()) {
    if (!bytes.Hold(prompt))
      throw py::type_error("prompt is of type " + TypeName(prompt) + "; pass str or bytes");
    request.prompt = bytes.view();
  }
  if (!token_ids.is_none()) request.token_ids = TokenIds(token_ids, &asked->copied);
  request.model = ModelName(model).value_or(request.model);
}

void MakeKey(const Router& router, const Given& given, Asked* asked) {
  ReadRequest(router, given, /*whole=*/false, asked);
  if (router.needs() == KeyParts::kNone) return;
  if (asked->size() >= kReleaseGilBytes && router.NeedsBody(asked->headers.fields())) {
    asked->headers.Own();
    const py::gil_scoped_release release;
    router.MakeKey(asked->request, &asked->key);
  } else {
    router.MakeKey(asked->request, &asked->key);
  }
}

constexpr int64_t kLongestLeaseSecs = 31'536'000;

// A ticket as Python has it: with the router and the parsed request, for moved(), and the workers that
// come next. With the GIL, except for the races that Ticket allows.
class PyTicket : public Ticket {
 public:
  // A row of a batch, which keeps no part of its requests.
  explicit PyTicket(Ticket&& ticket) : Ticket(std::move(ticket)) {}
  PyTicket(const PyTicket&) = delete;
  PyTicket& operator=(const PyTicket&) = delete;
  ~PyTicket() { EndLease(); }
  // Takes the parsed request from `asked`; `prompt` is the caller's prompt.
  PyTicket(std::shared_ptr<Router> router, Ticket&& ticket, Asked* asked, const py::object& prompt)
      : Ticket(std::move(ticket)), router_(std::move(router)), key_(std::move(asked->key)) {
    key_.explanation = nullptr;
    key_.dry_run = false;
    Prompt& kept = key_.prompt;
    if (kept.kept_text) {
      // Immutable objects are not copied.
      if (PyUnicode_CheckExact(prompt.ptr()) || PyBytes_CheckExact(prompt.ptr())) {
        prompt_ = prompt;
      } else {
        kept.own_text = *kept.kept_text;
        kept.kept_text.reset();
      }
    }
    if (kept.kept_tokens) {
      if (kept.kept_tokens->data() == asked->copied.data()) {
        kept.own_tokens = std::move(asked->copied);
      } else {
        kept.own_tokens.assign(kept.kept_tokens->begin(), kept.kept_tokens->end());
      }
      kept.kept_tokens.reset();
    }
  }

  Router* router() const { return router_.get(); }
  // REQUIRES: router() is not null.
  RoutingKey& key() { return key_; }

  // The ticket ends by itself after so long. REQUIRES: router() is not null.
  void SetLease(double seconds) {
    leases_ = router_->leases();
    leases_->Set(this, SteadyClock().NowNanos() + static_cast<int64_t>(seconds * 1e9));
  }

  // When the request is over, none of its data is kept.
  void ForgetRequest() {
    EndLease();
    router_.reset();
    key_ = {};
    prompt_ = py::object();
  }

  std::shared_ptr<PyReceipts> receipts;                  // null: of a batch
  std::optional<std::vector<std::string>> alternatives;  // none: not requested

  // The request is over: returns the load, and writes the receipt. True for the call that did it.
  bool End(const Outcome& outcome) {
    const bool ended = Finish(outcome);
    if (ended && receipts != nullptr) receipts->Write(*this, key_.model, outcome);
    ForgetRequest();
    return ended;
  }

 private:
  void EndLease() {
    if (leases_ != nullptr) leases_->Remove(this);
    leases_.reset();
  }

  std::shared_ptr<Router> router_;        // null: moved() is not supported
  std::shared_ptr<TicketLeases> leases_;  // null: none was set
  RoutingKey key_;
  py::object prompt_;  // key_ points into it
};

// The policy's decision with the ticket's worker excluded, and so on.
std::vector<std::string> AlternativesTo(
    const Ticket& ticket, const Router& router, const FleetView& fleet, int64_t count, RoutingKey* key) {
  key->dry_run = true;
  key->explanation = nullptr;
  FleetView others(fleet);
  others.Exclude(ticket.decision().position);
  std::vector<std::string> urls;
  for (const Decision& next : router.Rank(*key, others, static_cast<size_t>(count)))
    urls.push_back(fleet.worker(next.position).url.url);
  return urls;
}

py::object Select(
    PyRouter& self, const py::object& body, const py::object& prompt, const py::object& messages,
    const py::object& token_ids, const py::object& headers, const py::object& model, const py::object& path,
    const py::object& exclude, const py::object& among, int64_t alternatives, bool explain,
    const py::object& shared_ranges, const py::object& cost_override) {
  Asked asked;
  if (alternatives < 0) {
    throw py::value_error(
        "alternatives is " + std::to_string(alternatives) +
        "; it is the number of workers to rank behind the chosen one and must be 0 or more");
  }
  if (explain) asked.key.explanation = std::make_shared<Explanation>();
  const Given given{body, prompt, messages, token_ids, headers, model, path, shared_ranges, cost_override};
  MakeKey(self.router(), given, &asked);
  const RoutingKey& key = asked.key;
  const auto shared = [&](StatusOr<Ticket> ticket) {
    auto made = std::make_shared<PyTicket>(self.shared(), ValueOrThrow(std::move(ticket)), &asked, prompt);
    made->receipts = self.receipts();
    const double lease = self.router().options().ticket_lease_secs;
    if (lease != 0) made->SetLease(lease);
    return made;
  };
  const bool is_whole = alternatives == 0 && among.is_none() && (IsEmptyTuple(exclude) || exclude.is_none());
  if (is_whole && self.fleet()->stages() == nullptr && !self.fleet()->models()->decides())
    return py::cast(shared(self.router().Select(key, *self.fleet())));
  // Iterating over the collections may run Python code, so the fleet is held here and not in the cache.
  const std::shared_ptr<const FleetView> fleet = Choosable(self, given);
  if (is_whole) return py::cast(shared(self.router().Select(key, *fleet)));
  const std::optional<FleetView> smaller = Narrowed(exclude, among, *fleet);
  const FleetView& view = smaller ? *smaller : *fleet;
  StatusOr<Ticket> ticket = self.router().Select(key, view);
  std::optional<std::vector<std::string>> others;
  if (ticket.ok() && alternatives != 0)
    others = AlternativesTo(*ticket, self.router(), view, alternatives, &asked.key);
  const std::shared_ptr<PyTicket> made = shared(std::move(ticket));
  made->alternatives = std::move(others);
  return py::cast(made);
}

// A decode worker that serves the request alone, or none.
py::object SelectBypass(
    PyRouter& self, const py::object& body, const py::object& prompt, const py::object& messages,
    const py::object& token_ids, const py::object& headers, const py::object& model, const py::object& path) {
  Asked asked;
  const Given given{body, prompt, messages, token_ids, headers, model, path, py::none(), py::none()};
  MakeKey(self.router(), given, &asked);
  const std::shared_ptr<const FleetView> whole = self.fleet();
  if (whole->stages() == nullptr) return py::none();
  std::optional<Router::Bypass> bypass = self.router().SelectBypass(asked.key, *whole->stages()->decode);
  if (!bypass) return py::none();
  auto made = std::make_shared<PyTicket>(self.shared(), std::move(bypass->ticket), &asked, prompt);
  made->receipts = self.receipts();
  const double lease = self.router().options().ticket_lease_secs;
  if (lease != 0) made->SetLease(lease);
  return py::cast(made);
}

// ---- Ticket ------------------------------------------------------------------------------------------

// Names are few and occur many times: each is one str for the life of the process.
template <size_t kCount>
using Names = std::array<PyObject*, kCount>;

template <size_t kCount, typename Enumeration>
Names<kCount> MakeNames(std::string_view (*name)(Enumeration)) {
  Names<kCount> names;
  for (size_t i = 0; i < kCount; ++i) {
    const std::string_view text = name(static_cast<Enumeration>(i));
    names[i] = PyUnicode_InternFromString(std::string(text).c_str());
  }
  return names;
}

py::object ReasonText(Reason reason) {
  static const auto names = MakeNames<kReasonCount>(&ReasonName);
  return py::reinterpret_borrow<py::object>(names[static_cast<size_t>(reason)]);
}

py::object UnitText(MatchUnit unit) {
  static const auto names = MakeNames<static_cast<size_t>(MatchUnit::kBlocks) + 1>(&MatchUnitName);
  return py::reinterpret_borrow<py::object>(names[static_cast<size_t>(unit)]);
}

// ---- A dry run ---------------------------------------------------------------------------------------

// Why a member was not ranked.
std::string_view StatusOf(const FleetView::Member& member, bool eligible, bool left_out) {
  if (member.other_model) return "other_model";
  if (!member.healthy) return "unhealthy";
  if (member.draining) return "draining";
  if (member.resting || member.pair != PairState::kReady) return "not_ready";
  if (member.open) return "circuit_breaker";
  if (member.in_doubt) return "in_doubt";
  if (left_out) return "excluded";
  return eligible ? "eligible" : "full";
}

// In the order of RankedWorker's fields in explanation.py.
py::object RankedRow(
    const Worker& worker, const py::object& rank, const Decision* decision, std::string_view status,
    const Explanation::Candidate* compared) {
  const WorkerLoad& load = worker.load;
  const py::object type = py::module_::import("vllm_router.explanation").attr("RankedWorker");
  return type(
      rank, worker.url.url, decision != nullptr ? ReasonText(decision->reason) : py::none(),
      std::string(status), compared != nullptr ? py::cast(compared->matched) : py::none(),
      compared != nullptr ? py::cast(compared->cost) : py::none(),
      compared != nullptr ? py::cast(compared->limit) : py::none(), load.open_requests(),
      load.outstanding_tokens(), load.queued_prefill(), load.context(),
      static_cast<double>(worker.weight) / kWeightOne, load.own_waiting(),
      compared != nullptr ? py::cast(compared->score) : py::none());
}

std::vector<std::string> PartsRead(KeyParts needs) {
  std::vector<std::string> parts;
  if (Has(needs, KeyParts::kSession | KeyParts::kBodyDigest)) parts.emplace_back("session_key");
  if (Has(needs, KeyParts::kPrefixDigest)) parts.emplace_back("prefix_digest");
  if (Has(needs, KeyParts::kPrompt)) parts.emplace_back("routing_text");
  if (Has(needs, KeyParts::kBlocks)) parts.emplace_back("blocks");
  if (Has(needs, KeyParts::kPromptTokens)) parts.emplace_back("prompt_tokens");
  return parts;
}

py::object Explain(
    PyRouter& self, const py::object& body, const py::object& prompt, const py::object& messages,
    const py::object& token_ids, const py::object& headers, const py::object& model, const py::object& path,
    const py::object& exclude, const py::object& among, const py::object& shared_ranges,
    const py::object& cost_override) {
  const Router& router = self.router();
  const Given given{body, prompt, messages, token_ids, headers, model, path, shared_ranges, cost_override};
  const std::shared_ptr<const FleetView> fleet = Choosable(self, given);
  const std::optional<FleetView> smaller = Narrowed(exclude, among, *fleet);
  const FleetView& view = smaller ? *smaller : *fleet;

  router.ExpireTickets();
  Asked asked;
  asked.key.dry_run = true;
  asked.key.explanation = std::make_shared<Explanation>();
  MakeKey(router, given, &asked);
  Asked whole;
  ReadRequest(router, given, /*whole=*/true, &whole);
  whole.headers.Own();
  whole.request.headers = whole.headers.fields();
  std::vector<Decision> ranked;
  RequestSummary summary;
  {
    const py::gil_scoped_release release;
    ranked = router.Rank(asked.key, view, view.members().size());
    summary = router.Summarize(whole.request);
  }

  const std::vector<Explanation::Candidate>& candidates = asked.key.explanation->candidates;
  const auto compared = [&](const Worker& worker) -> const Explanation::Candidate* {
    const auto found = std::ranges::find(candidates, worker.id, &Explanation::Candidate::worker);
    return found != candidates.end() ? &*found : nullptr;
  };
  py::list rows;
  std::vector<uint8_t> listed(view.members().size());
  for (size_t i = 0; i < ranked.size(); ++i) {
    const Worker& worker = view.worker(ranked[i].position);
    listed[ranked[i].position] = 1;
    rows.append(RankedRow(worker, py::cast(i + 1), &ranked[i], "eligible", compared(worker)));
  }
  for (uint32_t position = 0; position < listed.size(); ++position) {
    if (listed[position] != 0) continue;
    const bool left_out = fleet->IsEligible(position) && !view.IsEligible(position);
    const std::string_view status = StatusOf(view.members()[position], /*eligible=*/false, left_out);
    rows.append(RankedRow(view.worker(position), py::none(), nullptr, status, nullptr));
  }

  const bool decided = !ranked.empty();
  const auto digest = [&]() -> py::object {
    if (!summary.prefix_digest) return py::none();
    return py::bytes(
               reinterpret_cast<const char*>(summary.prefix_digest->data()), summary.prefix_digest->size())
        .attr("hex")();
  };
  const auto size_if = [&](Prompt::Kind kind) {
    return summary.kind == kind ? py::cast(summary.size) : py::object(py::none());
  };
  const py::object made = py::module_::import("vllm_router.explanation").attr("Explanation");
  return made(
      std::string(router.policy().name()), py::tuple(rows),
      decided ? UnitText(ranked[0].unit) : UnitText(MatchUnit::kNone), decided ? ranked[0].matched : 0,
      decided ? ranked[0].total : 0,
      summary.session_key.empty() ? py::object(py::none()) : py::str(summary.session_key), digest(),
      size_if(Prompt::Kind::kText), size_if(Prompt::Kind::kTokens), summary.blocks, summary.prompt_tokens,
      py::tuple(py::cast(PartsRead(router.needs()))));
}

py::object BaseUrl(const PyTicket& ticket) { return py::str(ticket.worker().url.base); }

int CheckedStatus(const std::optional<int>& status, Outcome::End end) {
  if (!status) return end == Outcome::End::kFinished ? 200 : 0;
  if (*status != 0 && (*status < 100 || *status > 599)) {
    throw py::value_error(
        "status is " + std::to_string(*status) +
        "; it is the HTTP status of the worker's response and must be between 100 and 599, or 0 when there "
        "was none");
  }
  return *status;
}

Outcome::End CheckedEnd(const std::string& name) {
  if (const std::optional<Outcome::End> end = EndByName(name)) return *end;
  constexpr std::array<std::string_view, 4> kNames = {"finished", "client_gone", "worker_failed", "not_sent"};
  const std::string nearest(NearestName(name, kNames));
  throw py::value_error(
      "end is '" + name + "'; it must be one of finished, client_gone, worker_failed, not_sent" +
      (nearest.empty() ? "" : " (did you mean " + nearest + "?)"));
}

// The position of the one worker that the URL names.
StatusOr<uint32_t> FindWorker(std::string_view url, const FleetView& fleet) {
  std::vector<uint32_t> positions;
  FindWorkers(url, fleet, &positions);
  if (positions.size() == 1) return positions[0];
  if (positions.size() > 1) {
    return absl::InvalidArgumentError(Concat(
        "the request went to ", Quoted(url), ", which is ", positions.size(),
        " workers of the fleet; name the rank, as in ", fleet.worker(positions[0]).url.url));
  }
  std::vector<std::string_view> known;
  for (const FleetView::Member& member : fleet.members()) known.push_back(member.worker->url.url);
  const std::string_view nearest = NearestName(url, known);
  return absl::NotFoundError(Concat(
      "the request went to ", Quoted(url), ", and the fleet of ", known.size(), " has no such worker; ",
      nearest.empty() ? std::string("add it with add_worker(url)") : Concat("did you mean ", nearest, "?")));
}

Status MoveTicket(PyTicket& ticket, std::string_view url) {
  const Status finished = absl::AbortedError(Concat(
      "the ticket for ", ticket.worker().url.url,
      " is finished, so its load cannot move; select() again for another attempt"));
  if (ticket.finished()) return finished;
  if (ticket.router() == nullptr) {
    return absl::InvalidArgumentError(
        "this ticket is a row of a batch, which keeps no prompts, so it cannot move; "
        "finish(end=\"not_sent\"), "
        "then select(among=[url])");
  }
  const std::shared_ptr<const FleetView> fleet = ticket.router()->fleet();
  const StatusOr<uint32_t> position = FindWorker(url, *fleet);
  if (!position.ok()) return position.status();
  const Worker& worker = fleet->worker(*position);
  if (worker.id == ticket.worker().id) return absl::OkStatus();
  if (ticket.decision().explanation != nullptr) ticket.key().explanation = std::make_shared<Explanation>();
  StatusOr<Ticket> next = ticket.router()->SelectPinned(ticket.key(), *fleet, *position, /*bounded=*/false);
  if (!next.ok()) return next.status();
  if (!ticket.MoveTo(*std::move(next))) return finished;
  if (ticket.alternatives) std::erase(*ticket.alternatives, worker.url.url);
  return absl::OkStatus();
}

Status RenewTicket(PyTicket& ticket, const std::optional<double>& seconds) {
  if (ticket.router() != nullptr) ticket.router()->ExpireTickets();
  if (ticket.finished()) {
    return absl::AbortedError(Concat(
        "the ticket for ", ticket.worker().url.url,
        " is finished, or its lease has expired; select() again for another attempt"));
  }
  if (ticket.router() == nullptr) {
    return absl::InvalidArgumentError(
        "this ticket is a row of a batch, which has no lease; finish the rows, or drop the batch");
  }
  const double lease = seconds.value_or(ticket.router()->options().ticket_lease_secs);
  if (!seconds && lease == 0) {
    return absl::InvalidArgumentError(
        "tickets of this router have no lease; make the router with ticket_lease_secs=60, or call "
        "renew(seconds)");
  }
  if (!(lease > 0 && lease <= kLongestLeaseSecs)) {
    return absl::InvalidArgumentError(Concat(
        "seconds is ", lease, "; a lease lasts more than 0 and at most ", kLongestLeaseSecs,
        " seconds, a year"));
  }
  ticket.SetLease(lease);
  return absl::OkStatus();
}

bool FinishTicket(
    PyTicket& ticket, const std::optional<int>& status, const py::object& end,
    const std::optional<double>& first_token_ms, const std::optional<uint64_t>& prompt_tokens,
    const std::optional<uint64_t>& cached_tokens, const std::optional<uint64_t>& output_tokens) {
  Outcome outcome;
  if (!end.is_none()) outcome.end = CheckedEnd(py::cast<std::string>(end));
  outcome.status = CheckedStatus(status, outcome.end);
  outcome.first_token_ms = first_token_ms;
  outcome.prompt_tokens = prompt_tokens;
  outcome.cached_tokens = cached_tokens;
  outcome.output_tokens = output_tokens;
  return ticket.End(outcome);
}

std::string TicketRepr(const PyTicket& ticket) {
  const Decision& decision = ticket.decision();
  std::string text = "<Ticket " + ticket.worker().url.url + " " + std::string(ReasonName(decision.reason));
  if (decision.unit != MatchUnit::kNone) {
    text += " " + std::to_string(decision.matched) + "/" + std::to_string(decision.total) + " " +
            std::string(MatchUnitName(decision.unit));
  }
  return text + (ticket.finished() ? " finished>" : " open>");
}

// ---- Many decisions ----------------------------------------------------------------------------------

// The values that finish() gets for some rows: one number for all of them, or one for each; or none.
struct PerRow {
  std::vector<int64_t> numbers;

  std::optional<int64_t> Of(size_t row) const {
    if (numbers.empty()) return std::nullopt;
    return numbers.size() == 1 ? numbers[0] : numbers[row];
  }
};

// The tickets of one select_batch. Arrays of the results, one row per request.
//
//   tickets   [ open, finished, moved out, open ]        a row that was read, batch[2], is a ticket of
//   views     {           2: PyTicket           }        its own: it outlives the batch. A batch that is
//                                                        dropped returns the load of all others
class Batch {
 public:
  py::array_t<int32_t> workers;
  py::array_t<int64_t> matched;
  py::array_t<int64_t> total;
  py::list worker_urls;
  std::vector<Ticket> tickets;

  size_t size() const { return tickets.size(); }

  // Finishes all rows, or `rows`, each less than size().
  size_t Finish(const Outcome& outcome) {
    const py::gil_scoped_release release;
    const MutexLock lock(mutex_);
    size_t ended = 0;
    for (size_t row = 0; row < size(); ++row) ended += At(row).Finish(outcome) ? 1 : 0;
    return ended;
  }
  template <typename OutcomeOf>
  size_t Finish(std::span<const size_t> rows, OutcomeOf outcome_of) {
    const py::gil_scoped_release release;
    const MutexLock lock(mutex_);
    size_t ended = 0;
    for (size_t i = 0; i < rows.size(); ++i) ended += At(rows[i]).Finish(outcome_of(i)) ? 1 : 0;
    return ended;
  }

  std::shared_ptr<PyTicket> View(size_t row) {
    const MutexLock lock(mutex_);
    std::shared_ptr<PyTicket>& view = views_[row];
    if (view == nullptr) view = std::make_shared<PyTicket>(std::move(tickets[row]));
    return view;
  }

  size_t CountOpen() const {
    const MutexLock lock(mutex_);
    size_t open = 0;
    for (size_t row = 0; row < size(); ++row) open += At(row).finished() ? 0 : 1;
    return open;
  }
  // A decision stays in its ticket.
  const Decision& decision(size_t row) const { return tickets[row].decision(); }

 private:
  const Ticket& At(size_t row) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (views_.empty()) return tickets[row];
    const auto found = views_.find(row);
    return found != views_.end() ? *found->second : tickets[row];
  }
  Ticket& At(size_t row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return const_cast<Ticket&>(static_cast<const Batch*>(this)->At(row));
  }

  // Leaf; taken with the GIL and without it, and its holder never waits for the GIL.
  mutable Mutex mutex_;
  absl::flat_hash_map<size_t, std::shared_ptr<PyTicket>> views_ ABSL_GUARDED_BY(mutex_);
};

// Delivers Ctrl-C to a long loop without the GIL. It takes the GIL at intervals and leaves the error
// set.
class SignalCheck {
 public:
  bool IsInterrupted() {
    if (++calls_ % kCallsPerLook != 0) return false;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return false;
    next_ = now + kInterval;
    const py::gil_scoped_acquire acquire;
    return PyErr_CheckSignals() != 0;
  }

 private:
  static constexpr std::chrono::milliseconds kInterval{50};
  static constexpr uint32_t kCallsPerLook = 8;

  uint32_t calls_ = 0;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + kInterval;
};

// Rows of text, kept alive by a private tuple: the caller's list may change while the GIL is released.
struct TextRows {
  py::object kept;
  std::vector<std::optional<std::string_view>> rows;
};

TextRows GatherRows(py::handle given, const char* what, bool may_be_none) {
  TextRows text;
  if (PyUnicode_Check(given.ptr()) || PyBytes_Check(given.ptr())) {
    throw py::type_error(
        std::string(what) + " is one " + TypeName(given) + "; select_batch takes a list of them");
  }
  text.kept = py::reinterpret_steal<py::object>(PySequence_Tuple(given.ptr()));
  if (!text.kept) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError) || PyObject_HasAttrString(given.ptr(), "__iter__") != 0)
      throw py::error_already_set();  // raised by its own iterator
    PyErr_Clear();
    throw py::type_error(
        std::string(what) + " is of type " + TypeName(given) + "; select_batch takes a list of str or bytes" +
        (may_be_none ? ", with None for a request without one" : ""));
  }
  const Py_ssize_t count = PyTuple_GET_SIZE(text.kept.ptr());
  text.rows.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyTuple_GET_ITEM(text.kept.ptr(), i);
    text.rows.push_back(TextView(item));
    if (!text.rows.back() && !(may_be_none && (item == Py_None || IsMissing(item)))) {
      throw py::type_error(
          std::string(what) + "[" + std::to_string(i) + "] is of type " + TypeName(item) +
          "; it must be str or bytes" + (may_be_none ? ", or None or NaN for a request without one" : ""));
    }
  }
  return text;
}

py::list WorkerUrls(std::shared_ptr<const FleetView> fleet) {
  py::list urls;
  for (const FleetView::Member& member : fleet->members()) urls.append(py::str(member.worker->url.url));
  return urls;
}

std::unique_ptr<Batch> SelectBatch(
    PyRouter& self, const py::object& prompts, const py::object& token_ids, const py::object& offsets,
    const py::object& session_ids, const py::object& model) {
  Router& router = self.router();
  const std::optional<std::string_view> name = ModelName(model);
  std::optional<TextRows> prompt_rows;
  std::optional<TextRows> session_rows;
  std::vector<uint32_t> copied_ids;
  std::vector<int64_t> copied_bounds;
  std::span<const uint32_t> ids;
  std::span<const int64_t> bounds;
  std::optional<size_t> rows;
  const char* counted = nullptr;
  const auto count = [&](size_t here, const char* what) {
    if (rows && *rows != here) {
      throw py::value_error(
          std::string(what) + " has " + std::to_string(here) + " rows and " + counted + " has " +
          std::to_string(*rows) + "; give one of each per request");
    }
    rows = here;
    counted = what;
  };

  if (!prompts.is_none()) {
    prompt_rows = GatherRows(prompts, "prompts", false);
    count(prompt_rows->rows.size(), "prompts");
  }
  if (token_ids.is_none() != offsets.is_none()) {
    throw py::type_error(
        token_ids.is_none() ? "offsets came without token_ids; pass both or neither"
                            : "token_ids came without offsets; row i is "
                              "token_ids[offsets[i]:offsets[i + 1]], so pass n + 1 int64 offsets");
  }
  if (!token_ids.is_none()) {
    ids = TokenIds(token_ids, &copied_ids);
    bounds = Integers(offsets, "offsets", "int64", &copied_bounds);
    CheckOffsets(bounds, ids.size());
    count(bounds.size() - 1, "offsets");
  }
  if (!session_ids.is_none()) {
    session_rows = GatherRows(session_ids, "session_ids", true);
    count(session_rows->rows.size(), "session_ids");
  }
  if (!rows)
    throw py::type_error(
        "select_batch() got no requests; pass prompts, token_ids with offsets, or session_ids");

  const auto size = static_cast<py::ssize_t>(*rows);
  const std::shared_ptr<const FleetView>& whole = self.fleet();
  const std::shared_ptr<const FleetView> fleet = whole->stages() != nullptr ? whole->stages()->prefill
                                                 : whole->models()->decides()
                                                     ? Serving(whole, name.value_or(""))
                                                     : whole;
  auto batch = std::make_unique<Batch>();
  batch->workers = py::array_t<int32_t>(size);
  batch->matched = py::array_t<int64_t>(size);
  batch->total = py::array_t<int64_t>(size);
  batch->worker_urls = WorkerUrls(fleet);
  int32_t* const workers = batch->workers.mutable_data();
  int64_t* const matched = batch->matched.mutable_data();
  int64_t* const total = batch->total.mutable_data();
  Status failure;
  {
    const py::gil_scoped_release release;
    batch->tickets.reserve(*rows);
    RoutingKey key;
    SignalCheck signals;
    for (size_t i = 0; i < *rows; ++i) {
      if (signals.IsInterrupted()) break;
      RequestView request;
      if (name) request.model = *name;
      if (prompt_rows) request.prompt = prompt_rows->rows[i];
      if (session_rows) request.session_id = session_rows->rows[i];
      if (!bounds.empty()) {
        request.token_ids =
            ids.subspan(static_cast<size_t>(bounds[i]), static_cast<size_t>(bounds[i + 1] - bounds[i]));
      }
      router.MakeKey(request, &key);
      StatusOr<Ticket> ticket = router.Select(key, *fleet);
      if (!ticket.ok()) {
        failure = ticket.status();
        break;
      }
      const Decision& decision = ticket->decision();
      workers[i] = static_cast<int32_t>(decision.position);
      matched[i] = static_cast<int64_t>(decision.matched);
      total[i] = static_cast<int64_t>(decision.total);
      batch->tickets.push_back(std::move(*ticket));
    }
  }
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();  // loads return with the batch
  ThrowIfError(failure);
  return batch;
}

// A row by a Python index, from the end if it is negative.
size_t RowAt(int64_t index, size_t size) {
  const auto signed_size = static_cast<int64_t>(size);
  if (index < -signed_size || index >= signed_size) {
    throw py::index_error(
        "row " + std::to_string(index) + " is not in this batch; it has " + std::to_string(size) + " rows");
  }
  return static_cast<size_t>(index < 0 ? index + signed_size : index);
}

// `rows`: an index, a slice, a mask (an array of bool), or integers in any form.
std::vector<size_t> RowsOf(py::handle rows, size_t size) {
  std::vector<size_t> found;
  if (PyIndex_Check(rows.ptr()) != 0 && !py::isinstance<py::array>(rows)) {
    const Py_ssize_t index = PyNumber_AsSsize_t(rows.ptr(), PyExc_IndexError);
    if (index == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    return {RowAt(index, size)};
  }
  if (PySlice_Check(rows.ptr())) {
    Py_ssize_t start = 0, stop = 0, step = 0;
    if (PySlice_Unpack(rows.ptr(), &start, &stop, &step) != 0) throw py::error_already_set();
    const Py_ssize_t count = PySlice_AdjustIndices(static_cast<Py_ssize_t>(size), &start, &stop, step);
    for (Py_ssize_t i = 0; i < count; ++i) found.push_back(static_cast<size_t>(start + i * step));
    return found;
  }
  py::object kept;
  if (!py::isinstance<py::array>(rows) && PyObject_HasAttrString(rows.ptr(), "__array__") != 0) {
    kept = rows.attr("__array__")();
    rows = kept;
  }
  if (py::isinstance<py::array>(rows)) {
    const auto array = py::reinterpret_borrow<py::array>(rows);
    if (array.size() == 0 && array.dtype().kind() != 'b') return found;
    if (array.dtype().kind() == 'b') {
      if (array.ndim() != 1 || array.size() != static_cast<py::ssize_t>(size)) {
        throw py::index_error(
            "rows is a mask of " + std::to_string(array.size()) + " entries; this batch has " +
            std::to_string(size) + " rows");
      }
      const auto mask = py::array_t<bool, py::array::c_style | py::array::forcecast>(array);
      for (size_t row = 0; row < size; ++row) {
        if (mask.data()[row]) found.push_back(row);
      }
      return found;
    }
    if (array.dtype().kind() == 'i' || array.dtype().kind() == 'u') {
      kept = py::array_t<int64_t, py::array::c_style | py::array::forcecast>(array);
      rows = kept;
    }
  }
  if (PyList_Check(rows.ptr()) || PyTuple_Check(rows.ptr())) {
    for (const py::handle row : py::iter(rows)) {
      if (PyBool_Check(row.ptr()))
        throw py::type_error("rows holds a bool; pass a mask as an array: np.asarray(rows)");
    }
  }
  std::vector<int64_t> copied;
  for (const int64_t index : Integers(rows, "rows", "int64", &copied)) found.push_back(RowAt(index, size));
  return found;
}

// One number for all rows or a sequence with one for each, from 0 to the ticket's maximum; None: no
// value.
PerRow PerRowOf(py::handle value, const char* what, size_t rows) {
  PerRow per_row;
  if (value.is_none()) return per_row;
  if (PyIndex_Check(value.ptr()) != 0 && !py::isinstance<py::array>(value)) {
    const py::tuple one = py::make_tuple(value);
    Integers(one, what, "int64", &per_row.numbers);
  } else {
    py::object kept;
    if (py::isinstance<py::array>(value)) {
      const char kind = py::reinterpret_borrow<py::array>(value).dtype().kind();
      if (kind == 'i' || kind == 'u') {
        kept = py::array_t<int64_t, py::array::c_style | py::array::forcecast>::ensure(value);
        value = kept;
      }
    }
    std::vector<int64_t> copied;
    const std::span<const int64_t> numbers = Integers(value, what, "int64", &copied);
    per_row.numbers.assign(numbers.begin(), numbers.end());
    if (per_row.numbers.size() != rows) {
      throw py::value_error(
          std::string(what) + " has " + std::to_string(per_row.numbers.size()) + " entries for " +
          std::to_string(rows) + " rows; give one number, or one for each row");
    }
  }
  for (const int64_t number : per_row.numbers) {
    if (number < 0) {
      throw py::value_error(
          std::string(what) + " holds " + std::to_string(number) + "; it must be 0 or more");
    }
  }
  return per_row;
}

size_t FinishBatch(
    Batch& batch, const py::object& rows, const py::object& status, const std::string& end_name,
    const py::object& tokens, const py::object& prompt_tokens, const py::object& cached_tokens) {
  Outcome outcome;
  outcome.end = CheckedEnd(end_name);
  const bool same = status.is_none() || PyIndex_Check(status.ptr()) != 0;
  const bool counted = !tokens.is_none() || !prompt_tokens.is_none() || !cached_tokens.is_none();
  if (rows.is_none() && !counted && same && !py::isinstance<py::array>(status)) {
    outcome.status = CheckedStatus(py::cast<std::optional<int>>(status), outcome.end);
    return batch.Finish(outcome);
  }
  std::vector<size_t> chosen;
  if (rows.is_none()) {
    chosen.resize(batch.size());
    std::iota(chosen.begin(), chosen.end(), size_t{0});
  } else {
    chosen = RowsOf(rows, batch.size());
  }
  PerRow statuses = PerRowOf(status, "status", chosen.size());
  for (const int64_t each : statuses.numbers)
    CheckedStatus(static_cast<int>(std::min<int64_t>(each, INT32_MAX)), outcome.end);
  const PerRow output = PerRowOf(tokens, "tokens", chosen.size());
  const PerRow prompt = PerRowOf(prompt_tokens, "prompt_tokens", chosen.size());
  const PerRow cached = PerRowOf(cached_tokens, "cached_tokens", chosen.size());
  const int usual = CheckedStatus(std::nullopt, outcome.end);
  return batch.Finish(chosen, [&](size_t i) {
    outcome.status = static_cast<int>(statuses.Of(i).value_or(usual));
    outcome.output_tokens = output.Of(i);
    outcome.prompt_tokens = prompt.Of(i);
    outcome.cached_tokens = cached.Of(i);
    return outcome;
  });
}

// Each row's name of an enumeration, as an array of str.
template <typename NameOf>
py::list NamesOfRows(const Batch& batch, NameOf name_of) {
  py::list names(batch.size());
  for (size_t row = 0; row < batch.size(); ++row) names[row] = name_of(batch.decision(row));
  return names;
}

std::string BatchRepr(const Batch& batch) {
  return "<Batch of " + std::to_string(batch.size()) + ", " + std::to_string(batch.CountOpen()) + " open>";
}

// ---- The router --------------------------------------------------------------------------------------

// What two stages have: URLs and bootstrap ports of prefill workers, URLs of decode workers, the options of the
// decode policy, and if that one was not named itself.
using Stages = std::tuple<
    std::vector<std::pair<std::string, std::optional<uint16_t>>>, std::vector<std::string>, py::dict, bool>;

std::unique_ptr<PyRouter> MakeRouter(
    std::vector<std::string> worker_urls, const py::dict& given, const std::optional<Stages>& stages) {
  RouterOptions options = RouterOptionsOf(given);
  options.worker_urls = std::move(worker_urls);
  if (stages) {
    const auto& [prefill_urls, decode_urls, decode, is_inherited] = *stages;
    options.disaggregated = true;
    for (const auto& [url, port] : prefill_urls)
      options.prefill_urls.push_back({.url = url, .bootstrap_port = port});
    options.decode_urls = decode_urls;
    options.decode_policy = RouterOptionsOf(decode).policy;
    if (is_inherited) options.decode_policy = ValueOrThrow(InheritedDecodePolicy(options.decode_policy));
  }

  const py::gil_scoped_release release;
  StatusOr<std::shared_ptr<Router>> router = Router::Create(options);
  const py::gil_scoped_acquire acquire;
  return std::make_unique<PyRouter>(ValueOrThrow(std::move(router)));
}

WorkerRole RoleOf(
    const std::string& worker_type, std::optional<uint16_t> bootstrap_port, const std::string& kv_group) {
  const std::optional<Stage> stage = StageByName(worker_type);
  if (!stage) {
    throw py::value_error(
        "worker_type is " + Quoted(worker_type) + "; it must be one of regular, prefill, decode");
  }
  return {.stage = *stage, .bootstrap_port = bootstrap_port, .kv_group = kv_group};
}

// A change of the fleet waits for other changes, so other Python threads run meanwhile.
template <typename Change>
void ChangeFleet(Change change) {
  Status status;
  {
    const py::gil_scoped_release release;
    status = change();
  }
  ThrowIfError(status);
}

// The cache of `url`, or of each of its ranks, is empty; without one, that of every worker.
Status Forget(Pool& pool, const std::optional<std::string>& url) {
  if (!url) {
    const std::shared_ptr<const FleetView> fleet = pool.fleet();
    for (const FleetView::Member& member : fleet->members()) pool.ForgetCache(member.worker->id);
    return absl::OkStatus();
  }
  const StatusOr<std::vector<std::shared_ptr<Worker>>> workers = pool.registry().Named(*url);
  if (!workers.ok()) return workers.status();
  for (const std::shared_ptr<Worker>& worker : *workers) pool.ForgetCache(worker->id);
  return absl::OkStatus();
}

// Blocks of a worker's cache.
uint64_t CacheBlocks(py::handle value) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int overflow = 0;
  const long long blocks = PyLong_AsLongLongAndOverflow(WholeNumber(value, "blocks").ptr(), &overflow);
  if (overflow != 0 || blocks < 1 || blocks > kMost) {
    throw py::value_error(
        "blocks is " + Show(value) +
        "; it must be 1 to 2^40, as many as the engine's cache holds, or None if "
        "that is not known");
  }
  return static_cast<uint64_t>(blocks);
}

// In the order of WorkerInfo's fields in router.py.
py::list WorkerRows(PyRouter& self) {
  self.router().ExpireTickets();
  const std::shared_ptr<const FleetView> fleet = self.fleet();
  py::list rows;
  for (const FleetView::Member& member : fleet->members()) {
    const Worker& worker = *member.worker;
    rows.append(py::make_tuple(
        worker.url.url, member.healthy, member.draining, worker.load.open_requests(),
        static_cast<double>(worker.weight) / kWeightOne, worker.url.rank, worker.load.own_queued_prefill(),
        worker.load.own_expected_output(), worker.load.own_context(),
        worker.selections.load(std::memory_order_relaxed), worker.load.own_waiting(),
        std::string(StageName(worker.stage))));
  }
  return rows;
}

// Lists of URLs: joined, left, changed, held. Without a list of WorkerSpec: the last one again.
py::tuple Reconcile(
    PyRouter& self, const std::string& source, const std::optional<std::vector<py::object>>& specs,
    bool complete, const std::vector<std::string>& deleted) {
  std::vector<WorkerDeclaration> list;
  if (specs) {
    list.reserve(specs->size());
    for (const py::object& spec : *specs) list.push_back(ToDeclaration(spec));
  }
  StatusOr<Difference> difference = absl::UnknownError("");
  {
    py::gil_scoped_release release;
    difference = specs ? self.router().Reconcile(source, list, complete, deleted)
                       : self.router().pool().registry().ReconcileAgain(source, SteadyClock().NowNanos());
  }
  const Difference changes = ValueOrThrow(std::move(difference));
  return py::make_tuple(changes.joined, changes.left, changes.changed, changes.held);
}

// WorkerKey() of a URL; a ValueError says what is wrong with it, and shows none of it.
std::string KeyOfUrl(const py::str& url) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(url.ptr(), &size);
  if (text == nullptr) PyErr_Clear();  // a lone surrogate: no ASCII, either
  const StatusOr<WorkerUrl> parsed =
      ParseWorkerUrl(text != nullptr ? std::string_view(text, static_cast<size_t>(size)) : "\x80");
  if (!parsed.ok()) throw py::value_error(MisfitOf(parsed.status()));
  return WorkerKey(*parsed);
}

// The pool's index. ValueError if its policy matches no blocks.
KvIndex& IndexOf(PyRouter& self) {
  KvIndex* const index = self.router().pool().index();
  if (index == nullptr) {
    throw py::value_error(
        "the policy " + std::string(self.router().policy().name()) +
        " has no block index to save or load; auto and vllm_cache_aware have one");
  }
  return *index;
}

// The worker's slot by position; empty for a view without a plan.
std::span<const KvIndex::Plan::Known> KnownWorkers(const KvIndex& index, const FleetView& fleet) {
  const KvIndex::Plan* plan = index.PlanOf(fleet);
  return plan != nullptr ? std::span(plan->known) : std::span<const KvIndex::Plan::Known>();
}

// A worker joins the tracker before the fleet and leaves it before the fleet. So an image of an index
// may hold slots that the fleet does not have, or lack one that it has; then another one is made.
std::string IndexImage(PyRouter& self) {
  for (;;) {
    KvIndex& index = IndexOf(self);
    const std::shared_ptr<const FleetView> fleet = self.router().fleet();
    const std::span<const KvIndex::Plan::Known> known = KnownWorkers(index, *fleet);
    BlockCacheTracker& tracker = index.tracker();
    WorkerNames names(tracker.slots(), py::none());
    for (size_t i = 0; i < known.size(); ++i) {
      const auto place = static_cast<size_t>(known[i].slot);
      if (place < names.size()) names[place] = py::str(fleet->worker(static_cast<uint32_t>(i)).url.url);
    }
    std::string image = ImageOf(IndexKind::kBlockCacheTracker, names, tracker);
    bool agree = names.size() == tracker.slots() && known.size() == fleet->members().size() &&
                 self.router().fleet()->membership_version() == fleet->membership_version();
    for (size_t place = 0; agree && place < names.size(); ++place)
      agree = tracker.Has(static_cast<WorkerSlot>(place)) != names[place].is_none();
    if (agree) return image;
    const py::gil_scoped_release release;
    std::this_thread::yield();
  }
}

// The URLs of the workers that were both in the file and in the fleet.
py::list LoadIndex(PyRouter& self, const py::object& path) {
  KvIndex& index = IndexOf(self);
  const std::shared_ptr<const FleetView> fleet = self.router().fleet();
  const std::span<const KvIndex::Plan::Known> known = KnownWorkers(index, *fleet);
  const std::string source = FileSource(path);
  const auto [saved, names] =
      OpenIndex<BlockCacheTracker>(IndexKind::kBlockCacheTracker, source, LoadFile(path));
  const BlockHasher& theirs = saved->hasher();
  const BlockHasher& ours = index.tracker().hasher();
  if (theirs.block_size() != ours.block_size() || theirs.seed() != ours.seed()) {
    ThrowBadIndex(
        source, BadImage(
                    "its blocks have ", theirs.block_size(), " tokens and the hash seed ", theirs.seed(),
                    "; those of this router have ", ours.block_size(), " and ", ours.seed()));
  }
  py::list found;
  for (size_t place = 0; place < names.size(); ++place) {
    if (names[place].is_none()) continue;
    const std::optional<uint32_t> position = fleet->Find(*TextView(names[place]));
    if (!position || *position >= known.size()) continue;
    found.append(names[place]);
    const py::gil_scoped_release release;
    index.tracker().Adopt(known[*position].slot, *saved, static_cast<WorkerSlot>(place));
  }
  return found;
}

py::dict Stats(PyRouter& self) {
  self.router().ExpireTickets();
  py::dict stats(
      "policy"_a = std::string(self.router().policy().name()),
      "tickets_expired"_a = self.router().leases()->expired());
  const std::shared_ptr<const FleetView> fleet = self.fleet();
  StatsDict writer(*fleet, stats);
  self.router().pool().Report(*fleet, &writer);
  return stats;
}

}  // namespace

// Options from router.py are checked and complete; replay leaves out those that keep their defaults.
RouterOptions RouterOptionsOf(const py::dict& given, std::vector<std::string>* names) {
  RouterOptions options;
  options.policy.seed = Random::EntropySeed();
  SetGiven(RouterOptionTable(), given, &options, names);
  SetGiven(PolicyOptionTable(), given, &options.policy, names);
  options.session_key.digest_function = options.policy.hash_function;
  return options;
}

void BindRouter(py::module_& module) {
  py::class_<PyTicket, std::shared_ptr<PyTicket>> ticket_class(module, "Ticket", ClassDoc("Ticket"));
  const auto keep_in_process = [](const char* what) {
    return [what](const py::object& /*self*/) -> py::object {
      throw py::type_error(
          std::string("a ") + what +
          " belongs to one process, which counts its load; pass its data instead, such as its worker's URL");
    };
  };
  const auto itself = [](const py::object& self) { return self; };
  ticket_class
      .def(py::init([](const py::args&, const py::kwargs&) -> std::shared_ptr<PyTicket> {
        throw py::type_error("a Ticket is made by Router.select(): it is a promise to return load");
      }))
      .def_property_readonly(
          "worker_url", [](const PyTicket& ticket) { return py::str(ticket.worker().url.url); })
      .def_property_readonly("base_url", &BaseUrl)
      .def_property_readonly("rank", [](const PyTicket& ticket) { return ticket.worker().url.rank; })
      .def_property_readonly(
          "reason", [](const PyTicket& ticket) { return ReasonText(ticket.decision().reason); })
      .def_property_readonly("unit", [](const PyTicket& ticket) { return UnitText(ticket.decision().unit); })
      .def_property_readonly("matched", [](const PyTicket& ticket) { return ticket.decision().matched; })
      .def_property_readonly("total", [](const PyTicket& ticket) { return ticket.decision().total; })
      .def_property_readonly("finished", [](const PyTicket& ticket) { return ticket.finished(); })
      .def(
          "explain",
          [](const PyTicket& ticket) {
            return py::module_::import("vllm_router.explanation")
                .attr("DecisionText")(
                    ExplainDecision(ticket.worker().url.url, ticket.policy().name(), ticket.decision()));
          },
          "Why this worker, in words.")
      .def(
          "alternatives",
          [](const PyTicket& ticket, int64_t n) {
            if (!ticket.alternatives) {
              throw py::value_error(
                  "this ticket has no alternatives; request them when it is made: select(..., "
                  "alternatives=2)");
            }
            if (n < 0) throw py::value_error("n is " + std::to_string(n) + "; it must be 0 or more");
            const std::vector<std::string>& urls = *ticket.alternatives;
            const size_t count = std::min<size_t>(static_cast<size_t>(n), urls.size());
            return std::vector<std::string>(urls.begin(), urls.begin() + static_cast<ptrdiff_t>(count));
          },
          "The workers that come next.", "n"_a = 2)
      .def("__copy__", itself)
      .def(
          "__deepcopy__", [](const py::object& self, const py::object& /*memo*/) { return self; }, "memo"_a)
      .def("__reduce__", keep_in_process("ticket"))
      .def(
          "moved", [](PyTicket& ticket, const std::string& url) { ThrowIfError(MoveTicket(ticket, url)); },
          "The request went to another worker.", "url"_a)
      .def(
          "renew",
          [](PyTicket& ticket, const std::optional<double>& seconds) {
            ThrowIfError(RenewTicket(ticket, seconds));
          },
          "The request is still under way: the lease begins anew.", "seconds"_a = py::none())
      .def(
          "first_token", [](PyTicket& ticket) { ticket.FirstToken(); }, "The worker's prefill is done.")
      .def(
          "finish", &FinishTicket, "Return the load; True for the call that returned it.", py::kw_only(),
          "status"_a = py::none(), "end"_a = py::none(), "first_token_ms"_a = py::none(),
          "prompt_tokens"_a = py::none(), "cached_tokens"_a = py::none(), "output_tokens"_a = py::none())
      .def("__enter__", [](py::object self) { return self; })
      .def(
          "__exit__", [](PyTicket& ticket, const py::object& type, const py::object&,
                         const py::object&) { ticket.End(OutcomeOfExit(type)); })
      .def("__repr__", &TicketRepr);

  py::class_<Batch>(module, "Batch", ClassDoc("Batch"))
      .def(py::init([](const py::args&, const py::kwargs&) -> std::unique_ptr<Batch> {
        throw py::type_error("a Batch is made by Router.select_batch(): it is a promise to return loads");
      }))
      .def("__copy__", itself)
      .def(
          "__deepcopy__", [](const py::object& self, const py::object& /*memo*/) { return self; }, "memo"_a)
      .def("__reduce__", keep_in_process("batch"))
      .def_readonly("workers", &Batch::workers)
      .def_readonly("matched", &Batch::matched)
      .def_readonly("total", &Batch::total)
      .def_readonly("worker_urls", &Batch::worker_urls)
      .def(
          "finish", &FinishBatch, "Return the loads that are still reserved, and their number.",
          py::kw_only(), "rows"_a = py::none(), "status"_a = py::none(), "end"_a = "finished",
          "tokens"_a = py::none(), "prompt_tokens"_a = py::none(), "cached_tokens"_a = py::none())
      .def_property_readonly(
          "reason",
          [](const Batch& batch) {
            return NamesOfRows(batch, [](const Decision& decision) { return ReasonText(decision.reason); });
          })
      .def_property_readonly(
          "unit",
          [](const Batch& batch) {
            return NamesOfRows(batch, [](const Decision& decision) { return UnitText(decision.unit); });
          })
      .def(
          "__getitem__",
          [](Batch& batch, const py::object& row) {
            if (PyIndex_Check(row.ptr()) == 0) {
              throw py::type_error(
                  "a batch is indexed by row, an int, and not by " + TypeName(row) +
                  "; for several rows at once there is finish(rows=...)");
            }
            const Py_ssize_t index = PyNumber_AsSsize_t(row.ptr(), PyExc_IndexError);
            if (index == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
            return batch.View(RowAt(index, batch.size()));
          },
          "row"_a)
      .def("__enter__", [](py::object self) { return self; })
      .def(
          "__exit__", [](Batch& batch, const py::object& type, const py::object&,
                         const py::object&) { batch.Finish(OutcomeOfExit(type)); })
      .def(
          "__iter__",
          [](const py::object& self) { return py::reinterpret_steal<py::object>(PySeqIter_New(self.ptr())); })
      .def("__len__", &Batch::size)
      .def("__repr__", &BatchRepr)
      .def("_repr_html_", [](const py::object& self) {
        return py::module_::import("vllm_router._html").attr("batch")(self);
      });

  module.def("worker_key", &KeyOfUrl, "url"_a);
  py::class_<PyRouter> router_class(module, "Router", ClassDoc("Router"));
  router_class.def(py::init(&MakeRouter), "worker_urls"_a, "options"_a, "stages"_a = py::none())
      .def(
          "select", &Select, "One decision, load reserved.", "body"_a = py::none(), py::kw_only(),
          "prompt"_a = py::none(), "messages"_a = py::none(), "token_ids"_a = py::none(),
          "headers"_a = py::none(), "model"_a = py::none(), "path"_a = py::none(), "exclude"_a = py::tuple(),
          "among"_a = py::none(), "alternatives"_a = 0, "explain"_a = false, "shared_ranges"_a = py::none(),
          "override"_a = py::none())
      .def("_select", &Select)
      .def(
          "select_bypass", &SelectBypass, "A decode worker that needs no prefill worker, or None.",
          "body"_a = py::none(), py::kw_only(), "prompt"_a = py::none(), "messages"_a = py::none(),
          "token_ids"_a = py::none(), "headers"_a = py::none(), "model"_a = py::none(), "path"_a = py::none())
      .def(
          "explain", &Explain, "What select() would decide, and why.", "body"_a = py::none(), py::kw_only(),
          "prompt"_a = py::none(), "messages"_a = py::none(), "token_ids"_a = py::none(),
          "headers"_a = py::none(), "model"_a = py::none(), "path"_a = py::none(), "exclude"_a = py::tuple(),
          "among"_a = py::none(), "shared_ranges"_a = py::none(), "override"_a = py::none())
      .def(
          "select_batch", &SelectBatch, "Many decisions in one call.", "prompts"_a = py::none(),
          py::kw_only(), "token_ids"_a = py::none(), "offsets"_a = py::none(), "session_ids"_a = py::none(),
          "model"_a = py::none())
      .def(
          "add_worker",
          [](PyRouter& self, const std::string& url, double weight, const std::string& worker_type,
             std::optional<uint16_t> bootstrap_port, const std::string& kv_group) {
            const WorkerRole role = RoleOf(worker_type, bootstrap_port, kv_group);
            WorkerDeclaration worker = ValueOrThrow(DeclareWorker(url));
            worker.weight = weight;
            worker.role = role;
            ChangeFleet([&] { return self.router().AddWorker(worker); });
          },
          "Add a worker (all its ranks) at the end of the fleet.", "url"_a, "weight"_a = 1.0, py::kw_only(),
          "worker_type"_a = "regular", "bootstrap_port"_a = py::none(), "kv_group"_a = "")
      .def(
          "receipts",
          [](PyRouter& self, int64_t last) {
            if (last < 1 || last > static_cast<int64_t>(ReceiptFilter::kMostLast)) {
              throw py::value_error(
                  "last is " + std::to_string(last) +
                  "; it is the number of receipts and must be between 1 and " +
                  std::to_string(ReceiptFilter::kMostLast));
            }
            const std::string text = self.receipts()->Json({.last = static_cast<size_t>(last)});
            return py::object(py::module_::import("json").attr("loads")(text)["receipts"]);
          },
          "The receipts of the last tickets.", "last"_a = 100)
      .def(
          "finish_session",
          [](PyRouter& self, const std::string& session_id) {
            py::gil_scoped_release release;
            return self.router().FinishSession(session_id);
          },
          "A session is over: its next request is one of a new session.", "session_id"_a)
      .def(
          "remove_worker",
          [](PyRouter& self, const std::string& url) {
            ChangeFleet([&] { return self.router().RemoveWorker(url); });
          },
          "Take a worker (all its ranks) out of the fleet.", "url"_a)
      .def(
          "drain_worker",
          [](PyRouter& self, const std::string& url) {
            ChangeFleet([&] { return self.router().DrainWorker(url); });
          },
          "Stop choosing it; its requests in flight end as usual.", "url"_a)
      .def(
          "set_healthy",
          [](PyRouter& self, const std::string& url, bool healthy) {
            ChangeFleet([&] { return self.router().SetHealthy(url, healthy); });
          },
          "Set if it may be chosen, with all ranks of its host.", "url"_a, "healthy"_a)
      .def(
          "set_cache",
          [](PyRouter& self, const std::string& url, const py::object& block_size, const py::object& blocks) {
            const uint32_t tokens = BlockSize(block_size);
            const uint64_t count = blocks.is_none() ? 0 : CacheBlocks(blocks);
            ChangeFleet([&] { return self.router().SetCacheBlocks(url, tokens, count); });
          },
          "What its KV cache holds.", "url"_a, py::kw_only(), "block_size"_a, "blocks"_a = py::none())
      .def(
          "forget",
          [](PyRouter& self, const std::optional<std::string>& url) {
            ChangeFleet([&] { return Forget(self.router().pool(), url); });
          },
          "Its cache, or that of all workers, is empty.", "url"_a = py::none())
      .def_property_readonly(
          "policy", [](const PyRouter& self) { return std::string(self.router().policy().name()); })
      .def_property_readonly("worker_urls", [](PyRouter& self) { return WorkerUrls(self.fleet()); })
      .def("stats", &Stats, "Counts that the policy keeps.")
      .def(
          "save_index", [](PyRouter& self, const py::object& path) { SaveFile(path, IndexImage(self)); },
          "To a file.", "path"_a)
      .def("load_index", &LoadIndex, "From a file.", "path"_a)
      .def("_worker_rows", &WorkerRows)
      .def("_reconcile", &Reconcile, "source"_a, "workers"_a, "complete"_a, "deleted"_a)
      .def(
          "_report_source",
          [](PyRouter& self, const std::string& source, const std::string& kind, const std::string& message) {
            ChangeFleet([&] { return self.router().pool().registry().ReportError(source, kind, message); });
          },
          "source"_a, "kind"_a, "message"_a)
      .def(
          "_adopt",
          [](PyRouter& self, const std::string& source) {
            StatusOr<std::vector<std::string>> left = absl::UnknownError("");
            {
              py::gil_scoped_release release;
              left = self.router().pool().registry().Adopt(source, SteadyClock().NowNanos());
            }
            return ValueOrThrow(std::move(left));
          },
          "source"_a);
  BindKvEvents(&router_class);
  // In the order of Select().
  CallThroughTwin(
      router_class, "select", "_select", /*by_position=*/1,
      {{"body", py::none()},
       {"prompt", py::none()},
       {"messages", py::none()},
       {"token_ids", py::none()},
       {"headers", py::none()},
       {"model", py::none()},
       {"path", py::none()},
       {"exclude", py::tuple()},
       {"among", py::none()},
       {"alternatives", py::int_(0)},
       {"explain", py::bool_(false)},
       {"shared_ranges", py::none()},
       {"override", py::none()}});
}

}  // namespace vllm_router
