// SPDX-License-Identifier: Apache-2.0
// Documents in batches: padded on either side, packed into rows, a batch in parts. What a token
// gets must not depend on it.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "posenc/positions/view.h"

namespace posenc::test {

struct Slot {
  Index document = -1, at = 0;  // -1: padding
};
struct Arrangement {
  std::string name;
  Index batch = 0, tokens = 0;
  std::vector<Slot> slots;  // [batch, tokens]
  const Slot& slot(Index b, Index t) const {
    return slots[static_cast<std::size_t>(b * tokens + t)];
  }
};

// Rows of documents; `gap` slots of padding between two in a row.
inline Arrangement arranged(std::string name, const std::vector<Index>& lengths,
                            const std::vector<std::vector<Index>>& rows, Index gap, bool left) {
  Arrangement a{std::move(name), static_cast<Index>(rows.size()), 0, {}};
  std::vector<std::vector<Slot>> filled;
  for (const std::vector<Index>& row : rows) {
    std::vector<Slot> slots;
    for (const Index d : row) {
      if (!slots.empty()) slots.insert(slots.end(), static_cast<std::size_t>(gap), Slot{});
      for (Index t = 0; t < lengths[static_cast<std::size_t>(d)]; ++t) slots.push_back({d, t});
    }
    a.tokens = std::max(a.tokens, static_cast<Index>(slots.size()) + (left ? 1 : 0));
    filled.push_back(std::move(slots));
  }
  for (std::vector<Slot>& slots : filled) {
    const std::size_t missing = static_cast<std::size_t>(a.tokens) - slots.size();
    slots.insert(left ? slots.begin() : slots.end(), missing, Slot{});
    a.slots.insert(a.slots.end(), slots.begin(), slots.end());
  }
  return a;
}

inline Arrangement rows_of(const Arrangement& a, Index first, Index last) {
  Arrangement part{a.name + ", rows " + std::to_string(first) + " to " + std::to_string(last - 1),
                   last - first,
                   a.tokens,
                   {}};
  part.slots.assign(a.slots.begin() + first * a.tokens, a.slots.begin() + last * a.tokens);
  return part;
}

// What real tokens get, document after document: any numbers, compared bit for bit. Sums over
// tokens (gradients of parameters) may differ by the rounding of another order.
struct Outcome {
  std::vector<std::vector<double>> tokens;
  std::vector<double> sums;
};
inline std::size_t place(const std::vector<Index>& lengths, const Slot& s) {
  std::size_t at = static_cast<std::size_t>(s.at);
  for (Index d = 0; d < s.document; ++d)
    at += static_cast<std::size_t>(lengths[static_cast<std::size_t>(d)]);
  return at;
}

inline void add_outcome(Outcome& all, const Outcome& part) {
  all.tokens.resize(part.tokens.size());
  for (std::size_t i = 0; i < part.tokens.size(); ++i)
    if (!part.tokens[i].empty()) {
      EXPECT_TRUE(all.tokens[i].empty()) << "a token stands twice";
      all.tokens[i] = part.tokens[i];
    }
  all.sums.resize(part.sums.size());
  for (std::size_t i = 0; i < part.sums.size(); ++i) all.sums[i] += part.sums[i];
}

inline void expect_equal(const Outcome& want, const Outcome& got, double sum_size) {
  ASSERT_EQ(want.tokens.size(), got.tokens.size());
  for (std::size_t i = 0; i < want.tokens.size(); ++i) {
    ASSERT_FALSE(want.tokens[i].empty()) << "token " << i << " was not seen";
    EXPECT_EQ(want.tokens[i], got.tokens[i]) << "token " << i;
  }
  ASSERT_EQ(want.sums.size(), got.sums.size());
  for (std::size_t i = 0; i < want.sums.size(); ++i)
    EXPECT_NEAR(want.sums[i], got.sums[i], 1e-13 * sum_size) << "sum " << i;
}

// `run` makes the outcome of an arrangement. A document alone is the measure of all.
template <class Run>
void check_arrangements(const std::vector<Index>& lengths, Index gap, const Run& run) {
  std::vector<std::vector<Index>> each;
  for (Index d = 0; d < static_cast<Index>(lengths.size()); ++d) each.push_back({d});
  Outcome alone;
  for (const std::vector<Index>& row : each)
    add_outcome(alone, run(arranged("alone", lengths, {row}, 0, false)));
  double size = 1;
  for (const double x : alone.sums) size = std::max(size, std::abs(x));
  for (const Arrangement& a :
       {arranged("padded on the right", lengths, each, gap, false),
        arranged("padded on the left", lengths, each, gap, true),
        arranged("packed in one row", lengths, {{0, 1, 2, 3}}, gap, false),
        arranged("packed in two rows", lengths, {{2, 0}, {3, 1}}, gap, false),
        arranged("packed with padding between", lengths, {{1, 3}, {0}, {2}}, gap + 2, true)}) {
    SCOPED_TRACE(a.name);
    expect_equal(alone, run(a), size);
    for (Index cut = 1; cut < a.batch; ++cut) {
      SCOPED_TRACE("split behind row " + std::to_string(cut));
      Outcome parts;
      add_outcome(parts, run(rows_of(a, 0, cut)));
      add_outcome(parts, run(rows_of(a, cut, a.batch)));
      expect_equal(alone, parts, size);
    }
  }
}

}  // namespace posenc::test
