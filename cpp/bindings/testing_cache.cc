// The response cache for tests: keys, stored responses, the store, flights, and what may be cached.
#include <pybind11/stl.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/raise_if_error.h"
#include "response_cache/cacheability.h"
#include "response_cache/flight_table.h"
#include "response_cache/generations.h"
#include "response_cache/hit_rate.h"
#include "response_cache/memory_store.h"
#include "response_cache/request_digest.h"
#include "response_cache/stored_response.h"

namespace vllm_router {
namespace {

namespace py = pybind11;

using Fields = std::vector<std::pair<std::string, std::string>>;

py::bytes PlainBytes(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

py::bytes PlainBytes(const Digest256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

CacheKey CacheKeyOfBytes(std::string_view bytes) {
  CacheKey key{};
  if (bytes.size() != key.size()) throw py::value_error("a key has 32 bytes");
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return key;
}

std::vector<HeaderField> ViewsOf(const Fields& fields) {
  std::vector<HeaderField> views;
  for (const auto& [name, value] : fields) views.push_back({.name = name, .value = value});
  return views;
}

py::bytes CacheKeyOfParts(
    std::string_view path, std::string_view query, std::optional<std::string_view> tenant,
    uint64_t generation, const std::vector<std::pair<std::string_view, std::string_view>>& given) {
  RequestIdentity identity{.path = path, .query = query, .generation = generation};
  if (tenant) identity.tenant = CacheKeyOfBytes(*tenant);
  std::vector<RequestMember> members;
  for (const auto& [name, value] : given) members.push_back({.name = name, .value = value});
  return PlainBytes(DigestRequest(identity, std::move(members)));
}

py::bytes Encode(
    std::string_view key, bool is_stream, int64_t stored_at_ms, int64_t expires_at_ms,
    std::optional<uint32_t> prompt_tokens, std::optional<uint32_t> completion_tokens, std::string_view fields,
    std::string_view body, std::string_view integrity_key) {
  const StoredResponse response{
      .kind = is_stream ? StoredResponse::Kind::kEventStream : StoredResponse::Kind::kBody,
      .stored_at_ms = stored_at_ms,
      .expires_at_ms = expires_at_ms,
      .prompt_tokens = prompt_tokens,
      .completion_tokens = completion_tokens,
      .fields = fields,
      .body = body};
  return PlainBytes(EncodeStored(CacheKeyOfBytes(key), response, integrity_key));
}

// The members of a StoredResponse in their order.
py::tuple Decode(
    std::string_view key, std::string_view blob, std::string_view integrity_key, int64_t now_ms) {
  const StoredResponse response =
      ValueOrRaise(DecodeStored(CacheKeyOfBytes(key), blob, integrity_key, now_ms));
  return py::make_tuple(
      response.kind == StoredResponse::Kind::kEventStream, response.stored_at_ms, response.expires_at_ms,
      response.prompt_tokens, response.completion_tokens, PlainBytes(response.fields),
      PlainBytes(response.body));
}

// ---- what may be cached

CacheTenant TenantByName(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"credential", "header", "header+credential", "shared"};
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) throw py::value_error("unknown tenant source");
  return static_cast<CacheTenant>(found - kNames.begin());
}

class CacheRequest {
 public:
  CacheRequest(
      std::string method, std::string path, std::string query, Fields fields, std::string body,
      const py::dict& rules)
      : method_(std::move(method)),
        path_(std::move(path)),
        query_(std::move(query)),
        fields_(std::move(fields)),
        body_(std::move(body)),
        views_(ViewsOf(fields_)),
        map_(BodyMap::Read(body_)) {
    for (const auto& [name, value] : rules) Set(py::cast<std::string>(name), value);
  }

  // The reason's name, "none" if it may be cached.
  std::string_view Judge() const {
    const CacheBypass why = JudgeHead(Head(), rules_);
    return CacheBypassName(why == CacheBypass::kNone ? JudgeBody(path_, map_, rules_) : why);
  }
  py::bytes Key(uint64_t generation, std::string_view model) const {
    if (Judge() != "none") throw py::value_error("it is not cached");
    return PlainBytes(CacheKeyOf(Head(), query_, map_, rules_, generation, model));
  }
  bool is_stream() const { return WantsStream(map_); }
  bool is_fresh() const { return WantsFresh(views_); }

