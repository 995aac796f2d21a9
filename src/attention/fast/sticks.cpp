// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/sticks.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/work.h"

namespace posenc::inline v0::detail {

bool breaks_sticks(const AttentionArgs& a) noexcept {
  return a.normalisation != Normalisation::softmax;
}

std::string_view sticks_why_not(const ReadyCall& c) noexcept {
  const AttentionArgs& a = c.args;
  if (!breaks_sticks(a)) return {};
  if (!c.ascends) return "the call has stick-breaking and an order of keys that does not ascend";
  if (a.softcap != 0) return "the call has stick-breaking and a soft cap";
  if (std::any_of(a.terms.begin(), a.terms.end(), Gates::has))
    return "the call has stick-breaking and gates";
  return {};
}

StickWork::StickWork(const FastCall& c, Index rows, CallArena& arena) {
  if (!breaks_sticks(c.args)) return;
  left = arena.array<double>(rows);
  own = arena.array<float>(whole_vectors(c.V, c.kernels.lanes));
}

void clear_sticks(const FastCall& c, FastWork& w, const RowGroup& g) noexcept {
  if (breaks_sticks(c.args)) std::fill_n(w.sticks.left.data() + g.first, g.rows, 0.0);
}

bool are_broken(const FastWork& w, const RowGroup& g) noexcept {
  const double* left = w.sticks.left.data() + g.first;
  return std::all_of(left, left + g.rows,
                     [](double x) { return x < static_cast<double>(kSmallestExponent); });
}

bool run_stick_strip(const FastCall& c, FastWork& w, const RowGroup& g, const FastBlock& block,
                     const FastStrip& strip) noexcept {
  const FastStickKernels& k = c.stick_kernels;
  const FastStick stick{w.sticks.left.data() + g.first};
  const std::size_t start = strip.start == nullptr ? 0 : 1;
  const bool broken = are_broken(w, g);
  const auto& run = broken ? k.leave : k.strip;
  if (run[g.kind][start](block, strip, stick)) return !broken;
  std::fill_n(w.left.data() + g.first, g.rows, std::uint8_t{1});
  return false;
}

bool put_rest(const FastCall& c, FastWork& w, const RowGroup& g, Index n,
              RowTotal& total) noexcept {
  const FastRow& r = g.row[n];
  const double left = w.sticks.left[static_cast<std::size_t>(g.first + n)];
  total = {1, left * kLn2};
  if (c.args.normalisation != Normalisation::stick_breaking_own) return true;
  const Index own = c.own_key(r.place);
  if (own < 0 || c.V == 0) return true;
  const ConstHeads& v = c.given_v;
  float* value = w.sticks.own.data();
  if (!c.kernels.take_row[fast_type(v.dtype)](
          value, c.token(v, r.place.row, c.group(r.h), own, w.copies.data()), c.V, 1))
    return false;
  const auto rest = static_cast<float>(std::exp2(left));
  float* out = w.out.data() + (g.slot * c.value_panels + n) * c.panel;
  for (Index d = 0; d < c.V; ++d)
    out[d / c.panel * (g.rows * c.panel) + d % c.panel] += rest * value[d];
  return true;
}

}  // namespace posenc::v0::detail
