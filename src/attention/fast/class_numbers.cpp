// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/class_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attention/fast/starts.h"
#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

const ProductTerm& number_of(const ReadyCall& c, std::size_t n) noexcept {
  return std::get<ProductTerm>(c.args.terms[n]);
}

}  // namespace

void ClassNumbers::find(const ReadyCall& c, std::span<const std::size_t> terms, CallArena& arena) {
  std::array<const PickedRows*, kMostClassTerms> picked{};
  const std::span<std::size_t> found = arena.objects<std::size_t>(kMostClassTerms);
  std::size_t count = 0;
  // One more at a time: a term with many classes leaves room for others.
  for (const std::size_t n : terms) {
    if (count == kMostClassTerms) break;
    picked[count] = &number_of(c, n);
    const RowClasses with(c, std::span(picked).first(count + 1), -1, arena);
    if (with.none()) continue;
    classes_ = with, found[count++] = n;
    batches_ = std::max(batches_, number_of(c, n).table.shape[0]);
  }
  terms_ = found.first(count);
  if (none()) return;
  numbers_ = arena.array<float>(batches_ * c.H * slab_size());
  if (!arena.counts()) fill(c);
}

bool ClassNumbers::has(std::size_t term) const noexcept {
  return std::find(terms_.begin(), terms_.end(), term) != terms_.end();
}

void ClassNumbers::fill(const ReadyCall& c) noexcept {
  auto to = numbers_.begin();
  for (Index n = 0; n < batches_ * c.H; ++n)
    for (Index q = 0; q < classes_.query_classes(); ++q)
      for (Index k = 0; k < classes_.width(); ++k) {
        double sum = 0;
        for (std::size_t t = 0; t < terms_.size(); ++t) {
          const ProductTerm& term = number_of(c, terms_[t]);
          const std::int32_t row = classes_.picks(static_cast<Index>(t), q)[k];
          const Index slab = slab_of(term.table, n / c.H, n % c.H, c.H),
                      groups = term.table.shape[1];
          if (row >= 0)
            sum +=
                kLog2E * term.scale * read_number(term.table, slab / groups, slab % groups, row, 0);
        }
        wide_ = wide_ || !(std::fabs(sum) <= kLineRange);
        *to++ = static_cast<float>(sum);
      }
}

void ClassNumbers::write(const FastReadKernels& reads, Index slab, Index query_class, Index key_row,
                         Run keys, FastRun* runs, float* to) const noexcept {
  const Index count = keys.end - keys.begin, width = classes_.width();
  const float* numbers = numbers_.data() + slab * slab_size() + query_class * width;
  std::fill_n(to, count, 0.0f);
  if (!classes_.has_runs())
    return reads.add_indexed(to, numbers, classes_.key_classes(key_row) + keys.begin, count);
  reads.add_runs(to, 0, 1, numbers, width, runs, classes_.clip(key_row, keys, runs));
}

void ClassNumbers::pull(const ReadyCall& c, std::size_t term, const double* d,
                        double* table) const noexcept {
  const ProductTerm& t = number_of(c, term);
  const auto at = std::find(terms_.begin(), terms_.end(), term) - terms_.begin();
  for (Index n = 0; n < batches_ * c.H; ++n) {
    double* rows = table + slab_of(t.table, n / c.H, n % c.H, c.H) * t.table.shape[2];
    for (Index q = 0; q < classes_.query_classes(); ++q) {
      const std::int32_t* picks = classes_.picks(at, q);
      const double* from = d + n * slab_size() + q * classes_.width();
      for (Index k = 0; k < classes_.size(); ++k)
        if (picks[k] >= 0) rows[picks[k]] += t.scale * from[k];
    }
  }
}

}  // namespace posenc::v0::detail