 private:
  CacheRequestHead Head() const {
    return {
        .method = method_,
        .path = path_,
        .fields = views_,
        .body_bytes = body_.size(),
        .client = client_,
        .client_tenant = client_tenant_};
  }
  void Set(const std::string& name, py::handle value) {
    if (name == "routes") rules_.routes = py::cast<std::vector<std::string>>(value);
    if (name == "absent_temperature") rules_.absent_temperature = py::cast<bool>(value);
    if (name == "seed004" && py::cast<bool>(value)) rules_.key_scheme = CacheKeyScheme::kSeed004;
    if (name == "ignored_members") rules_.ignored_members = py::cast<std::vector<std::string>>(value);
    if (name == "tenant") rules_.tenant = TenantByName(py::cast<std::string>(value));
    if (name == "tenant_header") rules_.tenant_header = py::cast<std::string>(value);
    using Client = CacheRequestHead::Client;
    if (name == "of_key") client_ = Client::kOfKey;
    if (name == "of_peer") client_ = Client::kOfPeer;
    if (name == "ambiguous") client_ = Client::kAmbiguous;
    if (name.starts_with("of_") || name == "ambiguous") client_tenant_ = py::cast<std::string>(value);
    if (name == "max_request_bytes") rules_.max_request_bytes = py::cast<uint64_t>(value);
  }

  CacheRequestHead::Client client_ = CacheRequestHead::Client::kUnknown;
  std::string client_tenant_;
  const std::string method_;
  const std::string path_;
  const std::string query_;
  const Fields fields_;
  const std::string body_;
  const std::vector<HeaderField> views_;
  const BodyMap map_;
  CacheRules rules_;
};

std::string_view JudgeResponse(
    std::string_view path, bool is_stream, int status, const Fields& fields, std::string_view body,
    bool has_end, std::optional<uint64_t> announced, uint64_t max_bytes) {
  const std::vector<HeaderField> views = ViewsOf(fields);
  const NotStored why = JudgeResponseHead(
      {.status = status, .fields = views, .has_end = has_end, .body_bytes = announced}, is_stream, max_bytes);
  return NotStoredName(why == NotStored::kNone ? JudgeResponseBody(path, is_stream, body) : why);
}

// ---- the store

std::optional<py::bytes> GetValue(MemoryStore& store, std::string_view key, int64_t now_ns) {
  const MemoryStore::Value value = store.Get(CacheKeyOfBytes(key), now_ns);
  if (value == nullptr) return std::nullopt;
  return PlainBytes(*value);
}

py::dict StatsOfStore(const MemoryStore& store) {
  const MemoryStore::Stats stats = store.stats();
  py::dict plain;
  plain["entries"] = stats.entries;
  plain["bytes"] = stats.bytes;
  plain["evicted"] = stats.evicted;
  plain["evicted_bytes"] = stats.evicted_bytes;
  plain["expired"] = stats.expired;
  return plain;
}

// ---- flights

// Requests by number. What each was told is kept as ("response", bytes), ("lead", None) or ("alone", None).
class Flights {
 public:
  Flights(size_t followers, size_t promotions) : table_({.followers = followers, .promotions = promotions}) {}
  ~Flights() {
    while (!leads_.empty()) leads_.erase(leads_.begin());
  }

  std::string_view Join(int request, std::string_view key, bool may_follow, int64_t now_ns) {
    auto follower = std::make_unique<Request>(*this, request);
    FlightTable::Joined joined =
        table_.Join(CacheKeyOfBytes(key), may_follow ? follower.get() : nullptr, now_ns);
    if (joined.role == FlightTable::Role::kLeads) {
      leads_[request] = std::move(joined.lead);
      return "leads";
    }
    if (joined.role == FlightTable::Role::kAlone) return "alone";
    followers_[request] = std::move(follower);
    return "follows";
  }
  bool Leave(int request) { return table_.Leave(followers_.at(request).get()); }
  bool HasFollowers(int request) { return leads_.at(request).has_followers(); }
  void Finish(int request, std::string_view end, std::optional<std::string> response, int64_t now_ns) {
    constexpr std::array<std::string_view, 3> kEnds = {"shared", "not shareable", "failed"};
    const auto found = std::ranges::find(kEnds, end);
    if (found == kEnds.end()) throw py::value_error("unknown end");
    auto value = response ? std::make_shared<const std::string>(*std::move(response)) : nullptr;
    auto lead = leads_.extract(request);
    table_.Finish(
        std::move(lead.mapped()), static_cast<FlightTable::End>(found - kEnds.begin()), std::move(value),
        now_ns);
  }
  void Abandon(int request) {
    const auto lead = leads_.extract(request);  // which ends here
  }
  // What came since the last call, as (request, news, response).
  std::vector<std::tuple<int, std::string, std::optional<py::bytes>>> TakeNews() {
    return std::exchange(news_, {});
  }
  py::dict Stats() const {
    const FlightTable::Stats stats = table_.stats();
    py::dict plain;
    plain["flights"] = stats.flights;
    plain["followers"] = stats.followers;
    plain["alone_keys"] = stats.alone_keys;
    plain["shared"] = stats.shared;
    plain["promoted"] = stats.promoted;
    plain["alone"] = stats.alone;
    return plain;
  }

