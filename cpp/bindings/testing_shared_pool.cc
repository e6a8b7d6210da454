// What queries a shared pool, without a socket.
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "hashing/page_keys.h"
#include "routing/router.h"
#include "shared_pool/page_layout.h"
#include "shared_pool/page_query.h"
#include "shared_pool/page_results.h"
#include "shared_pool/pool_report.h"
#include "shared_pool/query_backoff.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;

Ranges PairsOf(const std::vector<BlockRange>& ranges) {
  Ranges pairs;
  for (const BlockRange& range : ranges) pairs.emplace_back(range.begin, range.end);
  return pairs;
}

Digest256 DigestOf(std::string_view bytes) {
  Digest256 digest{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), digest.size()), digest.begin());
  return digest;
}

py::bytes BytesOf(const Digest256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// A page has one character of each of `suffixes`; page i has the digest that begins with i, big-endian.
class Query {
 public:
  Query(
      uint32_t pages, std::vector<std::string> suffixes, std::vector<std::string> trailing_suffixes,
      uint32_t trailing_pages, bool all)
      : query_(
            std::make_shared<const PageLayout>(PageLayout{
                .prefix = {},
                .form = {.tokens = 1},
                .suffixes = std::move(suffixes),
                .trailing_suffixes = std::move(trailing_suffixes),
                .trailing_pages = trailing_pages}),
            Pages(pages), all ? PageQuery::Verify::kAll : PageQuery::Verify::kEdges) {}

  void Know(size_t page, PageState state) { query_.Know(page, state); }
  // Keys as (page, suffix).
  std::optional<std::pair<uint32_t, std::vector<std::pair<uint32_t, std::string>>>> Next() {
    const std::optional<PageQuery::Request> request = query_.Next();
    if (!request) return std::nullopt;
    std::vector<std::pair<uint32_t, std::string>> keys;
    for (const std::string& key : request->keys)
      keys.emplace_back(static_cast<uint32_t>(std::stoul(key.substr(0, 8), nullptr, 16)), key.substr(64));
    return std::pair(request->number, std::move(keys));
  }
  void Take(uint32_t number, const std::vector<bool>& there) { query_.Take(number, there); }
  void Fail(uint32_t number) { query_.Fail(number); }
  bool done() const { return query_.done(); }
  PageState state(size_t page) const { return query_.state(page); }
  Ranges ranges() const { return PairsOf(query_.Ranges()); }

 private:
  static std::vector<Digest256> Pages(uint32_t count) {
    std::vector<Digest256> pages(count);
    for (uint32_t i = 0; i < count; ++i) {
      for (int byte = 0; byte < 4; ++byte)
        pages[i][static_cast<size_t>(byte)] = static_cast<uint8_t>(i >> (24 - 8 * byte));
    }
    return pages;
  }

  PageQuery query_;
};

py::dict DictOf(const PagePool& pool) {
  py::list objects;
  for (const PagePool::Objects& part : pool.objects)
    objects.append(py::make_tuple(part.suffixes, part.trailing_pages));
  py::dict dict;
  dict["page_size"] = pool.page_size;
  dict["tp_size"] = pool.tp_size;
  dict["pp_size"] = pool.pp_size;
  dict["tp_lcm_size"] = pool.tp_lcm_size;
  dict["should_split_heads"] = pool.should_split_heads;
  dict["is_eagle"] = pool.is_eagle;
  dict["is_mla"] = pool.is_mla;
  dict["tag"] = pool.tag;
  dict["key_prefix"] = pool.key_prefix;
  dict["model"] = pool.model;
  dict["objects"] = objects;
  dict["master"] = py::make_tuple(pool.master_host, pool.master_metrics_port);
  return dict;
}

}  // namespace

