// SPDX-License-Identifier: Apache-2.0
// S += scale mlp_h(content of all heads; sum of the other terms of all heads), with kernels over the
// keys of the query's sequence in their order. Hidden keys go in as 0.
#include <algorithm>

#include "attention/exact/row.h"

namespace posenc::inline v0::detail {
namespace {

// The network over one row.
struct NetRow {
  NetRow(const CallView& view, const TermView& v, const RowWork& work) noexcept
      : c(view),
        m(v.mlp),
        w(work),
        place(work.heads[0].place),
        count(place.end - place.begin),
        half(v.mlp.kernel / 2) {}

  Index key(Index s) const noexcept { return c.key_in_order(place, place.begin + s); }
  // Of head n % H: its content, or its terms.
  const double* input(Index n) const noexcept {
    const HeadRow& r = w.heads[static_cast<std::size_t>(n % c.H)];
    return n < c.H ? r.content : r.terms;
  }
  // fn(tap of the kernel, place) around place s.
  template <class F>
  void each_tap(Index s, const F& fn) const {
    for (Index x = std::max<Index>(0, half - s); x < m.kernel && s + x - half < count; ++x)
      fn(x, s + x - half);
  }
  std::size_t in_at(Index u, Index n, Index x) const noexcept {
    return static_cast<std::size_t>((u * m.channels + n) * m.kernel + x);
  }
  std::size_t out_at(Index h, Index u, Index x) const noexcept {
    return static_cast<std::size_t>((Grouping{c.H, m.out_groups}.of(h) * m.units + u) * m.kernel +
                                    x);
  }
  std::size_t bias_at(Index h) const noexcept {
    return static_cast<std::size_t>(Grouping{c.H, m.bias_groups}.of(h));
  }
  std::size_t unit(Index u, Index s) const noexcept {
    return static_cast<std::size_t>(u * c.Tk + s);
  }

  const CallView& c;
  const DenseMlp& m;
  const RowWork& w;
  QueryPlace place;
  Index count, half;
};

void fill_units(const NetRow& n, std::span<double> hidden) noexcept {
  for (Index u = 0; u < n.m.units; ++u)
    for (Index s = 0; s < n.count; ++s) {
      double sum = n.m.in_bias[static_cast<std::size_t>(u)];
      n.each_tap(s, [&](Index x, Index at) {
        const Index j = n.key(at);
        for (Index channel = 0; channel < n.m.channels; ++channel)
          sum += n.m.in[n.in_at(u, channel, x)] * n.input(channel)[j];
      });
      hidden[n.unit(u, s)] = sum;
    }
}

// fn(place, key) of the keys that a head sees.
template <class F>
void each_seen(const NetRow& n, const HeadRow& r, std::span<std::uint8_t> flags,
               const F& fn) noexcept {
  std::fill(flags.begin(), flags.end(), std::uint8_t{0});
  each_key(r.runs, [&](Index j) { flags[static_cast<std::size_t>(j)] = 1; });
  for (Index s = 0; s < n.count; ++s)
    if (const Index j = n.key(s); flags[static_cast<std::size_t>(j)] != 0) fn(s, j);
}

// d out_bias += d, d out += d act(y), dy += d out act'(y).
void pull_outputs(const NetRow& n, const HeadRow& r, double scale, RowWork& w,
                  const TermPull& to) noexcept {
  each_seen(n, r, w.flags, [&](Index s, Index j) {
    const double d = scale * r.d_plain[j];
    if (to.out_bias != nullptr) to.out_bias[n.bias_at(r.h)] += d;
    n.each_tap(s, [&](Index x, Index at) {
      for (Index u = 0; u < n.m.units; ++u) {
        const double y = w.hidden[n.unit(u, at)];
        const std::size_t o = n.out_at(r.h, u, x);
        if (to.out != nullptr) to.out[o] += d * n.m.act(y);
        w.d_hidden[n.unit(u, at)] += d * n.m.out[o] * n.m.act_slope(y);
      }
    });
  });
}

}  // namespace

void add_score_mlp(const CallView& c, const TermView& v, RowWork& w) noexcept {
  const NetRow n(c, v, w);
  fill_units(n, w.hidden);
  each_head(w, [&](HeadRow& r) {
    each_seen(n, r, w.flags, [&](Index s, Index j) {
      double sum = n.m.out_bias[n.bias_at(r.h)];
      n.each_tap(s, [&](Index x, Index at) {
        for (Index u = 0; u < n.m.units; ++u)
          sum += n.m.out[n.out_at(r.h, u, x)] * n.m.act(w.hidden[n.unit(u, at)]);
      });
      r.plain[j] += v.scale * sum;
    });
  });
}

// d in_bias += dy, d in += dy input, d input += dy in. What comes to hidden keys is not read.
void pull_score_mlp(const CallView& c, const TermView& v, RowWork& w, const TermPull& to) noexcept {
  const NetRow n(c, v, w);
  fill_units(n, w.hidden);
  std::fill(w.d_hidden.begin(), w.d_hidden.end(), 0.0);
  each_head(w, [&](HeadRow& r) { pull_outputs(n, r, v.scale, w, to); });
  for (Index u = 0; u < n.m.units; ++u)
    for (Index s = 0; s < n.count; ++s) {
      const double d = w.d_hidden[n.unit(u, s)];
      if (to.in_bias != nullptr) to.in_bias[u] += d;
      n.each_tap(s, [&](Index x, Index at) {
        const Index j = n.key(at);
        for (Index channel = 0; channel < n.m.channels; ++channel) {
          const std::size_t i = n.in_at(u, channel, x);
          HeadRow& r = w.heads[static_cast<std::size_t>(channel % c.H)];
          if (to.in != nullptr) to.in[i] += d * n.input(channel)[j];
          (channel < c.H ? r.d_content : r.d_terms)[j] += d * n.m.in[i];
        }
      });
    }
}

}  // namespace posenc::v0::detail
