// SPDX-License-Identifier: Apache-2.0
#include "attention/exact/gradient_sums.h"

#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

void want_term(TermSums& s, const TermView& v, const TermGradient& g) {
  const auto size = [](const auto& x) { return static_cast<Index>(x.size()); };
  const bool band = std::holds_alternative<ProductTerm>(*v.term) && v.adds_band;
  s.table.want(!g.table.empty() && !band, size(v.table.x));
  s.band.want(!g.table.empty() && band, band ? size(v.band->values) : 0);
  s.query.want(g.query.data != nullptr, size(v.query.x));
  s.key.want(g.key.data != nullptr, size(v.key.x));
  s.in.want(!g.mlp.in.empty(), size(v.mlp.in));
  s.in_bias.want(!g.mlp.in_bias.empty(), size(v.mlp.in_bias));
  s.out.want(!g.mlp.out.empty(), size(v.mlp.out));
  s.out_bias.want(!g.mlp.out_bias.empty(), size(v.mlp.out_bias));
}

// d t_r = scale times the sums of the diagonals that read row r.
Numbers rows_of_band(const TermView& v, const Numbers& band) {
  Numbers rows(band.empty() ? 0 : v.table.x.size());
  for (std::size_t n = 0; n < band.size(); ++n) {
    const auto size = static_cast<std::size_t>(v.band->size());
    const Index row = v.band->rows[n % size], slab = static_cast<Index>(n / size);
    if (row >= 0) rows[static_cast<std::size_t>(slab * v.table.rows + row)] += v.scale * band[n];
  }
  return rows;
}

void add_term_sums(TermSums& s, const TermView& v, const TermGradient& g) {
  add_to(g.table, s.band.size() > 0 ? rows_of_band(v, s.band.total()) : s.table.total());
  add_to(g.query, s.query.total());
  add_to(g.key, s.key.total());
  add_to(g.mlp.in, s.in.total());
  add_to(g.mlp.in_bias, s.in_bias.total());
  add_to(g.mlp.out, s.out.total());
  add_to(g.mlp.out_bias, s.out_bias.total());
}

}  // namespace

void add_to(const TensorView& v, const Numbers& dense) {
  if (v.empty() || dense.empty()) return;
  std::array<Index, 4> n{1, 1, 1, 1}, step{};
  for (std::size_t a = 0; a < static_cast<std::size_t>(v.rank); ++a)
    n[a] = v.shape[a], step[a] = v.shape[a] == 1 ? 0 : v.stride[a];
  const double* x = dense.data();
  for (Index a = 0; a < n[0]; ++a)
    for (Index b = 0; b < n[1]; ++b)
      for (Index c = 0; c < n[2]; ++c)
        for (Index d = 0; d < n[3]; ++d)
          add_element(v.data, v.dtype, a * step[0] + b * step[1] + c * step[2] + d * step[3], *x++);
}

void add_to(const Heads& h, const Numbers& dense) {
  if (h.data == nullptr || dense.empty()) return;
  const double* x = dense.data();
  for (Index b = 0; b < h.batch; ++b)
    for (Index g = 0; g < h.heads; ++g)
      for (Index t = 0; t < h.tokens; ++t, x += h.dim) add_vector(h, b, t, g, x);
}

void add_vector(const Heads& h, Index b, Index t, Index g, const double* x) {
  const Index at = b * h.batch_stride + t * h.token_stride + g * h.head_stride;
  if (h.dtype == DType::f64 && h.dim_stride == 1)
    return add_scaled(static_cast<double*>(h.data) + at, 1, x, h.dim);
  for (Index d = 0; d < h.dim; ++d) add_element(h.data, h.dtype, at + d * h.dim_stride, x[d]);
}

namespace {

// Arrays of `size` one behind the other: all added to the first, in their order.
void add_up(Numbers& x, std::size_t size) {
  for (std::size_t from = size; from < x.size(); from += size)
    for (std::size_t n = 0; n < size; ++n) x[n] += x[from + n];
  x.resize(size);
}

}  // namespace

