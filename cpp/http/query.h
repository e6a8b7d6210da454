// The query of a request's target: name=value pairs joined by &, percent-encoded, a plus for a space.
//
//   FindQueryParameter("intent=chat&model=org%2Fa", "model")  ->  value "org/a", spelled "org%2Fa"
//
// Pure. Cost: one pass.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace vllm_router {

struct QueryPair {
  std::string_view name;                  // as spelled, as is the value
  std::optional<std::string_view> value;  // nullopt: there is no equals sign
};
// Takes the first pair off the front, which may be empty; nullopt: there is none.
std::optional<QueryPair> TakeQueryPair(std::string_view* query);

struct QueryParameter {
  std::string value;         // decoded
  std::string_view spelled;  // as it stands in the query
};

// The last one of that name whose value can be decoded, which is the one that Starlette's query_params has.
std::optional<QueryParameter> FindQueryParameter(std::string_view query, std::string_view name);

// Everything but letters, digits and -._~ as %XX.
std::string PercentEncoded(std::string_view text);

}  // namespace vllm_router
