// What /admin/discovery says of workers that register themselves (pd_registration_service.h). Any thread.
#pragma once

namespace boost::json {
class object;
}

namespace vllm_router {

struct PdRegistrationReport;

boost::json::object RegistrationReport(const PdRegistrationReport& report);

}  // namespace vllm_router
