#include "proxy/sessions/sessions_feature.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "base/time_units.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/feature.h"
#include "proxy/admin/replies.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "sessions/session_table.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr size_t kMaxSessions = 10'000;
constexpr size_t kMaxShown = 200;

Status Add(const ServerParts& server) {
  server.limits.features.Own(std::make_unique<SessionTable>(kMaxSessions));
  return absl::OkStatus();
}

void AddIf(std::string_view name, std::string_view value, json::object* row) {
  if (!value.empty()) (*row)[name] = value;
}

json::object Describe(const SessionTable::Session& session, const FleetView& fleet) {
  json::object row{{"session", session.session}};
  AddIf("parent", session.parent, &row);
  AddIf("agent", session.agent, &row);
  AddIf("model", session.model, &row);
  const SessionTable::Turn& last = session.last;
  const std::optional<uint32_t> position = fleet.Find(last.worker);
  row["worker"] = position ? json::value(fleet.worker(*position).url.url) : json::value(nullptr);
  row["turns"] = session.turns;
  row["moves"] = session.moves;
  row["last"] = static_cast<double>(last.wall_us / 1000) / 1000;
  if (last.unit != MatchUnit::kNone) {
    row["unit"] = MatchUnitName(last.unit);
    row["matched"] = last.matched;
    row["total"] = last.total;
  }
  if (last.prompt_tokens) row["prompt_tokens"] = *last.prompt_tokens;
  if (last.cached_tokens) row["cached_tokens"] = *last.cached_tokens;
  return row;
}

AdminReply Sessions(AdminContext& admin, const PageCall& call) {
  const auto& table = *call.thread.limits.features.Find<SessionTable>();
  const std::optional<std::string> session = ValueOf(call.detail);
  const std::shared_ptr<const FleetView> fleet = admin.router->pool().fleet();
  json::array rows;
  for (const SessionTable::Session& row : table.Newest(kMaxShown, session))
    rows.push_back(Describe(row, *fleet));
  return JsonReply(200, json::object{{"known", table.size()}, {"sessions", std::move(rows)}});
}

StatusOr<std::string> SessionDetail(const AdminRequest& request) {
  return DetailOf(request.query, "session");
}

constexpr OwnEndpoint kOwnEndpoints[] = {
    {.path = "/admin/sessions", .methods = "GET, HEAD", .render = &Sessions, .detail = &SessionDetail}};

std::span<const OwnEndpoint> SessionEndpoints() { return kOwnEndpoints; }

constexpr EndpointTable kTables[] = {&SessionEndpoints};

}  // namespace

extern constexpr Feature kSessionsFeature = {.name = "sessions", .add = &Add, .endpoints = kTables};

}  // namespace vllm_router
