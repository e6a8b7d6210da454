// JSON text as other programs write it: 1.0 and 0.25, where Boost.JSON's serializer writes 1E0 and 2.5E-1, which is valid
// JSON and surprises those who read it. Pure; any thread.
#pragma once

#include <boost/json/value.hpp>
#include <string>

namespace vllm_router {

std::string JsonText(const boost::json::value& value);

}  // namespace vllm_router
