// hash_blocks: block hashes as numpy arrays. Its contract is in _core.pyi.
#include <pybind11/numpy.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "hashing/block_hash.h"

namespace vllm_router {

namespace py = pybind11;
using namespace py::literals;

namespace {

// `extra` as pairs that ascend by block; Python keeps the bytes.
std::vector<BlockExtra> Extras(const py::object& given) {
  std::vector<BlockExtra> extras;
  if (given.is_none()) return extras;
  if (!PyDict_Check(given.ptr())) {
    throw py::type_error("extra is of type " + TypeName(given) + "; it must map numbers of blocks to bytes");
  }
  for (const auto& [block, bytes] : py::reinterpret_borrow<py::dict>(given)) {
    const std::optional<std::string_view> view = TextView(bytes);
    const size_t number = PyLong_Check(block.ptr()) ? PyLong_AsSize_t(block.ptr()) : static_cast<size_t>(-1);
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    if (!view || number == static_cast<size_t>(-1)) {
      throw py::type_error(
          "extra holds " + Show(block) + ": " + Show(bytes) +
          "; it must map numbers of blocks (0 or more) to bytes or str");
    }
    extras.push_back({number, *view});
  }
  std::sort(extras.begin(), extras.end(), [](const BlockExtra& a, const BlockExtra& b) {
    return a.block < b.block;
  });
  return extras;
}

bool IsPositional(std::string_view scheme) {
  if (scheme == "positional") return true;
  if (scheme == "chained") return false;
  throw py::value_error("scheme is '" + std::string(scheme) + "'; it must be 'chained' or 'positional'");
}

std::string_view Named(const py::object& value, const char* what) {
  if (value.is_none()) return {};
  const std::optional<std::string_view> view = TextView(value);
  if (!view)
    throw py::type_error(std::string(what) + " is of type " + TypeName(value) + "; pass a str or None");
  return *view;
}

template <typename Body>
void MaybeWithoutGil(size_t bytes, Body body) {
  if (bytes < kReleaseGilBytes) return body();
  const py::gil_scoped_release release;
  body();
}

// `Prompt` is a span of token ids or a text.
template <typename Prompt>
py::array_t<uint64_t> HashOne(
    const BlockHasher& hasher, Prompt prompt, const PromptScope& scope, std::span<const BlockExtra> extras,
    bool positional) {
  const size_t count = hasher.CountBlocks(prompt);
  py::array_t<uint64_t> hashes(static_cast<py::ssize_t>(count));
  const std::span<BlockHash> out(hashes.mutable_data(), count);
  MaybeWithoutGil(count * hasher.block_bytes(), [&] {
    if (positional) {
      hasher.HashPositions(prompt, out);
    } else {
      hasher.Hash(hasher.Root(scope), prompt, extras, out);
    }
  });
  return hashes;
}

py::tuple HashRows(
    const BlockHasher& hasher, std::span<const uint32_t> ids, std::span<const int64_t> offsets,
    const PromptScope& scope, bool positional) {
  CheckOffsets(offsets, ids.size());
  const size_t rows = offsets.size() - 1;
  py::array_t<int64_t> bounds(static_cast<py::ssize_t>(rows + 1));
  int64_t* const bound = bounds.mutable_data();
  const auto row = [&](size_t i) {
    return ids.subspan(static_cast<size_t>(offsets[i]), static_cast<size_t>(offsets[i + 1] - offsets[i]));
  };
  bound[0] = 0;
  for (size_t i = 0; i < rows; ++i)
    bound[i + 1] = bound[i] + static_cast<int64_t>(hasher.CountBlocks(row(i)));
  py::array_t<uint64_t> hashes(static_cast<py::ssize_t>(bound[rows]));
  BlockHash* const out = hashes.mutable_data();
  {
    const py::gil_scoped_release release;
    const BlockHash root = hasher.Root(scope);
    for (size_t i = 0; i < rows; ++i) {
      const std::span<BlockHash> part(out + bound[i], static_cast<size_t>(bound[i + 1] - bound[i]));
      if (positional) {
        hasher.HashPositions(row(i), part);
      } else {
        hasher.Hash(root, row(i), part);
      }
    }
  }
  return py::make_tuple(std::move(hashes), std::move(bounds));
}

py::object HashBlocks(
    const py::object& prompt, const py::object& block_size, const std::string& scheme, uint64_t seed,
    const py::object& offsets, const py::object& lora_name, const py::object& cache_salt,
    const py::object& extra) {
  const BlockHasher hasher = BlockHasher(BlockSize(block_size), seed);
  const bool positional = IsPositional(scheme);
  const std::vector<BlockExtra> extras = Extras(extra);
  PromptScope scope{
      .lora_name = Named(lora_name, "lora_name"), .cache_salt = Named(cache_salt, "cache_salt")};
  if (positional && (seed != 0 || !extras.empty() || !scope.lora_name.empty() || !scope.cache_salt.empty())) {
    throw py::value_error(
        "scheme 'positional' hashes positions and tokens only; seed, lora_name, cache_salt and extra need "
        "scheme='chained'");
  }
  if (!offsets.is_none()) {
    if (!extras.empty())
      throw py::value_error("extra came with offsets; hash prompts that have extra bytes one by one");
    return HashRows(
        hasher, ArrayView<uint32_t>(prompt, "token_ids", "uint32"),
        ArrayView<int64_t>(offsets, "offsets", "int64"), scope, positional);
  }
  if (const std::optional<std::string_view> text = TextView(prompt)) {
    scope.is_text = true;
    return HashOne(hasher, *text, scope, extras, positional);
  }
  std::vector<uint32_t> copied;
  return HashOne(hasher, TokenIds(prompt, &copied), scope, extras, positional);
}

}  // namespace

void BindHashBlocks(py::module_& module) {
  module.def(
      "hash_blocks", &HashBlocks, "Names for the complete blocks of a prompt, or of many.", "token_ids"_a,
      "block_size"_a = 16, py::kw_only(), "scheme"_a = "chained", "seed"_a = 0, "offsets"_a = py::none(),
      "lora_name"_a = py::none(), "cache_salt"_a = py::none(), "extra"_a = py::none());
}

}  // namespace vllm_router
