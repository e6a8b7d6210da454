#include "proxy/disaggregation/registration_report.h"

#include <utility>

#include <boost/json.hpp>

#include "base/time_units.h"
#include "proxy/disaggregation/pd_registration_service.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

double SecondsSince(int64_t then_ns, int64_t now_ns) {
  return static_cast<double>((now_ns - then_ns) / kNanosPerMs) / 1000;
}

}  // namespace

json::object RegistrationReport(const PdRegistrationReport& report) {
  json::object messages;
  for (size_t i = 0; i < kPdReceivedKinds; ++i)
    messages[PdReceivedName(static_cast<PdReceived>(i))] = report.messages[i];
  json::array workers;
  for (const PdRegistrationReport::Instance& instance : report.instances) {
    const PdRegistration& told = instance.told;
    json::object worker{
        {"worker_type", PdRoleName(told.role)},
        {"http_address", told.http_address},
        {"zmq_address", told.zmq_address},
        {"tp_size", told.tp_size},
        {"dp_size", told.dp_size},
        {"peer", instance.peer},
        {"silent", instance.silent},
        {"seconds_since_heard", SecondsSince(instance.heard_ns, report.now_ns)}};
    if (told.mode) worker["transfer_mode"] = MoriioModeName(*told.mode);
    workers.push_back(std::move(worker));
  }
  return {{"endpoint", report.endpoint}, {"messages", std::move(messages)}, {"workers", std::move(workers)}};
}

}  // namespace vllm_router
