#include "proxy/thread/response_owners.h"

namespace vllm_router {

std::string_view ResponseLookupName(ResponseLookup lookup) {
  switch (lookup) {
    case ResponseLookup::kKnown:
      return "known";
    case ResponseLookup::kFound:
      return "found";
    case ResponseLookup::kNotFound:
      return "not_found";
    case ResponseLookup::kBusy:
      return "busy";
  }
  return "";
}

}  // namespace vllm_router
