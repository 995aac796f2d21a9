// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/row_terms.h"

#include <algorithm>
#include <cmath>

#include "attention/call/pieces.h"
#include "attention/fast/wide_products.h"
#include "core/element.h"
#include "core/parallel.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {
namespace {

// Tables of fewer steps are converted sooner than they are read.
constexpr Index kFewestSteps = 512;

const ProductTerm& product_of(const Term& t) noexcept {
  return std::get<ProductTerm>(t);
}
bool is_of_keys(const Term& t) noexcept {
  return term_class(t) == TermClass::key_rows;
}

// The rows of a panel, channel by channel.
void transpose_panel(const FastKernels& k, const float* rows, Index channels, float* to) noexcept {
  const void* from[2 * kMostLanes];
  for (Index n = 0; n < 2 * k.lanes; ++n) from[n] = rows + n * channels;
  k.pack_keys[0](to, from, 2 * k.lanes, channels, channels);
}

}  // namespace

bool RowTerms::has(const Term& t) noexcept {
  const TermClass kind = term_class(t);
  return kind == TermClass::query_rows || kind == TermClass::key_rows;
}

std::string_view RowTerms::why_not(const ReadyCall& c, const Term& t) noexcept {
  return steps_why_not(c, product_of(t));
}

RowTerms::RowTerms(const ReadyCall& c, const Starts& starts, const FastKernels& k, bool few_queries,
                   CallArena& arena, const Executor& executor)
    : call_(c) {
  const std::span<const Term> terms = c.args.terms;
  all_ = arena.objects<RowTerm>(std::count_if(terms.begin(), terms.end(), has));
  std::size_t n = 0;
  bool holds = false;
  for (std::size_t number = 0; number < terms.size(); ++number) {
    const Term& term = terms[number];
    if (!has(term)) continue;
    RowTerm& t = all_[n++];
    t.number = number;
    t.term = &product_of(term), t.of_keys = is_of_keys(term), t.channels = t.term->table.shape[3];
    static_cast<RowSteps&>(t) = detail::find_steps(c, *t.term, arena);
    if (const PickedRows* picked = t.term; !t.by_line && !t.of_keys)
      t.classes = RowClasses(c, {&picked, 1}, t.steps() - 1, arena);
    if (!t.by_line && t.classes.none()) t.pairs = PairRows(c, *t.term, !arena.counts(), arena);
    t.in_place = few_queries && reads_in_place(t);
    pack_table(t, k, arena, executor);
    if (const ConstHeads& x = t.term->key.given; t.of_keys && x.data != nullptr)
      t.keys = copy_vectors(k, x, arena, executor);
    // Its steps are the entries of the lines.
    holds = holds || (t.holds_numbers = t.by_line && !t.of_keys && starts.has_lines_of(t.axis) &&
                                        t.steps() == starts.line_entries());
  }
}

bool RowTerms::are_bounded() const noexcept {
  return std::all_of(all_.begin(), all_.end(), [](const RowTerm& t) {
    const auto slabs = t.term->table.shape[0] * t.term->table.shape[1];
    return std::all_of(t.bounded.begin(), t.bounded.begin() + slabs,
                       [](std::uint8_t x) { return x != 0; });
  });
}

bool RowTerms::is_key_bounded(Index row, Index j) const noexcept {
  for (const RowTerm& t : all_) {
    if (!t.of_keys || t.is_content()) continue;
    const Index numbers = t.term->key.given.heads * t.channels;
    const float* x = t.own_key(row, j, 0, call_.H);
    if (!std::all_of(x, x + numbers, [](float y) { return std::fabs(y) <= kLargestValue; }))
      return false;
  }
  return true;
}

bool RowTerms::hold_numbers() const noexcept {
  return std::any_of(all_.begin(), all_.end(), [](const RowTerm& t) { return t.holds_numbers; });
}

bool RowTerms::reads_in_place(const RowTerm& t) const noexcept {
  const ConstTensorView& table = t.term->table;
  return t.by_line && !t.of_keys && t.steps() >= kFewestSteps && table.dtype == DType::f64 &&
         table.stride[3] == 1 && table.shape[0] * table.shape[1] >= call_.B * call_.G;
}

void RowTerms::pack_table(RowTerm& t, const FastKernels& k, CallArena& arena,
                          const Executor& executor) {
  const ConstTensorView& table = t.term->table;
  const Index slabs = table.shape[0] * table.shape[1], panel = 2 * k.lanes;
  if (t.in_place) {
    const std::span<std::uint8_t> all = arena.array<std::uint8_t>(slabs);
    if (!arena.counts()) std::fill(all.begin(), all.end(), std::uint8_t{1});
    t.bounded = all;
    return;
  }
  const double factor = t.of_keys ? kLog2E * t.term->scale : 1;
  const Index unit = t.of_keys ? k.rows : panel;  // steps that are read at once
  const Index units = block_count(t.steps(), unit) + (t.of_keys ? 1 : 0);
  t.slab_size = units * unit * t.channels;
  // A whole vector may be read of the last row.
  const Index size = slabs * t.slab_size;
  const std::span<float> to = arena.array<float>(size + k.lanes);
  const std::span<std::uint8_t> bounded = arena.array<std::uint8_t>(slabs * units);
  t.table = to, t.bounded = bounded;
  const Index most = size / kValuesPerTask, of_unit = t.of_keys ? 0 : unit * t.channels;
  const std::span<float> rows =
      arena.array<float>(task_count(executor, slabs * units, most) * of_unit);
  if (arena.counts()) return;
  std::fill_n(to.begin() + size, k.lanes, 0.0f);
  const FastReadKernels& reads = fast_read_kernels(active_isa());
  parallel_for(executor, slabs * units, most, [&](Index begin, Index end, Index task) noexcept {
    for (Index n = begin; n < end; ++n) {
      const Index slab = n / units, first = n % units * unit;
      float* x = to.data() + slab * t.slab_size + first * t.channels;
      float* y = t.of_keys ? x : rows.data() + task * of_unit;
      bool all = true;
      for (Index s = 0; s < unit; ++s) {
        const Index row =
            first + s < t.steps() ? t.row[static_cast<std::size_t>(first + s)] : Index{-1};
        all = take_table_row(reads, table, slab, row, factor, y + s * t.channels) && all;
      }
      if (!t.of_keys) transpose_panel(k, y, t.channels, x);
      bounded[static_cast<std::size_t>(n)] = all ? 1 : 0;
    }
  });
  // One flag a slab, in front.
  for (Index slab = 0; slab < slabs; ++slab)
    bounded[static_cast<std::size_t>(slab)] =
        std::all_of(bounded.begin() + slab * units, bounded.begin() + (slab + 1) * units,
                    [](std::uint8_t x) { return x != 0; })
            ? 1
            : 0;
}

}  // namespace posenc::v0::detail
