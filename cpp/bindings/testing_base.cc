#include <pybind11/stl.h>

#include "base/dice.h"
#include "base/text.h"
#include "bindings/bindings.h"

namespace vllm_router {

namespace py = pybind11;

void BindTestingBase(py::module_& testing) {
  testing.def("nearest_name", [](const std::string& name, const std::vector<std::string>& candidates) {
    std::vector<std::string_view> views(candidates.begin(), candidates.end());
    return std::string(NearestName(name, views));
  });
  testing.def("trim_blanks", [](const std::string& text) { return py::bytes(std::string(TrimBlanks(text))); });
  testing.def("parse_decimal", [](const std::string& digits) { return ParseDecimal(digits); });
  testing.def("hex16", &Hex16);
  testing.def("entropy_seed", &Dice::EntropySeed);
  py::class_<Dice>(testing, "Dice")
      .def(py::init<uint64_t>(), py::arg("seed"))
      .def("next", &Dice::Next)
      .def("below", &Dice::Below);
}

}  // namespace vllm_router
