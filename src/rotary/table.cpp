// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/table.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "core/known_enum.h"
#include "posenc/core/error.h"
#include "rotary/plan_state.h"
#include "rotary/table_state.h"

namespace posenc::inline v0 {

using detail::RowSource;
using detail::TableStore;
using detail::TableVersion;

RotaryTable::RotaryTable(const RotarySpec& spec, Index positions, DType dtype, TableLayout layout,
                         BeyondTable beyond, const Executor& executor)
    : state_(std::make_shared<detail::RotaryTableState>(spec, positions, dtype, layout, beyond,
                                                        executor)) {}
RotaryTable::RotaryTable(std::shared_ptr<detail::RotaryTableState> state)
    : state_(std::move(state)) {}
RotaryTable::~RotaryTable() = default;
RotaryTable::RotaryTable(RotaryTable&&) noexcept = default;
RotaryTable& RotaryTable::operator=(RotaryTable&&) noexcept = default;

RotaryTable RotaryTable::share() const {
  return RotaryTable(state_);
}
void RotaryTable::grow(Index positions, const Executor& executor) {
  state_->store->grow(positions, executor);
}
void RotaryTable::replace(const RotarySpec& spec, const Executor& executor) {
  state_->store->replace(spec, executor);
}
Index RotaryTable::size() const noexcept {
  return state_ ? state_->store->size() : 0;
}
std::size_t RotaryTable::bytes() const noexcept {
  if (!state_) return 0;
  const TableStore::Pin v(*state_->store);
  return static_cast<std::size_t>(v->size.load(std::memory_order_acquire) * v->columns *
                                  size_of(v->dtype));
}

RotaryTable::Snapshot RotaryTable::snapshot() const {
  struct Held {
    std::shared_ptr<TableStore> store;  // outlives the pin
    TableStore::Pin version;
  };
  auto held = std::make_shared<Held>(Held{state_->store, TableStore::Pin(*state_->store)});
  const TableVersion& v = *held->version;
  Snapshot s;
  s.size = v.size.load(std::memory_order_acquire);
  const Index shape[] = {s.size, v.columns};
  s.layout = v.layout;
  s.cos_sin = tensor(static_cast<const void*>(v.base), v.dtype, shape);
  s.keep_alive = std::move(held);
  return s;
}

RotaryTableSet::RotaryTableSet(std::span<const RotarySpec> layers, Index positions, DType dtype,
                               BeyondTable beyond, const Executor& executor) {
  std::vector<const RotarySpec*> built;
  for (const RotarySpec& spec : layers) {
    std::size_t i = 0;
    while (i < built.size() && !detail::same_rows(*built[i], spec)) ++i;
    if (i == built.size()) {
      built.push_back(&spec);
      tables_.emplace_back(spec, positions, dtype, beyond, executor);
    }
    of_layer_.push_back(i);
  }
}
const RotaryTable& RotaryTableSet::operator[](Index layer) const {
  if (layer < 0 || layer >= layers())
    refuse_field("rotary table", "layer", "must be one of " + std::to_string(layers()), layer);
  return tables_[of_layer_[static_cast<std::size_t>(layer)]];
}
std::size_t RotaryTableSet::bytes() const noexcept {
  std::size_t n = 0;
  for (const RotaryTable& t : tables_) n += t.bytes();
  return n;
}

namespace {

constexpr Index kMaxGrown = Index{1} << 24;  // positions; a stray one must not take all memory

template <class T>
void widen_range(const Positions& p, Index* least, Index* most) {
  const T* data = static_cast<const T*>(p.data);
  T low = std::numeric_limits<T>::max(), high = std::numeric_limits<T>::min();
  for (Index a = 0; a < p.axes; ++a)
    for (Index b = 0; b < p.batch; ++b) {
      const T* row = data + a * p.axis_stride + b * p.batch_stride;
      for (Index t = 0; t < p.count; ++t) {
        low = std::min(low, row[t * p.token_stride]);
        high = std::max(high, row[t * p.token_stride]);
      }
    }
  *least = low, *most = high;
}

void check_built_for(const RotarySpec& spec, const TableVersion& v, RotateMode mode) {
  if (detail::same_rows(spec, v.spec)) return;
  const std::uint64_t hash = detail::rows_hash(spec);
  bool fits = std::find(v.lineage.begin(), v.lineage.end(), hash) != v.lineage.end();
  if (!fits) refuse("rotary table", "the table must have been built from the plan's spec");
  fits = spec.blocks.size() == v.spec.blocks.size() && spec.axes() == v.spec.axes();
  for (std::size_t i = 0; fits && i < spec.blocks.size(); ++i) {
    const Spectrum &a = spec.blocks[i].spectrum, &b = v.spec.blocks[i].spectrum;
    fits = a.pairs() == b.pairs() && a.heads == b.heads;
    if (fits && (mode == RotateMode::inverse || mode == RotateMode::shift) && a.gain != b.gain)
      refuse("rotary table", "inverse and shift need the gain that the table was replaced with",
             b.gain);
  }
  if (!fits) refuse("rotary table", "the table was replaced by one of other pairs, heads or axes");
}

void apply_table(const RotaryPlan& plan, const QK& in, const QK& out, const RotaryTable& table,
                 const Positions& positions, RotateMode mode, const Executor& executor) {
  const detail::RotaryPlanState& s = detail::StateAccess::of(plan);
  detail::check_known("rotary table", "mode", mode);
  if (s.decays) refuse("rotary table", "xPos has no table: its decay is not bounded");
  if (s.spec.precision == Precision::hf_bfloat16_table)
    refuse("rotary table", "products are rounded once here, precision must not be",
           enum_text(s.spec.precision));
  if (s.dtype == DType::f64) refuse("rotary table", "f64 tensors need the plan's own phase");
  const Index tokens = detail::check_tensors(s, in, out);
  if (positions.type != DType::i64 && positions.type != DType::i32)
    refuse_field("rotary table", "positions", "must be i64 or i32", dtype_name(positions.type));
  std::optional<Positions> one_row;
  const Positions& read = detail::check_positions(s, in, positions, one_row);
  if (tokens == 0) return;
  detail::check_positions_apart(out, read, tokens);
  Index least = 0, most = 0;
  if (positions.type == DType::i64) {
    widen_range<std::int64_t>(positions, &least, &most);
  } else {
    widen_range<std::int32_t>(positions, &least, &most);
  }
  if (least < 0) refuse_field("rotary table", "position", "must not be negative", least);
  TableStore& store = *detail::StateAccess::of(table).store;
  const bool lengths = s.refuses_lengths && mode != RotateMode::shift;
  for (Index end = kUnbounded;;) {
    {
      const TableStore::Pin v(store);
      const Index size = v->size.load(std::memory_order_acquire);
      if (lengths) detail::check_length("rotary table", most + (most != kUnbounded), v->lengths);
      end = v->lengths.to;
      if (most < size) {
        check_built_for(s.spec, *v, mode);
        RowSource rows;
        rows.layout = v->layout;
        rows.cos.data = v->base;
        rows.cos.dtype = v->dtype;
        rows.cos.token_stride = v->columns;
        rows.index = &read;
        if (!v->pair_axis.empty()) rows.pair_axis = v->pair_axis.data();
        detail::apply_lookup(s, in, out, rows, mode, executor);
        return;
      }
      if (store.beyond() == BeyondTable::refuse)
        refuse_field("rotary table", "position",
                     "must lie in the table of " + std::to_string(size) +
                         " positions where beyond is " + std::string(enum_text(store.beyond())),
                     most);
      if (most >= kMaxGrown)
        refuse_field("rotary table", "position", "must be below 2^24 for a table that grows", most);
    }
    // By half more at least, so that a decoding loop does not grow at every step.
    const Index more = std::min({store.size() + store.size() / 2, kMaxGrown, end});
    store.grow(std::max(most + 1, more), executor);
  }
}

}  // namespace

void apply(const RotaryPlan& plan, const QK& x, const RotaryTable& table, const Positions& p,
           RotateMode mode, const Executor& executor) {
  apply_table(plan, x, x, table, p, mode, executor);
}
void apply(const RotaryPlan& plan, const ConstQK& in, const QK& out, const RotaryTable& table,
           const Positions& p, RotateMode mode, const Executor& executor) {
  apply_table(plan, detail::kernel_view(in), out, table, p, mode, executor);
}

}  // namespace posenc::v0
