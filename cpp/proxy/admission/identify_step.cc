// Whose request it is, from its key, its address and its head; and behind the body its priority class. Where nothing tells
// clients apart, neither step does anything.
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "admission/key_grant.h"
#include "admission/priority_class.h"
#include "admission/tenant_name.h"
#include "admission/tenant_tokens.h"
#include "base/limits.h"
#include "http/head.h"
#include "proxy/admission/admission_feature.h"
#include "proxy/admission/class_pools.h"
#include "proxy/admission/thread_admission.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/security/key_set.h"
#include "proxy/thread/io_thread.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

// What is known of one request's client.
struct Client {
  ThreadAdmission& admission;
  ClassClaims claims = {};
  ClassLimit limit = {};
  bool clamped = false;
};

Client* ClientOf(const Request& request) { return request.state.Find<Client>(); }

void GiveClass(Request& request, Client& client) {
  const ClassGrant grant = GrantClass(client.claims, client.limit);
  IdentityInfo& identity = *request.info.identity;
  identity.priority_class = PriorityClassName(grant.given);
  const bool is_other = grant.claimed && *grant.claimed != grant.given;
  identity.claimed_class = is_other ? PriorityClassName(*grant.claimed) : std::string_view();
  client.clamped = grant.clamped;
}

// The tenant that the client is by itself.
std::string OwnTenant(const KeyMatch* match) {
  if (match == nullptr) return std::string(kAnonymousTenant);
  if (match->grant != nullptr && !match->grant->tenant.empty()) return match->grant->tenant;
  return TenantOfKey(match->digest);
}

bool Identify(Request& request) {
  const KeyMatch* const match = request.state.Find<KeyMatch>();
  auto* const admission = request.thread.features.Find<ThreadAdmission>();
  if (admission == nullptr) return false;
  const std::shared_ptr<const AdmissionSettings>& settings = admission->classes.rules.Get()->settings;
  if (match == nullptr && settings == nullptr && !admission->rules.any()) return false;
  if (AccessOf(request) != Access::kClient) return false;
  const KeyGrant* const grant = match != nullptr ? match->grant.get() : nullptr;
  const ClientRules& rules = admission->rules;
  const RequestHead& head = *request.head;

  const HeaderClaim claim = ClassInHeaders(head.fields);
  TenantClaim tenant;
  if (!rules.tenant_header().empty()) tenant = TenantInHeaders(head.fields, rules.tenant_header());
  const bool needs_trust = claim.claimed.has_value() || tenant.fields != 0;
  const bool trusted = needs_trust && ((grant != nullptr && grant->trusted) ||
                                       rules.TrustsAddress(request.connection.peer.address));
  admission->unknown_classes.Add(claim.unknown);

  auto identity = std::make_unique<IdentityInfo>();
  Client& client = request.state.Emplace<Client>(*admission);
  if (trusted && tenant.fields == 1) {
    identity->tenant = TenantNamed(tenant.value);
    identity->source = IdentityInfo::Source::kPeer;
  } else {
    identity->tenant = OwnTenant(match);
    identity->configured = grant != nullptr && match->in_file && !grant->tenant.empty();
    if (trusted && tenant.fields > 1) {
      identity->source = IdentityInfo::Source::kAmbiguous;
      admission->ambiguous_headers.Add();
    } else if (tenant.fields != 0) {
      admission->untrusted_headers.Add();
    }
  }
  if (settings != nullptr && settings->Names(identity->tenant)) identity->configured = true;
  client.claims.headers = claim.claimed;
  client.limit.trusts_headers = trusted;
  if (grant != nullptr) {
    client.claims.key = grant->priority_class;
    client.limit.highest = grant->highest();
  }
  request.info.identity = std::move(identity);
  GiveClass(request, client);
  return false;
}

// Tokens are the tenant's if a worker spent them: not those of a stored response.
void EndClient(Request& request) {
  const Client* const client = ClientOf(request);
  if (client == nullptr) return;
  if (client->clamped) client->admission.clamped.Add();
  const RequestInfo& info = request.info;
  const TenantUse tokens{
      .prompt = info.prompt_tokens.value_or(0),
      .cached = info.cached_tokens.value_or(0),
      .completion = info.completion_tokens.value_or(0)};
  if (info.worker == nullptr || tokens == TenantUse{}) return;
  client->admission.tokens.Add(info.identity->tenant, info.identity->configured, tokens);
}

// ---- behind the body

// A header has spoken already; no other request than one to a model has a tier.
bool MayHaveTier(const Request& request) {
  const Client* const client = ClientOf(request);
  return client != nullptr && !client->claims.headers && request.route().computes;
}

uint64_t ClassBytesNeeded(const Request& request) { return MayHaveTier(request) ? kRoutedBodyBytes : 0; }

constexpr std::string_view kMember = "service_tier";

// Few bodies have the name, and fewer have many underscores.
bool MayHaveMember(std::string_view body) {
  const size_t place = kMember.find('_');
  for (size_t at = body.find('_'); at != std::string_view::npos; at = body.find('_', at + 1)) {
    if (at >= place && body.substr(at - place, kMember.size()) == kMember) return true;
  }
  return false;
}

std::optional<PriorityClass> ClassOfBody(std::string_view body) {
  if (!MayHaveMember(body)) return std::nullopt;
  const BodyMap map = BodyMap::Read(body);
  const BodyMap::Member* const member = map.Find(kMember);
  if (member == nullptr) return std::nullopt;
  const std::optional<std::string> tier = member->Text();
  return tier ? ClassOfServiceTier(*tier) : std::nullopt;
}

// The file of classes comes first.
std::optional<PriorityClass> ClassOfAlias(ThreadAdmission& admission, std::string_view alias) {
  const std::shared_ptr<const AdmissionSettings>& settings = admission.classes.rules.Get()->settings;
  const std::optional<PriorityClass> named =
      settings != nullptr ? settings->ClassOfAlias(alias) : std::nullopt;
  return named ? named : admission.rules.ClassOfAlias(alias);
}

bool Classify(Request& request) {
  Client* const client = ClientOf(request);
  if (client == nullptr) return false;
  if (MayHaveTier(request) && !request.stream_body && request.fully_read())
    client->claims.service_tier = ClassOfBody(request.body->held());
  if (request.workers.alias != nullptr)
    client->claims.alias = ClassOfAlias(client->admission, request.workers.alias->name);
  GiveClass(request, *client);
  return false;
}

}  // namespace

extern constexpr Step kIdentifyStep = {.name = "identify", .begin = &Identify, .on_end = &EndClient};
extern constexpr Step kClassStep = {.name = "class", .begin = &Classify, .needs = &ClassBytesNeeded};

}  // namespace vllm_router
