// SPDX-License-Identifier: Apache-2.0
// Which terms are read by classes, and their start values.
#include <algorithm>

#include "attention/fast/work.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {

namespace {

bool is_number(const Term& t) noexcept {
  const TermClass kind = term_class(t);
  return kind == TermClass::pair_number || kind == TermClass::band;
}
bool names_classes(const Term& t) noexcept {
  return is_number(t) && picked_rows(t)->pair.row != nullptr;
}
// By distances too.
bool is_mixed(const Term& t) noexcept {
  return names_classes(t) && std::ranges::any_of(picked_rows(t)->lines, [](const IndexLine& line) {
           return line.row != nullptr;
         });
}

}  // namespace

// If classes turn terms by distance off, all terms as one picture, where it has few variants. Otherwise terms that name
// classes are read by them, and the others are lines or one picture. If these are neither, classes take of them what they
// can, where that is little beside the pairs; else the others are pictures that are read one after the other.
void Starts::find_terms(const LoweredCall& lowered, CallArena& arena) {
  const std::span<const Term> terms = call_.args.terms;
  enum class By : std::uint8_t { nothing, names, all };
  struct Attempt {
    By by;
    bool one, wanted;
  };
  constexpr Index kMost = kMostTokenClasses;
  const bool many = call_.Tq * call_.Tk >= 16 * kMost * kMost;
  for (const Attempt attempt : {Attempt{By::nothing, true, std::ranges::any_of(terms, is_mixed)},
                                {By::names, true, true},
                                {By::all, true, many},
                                {By::names, false, true},
                                {By::all, false, true}}) {
    if (!attempt.wanted) continue;
    const auto takes = [&](std::size_t n) {
      return attempt.by == By::all ? is_number(terms[n])
                                   : attempt.by == By::names && names_classes(terms[n]);
    };
    classes_ = ClassNumbers(call_, takes, arena);
    none_ = std::ranges::none_of(terms, [&](const Term& t) { return is_added(t); });
    axis_ = kNoAxis, line_batches_ = 1;
    if (make_lines(lowered, attempt.one, arena) || none_) return;
  }
}

// Those of pictures and classes are read pair by pair where they are large, or beside a bias.
void Starts::make_pair_rows(CallArena& arena) {
  const std::span<const Term> terms = call_.args.terms;
  pair_rows_ = arena.made<PairRows>(static_cast<Index>(terms.size()), [&](Index n) {
    const Term& t = terms[static_cast<std::size_t>(n)];
    const auto* product = std::get_if<ProductTerm>(&t);
    if (product == nullptr || !adds(t) || (is_added(t) && has_lines())) return PairRows();
    const bool biased = !call_.args.mask.bias.empty();
    const bool read = classes_.is_wide() || (is_added(t) && (biased || !reads_pictures()));
    return PairRows(call_, *product, read && !arena.counts(), arena);
  });
}

ClassWork::ClassWork(const ClassNumbers& x, Index most, Index block_keys, CallArena& arena) {
  if (x.none()) return;
  rows = most;
  const Index classes = x.classes().query_classes();
  done = arena.array<std::uint8_t>(classes);
  numbers = arena.array<float>(classes * block_keys + kMostLanes);
  starts = arena.array<float>(most * block_keys + kMostLanes);
  runs = arena.array<FastRun>(block_keys);
  if (arena.counts()) return;
  for (const std::span<float>& y : {numbers, starts}) std::fill(y.begin(), y.end(), 0.0f);
}

namespace {

// The numbers of a block for the class of a row.
const float* numbers_of(const FastCall& c, FastRowWork& w, const FastRow& r, Run keys) noexcept {
  const ClassNumbers& x = c.starts.classes();
  ClassWork& of = w.classes;
  if (const ClassWork::Block block{r.b, r.h, r.place.row, keys}; !(block == of.block)) {
    of.block = block;
    std::fill(of.done.begin(), of.done.end(), std::uint8_t{0});
  }
  const Index query_class = x.classes().query_class(r.b, r.i);
  float* numbers = of.numbers.data() + query_class * w.block_keys;
  std::uint8_t& done = of.done[static_cast<std::size_t>(query_class)];
  if (done == 0)
    x.write(c.row_reads, x.slab(c, r.b, r.h), query_class, r.place.row, keys, of.runs.data(),
            numbers);
  done = 1;
  return numbers;
}

}  // namespace

Given add_class_numbers(const FastCall& c, FastRowWork& w, const RowGroup& g, Run keys, Given given,
                        StripStarts& s) noexcept {
  const Index count = whole_vectors(s.keys, c.kernels.lanes);
  for (Index n = 0; n < g.count; ++n) {
    const float* numbers = numbers_of(c, w, g.row[n], keys);
    if (given != Given::nothing || w.classes.other_heads) {
      float* to = w.classes.starts.data() + (g.first + n) % w.classes.rows * w.block_keys;
      if (given != Given::nothing)
        c.row_reads.add_slices(to, s.at[n], numbers, count);
      else
        std::copy_n(numbers, s.keys, to);
      numbers = to;
    }
    s.at[n] = numbers;
  }
  for (Index n = std::max<Index>(1, g.count); n < g.rows; ++n)
    s.at[n] = s.at[n - 1], s.base[n] = s.base[n - 1];
  return Given::shared;
}

}  // namespace posenc::v0::detail
