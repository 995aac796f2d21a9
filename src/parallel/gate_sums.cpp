// SPDX-License-Identifier: Apache-2.0
#include "parallel/gate_sums.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "attention/call/order_view.h"
#include "core/element.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

std::size_t as_size(Index n) noexcept {
  return static_cast<std::size_t>(n);
}

// Numbers [rows, tokens, heads] of a factor of one channel.
double number_of(const ConstHeads& h, Index b, Index t, Index n) noexcept {
  return float_element(h.data, h.dtype,
                       b * h.batch_stride + t * h.token_stride + n * h.head_stride);
}

// fn(column, row, head) for each sum of a token.
template <class F>
void each_column(const ConstHeads& h, const F& fn) {
  std::size_t column = 0;
  for (Index b = 0; b < h.batch; ++b)
    for (Index n = 0; n < h.heads; ++n) fn(column++, b, n);
}

}  // namespace

GateSums::GateSums(std::string_view who, const Mask& m) {
  if (!m.query_cu_seqlens.empty() || !m.key_cu_seqlens.empty())
    refuse_field(who, "query_cu_seqlens", "must be empty with forgetting gates; give documents");
  for (const ConstTensorView* v : {&m.query_order, &m.key_order})
    if (!v->empty() && v->shape[0] != 1)
      refuse_field(who, "query_order", "must be of one row with forgetting gates", v->shape[0]);
  const Index keys = m.key_order.empty() ? 0 : m.key_order.shape[1];
  std::vector<Index> sorted(as_size(keys));
  std::iota(sorted.begin(), sorted.end(), Index{0});
  const auto order = [&](Index t) { return read_index(m.key_order, 0, t); };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](Index a, Index b) { return order(a) < order(b); });
  key_.resize(as_size(keys));
  Index end = 0;
  for (const Index t : sorted) {
    if (first_.empty() || order(t) > end + 1) {
      first_.push_back(order(t));
      last_key_.push_back(t);
    }
    end = order(t);
    last_key_.back() = t;
    key_[as_size(t)] = first_.size() - 1;
  }
  const Index queries = m.query_order.empty() ? 0 : m.query_order.shape[1];
  for (Index t = 0; t < queries; ++t) {
    const auto after =
        std::upper_bound(first_.begin(), first_.end(), read_index(m.query_order, 0, t));
    query_.push_back(after == first_.begin() ? 0 : as_size(after - first_.begin()) - 1);
  }
}

GateSums::Runs GateSums::exchange(const Group& group, const std::vector<double>& own,
                                  std::size_t columns) const {
  const Index count = static_cast<Index>(first_.size());
  std::vector<Index> counts(as_size(group.size()));
  const std::vector<std::byte> bytes = gather(group, std::as_bytes(std::span(&count, 1)));
  std::memcpy(counts.data(), bytes.data(), bytes.size());
  // As many of each rank: what a run begins with, then its totals. Orders are exact in double up to 2^53.
  const std::size_t most = as_size(*std::max_element(counts.begin(), counts.end()));
  const std::size_t each = columns + 1;
  std::vector<double> mine(most * each, 0.0);
  for (std::size_t r = 0; r < first_.size(); ++r) {
    mine[r * each] = static_cast<double>(first_[r]);
    std::copy_n(own.data() + r * columns, columns, mine.data() + r * each + 1);
  }
  Runs all;
  const std::vector<std::byte> gathered = gather(group, std::as_bytes(std::span(mine)));
  all.values.resize(mine.size() * counts.size());
  std::memcpy(all.values.data(), gathered.data(), gathered.size());
  for (Index rank = 0; rank < group.size(); ++rank)
    for (Index r = 0; r < counts[as_size(rank)]; ++r) {
      const double* at = all.values.data() + (as_size(rank) * most + as_size(r)) * each;
      all.list.push_back({static_cast<Index>(at[0]), rank, at + 1, as_size(r)});
    }
  std::stable_sort(all.list.begin(), all.list.end(),
                   [](const Run& a, const Run& b) { return a.first < b.first; });
  return all;
}

void GateSums::make_global(const Group& group, DecayTerm& term) {
  const ConstHeads keys = term.key.given, queries = term.query.given;
  const std::size_t columns = as_size(keys.batch * keys.heads);
  // Sums at the end of the run before, and what a run adds to them.
  std::vector<double> before(first_.size() * columns), total(before.size());
  each_column(keys, [&](std::size_t c, Index b, Index n) {
    for (std::size_t r = 0; r < first_.size(); ++r) {
      if (r > 0) before[r * columns + c] = number_of(keys, b, last_key_[r - 1], n);
      total[r * columns + c] = number_of(keys, b, last_key_[r], n) - before[r * columns + c];
    }
  });
  const Runs all = exchange(group, total, columns);
  std::vector<double> shift(before.size()), sum(columns, 0.0);
  for (const Run& run : all.list)
    for (std::size_t c = 0; c < columns; ++c) {
      if (run.rank == group.rank())
        shift[run.own * columns + c] = sum[c] - before[run.own * columns + c];
      sum[c] += run.total[c];
    }
  const auto shifted = [&](const ConstHeads& h, const std::vector<std::size_t>& run) {
    std::vector<double>& x = stores_.emplace_back(as_size(h.batch * h.tokens * h.heads));
    each_column(h, [&](std::size_t c, Index b, Index n) {
      for (Index t = 0; t < h.tokens; ++t)
        x[as_size((b * h.tokens + t) * h.heads + n)] =
            number_of(h, b, t, n) + shift[run[as_size(t)] * columns + c];
    });
    const Index shape[] = {h.batch, h.tokens, h.heads, 1};
    return heads(tensor(static_cast<const void*>(x.data()), DType::f64, shape), HeadsLayout::bthd);
  };
  term.key.given = shifted(keys, key_);
  term.query.given = shifted(queries, query_);
}

void GateSums::add_gradients(const Group& group, const TermGradient& g) const {
  const std::size_t columns = as_size(g.key.batch * g.key.heads);
  std::vector<double> total(first_.size() * columns, 0.0);
  const auto add = [&](const ConstHeads& h, const std::vector<std::size_t>& run) {
    each_column(h, [&](std::size_t c, Index b, Index n) {
      for (Index t = 0; t < h.tokens; ++t)
        total[run[as_size(t)] * columns + c] += number_of(h, b, t, n);
    });
  };
  add(g.key, key_), add(g.query, query_);
  const Runs all = exchange(group, total, columns);
  std::vector<double> others(columns, 0.0);  // of runs of other ranks, up to the next own one
  for (auto run = all.list.rbegin(); run != all.list.rend(); ++run) {
    if (run->rank != group.rank()) {
      for (std::size_t c = 0; c < columns; ++c) others[c] += run->total[c];
      continue;
    }
    each_column(g.key, [&](std::size_t c, Index b, Index n) {
      add_element(
          g.key.data, g.key.dtype,
          b * g.key.batch_stride + last_key_[run->own] * g.key.token_stride + n * g.key.head_stride,
          std::exchange(others[c], 0.0));
    });
  }
}

}  // namespace posenc::v0::detail
