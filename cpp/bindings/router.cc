// Router, Ticket and Batch: the decision as Python sees it. python/vllm_router/router.py adds names, checks of options
// and documentation; a call of `select` goes straight to this file.
#include <absl/container/inlined_vector.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dice.h"
#include "base/limits.h"
#include "base/text.h"
#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/callables.h"
#include "bindings/errors.h"
#include "bindings/json_text.h"
#include "bindings/py_router.h"
#include "index/block_cache_tracker.h"
#include "policy/cache_aware.h"
#include "policy/prefix_aware.h"
#include "routing/explanation.h"

namespace vllm_router {

namespace py = pybind11;
using namespace py::literals;

namespace {

// ---- What a caller says of a request -------------------------------------------------------------------------------

// A mapping of names to values, or pairs of them (as ASGI has them); names and values are str or bytes.
class Headers {
 public:
  explicit Headers(py::handle given) {
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

 private:
  [[noreturn]] static void Refuse(py::handle given) {
    throw py::type_error(
        "headers is of type " + TypeName(given) +
        "; pass a mapping of names to values, or pairs (name, value)");
  }

  void Add(py::handle name, py::handle value) {
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
};

// The members of `messages` and `model` as the body that a client would send.
std::string ChatBody(py::handle messages, py::handle model) {
  if (!PyList_Check(messages.ptr()) && !PyTuple_Check(messages.ptr())) {
    throw py::type_error(
        "messages is of type " + TypeName(messages) +
        "; it must be a list of messages, each a dict with role and content");
  }
  std::string body = "{";
  if (!model.is_none()) {
    body += "\"model\":";
    AppendJson(model, &body);
    body += ',';
  }
  body += "\"messages\":";
  AppendJson(messages, &body);
  return body += '}';
}

void RefuseTogether(const char* first, const char* second) {
  throw py::type_error(
      std::string("select() got both ") + first + " and " + second +
      "; they say the same thing twice: pass one of body, prompt and messages");
}

// ---- One decision --------------------------------------------------------------------------------------------------

// Adds the positions of `url` or of its ranks. One that is not (or no longer) in the fleet needs no excluding.
void Exclude(std::string_view url, const FleetView& fleet, std::vector<uint32_t>* positions) {
  // Nearly always it is a ticket's worker_url; parsing settles other spellings of a known one.
  if (const std::optional<uint32_t> position = fleet.Find(url)) return positions->push_back(*position);
  const StatusOr<WorkerUrl> named = ParseWorkerUrl(url);
  if (!named.ok()) return;
  for (uint32_t position = 0; position < fleet.members().size(); ++position) {
    const WorkerUrl& known = fleet.worker(position).url;
    if (SameHost(known, *named) && (!named->rank || named->rank == known.rank))
      positions->push_back(position);
  }
}

std::vector<uint32_t> Excluded(py::handle urls, const FleetView& fleet) {
  if (PyUnicode_Check(urls.ptr()) || PyBytes_Check(urls.ptr())) {
    throw py::type_error(
        "exclude is " + Show(urls) + "; it must be a collection of worker URLs: pass [" + Show(urls) + "]");
  }
  std::vector<uint32_t> positions;
  for (const py::handle item : py::iter(urls)) {
    const std::optional<std::string_view> url = TextView(item);
    if (!url) throw py::type_error("exclude holds " + Show(item) + "; it must hold worker URLs as str");
    Exclude(*url, fleet, &positions);
  }
  return positions;
}

bool IsEmptyTuple(py::handle value) {
  return PyTuple_Check(value.ptr()) && PyTuple_GET_SIZE(value.ptr()) == 0;
}

// What a caller asked for, and the memory that parts of the key point into.
struct Asked {
  Asked() = default;
  Asked(const Asked&) = delete;

  RoutingKey key;
  Bytes bytes;
  std::string written;
  std::vector<uint32_t> copied;
};

void MakeKey(
    const Router& router, py::handle body, py::handle prompt, py::handle messages, py::handle token_ids,
    py::handle given_headers, py::handle model, Asked* asked) {
  if (!body.is_none() && !prompt.is_none()) RefuseTogether("body", "prompt");
  if (!body.is_none() && !messages.is_none()) RefuseTogether("body", "messages");
  if (!prompt.is_none() && !messages.is_none()) RefuseTogether("prompt", "messages");
  if (router.needs() == KeyParts::kNone) return;

  RequestView request;
  const Headers headers(given_headers);
  const bool needs_text = router.NeedsBody(headers.fields());
  // Headers that decide nothing are left out, so that nothing of theirs is read without the GIL.
  if (!needs_text) request.headers = headers.fields();

  Bytes& bytes = asked->bytes;
  std::string& written = asked->written;
  if (needs_text || Has(router.needs(), KeyParts::kPromptTokens)) {
    if (!body.is_none()) {
      if (PyDict_Check(body.ptr())) {
        AppendJson(body, &written);
        request.body = written;
      } else if (bytes.Hold(body)) {
        request.body = bytes.view();
      } else {
        throw py::type_error(
            "body is of type " + TypeName(body) + "; pass the JSON as bytes or str, or a dict");
      }
    } else if (!messages.is_none()) {
      written = ChatBody(messages, model);
      request.body = written;
    } else if (!prompt.is_none()) {
      if (!bytes.Hold(prompt))
        throw py::type_error("prompt is of type " + TypeName(prompt) + "; pass str or bytes");
      request.prompt = bytes.view();
    }
    if (!token_ids.is_none()) request.token_ids = TokenIds(token_ids, &asked->copied);
    if (const std::optional<std::string_view> name = TextView(model)) request.model = *name;
  }

  const size_t size = (request.body ? request.body->size() : 0) +
                      (request.prompt ? request.prompt->size() : 0) +
                      (request.token_ids ? request.token_ids->size_bytes() : 0);
  if (needs_text && size >= kReleaseGilBytes) {
    const py::gil_scoped_release release;
    router.MakeKey(request, &asked->key);
  } else {
    router.MakeKey(request, &asked->key);
  }
}

Ticket Select(
    PyRouter& self, const py::object& body, const py::object& prompt, const py::object& messages,
    const py::object& token_ids, const py::object& headers, const py::object& model,
    const py::object& exclude, bool explain) {
  Asked asked;
  if (explain) asked.key.explanation = std::make_shared<Explanation>();
  MakeKey(self.router(), body, prompt, messages, token_ids, headers, model, &asked);
  const RoutingKey& key = asked.key;
  if (IsEmptyTuple(exclude) || exclude.is_none())
    return ValueOrThrow(self.router().Select(key, *self.fleet()));
  // Walking the collection may run Python code, so the fleet is held here and not in the cache.
  const std::shared_ptr<const FleetView> fleet = self.fleet();
  const std::vector<uint32_t> excluded = Excluded(exclude, *fleet);
  return ValueOrThrow(self.router().Select(key, fleet->Without(excluded)));
}

// ---- Ticket --------------------------------------------------------------------------------------------------------

// Names come back many times, and there are few: each is one str for the life of the process.
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

py::object BaseUrl(const Ticket& ticket) { return py::str(ticket.worker().url.base); }

int CheckedStatus(const std::optional<int>& status, Outcome::End end) {
  if (!status) return end == Outcome::End::kFinished ? 200 : 0;
  if (*status != 0 && (*status < 100 || *status > 599)) {
    throw py::value_error(
        "status is " + std::to_string(*status) +
        "; it is the HTTP status of the worker's answer and must be between 100 and 599, or 0 when "
        "there was none");
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

bool FinishTicket(
    Ticket& ticket, const std::optional<int>& status, const py::object& end,
    const std::optional<double>& first_token_ms, const std::optional<uint64_t>& prompt_tokens,
    const std::optional<uint64_t>& cached_tokens, const std::optional<uint64_t>& output_tokens) {
  Outcome outcome;
  if (!end.is_none()) outcome.end = CheckedEnd(py::cast<std::string>(end));
  outcome.status = CheckedStatus(status, outcome.end);
  outcome.first_token_ms = first_token_ms;
  outcome.prompt_tokens = prompt_tokens;
  outcome.cached_tokens = cached_tokens;
  outcome.output_tokens = output_tokens;
  return ticket.Finish(outcome);
}

std::string TicketRepr(const Ticket& ticket) {
  const Decision& decision = ticket.decision();
  std::string text = "<Ticket " + ticket.worker().url.url + " " + std::string(ReasonName(decision.reason));
  if (decision.unit != MatchUnit::kNone) {
    text += " " + std::to_string(decision.matched) + "/" + std::to_string(decision.total) + " " +
            std::string(MatchUnitName(decision.unit));
  }
  return text + (ticket.finished() ? " finished>" : " open>");
}

// ---- Many decisions ------------------------------------------------------------------------------------------------

// The tickets of one select_batch. Arrays of the answers, one row per request.
struct Batch {
  std::vector<Ticket> tickets;
  py::array_t<int32_t> workers;
  py::array_t<int64_t> matched;
  py::array_t<int64_t> total;
  py::list worker_urls;

  size_t Finish(const Outcome& outcome) {
    const py::gil_scoped_release release;
    size_t ended = 0;
    for (Ticket& ticket : tickets) ended += ticket.Finish(outcome) ? 1 : 0;
    return ended;
  }
};

// Rows of text, kept alive by a tuple of their own: the caller's list may change while the GIL is released.
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
      throw py::error_already_set();  // what its own iterator raised
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
    if (!text.rows.back() && !(may_be_none && item == Py_None)) {
      throw py::type_error(
          std::string(what) + "[" + std::to_string(i) + "] is of type " + TypeName(item) +
          "; it must be str or bytes" + (may_be_none ? ", or None for a request without one" : ""));
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
  const std::optional<std::string_view> name = TextView(model);
  if (!name && !model.is_none()) {
    throw py::type_error("model is of type " + TypeName(model) + "; it must be str or bytes, or None");
  }
  std::optional<TextRows> prompt_rows;
  std::optional<TextRows> session_rows;
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
    ids = ArrayView<uint32_t>(token_ids, "token_ids", "uint32");
    bounds = ArrayView<int64_t>(offsets, "offsets", "int64");
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
  const std::shared_ptr<const FleetView> fleet = self.fleet();
  auto batch = std::make_unique<Batch>(Batch{
      {},
      py::array_t<int32_t>(size),
      py::array_t<int64_t>(size),
      py::array_t<int64_t>(size),
      WorkerUrls(fleet)});
  int32_t* const workers = batch->workers.mutable_data();
  int64_t* const matched = batch->matched.mutable_data();
  int64_t* const total = batch->total.mutable_data();
  Status failure;
  {
    const py::gil_scoped_release release;
    batch->tickets.reserve(*rows);
    RoutingKey key;
    for (size_t i = 0; i < *rows; ++i) {
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
  ThrowIfError(failure);
  return batch;
}

size_t FinishBatch(Batch& batch, const std::optional<int>& status, const std::string& end_name) {
  Outcome outcome;
  outcome.end = CheckedEnd(end_name);
  outcome.status = CheckedStatus(status, outcome.end);
  return batch.Finish(outcome);
}

std::string BatchRepr(const Batch& batch) {
  size_t open = 0;
  for (const Ticket& ticket : batch.tickets) open += ticket.finished() ? 0 : 1;
  return "<Batch of " + std::to_string(batch.tickets.size()) + ", " + std::to_string(open) + " open>";
}

// ---- The router ----------------------------------------------------------------------------------------------------

std::unique_ptr<PyRouter> MakeRouter(std::vector<std::string> worker_urls, const py::dict& given) {
  RouterOptions options = RouterOptionsOf(given);
  options.worker_urls = std::move(worker_urls);

  const py::gil_scoped_release release;
  StatusOr<std::shared_ptr<Router>> router = Router::Create(options);
  const py::gil_scoped_acquire acquire;
  return std::make_unique<PyRouter>(ValueOrThrow(std::move(router)));
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

// In the order of WorkerInfo's fields in router.py.
py::list WorkerRows(PyRouter& self) {
  const std::shared_ptr<const FleetView> fleet = self.fleet();
  py::list rows;
  for (const FleetView::Member& member : fleet->members()) {
    const Worker& worker = *member.worker;
    rows.append(py::make_tuple(
        worker.url.url, member.healthy, member.draining, worker.load.open_requests(),
        static_cast<double>(worker.weight) / kWeightOne, worker.url.rank, worker.load.queued_prefill(),
        worker.load.expected_output(), worker.load.context(),
        worker.selections.load(std::memory_order_relaxed)));
  }
  return rows;
}

py::dict BlockIndexStats(const FleetView& fleet, const BlockRouting& routing) {
  const BlockCacheTrackerStats stats = routing.tracker->stats();
  py::dict workers;
  for (size_t i = 0; i < routing.worker_blocks.size(); ++i) {
    workers[py::str(fleet.worker(static_cast<uint32_t>(i)).url.url)] = routing.worker_blocks[i];
  }
  py::list times;
  for (size_t i = 0; i < BlockRouting::kMatchBuckets; ++i) {
    const bool last = i == BlockRouting::kMatchBounds.size();
    const double bound = last ? std::numeric_limits<double>::infinity()
                              : static_cast<double>(BlockRouting::kMatchBounds[i]) / 1e9;
    times.append(py::make_tuple(bound, routing.match_times[i]));
  }
  return py::dict(
      "blocks"_a = stats.index.blocks, "worker_blocks"_a = stats.index.pairs, "bytes"_a = stats.bytes,
      "recorded_requests"_a = stats.recorded_requests, "evicted_blocks"_a = stats.evicted_blocks,
      "prompt_blocks"_a = routing.prompt_blocks, "matched_blocks"_a = routing.matched_blocks,
      "match_times"_a = times, "match_seconds"_a = static_cast<double>(routing.match_nanos) / 1e9,
      "workers"_a = workers);
}

py::dict CacheStats(const FleetView& fleet, const CacheRoutingStats& stats) {
  py::dict workers;
  for (size_t i = 0; i < stats.worker_sizes.size(); ++i) {
    workers[py::str(fleet.worker(static_cast<uint32_t>(i)).url.url)] = stats.worker_sizes[i];
  }
  return py::dict(
      "hits"_a = stats.hits, "misses"_a = stats.misses, "load_balancing"_a = stats.load_balancing,
      "bytes"_a = stats.trees.size, "max_bytes"_a = stats.max_size, "memory_bytes"_a = stats.trees.memory,
      "nodes"_a = stats.trees.nodes, "evicted_bytes"_a = stats.trees.evicted_size,
      "predicted_tokens"_a = stats.predicted_tokens, "reported_tokens"_a = stats.reported_tokens,
      "guessed_restarts"_a = stats.forgotten, "workers"_a = workers);
}

// How the policy has decided so far, where it keeps count.
py::dict Stats(PyRouter& self) {
  py::dict stats("policy"_a = std::string(self.router().policy().name()));
  if (const std::optional<PrefixRoutingStats> prefix = FindPrefixRoutingStats(self.router().policy())) {
    stats["prefix_routing"] = py::dict(
        "prefix_hash"_a = prefix->prefix_hash, "overflow"_a = prefix->overflow,
        "fallback"_a = prefix->fallback, "unique_prefixes"_a = prefix->unique_prefixes);
  }
  const std::shared_ptr<const FleetView> fleet = self.fleet();
  if (const std::optional<CacheRoutingStats> cache = FindCacheRoutingStats(self.router().policy(), *fleet)) {
    stats["cache_routing"] = CacheStats(*fleet, *cache);
  }
  if (const std::optional<BlockRouting> routing = self.router().policy().block_routing(*fleet)) {
    stats["block_index"] = BlockIndexStats(*fleet, *routing);
  }
  return stats;
}

}  // namespace

// router.py has checked and completed what comes from there; replay leaves out what shall be as usual.
RouterOptions RouterOptionsOf(const py::dict& given, std::vector<std::string>* names) {
  RouterOptions options;
  PolicyOptions& chosen = options.policy;
  SessionKeyOptions& keys = options.session_key;
  const auto read = [&]<typename Value>(const char* name, const Value& usual) {
    if (names != nullptr) names->push_back(name);
    return given.contains(name) ? given[name].cast<Value>() : usual;
  };
  const auto thousandths = [&](const char* name, uint32_t usual) {
    return static_cast<uint32_t>(std::lround(read(name, usual / 1000.0) * 1000));
  };
  const auto word = [&](const char* name, auto parse, auto* value) {
    const auto given_word = read(name, std::string());
    if (!given_word.empty() || given.contains(name)) *value = ValueOrThrow(parse(given_word));
  };
  options.data_parallel_size = read("intra_node_data_parallel_size", options.data_parallel_size);
  if (read("tokenize", std::string("never")) == "worker") options.tokenize = Tokenize::kWorker;
  chosen.policy = read("policy", chosen.policy);
  chosen.fallback_policy = read("fallback_policy", chosen.fallback_policy);
  const auto seed = read("seed", std::optional<uint64_t>());
  chosen.seed = seed ? *seed : Dice::EntropySeed();
  word("least_load_metric", ParseLeastLoadMetric, &chosen.least_load_metric);
  chosen.virtual_nodes = read("virtual_nodes", chosen.virtual_nodes);
  word("hash_function", ParseHashFunction, &chosen.hash_function);
  word("hash_failover", ParseHashFailover, &chosen.hash_failover);
  chosen.hash_load_factor = thousandths("hash_load_factor", chosen.hash_load_factor);
  chosen.block_size = read("block_size", chosen.block_size);
  chosen.max_blocks_per_worker = read("max_blocks_per_worker", chosen.max_blocks_per_worker);
  chosen.cache_threshold = read("cache_threshold", chosen.cache_threshold);
  chosen.load_factor = thousandths("load_factor", chosen.load_factor);
  word("load_bound", ParseHolderBound, &chosen.load_bound);
  chosen.load_factor_epsilon = thousandths("load_factor_epsilon", chosen.load_factor_epsilon);
  chosen.prefix_load_floor = read("prefix_load_floor", chosen.prefix_load_floor);
  chosen.balance_abs_threshold = read("balance_abs_threshold", chosen.balance_abs_threshold);
  chosen.balance_rel_threshold = static_cast<uint64_t>(std::llround(
      read("balance_rel_threshold", static_cast<double>(chosen.balance_rel_threshold) / 1000) * 1000));
  chosen.eviction_interval_secs = read("eviction_interval_secs", chosen.eviction_interval_secs);
  chosen.max_tree_size = read("max_tree_size", chosen.max_tree_size);
  word("eviction_policy", ParseEvictionOrder, &chosen.eviction_order);
  word("balance_gate", ParseBalanceGate, &chosen.balance_gate);
  chosen.spread_starts = read("spread_starts", chosen.spread_starts);
  word("miss_choice", ParseMissChoice, &chosen.miss_choice);
  chosen.session_ttl_secs = read("session_ttl_secs", chosen.session_ttl_secs);
  chosen.max_sessions = read("max_sessions", chosen.max_sessions);
  chosen.prefix_token_count = read("prefix_token_count", chosen.prefix_token_count);
  chosen.prefix_hash_load_factor = thousandths("prefix_hash_load_factor", chosen.prefix_hash_load_factor);
  chosen.prefix_hash_balance_abs_threshold =
      read("prefix_hash_balance_abs_threshold", chosen.prefix_hash_balance_abs_threshold);
  options.routing_text_limit = read("routing_text_limit", options.routing_text_limit);
  options.max_prefix_length = read("max_prefix_length", options.max_prefix_length);
  options.max_worker_requests = read("max_worker_requests", options.max_worker_requests);
  keys.order = read("hash_key_order", std::string("seed")) == "reference"
                   ? SessionKeyOptions::Order::kReference
                   : SessionKeyOptions::Order::kSeed;
  keys.headers = read("hash_key_headers", keys.headers);
  keys.aliases = read("session_header_aliases", keys.aliases);
  keys.compat = read("consistent_hash_compat", keys.compat);
  keys.digest_function = chosen.hash_function;
  return options;
}

void BindRouter(py::module_& module) {
  py::class_<Ticket>(module, "Ticket", ClassDoc("Ticket"))
      .def_property_readonly(
          "worker_url", [](const Ticket& ticket) { return py::str(ticket.worker().url.url); })
      .def_property_readonly("base_url", &BaseUrl)
      .def_property_readonly("rank", [](const Ticket& ticket) { return ticket.worker().url.rank; })
      .def_property_readonly(
          "reason", [](const Ticket& ticket) { return ReasonText(ticket.decision().reason); })
      .def_property_readonly("unit", [](const Ticket& ticket) { return UnitText(ticket.decision().unit); })
      .def_property_readonly("matched", [](const Ticket& ticket) { return ticket.decision().matched; })
      .def_property_readonly("total", [](const Ticket& ticket) { return ticket.decision().total; })
      .def_property_readonly("finished", &Ticket::finished)
      .def(
          "explain",
          [](const Ticket& ticket) {
            return ExplainDecision(ticket.worker().url.url, ticket.policy().name(), ticket.decision());
          },
          "Why this worker, in words.")
      .def("first_token", &Ticket::FirstToken, "The worker's prefill is done.")
      .def(
          "finish", &FinishTicket, "Return the load; True for the call that did.", py::kw_only(),
          "status"_a = py::none(), "end"_a = py::none(), "first_token_ms"_a = py::none(),
          "prompt_tokens"_a = py::none(), "cached_tokens"_a = py::none(), "output_tokens"_a = py::none())
      .def("__enter__", [](py::object self) { return self; })
      .def(
          "__exit__", [](Ticket& ticket, const py::object& type, const py::object&,
                         const py::object&) { ticket.Finish(OutcomeOfExit(type)); })
      .def("__repr__", &TicketRepr);

  py::class_<Batch>(module, "Batch", ClassDoc("Batch"))
      .def_readonly("workers", &Batch::workers)
      .def_readonly("matched", &Batch::matched)
      .def_readonly("total", &Batch::total)
      .def_readonly("worker_urls", &Batch::worker_urls)
      .def(
          "finish", &FinishBatch, "Return the loads that are still out; how many those were.", py::kw_only(),
          "status"_a = py::none(), "end"_a = "finished")
      .def("__enter__", [](py::object self) { return self; })
      .def(
          "__exit__", [](Batch& batch, const py::object& type, const py::object&,
                         const py::object&) { batch.Finish(OutcomeOfExit(type)); })
      .def("__len__", [](const Batch& batch) { return batch.tickets.size(); })
      .def("__repr__", &BatchRepr);

  py::class_<PyRouter>(module, "Router", ClassDoc("Router"))
      .def(py::init(&MakeRouter), "worker_urls"_a, "options"_a)
      .def(
          "select", &Select, "One decision, load reserved.", "body"_a = py::none(), py::kw_only(),
          "prompt"_a = py::none(), "messages"_a = py::none(), "token_ids"_a = py::none(),
          "headers"_a = py::none(), "model"_a = py::none(), "exclude"_a = py::tuple(), "explain"_a = false)
      .def(
          "select_batch", &SelectBatch, "Many decisions in one call.", "prompts"_a = py::none(),
          py::kw_only(), "token_ids"_a = py::none(), "offsets"_a = py::none(), "session_ids"_a = py::none(),
          "model"_a = py::none())
      .def(
          "add_worker",
          [](PyRouter& self, const std::string& url, double weight) {
            ChangeFleet([&] { return self.router().AddWorker(url, weight); });
          },
          "Add a worker (all its ranks) at the end of the fleet.", "url"_a, "weight"_a = 1.0)
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
          "Choose it no more; what runs there ends as usual.", "url"_a)
      .def(
          "set_healthy",
          [](PyRouter& self, const std::string& url, bool healthy) {
            ChangeFleet([&] { return self.router().SetHealthy(url, healthy); });
          },
          "Whether it may be chosen, with all ranks of its host.", "url"_a, "healthy"_a)
      .def_property_readonly(
          "policy", [](const PyRouter& self) { return std::string(self.router().policy().name()); })
      .def_property_readonly("worker_urls", [](PyRouter& self) { return WorkerUrls(self.fleet()); })
      .def("stats", &Stats, "Counts that the policy keeps.")
      .def("_worker_rows", &WorkerRows);
}

}  // namespace vllm_router
