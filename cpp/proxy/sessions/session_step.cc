// What the head says of the conversation is kept for the logs and the table of sessions. A WebSocket's upgrade, which says no
// prompt, prefers the worker of its session's last turn.
#include <memory>
#include <string>

#include "http/head.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/sessions/sessions_feature.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "routing/session_names.h"
#include "sessions/session_table.h"

namespace vllm_router {
namespace {

SessionTable& TableOf(const Request& request) { return *request.thread.limits.features.Find<SessionTable>(); }

SessionNames NamesOf(const SessionInfo& info) {
  return {.session = info.session, .parent = info.parent, .agent = info.agent};
}

bool BeginSession(Request& request) {
  const RequestHead& head = *request.head;
  const SessionNames names = SessionNamesIn(head.fields);
  if (names.session.empty()) return false;
  request.info.session = std::make_unique<SessionInfo>(SessionInfo{
      .session = std::string(names.session),
      .parent = std::string(names.parent),
      .agent = std::string(names.agent),
      .has_turn = request.route().computes || head.websocket,
      .is_final = FindHeader(head.fields, "x-dynamo-session-final").value_or("") == "true"});
  if (head.websocket) request.key.last_worker = TableOf(request).WorkerOf(names);
  return false;
}

void EndTurn(Request& request) {
  const RequestInfo& info = request.info;
  const bool served = (info.status >= 200 && info.status < 300) || info.status == 101;
  if (info.session == nullptr || info.worker == nullptr || !served) return;
  if (info.session->is_final) request.thread.router->FinishSession(info.session->session);
  if (!info.session->has_turn) return;
  SessionTable::Turn turn{
      .worker = info.worker->id,
      .prompt_tokens = info.prompt_tokens,
      .cached_tokens = info.cached_tokens,
      .wall_us = info.wall_us};
  if (info.decision) {
    turn.unit = info.decision->unit;
    turn.matched = info.decision->matched;
    turn.total = info.decision->total;
  }
  TableOf(request).Record(NamesOf(*info.session), info.model, turn);
}

}  // namespace

extern constexpr Step kSessionStep = {.name = "session", .begin = &BeginSession, .on_end = &EndTurn};

}  // namespace vllm_router
