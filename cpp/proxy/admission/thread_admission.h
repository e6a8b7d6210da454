// ThreadAdmission: what a thread that serves clients keeps to tell them apart. Used by that thread; any other may read the
// counters.
#pragma once

#include "proxy/admission/client_rules.h"
#include "proxy/telemetry/counters.h"

namespace vllm_router {

class TenantTokens;
struct ThreadClasses;

struct ThreadAdmission {
  const ClientRules& rules;  // the server's
  TenantTokens& tokens;      // likewise
  ThreadClasses& classes;    // the thread's

  Counter clamped;            // requests that claimed more than they may have
  Counter unknown_classes;    // fields with unknown names of classes
  Counter untrusted_headers;  // requests that name a tenant and may not
  Counter ambiguous_headers;  // of a trusted peer, with several names
};

}  // namespace vllm_router
