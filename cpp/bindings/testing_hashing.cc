#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "hashing/furc_batch.h"
#include "hashing/hash.h"
#include "hashing/keyed_hash.h"
#include "hashing/page_keys.h"
#include "hashing/sha256.h"

namespace vllm_router {

namespace py = pybind11;

void BindTestingHashing(py::module_& testing) {
  py::enum_<HashFunction>(testing, "HashFunction")
      .value("furc", HashFunction::kFurc)
      .value("xxh3", HashFunction::kXxh3);
  testing.def("hash_function_name", &HashFunctionName);
  testing.def("hash_function_by_name", &HashFunctionByName);
  testing.def("xxh3", [](std::string_view bytes) { return Xxh3(bytes); });
  testing.def("murmur64a", &Murmur64A, py::arg("bytes"), py::arg("seed"));
  testing.def("furc_hash", &FurcHash, py::arg("bytes"), py::arg("m") = (1u << 23) - 1);
  testing.def("sha256", [](std::string_view first, std::string_view second) {
    const Digest256 digest = Sha256({first, second});
    return py::bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
  });
  testing.def("page_keys", [](const std::vector<uint32_t>& ids, uint32_t tokens, bool pairs) {
    std::vector<Digest256> keys;
    HashPages({.tokens = tokens, .pairs = pairs}, ids, &keys);
    std::vector<py::bytes> all;
    for (const Digest256& key : keys) all.emplace_back(reinterpret_cast<const char*>(key.data()), key.size());
    return all;
  });
  testing.def("rename_values", [](const KeyedHash::Key& key, uint64_t domain, std::vector<uint64_t> values) {
    KeyedHash(key).Rename(domain, values);
    return values;
  });
  testing.def("draw_key", [] { return DrawKey().value(); });
  testing.def("furc_batch", [](std::string_view stem, const std::vector<std::string>& suffixes) {
    const FurcBatch batch(std::vector<std::string_view>(suffixes.begin(), suffixes.end()));
    std::vector<uint64_t> hashes(batch.room());
    batch.Hash(stem, hashes);
    hashes.resize(suffixes.size());
    return hashes;
  });
  testing.def("ring_hash", &RingHash, py::arg("function"), py::arg("bytes"));
}

}  // namespace vllm_router
