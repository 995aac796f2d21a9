// SPDX-License-Identifier: Apache-2.0
// Calls in float with terms that read rows of a table.
#pragma once
#include <deque>

#include "attention/float_call.h"

namespace posenc {

// Which row a distance reads.
enum class Rows : std::uint8_t { clipped, buckets, each };

struct RowsCall : FloatCall {
  RowsCall(Index b, Index queries, Index keys, Index h, Index d, std::uint64_t seed)
      : FloatCall(b, queries, keys, h, h, d, d, seed), random(seed + 1) {}

  ConstTensorView table(Index batch, Index groups, Index rows, Index channels) {
    tables.push_back(random.normals(static_cast<std::size_t>(batch * groups * rows * channels)));
    return tensor(std::as_const(tables.back()).data(), {batch, groups, rows, channels});
  }
  // Distances from -reach to reach.
  IndexLine line(Rows kind, Index reach) {
    lines.emplace_back();
    for (Index delta = -reach; delta <= reach; ++delta) {
      const Index far = std::min<Index>(std::abs(delta), 40);
      const Index bucket = far < 8 ? far : 8 + (far - 8) / 5;
      const Index row = kind == Rows::buckets ? (delta < 0 ? 15 + bucket : bucket) : delta + reach;
      lines.back().push_back(static_cast<std::int32_t>(row));
    }
    return {lines.back().data(), 2 * reach + 1, -reach, nullptr, 0};
  }
  ProductTerm rows(Rows kind, bool of_keys, Index batch, Index groups) {
    ProductTerm t;
    const Index reach = kind == Rows::clipped ? 20 : kind == Rows::buckets ? 60 : Tq + Tk;
    (of_keys ? t.key : t.query) = kContent;
    t.lines[0] = line(kind, reach);
    t.table = table(batch, groups, kind == Rows::buckets ? 30 : 2 * reach + 1, D);
    t.scale = 0.3;
    return t;
  }
  ValueRowsTerm value_rows(Rows kind, Index batch, Index groups) {
    return {{rows(kind, false, batch, groups)}, 0.3};
  }
  // One head of keys for all.
  void share_keys() {
    G = 1;
    args.k = view(narrow[1], Tk, 1, D), args.v = view(narrow[2], Tk, 1, V);
  }
  void add(const Term& t) { terms.push_back(t), args.terms = terms; }

  test::Random random;
  std::deque<std::vector<double>> tables;
  std::deque<std::vector<std::int32_t>> lines;
  std::deque<std::vector<std::int64_t>> numbers;
  std::vector<Term> terms;
};

// Rows that no line of neighbouring distances picks: several lines, classes, an index for each pair, disabled pairs,
// and positions that do not count up.
struct PairsCall : RowsCall {
  PairsCall(bool of_keys, int way, Index query_count = 70)
      : RowsCall(1, query_count, 100, 2, 8, 7) {
    ProductTerm t = rows(Rows::buckets, of_keys, 1, 2);
    const Index queries = way == 3 ? query_count : 3, keys = way == 3 ? 100 : 2;
    lines.emplace_back();
    for (Index n = 0; n < queries * keys; ++n)
      lines.back().push_back(static_cast<std::int32_t>(n % 5 == 0 ? -1 : n % 4));
    if (way == 1 || way == 2 || way == 3)
      t.pair = {lines.back().data(), queries, keys, classes(query_count, queries),
                classes(100, keys)};
    if (way == 2 || way == 3) t.lines[0] = {};
    if (way == 0) t.lines[2] = line(Rows::clipped, 1);
    back = arange(100 - query_count, query_count);
    std::get<0>(back.value)[query_count > 3 ? 3 : 0] = 500;
    if (way == 4) args.query_positions = back;
    t.table = table(1, 2, 40, 8);
    add(t);
  }
  ConstTensorView classes(Index tokens, Index count) {
    numbers.emplace_back();
    for (Index n = 0; n < tokens; ++n) numbers.back().push_back(n * 7 % count);
    return tensor(std::as_const(numbers.back()).data(), {1, tokens});
  }
  OwnedPositions back;
};

}  // namespace posenc
