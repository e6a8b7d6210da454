// Registrations of prefill/decode for tests.
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/bindings.h"
#include "disaggregation/pd_registration.h"
#include "disaggregation/pd_registrations.h"

namespace vllm_router {
namespace {

namespace py = pybind11;

py::dict Described(const PdRegistration& told) {
  py::dict described;
  described["role"] = PdRoleName(told.role);
  described["http_address"] = told.http_address;
  described["zmq_address"] = told.zmq_address;
  described["mode"] = told.mode ? py::object(py::cast(MoriioModeName(*told.mode))) : py::none();
  described["tp_size"] = told.tp_size;
  described["dp_size"] = told.dp_size;
  return described;
}

PdRegistration RegistrationOf(const py::dict& described) {
  PdRegistration told;
  told.role = described["role"].cast<std::string>() == "prefill" ? PdRole::kPrefill : PdRole::kDecode;
  told.http_address = described["http_address"].cast<std::string>();
  told.zmq_address = described["zmq_address"].cast<std::string>();
  const auto mode = described["mode"].cast<std::optional<std::string>>();
  if (mode) told.mode = *mode == "READ" ? MoriioMode::kRead : MoriioMode::kWrite;
  told.tp_size = described["tp_size"].cast<uint32_t>();
  told.dp_size = described["dp_size"].cast<uint32_t>();
  return told;
}

py::list ListOfChanges(const std::vector<PdChange>& changes) {
  py::list list;
  for (const PdChange& change : changes)
    list.append(py::make_tuple(PdChangeName(change.kind), Described(change.worker)));
  return list;
}

// (result, changes)
py::tuple RegisterDescribed(PdRegistrations& registrations, const py::dict& told, int64_t now_ns) {
  std::vector<PdChange> changes;
  const PdRegistrations::Result result = registrations.Register(RegistrationOf(told), now_ns, &changes);
  return py::make_tuple(PdRegisterResultName(result), ListOfChanges(changes));
}

}  // namespace

void BindTestingPdRegistrations(py::module_& testing) {
  // (what it is, the registration or None)
  testing.def("decode_pd_message", [](const std::vector<py::bytes>& frames) {
    const std::vector<std::string> copies(frames.begin(), frames.end());
    PdRegistration told;
    const PdMessage message = DecodePdMessage(copies, &told);
    return py::make_tuple(
        PdMessageName(message),
        message == PdMessage::kRegistration ? py::object(Described(told)) : py::none());
  });
  testing.def("moriio_mode_names", [] {
    return std::vector{MoriioModeName(MoriioMode::kRead), MoriioModeName(MoriioMode::kWrite)};
  });
  py::class_<PdRegistrations>(testing, "PdRegistrations")
      .def(
          py::init<int64_t, size_t>(), py::arg("forget_ns"),
          py::arg("max_instances") = PdRegistrations::kMaxInstances)
      .def("register", &RegisterDescribed)
      .def(
          "expire",
          [](PdRegistrations& registrations, int64_t now_ns) {
            std::vector<PdChange> changes;
            registrations.Expire(now_ns, &changes);
            return ListOfChanges(changes);
          })
      .def("next_expiry_ns", &PdRegistrations::next_expiry_ns)
      .def("size", &PdRegistrations::size)
      .def(
          "eligible",
          [](const PdRegistrations& registrations, const std::string& role) {
            return registrations.eligible(role == "prefill" ? PdRole::kPrefill : PdRole::kDecode);
          })
      .def("mode", [](const PdRegistrations& registrations) {
        const std::optional<MoriioMode> mode = registrations.mode();
        return mode ? std::optional(MoriioModeName(*mode)) : std::nullopt;
      });
}

}  // namespace vllm_router
