#include "shared_pool/pool_report.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <utility>

#include "base/text.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr size_t kMaxText = 512;  // bytes
constexpr size_t kMaxPools = 64;

std::optional<json::object> ObjectIn(std::string_view text) {
  boost::system::error_code error;
  json::value value = json::parse(json::string_view(text.data(), text.size()), error);
  if (error || !value.is_object()) return std::nullopt;
  return std::move(value.get_object());
}

// Null if it is absent or null.
const json::value* Find(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(json::string_view(name.data(), name.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

// Reads members of one object; the first error stays.
class Members {
 public:
  explicit Members(const json::object& object) : object_(object) {}

  void Number(std::string_view name, uint64_t min, uint64_t max, auto* out) {
    const json::value* const value = Find(object_, name);
    if (value == nullptr) return;
    boost::system::error_code error;
    const auto number = value->is_number() ? value->to_number<uint64_t>(error) : 0;
    if (!value->is_number() || error || number < min || number > max) {
      return Fail(name, *value, Concat("a whole number between ", min, " and ", max));
    }
    *out = static_cast<std::remove_pointer_t<decltype(out)>>(number);
  }
  void Bool(std::string_view name, auto* out) {
    const json::value* const value = Find(object_, name);
    if (value == nullptr) return;
    if (!value->is_bool()) return Fail(name, *value, "true or false");
    *out = value->get_bool();
  }
  void Text(std::string_view name, auto* out) {
    const json::value* const value = Find(object_, name);
    if (value == nullptr) return;
    if (!value->is_string() || value->get_string().size() > kMaxText) {
      return Fail(name, *value, Concat("a text of at most ", kMaxText, " bytes"));
    }
    *out = std::string(value->get_string());
  }
  void Fail(std::string_view name, const json::value& value, std::string_view limit) {
    if (!status_.ok()) return;
    const std::string shown = value.is_structured() ? "a list or an object" : json::serialize(value);
    status_ = absl::InvalidArgumentError(
        Concat("its member ", name, " is ", CutAtCharacter(shown, 100), "; it must be ", limit));
  }
  const Status& status() const { return status_; }

 private:
  const json::object& object_;
  Status status_;
};

// `host:port` of the master's own protocol; only the host counts.
std::string HostOf(std::string_view address) {
  if (address.starts_with('[')) return std::string(address.substr(1, address.find(']') - 1));
  return std::string(address.substr(0, address.rfind(':')));
}

void ReadMaster(Members* members, PagePool* pool) {
  std::string address;
  members->Text("master_server_address", &address);
  if (!address.empty()) pool->master_host = HostOf(address);
  members->Number("master_metrics_port", 1, 65'535, &pool->master_metrics_port);
}

Status ReadObjects(const json::value& value, PagePool* pool) {
  const auto wrong = [](std::string_view what) {
    return absl::InvalidArgumentError(Concat(
        "its member hicache_object_layout ", what,
        "; write {\"pools\": [{\"suffixes\": [\"_0_k\"], \"hit_policy\": \"all_pages\"}]}"));
  };
  if (!value.is_object()) return wrong("is no object");
  const json::object& layout = value.get_object();
  Members members(layout);
  members.Text("key_prefix", &pool->key_prefix);
  ROUTER_RETURN_IF_ERROR(members.status());
  const json::value* const pools = Find(layout, "pools");
  if (pools == nullptr) return absl::OkStatus();
  if (!pools->is_array() || pools->get_array().size() > kMaxPools) return wrong("has no list of pools");
  for (const json::value& item : pools->get_array()) {
    if (!item.is_object()) return wrong("has a pool that is no object");
    const json::object& part = item.get_object();
    PagePool::Objects objects;
    std::string hit_policy;
    Members of_part(part);
    of_part.Text("hit_policy", &hit_policy);
    of_part.Number("trailing_pages", 0, kMaxTrailingPages, &objects.trailing_pages);
    ROUTER_RETURN_IF_ERROR(of_part.status());
    if (hit_policy == "trailing_pages" && objects.trailing_pages == 0) objects.trailing_pages = 1;
    if (hit_policy == "all_pages") objects.trailing_pages = 0;
    const json::value* const suffixes = Find(part, "suffixes");
    if (suffixes == nullptr || !suffixes->is_array() || suffixes->get_array().size() > kMaxPageObjects)
      return wrong("has a pool without a list of suffixes");
    for (const json::value& suffix : suffixes->get_array()) {
      if (!suffix.is_string() || suffix.get_string().size() > kMaxText)
        return wrong("has a suffix that is no text");
      objects.suffixes.emplace_back(suffix.get_string());
    }
    pool->objects.push_back(std::move(objects));
  }
  return absl::OkStatus();
}

bool HasReplica(const json::value& reply) {
  static constexpr std::array<std::string_view, 4> kReplicas = {
      "values", "disk_values", "local_disk_values", "nof_values"};
  if (!reply.is_object()) return false;
  const json::value* const ok = Find(reply.get_object(), "ok");
  if (ok == nullptr || !ok->is_bool() || !ok->get_bool()) return false;
  for (const std::string_view name : kReplicas) {
    const json::value* const values = Find(reply.get_object(), name);
    if (values != nullptr && values->is_array() && !values->get_array().empty()) return true;
  }
  return false;
}

}  // namespace

StatusOr<PagePool> PoolInLayout(std::string_view text) {
  const std::optional<json::object> object = ObjectIn(text);
  if (!object) return absl::InvalidArgumentError("it is no JSON object");
  PagePool pool;
  std::string backend;
  Members members(*object);
  members.Text("backend", &backend);
  members.Number("page_size", 1, UINT32_MAX, &pool.page_size);
  members.Number("tp_size", 1, kMaxPageObjects, &pool.tp_size);
  members.Number("pp_size", 1, kMaxPageObjects, &pool.pp_size);
  members.Number("tp_lcm_size", 0, kMaxPageObjects, &pool.tp_lcm_size);
  members.Bool("should_split_heads", &pool.should_split_heads);
  members.Bool("is_eagle", &pool.is_eagle);
  members.Bool("is_mla_model", &pool.is_mla);
  members.Text("extra_backend_tag", &pool.tag);
  members.Text("model_path", &pool.model);
  ReadMaster(&members, &pool);
  ROUTER_RETURN_IF_ERROR(members.status());
  if (!backend.empty() && backend != "mooncake") {
    return absl::InvalidArgumentError(
        Concat("its member backend is ", Quoted(backend), "; only mooncake can be queried"));
  }
  if (pool.page_size == 0) {
    return absl::InvalidArgumentError("its member page_size is missing; it is --page-size of the workers");
  }
  if (const json::value* const objects = Find(*object, "hicache_object_layout"))
    ROUTER_RETURN_IF_ERROR(ReadObjects(*objects, &pool));
  ROUTER_RETURN_IF_ERROR(LayoutsOf(pool).status());
  return pool;
}

StatusOr<std::optional<PagePool>> PoolInServerInfo(std::string_view text) {
  const std::optional<json::object> info = ObjectIn(text);
  if (!info) return std::optional<PagePool>();
  const json::value* const backend = Find(*info, "hicache_storage_backend");
  if (backend == nullptr || !backend->is_string() || backend->get_string() != "mooncake")
    return std::optional<PagePool>();
  PagePool pool{.page_size = 1};  // SGLang's default
  std::string speculation, memory;
  uint32_t dp_size = 1;
  bool divides_attention = false;
  Members members(*info);
  members.Number("page_size", 1, UINT32_MAX, &pool.page_size);
  members.Number("tp_size", 1, kMaxPageObjects, &pool.tp_size);
  members.Number("pp_size", 1, kMaxPageObjects, &pool.pp_size);
  members.Number("dp_size", 1, kMaxPageObjects, &dp_size);
  members.Bool("enable_dp_attention", &divides_attention);
  members.Text("speculative_algorithm", &speculation);
  members.Text("hicache_mem_layout", &memory);
  members.Text("model_path", &pool.model);
  pool.is_eagle = EqualsIgnoreCase(std::string_view(speculation).substr(0, 5), "eagle");
  ROUTER_RETURN_IF_ERROR(members.status());
  // Objects are those of attention, whose ranks are then as many fewer.
  if (divides_attention) pool.tp_size = std::max<uint32_t>(1, pool.tp_size / dp_size);
  const json::value* extra = Find(*info, "hicache_storage_backend_extra_config");
  std::optional<json::object> parsed;
  if (extra != nullptr && extra->is_string()) {
    parsed = ObjectIn(std::string_view(extra->get_string()));
  } else if (extra != nullptr && extra->is_object()) {
    parsed = extra->get_object();
  }
  if (parsed) {
    Members of_extra(*parsed);
    of_extra.Text("extra_backend_tag", &pool.tag);
    of_extra.Number("tp_lcm_size", 0, kMaxPageObjects, &pool.tp_lcm_size);
    ReadMaster(&of_extra, &pool);
    ROUTER_RETURN_IF_ERROR(of_extra.status());
  }
  pool.should_split_heads = memory == "page_head" && pool.tp_lcm_size > pool.tp_size;
  ROUTER_RETURN_IF_ERROR(LayoutsOf(pool).status());
  return std::optional<PagePool>(std::move(pool));
}

StatusOr<std::vector<bool>> KeysInReply(std::string_view text, std::span<const std::string> keys) {
  const std::optional<json::object> reply = ObjectIn(text);
  if (!reply) return absl::FailedPreconditionError("the response is no JSON object");
  const json::value* const success = Find(*reply, "success");
  if (success == nullptr || !success->is_bool() || !success->get_bool())
    return absl::FailedPreconditionError("the response has no success");
  const json::value* const data = Find(*reply, "data");
  if (data == nullptr || !data->is_object())
    return absl::FailedPreconditionError("the response has no object 'data'");
  std::vector<bool> there;
  for (const std::string& key : keys) {
    const json::value* const found = Find(data->get_object(), key);
    there.push_back(found != nullptr && HasReplica(*found));
  }
  return there;
}

}  // namespace vllm_router
