// SPDX-License-Identifier: Apache-2.0
// Positions of ranks, caches and longer contexts, and positions made of positions.

#include "arrays.h"
#include "bindings.h"
#include "posenc/core/error.h"
#include "posenc/positions.h"

namespace posenc::python {
namespace {

using Indices = std::vector<Index>;
constexpr const char* kWho = "positions";

nb::object list_of(const Indices& v) {
  const Index shape[] = {static_cast<Index>(v.size())};
  return new_array(v, shape);
}
OwnedPositions owned_of(nb::handle h) {
  return owned(PositionsArgument(h, {kWho, "positions"}).value());
}
std::vector<OwnedPositions> all_of(nb::handle list) {
  std::vector<OwnedPositions> all;
  for (const nb::object& x : items_of(list, {kWho, "positions"}, "must be a list of positions"))
    all.push_back(owned_of(x));
  return all;
}

// fn(tokens) of a number of tokens, fn(cu_seqlens) of packed documents.
template <class F>
auto of_tokens(nb::handle tokens, const F& fn) {
  Index count = 0;
  if (nb::try_cast<Index>(tokens, count)) return fn(count);
  Indices cu;
  if (!nb::try_cast<Indices>(tokens, cu))
    refuse_field("shard", "tokens", "must be a number of tokens, or cu_seqlens of packed documents",
                 text_of(nb::repr(tokens)));
  return fn(std::span<const Index>(cu));
}

ShardLayout layout_word(std::string_view layout) {
  return word_of<ShardLayout>(layout, {"shard", "layout"});
}

void add_shards(nb::module_& m) {
  m.def(
      "shard_tokens",
      [](nb::handle tokens, Index ranks, Index rank, std::string_view layout) {
        return list_of(of_tokens(tokens, [&](const auto& t) {
          return shard_tokens(t, ranks, rank, layout_word(layout));
        }));
      },
      nb::arg("tokens").none(), nb::arg("ranks"), nb::arg("rank"), nb::kw_only(), nb::arg("layout"),
      nb::sig("def shard_tokens(tokens: int | Sequence[int], ranks: int, rank: int, *, layout: "
              "str) -> Any"),
      "Numbers of the tokens that a rank of a context-parallel group owns, in its order. tokens: "
      "how "
      "many, or cu_seqlens of packed documents, each of which is split by itself. layout: "
      "contiguous, "
      "zigzag or striped.");
  m.def(
      "shard_positions",
      [](nb::handle tokens, Index ranks, Index rank, std::string_view layout, Index first) {
        return of_tokens(tokens, [&](const auto& t) {
          if constexpr (std::is_same_v<std::decay_t<decltype(t)>, Index>) {
            return to_python(shard_positions(t, ranks, rank, layout_word(layout), first));
          } else {
            if (first != 0)
              refuse_field("shard", "first", "must be 0 with packed documents",
                           std::to_string(first));
            return to_python(shard_positions(t, ranks, rank, layout_word(layout)));
          }
        });
      },
      nb::arg("tokens").none(), nb::arg("ranks"), nb::arg("rank"), nb::kw_only(), nb::arg("layout"),
      nb::arg("first") = 0,
      nb::sig("def shard_positions(tokens: int | Sequence[int], ranks: int, rank: int, *, layout: "
              "str, first: int "
              "= 0) -> Any"),
      "Positions of the tokens of `shard_tokens`: numbers in the sequence plus first, or numbers "
      "in "
      "their document.");
  m.def(
      "shard_permutation",
      [](nb::handle tokens, Index ranks, std::string_view layout) {
        return list_of(of_tokens(tokens, [&](const auto& t) {
          return shard_permutation(t, ranks, layout_word(layout));
        }));
      },
      nb::arg("tokens").none(), nb::arg("ranks"), nb::kw_only(), nb::arg("layout"),
      nb::sig(
          "def shard_permutation(tokens: int | Sequence[int], ranks: int, *, layout: str) -> Any"),
      "All ranks' tokens after each other: gathered[i] is token shard_permutation[i].");
}

void add_permutations(nb::module_& m) {
  m.def(
      "inverse_permutation", [](const Indices& p) { return list_of(inverse_permutation(p)); },
      nb::arg("permutation"), nb::sig("def inverse_permutation(permutation: Sequence[int]) -> Any"),
      "The inverse of a permutation such as `shard_permutation`: token t is at inverse[t].");
  m.def(
      "picked",
      [](nb::handle p, const Indices& tokens) {
        return to_python(picked(PositionsArgument(p, {kWho, "positions"}).value(), tokens));
      },
      nb::arg("positions").none(), nb::arg("tokens"),
      nb::sig("def picked(positions: PositionsLike, tokens: Sequence[int]) -> Any"),
      "The positions of the tokens with these numbers, of every row and axis.");
  m.def(
      "packed_run",
      [](const Indices& cu, Index ranks, Index rank, bool causal) {
        const PackedRun r = packed_run(cu, ranks, rank, causal);
        nb::dict d;
        d["query_cu_seqlens"] = list_of(r.query_cu_seqlens);
        d["key_cu_seqlens"] = list_of(r.key_cu_seqlens);
        d["first_key"] = r.first_key;
        d["last_key"] = r.last_key;
        d["longest_query"] = r.longest_query;
        d["longest_key"] = r.longest_key;
        return d;
      },
      nb::arg("cu_seqlens"), nb::arg("ranks"), nb::arg("rank"), nb::kw_only(), nb::arg("causal"),
      nb::sig("def packed_run(cu_seqlens: Sequence[int], ranks: int, rank: int, *, causal: bool) "
              "-> dict[str, Any]"),
      "Packed documents cut into equal runs of tokens: query_cu_seqlens of those a rank owns, "
      "key_cu_seqlens of the keys [first_key, last_key) that it needs, and the longest of both.");
}

void add_sequences(nb::module_& m) {
  m.def(
      "from_starts",
      [](const Indices& starts, Index count, Index first) {
        return to_python(from_starts(starts, count, first));
      },
      nb::arg("starts"), nb::arg("count"), nb::kw_only(), nb::arg("first") = 0,
      nb::sig("def from_starts(starts: Sequence[int], count: int, *, first: int = 0) -> Any"),
      "Rows whose text begins at token starts[b], padded on the left.");
  m.def(
      "cell_positions",
      [](nb::handle column, nb::handle row, Index limit) {
        const Borrowed c(column, {"cell_positions", "column"}, Use::read);
        const Borrowed r(row, {"cell_positions", "row"}, Use::read);
        return to_python(cell_positions(c.const_view(), r.const_view(), limit));
      },
      nb::arg("column").none(), nb::arg("row").none(), nb::arg("limit"),
      nb::sig("def cell_positions(column: Any, row: Any, limit: int) -> Any"),
      "Tokens counted inside their cell of a table, at most limit (TAPAS).");
  m.def(
      "distance_to_largest",
      [](nb::handle p) {
        return to_python(distance_to_largest(PositionsArgument(p, {kWho, "positions"}).value()));
      },
      nb::arg("positions").none(),
      nb::sig("def distance_to_largest(positions: PositionsLike) -> Any"),
      "The largest position of each row minus each of them (Segatron-XL's keys).");
  m.def(
      "document_index_of_positions",
      [](const Indices& p) { return list_of(document_index_of_positions(p)); },
      nb::arg("positions"),
      nb::sig("def document_index_of_positions(positions: Sequence[int]) -> Any"),
      "As `document_index`; a document starts wherever the position does not grow by exactly 1.");
  m.def(
      "cu_seqlens_of_positions",
      [](const Indices& p) { return list_of(cu_seqlens_of_positions(p)); }, nb::arg("positions"),
      nb::sig("def cu_seqlens_of_positions(positions: Sequence[int]) -> Any"),
      "cu_seqlens of the documents of `document_index_of_positions`.");
}

void add_joined(nb::module_& m) {
  m.def(
      "reversed",
      [](nb::handle p) {
        return to_python(reversed(PositionsArgument(p, {kWho, "positions"}).value()));
      },
      nb::arg("positions").none(), nb::sig("def reversed(positions: PositionsLike) -> Any"),
      "Every row from its end.");
  m.def(
      "batched", [](nb::handle rows) { return to_python(batched(all_of(rows))); },
      nb::arg("rows").none(), nb::sig("def batched(rows: Iterable[PositionsLike]) -> Any"),
      "Rows of positions as one batch.");
  m.def(
      "stacked", [](nb::handle axes) { return to_python(stacked(all_of(axes))); },
      nb::arg("axes").none(), nb::sig("def stacked(axes: Iterable[PositionsLike]) -> Any"),
      "Positions of several axes (time, height, width ...) as one array.");
  m.def(
      "join_positions", [](nb::handle parts) { return to_python(join_positions(all_of(parts))); },
      nb::arg("parts").none(), nb::sig("def join_positions(parts: Iterable[PositionsLike]) -> Any"),
      "Concatenates positions along the tokens.");
  m.def(
      "sink_cache_tokens",
      [](Index seen, Index sinks, Index recent) {
        return list_of(sink_cache_tokens(seen, sinks, recent));
      },
      nb::arg("seen"), nb::arg("sinks"), nb::arg("recent"),
      nb::sig("def sink_cache_tokens(seen: int, sinks: int, recent: int) -> Any"),
      "Numbers of the tokens that a cache of the first `sinks` and the last `recent` of `seen` "
      "holds.");
  m.def(
      "cache_slots",
      [](Index cached, Index incoming) {
        const CacheSlots s = cache_slots(cached, incoming);
        return nb::make_tuple(to_python(s.query), to_python(s.key));
      },
      nb::arg("cached"), nb::arg("incoming"),
      nb::sig("def cache_slots(cached: int, incoming: int) -> tuple[Any, Any]"),
      "Positions of queries and keys by their slot in a cache.");
}

nb::list map_of(const DistanceMap& map) {
  nb::list all;
  for (const DistanceRegion& r : map) {
    nb::dict d;
    d["chunk"] = r.chunk;
    d["low"] = r.low == -kUnbounded ? nb::object(nb::none()) : nb::object(nb::int_(r.low));
    d["high"] = r.high == kUnbounded ? nb::object(nb::none()) : nb::object(nb::int_(r.high));
    d["query"] = to_python(r.query);
    d["key"] = to_python(r.key);
    all.append(d);
  }
  return all;
}

void add_maps(nb::module_& m) {
  m.def(
      "self_extend",
      [](const Indices& q, const Indices& k, Index window, Index group, std::string_view ratio) {
        return map_of(self_extend(q, k, window, group,
                                  word_of<SelfExtendRatio>(ratio, {"self_extend", "ratio"})));
      },
      nb::arg("query_positions"), nb::arg("key_positions"), nb::kw_only(), nb::arg("window"),
      nb::arg("group"), nb::arg("ratio"),
      nb::sig("def self_extend(query_positions: Sequence[int], key_positions: Sequence[int], *, "
              "window: int, group: "
              "int, ratio: str) -> list[dict[str, Any]]"),
      "Self-Extend's regions of the score, for `attend(regions=)`: distances below window as they "
      "are, others in groups. ratio of window and group: floored (the paper) or real (the "
      "published "
      "code). A region has chunk, low, high (None: no end) and the positions query and key.");
  m.def(
      "rerope",
      [](const Indices& q, const Indices& k, Index window) { return map_of(rerope(q, k, window)); },
      nb::arg("query_positions"), nb::arg("key_positions"), nb::kw_only(), nb::arg("window"),
      nb::sig("def rerope(query_positions: Sequence[int], key_positions: Sequence[int], *, window: "
              "int) -> list[dict[str, Any]]"),
      "ReRoPE's regions: distances are window at most.");
  m.def(
      "leaky_rerope",
      [](const Indices& q, const Indices& k, Index window, double factor) {
        return map_of(leaky_rerope(q, k, window, factor));
      },
      nb::arg("query_positions"), nb::arg("key_positions"), nb::kw_only(), nb::arg("window"),
      nb::arg("factor"),
      nb::sig("def leaky_rerope(query_positions: Sequence[int], key_positions: Sequence[int], *, "
              "window: int, "
              "factor: float) -> list[dict[str, Any]]"),
      "Leaky ReRoPE's regions: distances beyond window grow by 1 / factor.");
}

void add_dual_chunk(nb::module_& m) {
  m.def(
      "dual_chunk",
      [](const Indices& q, const Indices& k, Index chunk_size, Index local_size) {
        return map_of(dual_chunk(q, k, {chunk_size, local_size}));
      },
      nb::arg("query_positions"), nb::arg("key_positions"), nb::kw_only(), nb::arg("chunk_size"),
      nb::arg("local_size"),
      nb::sig("def dual_chunk(query_positions: Sequence[int], key_positions: Sequence[int], *, "
              "chunk_size: int, "
              "local_size: int) -> list[dict[str, Any]]"),
      "The regions of dual chunk attention: the same chunk, the next one, all others.");
  m.def(
      "dual_chunk_positions",
      [](const Indices& p, Index chunk_size, Index local_size) {
        const DualChunkPositions d = dual_chunk_positions(p, {chunk_size, local_size});
        nb::dict all;
        const std::pair<const char*, const OwnedPositions*> lists[] = {
            {"key", &d.key},
            {"intra", &d.intra},
            {"successive", &d.successive},
            {"inter", &d.inter},
            {"successive_critical", &d.successive_critical},
            {"inter_critical", &d.inter_critical}};
        for (const auto& [name, list] : lists) all[name] = to_python(*list);
        return all;
      },
      nb::arg("positions"), nb::kw_only(), nb::arg("chunk_size"), nb::arg("local_size"),
      nb::sig("def dual_chunk_positions(positions: Sequence[int], *, chunk_size: int, local_size: "
              "int) -> dict[str, Any]"),
      "The positions of keys and of each rotated copy of q: key, intra, successive, inter, "
      "successive_critical, inter_critical.");
}

}  // namespace

void add_position_maps(nb::module_& m) {
  add_shards(m);
  add_permutations(m);
  add_sequences(m);
  add_joined(m);
  add_maps(m);
  add_dual_chunk(m);
}

}  // namespace posenc::python
