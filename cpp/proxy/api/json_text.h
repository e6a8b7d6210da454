// JSON text as other programs write it: 1.0 and 0.25, where Boost.JSON's serializer writes 1E0 and 2.5E-1, which is valid
// JSON and surprises those who read it. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace boost::json {
class value;
}

namespace vllm_router {

std::string JsonText(const boost::json::value& value);

// The same JSON, written so. Throws where it is none.
std::string JsonAgain(std::string_view json);

}  // namespace vllm_router
