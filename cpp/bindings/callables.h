// What a Python user sees of the extension's functions before and after a call: signatures and docstrings, and errors
// that quote nothing of a request.
//
//     _core.pyi ──cmake/core_docs.py──▶ core_docs.inc ──▶ help(Router.select), inspect.signature(Router.select)
//                                                   └───▶ TypeError: Router.select() has no argument 'promt'; did you
//                                                         mean prompt?
//
// pybind11 answers a call that fits no overload with the repr() of every argument, so a misspelt keyword beside a body
// of 1 MB would be an exception of 1 MB with the prompt in it, and from there in a log. Here pybind11's dispatcher is
// called by a function of ours, which writes another message when the call has failed.
//
// Cost: a call that succeeds pays for one jump and one comparison, about 1 ns; the rest is done for errors only. With
// the GIL, at import and at errors.
//
//     PYBIND11_MODULE(_core, module) {
//       …                                 // all bindings
//       DocumentCallables(module);        // last
//     }
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace vllm_router {

// The docstring of a class in _core.pyi, led by the signature of its constructor: the third argument of py::class_.
// It is REQUIRED to be there.
const char* ClassDoc(const char* name);

// Calls of a method with many arguments by name skip pybind11's search for each of them (70 ns for each that the method has).
// `twin` is the same method of the class under a private name, whose arguments are all by position; `arguments` are their
// names and defaults, of which the first `by_position` may be given by position. A call that does not fit, and whatever a
// twin raises, is told as one of `name`. Before DocumentCallables; one method of a process has this.
void CallThroughTwin(
    pybind11::handle type, const char* name, const char* twin, size_t by_position,
    const std::vector<std::pair<const char*, pybind11::object>>& arguments);

// Gives the functions, methods and properties of a module and of its classes their docstrings, and guards their calls.
// `prefix` is the module's name in _core.pyi with a dot, empty for `_core` itself.
void DocumentCallables(pybind11::module_& module, const char* prefix = "");

}  // namespace vllm_router
