// Options from Python: set by name from the tables of base/option_spec.h, and the tables themselves as
// dicts, for tests that compare them with RouterArgs. All with the GIL.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "base/option_spec.h"
#include "bindings/arguments.h"
#include "bindings/errors.h"

namespace vllm_router {

// A value for an option of this kind; None: unset. Throws py::cast_error for one of another type.
OptionValue OptionValueOf(OptionKind kind, pybind11::handle value);

// Throws ValueError for a value that does not fit, or a word that is unknown.
template <typename Options>
void SetFromPython(const OptionSpec<Options>& spec, pybind11::handle value, Options* options) {
  Status set;
  try {
    set = SetOption(spec, OptionValueOf(spec.member.kind, value), options);
  } catch (const pybind11::cast_error&) {
    set = absl::OutOfRangeError("of another type");
  }
  if (absl::IsOutOfRange(set)) {
    throw pybind11::value_error(
        std::string(spec.name) + " is " + Show(value) +
        ", which is not of its type or range; see docs/reference/cli.md");
  }
  ThrowIfError(set);
}

// Those options of the table that `given` has. Adds the names of all to `names`, unless it is null.
template <typename Options>
void SetGiven(
    const OptionTable<Options>& table, const pybind11::dict& given, Options* options,
    std::vector<std::string>* names) {
  for (const OptionSpec<Options>& spec : table) {
    const pybind11::str name{std::string(spec.name)};
    if (names != nullptr) names->emplace_back(spec.name);
    if (given.contains(name)) SetFromPython(spec, given[name], options);
  }
}

pybind11::dict OptionRow(
    OptionKind kind, const OptionRange& range, double largest, const std::vector<OptionWord>& words,
    const OptionValue& usual);

// By name.
template <typename Options>
pybind11::dict OptionRows(const OptionTable<Options>& table) {
  const Options usual;
  pybind11::dict rows;
  for (const OptionSpec<Options>& spec : table) {
    rows[pybind11::str(std::string(spec.name))] =
        OptionRow(spec.member.kind, spec.range, spec.member.largest, spec.words, spec.member.get(usual));
  }
  return rows;
}

}  // namespace vllm_router