Numbers SharedSum::total() {
  add_up(x_, static_cast<std::size_t>(size_));
  return std::move(x_);
}

GradientSums::GradientSums(const CallView& c, const AttentionGradients& g)
    : q(c.args.prepare.empty() ? 0 : c.q.size()),
      region_k(c.regions.size()),
      terms(c.terms.size()),
      k_size_(c.R * c.G * c.Tk * c.D),
      v_size_(c.R * c.G * c.Tk * c.V) {
  for (std::size_t n = 0; n < c.regions.size(); ++n) {
    const bool wanted_k = !g.regions.empty() && g.regions[n].k.data != nullptr;
    region_q.emplace_back(c.regions[n].q.size());
    region_k[n].want(wanted_k, static_cast<Index>(c.regions[n].k.size()));
  }
  for (std::size_t n = 0; !g.terms.empty() && n < c.terms.size(); ++n)
    want_term(terms[n], c.terms[n], g.terms[n]);
  const auto want = [&](SharedSum& s, const TensorView& view) {
    s.want(!view.empty(), view.empty() ? 0 : view.count());
  };
  want(head_scale, g.head_scale);
  want(query_factor, g.query_factor);
  want(sink, g.sink);
  want(mix_before, g.mix_before);
  want(mix_after, g.mix_after);
}

template <class F>
void GradientSums::each_shared(const F& fn) {
  for (SharedSum& s : region_k) fn(s);
  for (TermSums& t : terms)
    for (SharedSum* s :
         {&t.table, &t.query, &t.key, &t.band, &t.in, &t.in_bias, &t.out, &t.out_bias})
      fn(*s);
  for (SharedSum* s : {&head_scale, &query_factor, &sink, &mix_before, &mix_after}) fn(*s);
}

Index GradientSums::shared() noexcept {
  Index sum = 0;
  each_shared([&](const SharedSum& s) { sum += s.size(); });
  return sum;
}

void GradientSums::start(Index slices, Index cuts) {
  each_shared([&](SharedSum& s) { s.start(slices); });
  k.assign(static_cast<std::size_t>(k_size_ * cuts), 0.0);
  v.assign(static_cast<std::size_t>(v_size_ * cuts), 0.0);
}

void GradientSums::add_all(const CallView& c, const AttentionGradients& g,
                           const Executor& executor) {
  for (std::size_t n = 0; !g.regions.empty() && n < c.regions.size(); ++n) {
    add_to(g.regions[n].q, region_q[n]);
    add_to(g.regions[n].k, region_k[n].total());
  }
  for (std::size_t n = 0; !g.terms.empty() && n < terms.size(); ++n)
    add_term_sums(terms[n], c.terms[n], g.terms[n]);
  add_to(g.head_scale, head_scale.total());
  add_to(g.query_factor, query_factor.total());
  add_to(g.sink, sink.total());
  add_to(g.mix_before, mix_before.total());
  add_to(g.mix_after, mix_after.total());
  add_up(k, static_cast<std::size_t>(k_size_));
  add_up(v, static_cast<std::size_t>(v_size_));
  pull_stages(c, q, k, v, g, executor);
}

Pull::Pull(GradientSums& s, const AttentionGradients& g, Index slice)
    : sums(s),
      head_scale(s.head_scale.slice(slice)),
      query_factor(s.query_factor.slice(slice)),
      sink(s.sink.slice(slice)),
      mix_before(s.mix_before.slice(slice)),
      mix_after(s.mix_after.slice(slice)),
      bias(g.bias) {
  if (s.q.empty()) q = g.q;
  for (TermSums& t : s.terms) terms.push_back(t.slice(slice));
  for (SharedSum& k_sum : s.region_k) region_k.push_back(k_sum.slice(slice));
}

}  // namespace posenc::v0::detail
