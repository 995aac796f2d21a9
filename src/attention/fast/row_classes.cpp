// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/row_classes.h"

#include <algorithm>
#include <array>

#include "core/element.h"
#include "kernels/attention/fast_strips.h"

namespace posenc::inline v0::detail {
namespace {

// A row of queries keeps a number, and backward a sum, of each class of keys.
constexpr std::size_t kMostTokenClasses = 128;
// Keys of a run, at least on average.
constexpr Index kShortRun = 4;

// fn(axis) for each line of a term.
template <class F>
void each_axis(const ReadyCall& c, const PickedRows& t, const F& fn) {
  for (const IndexLine& line : t.lines)
    if (line.row != nullptr) fn(c.axes[static_cast<std::size_t>(line.axis)]);
}

bool is_same(const AxisView& a, std::span<const Index> whole, std::span<const double> real,
             std::size_t x, std::size_t y) noexcept {
  return a.whole ? whole[x] == whole[y] : real[x] == real[y];
}

}  // namespace

// The number of classes; 0: too many.
template <class Same>
Index RowClasses::find(Index rows, Index tokens, const Same& same, std::span<std::int32_t> to,
                       std::span<Sample> samples) noexcept {
  std::size_t count = 0, last = 0;
  for (Index n = 0; n < rows * tokens; ++n) {
    const Sample token{n / tokens, n % tokens};
    std::size_t at = 0;
    // Most tokens follow the class of the one before.
    for (const std::size_t guess : {last, last + 1})
      if (guess < count && same(token, samples[guess])) at = guess + 1;
    if (at == 0) {
      while (at < count && !same(token, samples[at])) ++at;
      if (at == count) {
        if (count == kMostTokenClasses) return 0;
        samples[count++] = token;
      }
    } else {
      --at;
    }
    last = at, to[static_cast<std::size_t>(n)] = static_cast<std::int32_t>(at);
  }
  return static_cast<Index>(count);
}

RowClasses::RowClasses(const ReadyCall& c, const PickedRows& t, Index none, CallArena& arena)
    : queries_(c.Tq), keys_(c.Tk) {
  if (c.Tq == 0 || c.Tk == 0) return;
  each_axis(c, t, [&](const AxisView& a) {
    query_rows_ = std::max(query_rows_, a.query_rows), key_rows_ = std::max(key_rows_, a.key_rows);
  });
  const IndexPair& pair = t.pair;
  if (pair.row != nullptr)
    query_rows_ = std::max(query_rows_, pair.query_class.shape[0]),
    key_rows_ = std::max(key_rows_, pair.key_class.shape[0]);
  query_class_ = arena.objects<std::int32_t>(query_rows_ * c.Tq);
  key_class_ = arena.objects<std::int32_t>(key_rows_ * c.Tk + kLineMargin);
  std::array<Sample, kMostTokenClasses> queries{}, keys{};
  const auto same_query = [&](const Sample& x, const Sample& y) {
    bool same = pair.row == nullptr || read_index(pair.query_class, x.row, x.token) ==
                                           read_index(pair.query_class, y.row, y.token);
    each_axis(c, t, [&](const AxisView& a) {
      same = same && is_same(a, a.query_whole, a.query, a.query_at(x.row, x.token),
                             a.query_at(y.row, y.token));
    });
    return same;
  };
  const auto same_key = [&](const Sample& x, const Sample& y) {
    bool same = pair.row == nullptr || read_index(pair.key_class, x.row, x.token) ==
                                           read_index(pair.key_class, y.row, y.token);
    each_axis(c, t, [&](const AxisView& a) {
      same = same &&
             is_same(a, a.key_whole, a.key, a.key_at(x.row, x.token), a.key_at(y.row, y.token));
    });
    return same;
  };
  const Index of_queries = find(query_rows_, c.Tq, same_query, query_class_, queries);
  const Index of_keys = of_queries == 0 ? 0 : find(key_rows_, c.Tk, same_key, key_class_, keys);
  if (of_keys == 0) return;
  size_ = of_keys;
  width_ = (of_keys + 2 * kMostLanes - 1) / kMostLanes * kMostLanes;
  find_picks(c, t, none, std::span(queries).first(static_cast<std::size_t>(of_queries)),
             std::span(keys).first(static_cast<std::size_t>(of_keys)), arena);
  find_runs(arena);
}

void RowClasses::find_picks(const ReadyCall& c, const PickedRows& t, Index none,
                            std::span<const Sample> queries, std::span<const Sample> keys,
                            CallArena& arena) {
  picks_ = arena.objects<std::int32_t>(static_cast<Index>(queries.size()) * width_);
  std::fill(picks_.begin(), picks_.end(), static_cast<std::int32_t>(none));
  auto to = picks_.begin();
  for (const Sample& q : queries) {
    FastRow r;
    r.b = q.row, r.i = q.token;
    auto pick = to;
    for (const Sample& k : keys) {
      r.place.row = k.row;
      if (const Index row = picked_row(c, t, r, k.token); row >= 0)
        *pick = static_cast<std::int32_t>(row);
      ++pick;
    }
    to += width_;
  }
}

void RowClasses::find_runs(CallArena& arena) {
  first_run_ = arena.objects<Index>(key_rows_ + 1);
  // fn(first key, end, steps) of the runs of a row.
  const auto each_run = [&](Index row, const auto& fn) {
    const std::int32_t* x = key_classes(row);
    for (Index j = 0; j < keys_;) {
      const Index first = j++;
      const std::int32_t by = j < keys_ ? x[j] - x[first] : 1;
      while ((by == 0 || by == 1) && j < keys_ && x[j] - x[j - 1] == by) ++j;
      fn(first, j, by != 0);
    }
  };
  Index count = 0;
  for (Index row = 0; row < key_rows_; ++row) each_run(row, [&](Index, Index, bool) { ++count; });
  if (count * kShortRun > key_rows_ * keys_ && count > key_rows_) return;
  runs_ = arena.objects<FastRun>(count);
  Index n = 0;
  for (Index row = 0; row < key_rows_; ++row) {
    first_run_[static_cast<std::size_t>(row)] = n;
    each_run(row, [&](Index first, Index end, bool steps) {
      runs_[static_cast<std::size_t>(n++)] = {first, end - first, key_classes(row)[first], steps};
    });
  }
  first_run_.back() = n;
}

const std::int32_t* RowClasses::picks(Index b, Index i) const noexcept {
  const Index at = (query_rows_ == 1 ? 0 : b) * queries_ + i;
  return picks_.data() + query_class_[static_cast<std::size_t>(at)] * width_;
}
const std::int32_t* RowClasses::key_classes(Index row) const noexcept {
  return key_class_.data() + (key_rows_ == 1 ? 0 : row) * keys_;
}

Index RowClasses::clip(Index row, Run keys, FastRun* to) const noexcept {
  const auto of = static_cast<std::size_t>(key_rows_ == 1 ? 0 : row);
  const FastRun *run = runs_.data() + first_run_[of], *end = runs_.data() + first_run_[of + 1];
  run = std::partition_point(run, end,
                             [&](const FastRun& x) { return x.at + x.count <= keys.begin; });
  Index count = 0;
  for (; run < end && run->at < keys.end; ++run) {
    const Index first = std::max(run->at, keys.begin),
                last = std::min(run->at + run->count, keys.end);
    to[count++] = {first - keys.begin, last - first,
                   run->first + (run->steps ? first - run->at : 0), run->steps};
  }
  return count;
}

}  // namespace posenc::v0::detail
