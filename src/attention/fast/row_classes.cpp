// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/row_classes.h"

#include <algorithm>
#include <array>
#include <bit>

#include "attention/fast/starts.h"
#include "core/element.h"
#include "kernels/attention/fast_strips.h"

namespace posenc::inline v0::detail {
namespace {

using PickedTerms = std::span<const PickedRows* const>;

// fn(axis) for each line of the terms, and fn(pair) for each pair of classes.
template <class F>
void each_axis(const ReadyCall& c, PickedTerms terms, const F& fn) {
  for (const PickedRows* t : terms)
    for (const IndexLine& line : t->lines)
      if (line.row != nullptr) fn(c.axes[static_cast<std::size_t>(line.axis)]);
}
template <class F>
void each_pair(PickedTerms terms, const F& fn) {
  for (const PickedRows* t : terms)
    if (t->pair.row != nullptr) fn(t->pair);
}

// What tells tokens apart: their positions on the axes of the terms, and their classes.
struct TokenNumbers {
  std::array<std::uint64_t, 4 * kMostClassTerms> x;
  std::size_t count = 0;
  std::size_t hash = 0;

  void take(std::uint64_t number) noexcept {
    x[count++] = number;
    hash = (hash ^ static_cast<std::size_t>(number)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
  }
  bool operator==(const TokenNumbers& y) const noexcept {
    return hash == y.hash && std::equal(x.begin(), x.begin() + count, y.x.begin());
  }
};
TokenNumbers numbers_of_token(const ReadyCall& c, PickedTerms terms, bool of_queries, Index row,
                              Index token) noexcept {
  TokenNumbers to;
  each_pair(terms, [&](const IndexPair& pair) {
    to.take(static_cast<std::uint64_t>(
        read_index(of_queries ? pair.query_class : pair.key_class, row, token)));
  });
  each_axis(c, terms, [&](const AxisView& a) {
    const std::size_t at = of_queries ? a.query_at(row, token) : a.key_at(row, token);
    if (a.whole)
      to.take(static_cast<std::uint64_t>((of_queries ? a.query_whole : a.key_whole)[at]));
    else
      to.take(std::bit_cast<std::uint64_t>((of_queries ? a.query : a.key)[at] + 0.0));  // -0 is 0
  });
  return to;
}

}  // namespace

// The number of classes; 0: too many.
Index RowClasses::find(const ReadyCall& c, PickedTerms terms, bool of_queries,
                       std::span<std::int32_t> to, std::span<Sample> samples) noexcept {
  const Index rows = of_queries ? query_rows_ : key_rows_, tokens = of_queries ? queries_ : keys_;
  constexpr std::size_t kPlaces = 4 * kMostTokenClasses;
  std::array<std::int32_t, kPlaces> classes;  // by hash; -1: none
  classes.fill(-1);
  std::size_t count = 0;
  TokenNumbers before;
  for (Index n = 0; n < rows * tokens; ++n) {
    const Sample token{n / tokens, n % tokens};
    const TokenNumbers x = numbers_of_token(c, terms, of_queries, token.row, token.token);
    if (n > 0 && x == before) {  // most tokens
      to[static_cast<std::size_t>(n)] = to[static_cast<std::size_t>(n - 1)];
      continue;
    }
    before = x;
    std::size_t place = x.hash % kPlaces;
    const auto is_other = [&](std::int32_t of) {
      const Sample& y = samples[static_cast<std::size_t>(of)];
      return !(x == numbers_of_token(c, terms, of_queries, y.row, y.token));
    };
    while (classes[place] >= 0 && is_other(classes[place])) place = (place + 1) % kPlaces;
    if (classes[place] < 0) {
      if (count == kMostTokenClasses) return 0;
      samples[count] = token, classes[place] = static_cast<std::int32_t>(count++);
    }
    to[static_cast<std::size_t>(n)] = classes[place];
  }
  return static_cast<Index>(count);
}

RowClasses::RowClasses(const ReadyCall& c, PickedTerms terms, Index none, CallArena& arena)
    : queries_(c.Tq), keys_(c.Tk) {
  if (c.Tq == 0 || c.Tk == 0) return;
  each_axis(c, terms, [&](const AxisView& a) {
    query_rows_ = std::max(query_rows_, a.query_rows), key_rows_ = std::max(key_rows_, a.key_rows);
  });
  each_pair(terms, [&](const IndexPair& pair) {
    query_rows_ = std::max(query_rows_, pair.query_class.shape[0]);
    key_rows_ = std::max(key_rows_, pair.key_class.shape[0]);
  });
  query_class_ = arena.objects<std::int32_t>(query_rows_ * c.Tq);
  key_class_ = arena.objects<std::int32_t>(key_rows_ * c.Tk + kLineMargin);
  std::array<Sample, kMostTokenClasses> queries{}, keys{};
  query_classes_ = find(c, terms, true, query_class_, queries);
  const Index of_keys = query_classes_ == 0 ? 0 : find(c, terms, false, key_class_, keys);
  if (of_keys == 0) return;
  size_ = of_keys;
  width_ = (of_keys + 2 * kMostLanes - 1) / kMostLanes * kMostLanes;
  picks_ = arena.objects<std::int32_t>(static_cast<Index>(terms.size()) * query_classes_ * width_);
  std::fill(picks_.begin(), picks_.end(), static_cast<std::int32_t>(none));
  auto to = picks_.data();
  for (const PickedRows* t : terms) {
    find_picks(c, *t, std::span(queries).first(static_cast<std::size_t>(query_classes_)),
               std::span(keys).first(static_cast<std::size_t>(of_keys)), to);
    to += query_classes_ * width_;
  }
  find_runs(arena);
}

void RowClasses::find_picks(const ReadyCall& c, const PickedRows& t,
                            std::span<const Sample> queries, std::span<const Sample> keys,
                            std::int32_t* to) noexcept {
  for (const Sample& q : queries) {
    FastRow r;
    r.b = q.row, r.i = q.token;
    std::int32_t* pick = to;
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
