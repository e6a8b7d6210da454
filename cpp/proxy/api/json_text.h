// JSON text in the usual form: 1.0 and 0.25. Boost.JSON's serializer writes 1E0 and 2.5E-1, which is
// valid JSON but surprises readers. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace boost::json {
class value;
}

namespace vllm_router {

std::string JsonText(const boost::json::value& value);

// The same JSON in this form. Throws if the text is not JSON.
std::string JsonAgain(std::string_view json);

}  // namespace vllm_router