void BindTestingSharedPool(py::module_& testing) {
  py::enum_<PageState>(testing, "PageState")
      .value("unknown", PageState::kUnknown)
      .value("absent", PageState::kAbsent)
      .value("first", PageState::kFirst)
      .value("whole", PageState::kWhole);
  py::class_<PageResults>(testing, "PageResults")
      .def(py::init<size_t>())
      .def(
          "find", [](PageResults& results, std::string_view page,
                     int64_t now_ns) { return results.Find(DigestOf(page), now_ns); })
      .def(
          "store", [](PageResults& results, std::string_view page, PageState state,
                      int64_t now_ns) { results.Store(DigestOf(page), state, now_ns); })
      .def("clear", &PageResults::Clear)
      .def("__len__", &PageResults::size);
  py::class_<QueryBackoff>(testing, "QueryBackoff")
      .def(py::init<>())
      .def("may_query", &QueryBackoff::MayQuery)
      .def("worked", &QueryBackoff::Worked)
      .def("failed", &QueryBackoff::Failed)
      .def("left", &QueryBackoff::Left)
      .def_property_readonly("paused", &QueryBackoff::paused);
  py::class_<Query>(testing, "PageQuery")
      .def(
          py::init<uint32_t, std::vector<std::string>, std::vector<std::string>, uint32_t, bool>(),
          py::arg("pages"), py::arg("suffixes"), py::arg("trailing_suffixes") = std::vector<std::string>(),
          py::arg("trailing_pages") = 0, py::arg("all") = false)
      .def("know", &Query::Know)
      .def("next", &Query::Next)
      .def("take", &Query::Take)
      .def("fail", &Query::Fail)
      .def("state", &Query::state)
      .def_property_readonly("done", &Query::done)
      .def_property_readonly("ranges", &Query::ranges);
  testing.def(
      "blocks_of_pages", [](const Ranges& pages, uint32_t page_tokens, uint32_t block_tokens, size_t blocks) {
        std::vector<BlockRange> ranges;
        for (const auto& [begin, end] : pages) ranges.push_back({begin, end});
        return PairsOf(BlocksOfPages(ranges, page_tokens, block_tokens, blocks));
      });
  testing.def(
      "pool_in_layout", [](std::string_view text) { return DictOf(ValueOrThrow(PoolInLayout(text))); });
  testing.def("pool_in_server_info", [](std::string_view text) -> std::optional<py::dict> {
    const std::optional<PagePool> pool = ValueOrThrow(PoolInServerInfo(text));
    if (!pool) return std::nullopt;
    return DictOf(*pool);
  });
  testing.def("keys_in_reply", [](std::string_view text, const std::vector<std::string>& keys) {
    return ValueOrThrow(KeysInReply(text, keys));
  });
  // What a body's key has with such a pool.
  testing.def(
      "pages_of", [](const std::string& policy, const std::string& body, uint32_t tokens, bool pairs,
                     const std::vector<std::string>& models) {
        RouterOptions options;
        options.policy.policy = policy;
        const std::shared_ptr<Router> router = ValueOrThrow(Router::Create(options));
        router->paged_prompts().Set(
            {.form = {.tokens = tokens, .pairs = pairs}, .models = {models.begin(), models.end()}},
            /*awaited=*/false);
        RequestView request{.path = "/v1/completions"};
        request.body = body;
        std::vector<py::bytes> pages;
        for (const Digest256& page : router->MakeKey(request).pages) pages.push_back(BytesOf(page));
        return pages;
      });
  // Of the first page, whose digest is zeros: for each layout its keys, then those of trailing pages.
  testing.def("layouts_in", [](std::string_view text) {
    std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> all;
    for (const PageLayout& layout : ValueOrThrow(LayoutsOf(ValueOrThrow(PoolInLayout(text))))) {
      auto& [keys, trailing] = all.emplace_back();
      for (const std::string& suffix : layout.suffixes) keys.push_back(layout.KeyOf({}, suffix));
      for (const std::string& suffix : layout.trailing_suffixes) trailing.push_back(layout.KeyOf({}, suffix));
    }
    return all;
  });
}

}  // namespace vllm_router
