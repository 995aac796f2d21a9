// SPDX-License-Identifier: Apache-2.0
// What a table holds: for each pair the rows of its own stream of positions.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <string>

#include "core/row_layout.h"
#include "posenc/core/error.h"
#include "posenc/core/isa.h"
#include "rotary/compat.h"
#include "rotary/rows.h"
#include "rotary/table_store.h"

namespace posenc::inline v0::detail {
namespace {

// FNV-1a, 64 bits, by words.
struct Hash {
  std::uint64_t state = 0xcbf29ce484222325u;
  void word(std::uint64_t x) {
    for (int i = 0; i < 64; i += 8) state = (state ^ (x >> i & 0xff)) * 0x100000001b3u;
  }
  void number(double x) { word(std::bit_cast<std::uint64_t>(x)); }
  void number(Index x) { word(static_cast<std::uint64_t>(x)); }
};

// The stream of pair i: that of its only frequency that is not 0.
std::int32_t axis_of(const Spectrum& s, Index pair) {
  std::int32_t axis = -1;
  for (Index h = 0; h < s.heads; ++h) {
    Index used = 0;
    for (Index a = 0; a < s.axes; ++a) {
      if (s.frequency[static_cast<std::size_t>((h * s.axes + a) * s.pairs() + pair)] == 0) continue;
      if (++used > 1)
        refuse(
            "rotary table",
            "a pair must rotate by one position stream: no row of one position holds a sum, pair",
            pair);
      if (axis >= 0 && axis != a)
        refuse("rotary table",
               "all heads must rotate a pair by the same position stream: head " +
                   std::to_string(h) + " takes stream " + std::to_string(a) +
                   ", those before it stream " + std::to_string(axis) + ", pair",
               pair);
      axis = static_cast<std::int32_t>(a);
    }
  }
  return std::max(axis, 0);
}

// The spectrum by one stream of positions.
Spectrum flatten(const Spectrum& s, const std::vector<std::int32_t>& axis) {
  if (s.axes == 1) return s;
  Spectrum r = s;
  r.axes = 1;
  r.frequency.clear();
  for (Index h = 0; h < s.heads; ++h)
    for (Index i = 0; i < s.pairs(); ++i)
      r.frequency.push_back(s.frequency[static_cast<std::size_t>(
          (h * s.axes + axis[static_cast<std::size_t>(i)]) * s.pairs() + i)]);
  r.geometric.reset();
  return r;
}

struct FlatTurns {
  std::vector<std::uint64_t> hi, lo;
  std::vector<double> per_unit;
};

}  // namespace

std::uint64_t rows_hash(const RotarySpec& spec) {
  Hash h;
  h.number(static_cast<Index>(spec.precision));
  for (const RotaryBlock& b : spec.blocks) {
    const Spectrum& s = b.spectrum;
    h.number(s.heads), h.number(s.axes), h.number(s.pairs()), h.number(s.gain);
    for (const double f : s.frequency) h.number(f);
    if (spec.precision != Precision::ggml || !s.ggml) continue;
    const GgmlForm& g = *s.ggml;
    for (const double x :
         {g.base, g.freq_scale, g.ext_factor, g.attn_factor, g.beta_fast, g.beta_slow})
      h.number(x);
    h.number(g.n_dims), h.number(g.original_context);
    for (const double x : g.factors) h.number(x);
    for (const Index x : g.restart) h.number(x);
  }
  return h.state;
}

bool same_rows(const RotarySpec& a, const RotarySpec& b) {
  if (a.precision != b.precision || a.blocks.size() != b.blocks.size()) return false;
  for (std::size_t i = 0; i < a.blocks.size(); ++i) {
    const Spectrum &s = a.blocks[i].spectrum, &t = b.blocks[i].spectrum;
    if (s.frequency != t.frequency || s.heads != t.heads || s.axes != t.axes || s.gain != t.gain)
      return false;
    if (a.precision == Precision::ggml && s.ggml != t.ggml) return false;
  }
  return true;
}

void describe_version(TableVersion& v, const RotarySpec& spec, DType dtype, TableLayout layout) {
  check_rotary(spec);
  Index columns = 0;
  std::vector<std::vector<std::int32_t>> axes;
  for (const RotaryBlock& b : spec.blocks) {
    if (!b.log2_decay.empty())
      refuse("rotary table", "xPos has no table: its decay grows without bound with the position");
    check_compat(b.spectrum, spec.precision);
    columns += row_layout(layout, b.spectrum.heads * b.pairs()).columns;
    std::vector<std::int32_t> axis;
    for (Index i = 0; i < b.pairs(); ++i) axis.push_back(axis_of(b.spectrum, i));
    axes.push_back(std::move(axis));
  }
  v.spec = spec, v.lengths = {spec.valid_from(), spec.valid_to()};
  v.dtype = dtype, v.layout = layout, v.columns = columns;
  v.axes = std::move(axes);
  v.pair_axis.clear();
  if (spec.axes() > 1)
    for (const auto& a : v.axes) v.pair_axis.push_back(a.data());
}

void build_rows(const TableVersion& v, Index begin, Index end, std::byte* to,
                const Executor& executor) {
  if (begin >= end || v.columns == 0) return;
  RotarySpec flat = v.spec;
  std::vector<FlatTurns> turns(flat.blocks.size());
  std::vector<RotaryTables> tables;
  for (std::size_t n = 0; n < flat.blocks.size(); ++n) {
    Spectrum& s = flat.blocks[n].spectrum;
    s = flatten(s, v.axes[n]);
    for (const Turns& t : exact_turns(s)) {
      turns[n].hi.push_back(t.hi), turns[n].lo.push_back(t.lo);
      turns[n].per_unit.push_back(t.per_unit);
    }
    RotaryTables t;
    t.wide_hi = turns[n].hi.data(), t.wide_lo = turns[n].lo.data();
    t.per_unit = turns[n].per_unit.data();
    t.gain = s.gain;
    t.pairs = s.pairs(), t.heads = static_cast<std::int32_t>(s.heads);
    tables.push_back(t);
  }
  constexpr Index kAtOnce = Index{1} << 20;  // positions: a list of all would need its own memory
  std::vector<Index> position(static_cast<std::size_t>(std::min(end - begin, kAtOnce)));
  for (Index first = begin; first < end; first += kAtOnce) {
    const Index n = std::min(end - first, kAtOnce);
    std::iota(position.begin(), position.end(), first);
    const Index shape[] = {n, v.columns};
    std::byte* at = to + (first - begin) * v.columns * size_of(v.dtype);
    spec_rows(flat, tables, active_isa(),
              positions(std::span<const Index>(position).first(static_cast<std::size_t>(n))),
              tensor(static_cast<void*>(at), v.dtype, shape), v.layout, executor, "rotary table");
  }
}

}  // namespace posenc::v0::detail