 private:
  struct Request final : FlightTable::Follower {
    Request(Flights& flights, int number) : flights(flights), number(number) {}
    void Notify(FlightTable::News news, FlightTable::Response response, FlightTable::Lead lead) override {
      constexpr std::array<const char*, 3> kNames = {"response", "lead", "alone"};
      std::optional<py::bytes> bytes;
      if (response != nullptr) bytes = PlainBytes(*response);
      flights.news_.emplace_back(number, kNames[static_cast<size_t>(news)], bytes);
      if (lead) flights.leads_[number] = std::move(lead);
    }
    Flights& flights;
    const int number;
  };

  FlightTable table_;
  std::map<int, std::unique_ptr<Request>> followers_;
  std::map<int, FlightTable::Lead> leads_;
  std::vector<std::tuple<int, std::string, std::optional<py::bytes>>> news_;
};

// ---- generations

std::vector<std::pair<std::string, uint64_t>> PlainIncrements(const Generations& generations) {
  std::vector<std::pair<std::string, uint64_t>> plain;
  for (const Generations::Increment& increment : generations.Pending())
    plain.emplace_back(increment.field, increment.by);
  return plain;
}

std::vector<std::tuple<std::string, std::string, uint64_t>> PlainMerge(
    Generations& generations, const std::vector<std::pair<std::string, std::optional<uint64_t>>>& given) {
  std::vector<Generations::Field> fields;
  for (const auto& [name, count] : given) fields.push_back({name, count});
  constexpr std::array<const char*, 3> kHows = {"add", "set if missing", "set"};
  std::vector<std::tuple<std::string, std::string, uint64_t>> plain;
  for (const Generations::Repair& repair : generations.Merge(fields))
    plain.emplace_back(repair.field, kHows[static_cast<size_t>(repair.how)], repair.number);
  return plain;
}

}  // namespace

void BindTestingCache(py::module_& testing) {
  testing.def(
      "digest_request", &CacheKeyOfParts, py::arg("path"), py::arg("query"), py::arg("tenant"),
      py::arg("generation"), py::arg("members"));
  testing.def(
      "digest_five_parameters",
      [](std::string_view model, std::string_view messages, std::optional<double> temperature,
         std::optional<uint64_t> max_tokens, std::optional<double> top_p,
         std::optional<std::string_view> tenant) {
        return PlainBytes(DigestFiveParameters(
            {.model = model,
             .messages = messages,
             .temperature = temperature,
             .max_tokens = max_tokens,
             .top_p = top_p,
             .tenant = tenant}));
      },
      py::arg("model"), py::arg("messages"), py::arg("temperature") = py::none(),
      py::arg("max_tokens") = py::none(), py::arg("top_p") = py::none(), py::arg("tenant") = py::none());
  testing.def(
      "tenant_of_credential", [](std::string_view value) { return PlainBytes(TenantOfCredential(value)); });
  testing.def("tenant_of_header", [](std::string_view value) { return PlainBytes(TenantOfHeader(value)); });
  testing.def("tenant_of_both", [](std::string_view value, std::string_view credential) {
    return PlainBytes(TenantOfBoth(value, credential));
  });

  testing.def(
      "encode_stored", &Encode, py::arg("key"), py::arg("is_stream"), py::arg("stored_at_ms"),
      py::arg("expires_at_ms"), py::arg("prompt_tokens"), py::arg("completion_tokens"), py::arg("fields"),
      py::arg("body"), py::arg("integrity_key") = "");
  testing.def(
      "decode_stored", &Decode, py::arg("key"), py::arg("blob"), py::arg("integrity_key") = "",
      py::arg("now_ms") = 0);

  py::class_<CacheRequest>(testing, "CacheRequest")
      .def(
          py::init<std::string, std::string, std::string, Fields, std::string, py::dict>(), py::arg("method"),
          py::arg("path"), py::arg("query"), py::arg("fields"), py::arg("body"), py::arg("rules"))
      .def("judge", &CacheRequest::Judge)
      .def("key", &CacheRequest::Key, py::arg("generation") = 0, py::arg("model") = "")
      .def_property_readonly("is_stream", &CacheRequest::is_stream)
      .def_property_readonly("is_fresh", &CacheRequest::is_fresh);
  testing.def(
      "judge_response", &JudgeResponse, py::arg("path"), py::arg("is_stream"), py::arg("status"),
      py::arg("fields"), py::arg("body"), py::arg("has_end") = true, py::arg("announced") = py::none(),
      py::arg("max_bytes") = 1 << 20);

  py::class_<HitRate>(testing, "HitRate")
      .def(py::init<>())
      .def("count", &HitRate::Count, py::arg("hit"), py::arg("now_ns"))
      .def("of", &HitRate::Of, py::arg("now_ns"));

  py::class_<MemoryStore>(testing, "MemoryStore")
      .def(
          py::init([](size_t entries, size_t bytes) {
            return std::make_unique<MemoryStore>(MemoryStore::Limits{.entries = entries, .bytes = bytes});
          }),
          py::arg("entries"), py::arg("bytes"))
      .def("get", &GetValue, py::arg("key"), py::arg("now_ns"))
      .def(
          "set",
          [](MemoryStore& store, std::string_view key, std::string value, int64_t expires_ns,
             int64_t now_ns) {
            return store.Set(
                CacheKeyOfBytes(key), std::make_shared<const std::string>(std::move(value)), expires_ns,
                now_ns);
          },
          py::arg("key"), py::arg("value"), py::arg("expires_ns"), py::arg("now_ns"))
      .def(
          "delete",
          [](MemoryStore& store, std::string_view key) { return store.Delete(CacheKeyOfBytes(key)); })
      .def("clear", &MemoryStore::Clear)
      .def("sweep", &MemoryStore::Sweep, py::arg("now_ns"), py::arg("most"))
      .def(
          "set_limits",
          [](MemoryStore& store, size_t entries, size_t bytes) {
            store.SetLimits({.entries = entries, .bytes = bytes});
          },
          py::arg("entries"), py::arg("bytes"))
      .def("stats", &StatsOfStore)
      .def_property_readonly_static("entry_bytes", [](const py::object&) { return MemoryStore::kEntryBytes; })
      .def_property_readonly_static(
          "swept_per_set", [](const py::object&) { return MemoryStore::kSweptPerSet; })
      .def_property_readonly_static(
          "sharded_capacity", [](const py::object&) { return MemoryStore::kShardedCapacity; })
      .def_property_readonly_static("shards", [](const py::object&) { return MemoryStore::kShards; });

  py::class_<Generations>(testing, "Generations")
      .def(
          py::init<uint64_t, uint64_t>(), py::arg("seed") = 0,
          py::arg("largest_step") = Generations::kLargestStep)
      .def("of", &Generations::Of)
      .def("bump", &Generations::Bump)
      .def("bump_all", &Generations::BumpAll)
      .def("pending", &PlainIncrements)
      .def("written", &Generations::Written, py::arg("field"), py::arg("by"), py::arg("count"))
      .def("merge", &PlainMerge)
      .def(
          "counts",
          [](const Generations& self) {
            std::vector<std::pair<std::string, uint64_t>> plain;
            for (const Generations::Count& count : self.Counts())
              plain.emplace_back(count.field, count.count);
            return plain;
          })
      .def_property_readonly_static("max_models", [](const py::object&) { return Generations::kMaxModels; })
      .def_property_readonly_static("max_tracked", [](const py::object&) { return Generations::kMaxTracked; })
      .def_property_readonly_static(
          "max_name_bytes", [](const py::object&) { return Generations::kMaxNameBytes; })
      .def_property_readonly_static("max_count", [](const py::object&) { return Generations::kMaxCount; });

  py::class_<Flights>(testing, "FlightTable")
      .def(py::init<size_t, size_t>(), py::arg("followers") = 256, py::arg("promotions") = 2)
      .def(
          "join", &Flights::Join, py::arg("request"), py::arg("key"), py::arg("may_follow"),
          py::arg("now_ns"))
      .def("leave", &Flights::Leave)
      .def("has_followers", &Flights::HasFollowers)
      .def(
          "finish", &Flights::Finish, py::arg("request"), py::arg("end"), py::arg("response") = py::none(),
          py::arg("now_ns") = 0)
      .def("abandon", &Flights::Abandon)
      .def("take_news", &Flights::TakeNews)
      .def("stats", &Flights::Stats)
      .def_property_readonly_static("alone_ns", [](const py::object&) { return FlightTable::kAloneNs; });
}

}  // namespace vllm_router
