// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/swin_v2.h"

#include <algorithm>
#include <cmath>

#include "kernels/matmul.h"
#include "posenc/core/error.h"
#include "relative/image_terms.h"
#include "relative/layers/linear.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kSwinV2 = SwinV2::card.name;

double swin_v2_log(Index d, Index size) {
  if (size <= 1) return 0;
  const double u = 8 * static_cast<double>(d) / static_cast<double>(size - 1);
  return std::copysign(std::log2(1 + std::abs(u)) / 3, u);
}
double swin_v2_cr_log(Index d) {
  const auto u = static_cast<double>(d);
  return std::copysign(std::log1p(std::abs(u)), u);
}

detail::WindowRows swin_v2_window(const SwinV2& x) {
  return {x.height, x.width, false, false};
}

}  // namespace

// The MLP at every row of the table, and its gradient.
struct SwinV2::Layers {
  Index n, hidden, heads;
  bool squash;
  std::vector<double> c, w1, b1, w2, b2, unit, value;  // value [heads, n]

  Layers(const SwinV2& x, const ScoreShape& s, const detail::LearnedValues& p)
      : n(x.rows()), hidden(x.hidden), heads(s.heads), squash(x.form == SwinV2Form::swin) {
    c = x.coordinates(), w1 = p["w1"], b1 = p["b1"], w2 = p["w2"], b2 = p.if_any("b2");
    unit = detail::linear(c, w1, b1, 2);
    for (double& u : unit) u = std::max(u, 0.0);
    value.assign(static_cast<std::size_t>(heads * n), 0.0);
    detail::add_product({w2.data(), heads, hidden, hidden, 1}, {unit.data(), hidden, n, 1, hidden},
                        {value.data(), n, 1});
    for (std::size_t i = 0; i < value.size(); ++i)
      value[i] =
          squash ? 1 / (1 + std::exp(-value[i])) : value[i] + b2[i / static_cast<std::size_t>(n)];
  }

  // d: of value. Sets the gradients of w1, b1, w2 and of b2.
  void pull_back(std::vector<double> d, detail::LearnedGradients& to) const {
    if (squash)
      for (std::size_t i = 0; i < d.size(); ++i) d[i] *= value[i] * (1 - value[i]);
    std::vector<double> d_w2(w2.size()), d_unit(unit.size()), d_b1(b1.size()), d_w1(w1.size());
    detail::add_product({d.data(), heads, n, n, 1}, {unit.data(), n, hidden, hidden, 1},
                        {d_w2.data(), hidden, 1});
    detail::add_product({d.data(), n, heads, 1, n}, {w2.data(), heads, hidden, hidden, 1},
                        {d_unit.data(), hidden, 1});
    for (std::size_t i = 0; i < d_unit.size(); ++i) {
      if (unit[i] <= 0) d_unit[i] = 0;
      d_b1[i % d_b1.size()] += d_unit[i];
    }
    detail::add_product({d_unit.data(), hidden, n, 1, hidden}, {c.data(), n, 2, 2, 1},
                        {d_w1.data(), 2, 1});
    to["w1"] = std::move(d_w1), to["b1"] = std::move(d_b1), to["w2"] = std::move(d_w2);
    if (squash) return;
    std::vector<double>& d_b2 = to["b2"];
    d_b2.resize(b2.size());
    for (std::size_t i = 0; i < d.size(); ++i) d_b2[i / static_cast<std::size_t>(n)] += d[i];
  }
};

std::vector<double> SwinV2::coordinates() const {
  std::vector<double> c;
  for (Index y = 1 - height; y < height; ++y)
    for (Index x = 1 - width; x < width; ++x) {
      const bool cr = form == SwinV2Form::cr;
      c.push_back(cr ? swin_v2_cr_log(y)
                     : swin_v2_log(y, pretrained_height > 0 ? pretrained_height : height));
      c.push_back(cr ? swin_v2_cr_log(x)
                     : swin_v2_log(x, pretrained_width > 0 ? pretrained_width : width));
    }
  return c;
}

std::vector<Parameter> SwinV2::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  const bool cr = form == SwinV2Form::cr;
  const Initial normal{InitialKind::truncated_normal, 0, 0.02};
  std::vector<Parameter> p;
  if (cosine)
    p.push_back({"logit_scale",
                 cr ? ArrayShape{axes.heads} : ArrayShape{axes.heads, 1, 1},
                 {InitialKind::constant, std::log(10.0), 0},
                 {}});
  p.push_back({"w1", {hidden, 2}, normal, {}});
  p.push_back({"b1", {hidden}, detail::linear_start(2), {}});
  p.push_back({"w2", {axes.heads, hidden}, normal, {}});
  if (cr) p.push_back({"b2", {axes.heads}, detail::linear_start(hidden), {}});
  return p;
}

std::vector<Input> SwinV2::inputs(const ScoreShape&) const {
  return class_token ? detail::class_inputs() : std::vector<Input>{};
}

void SwinV2::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                   LoweredTerms& out) const {
  const detail::LearnedValues value(*this, s, p);
  Layers mlp(*this, s, value);
  ProductTerm t = detail::number_term(out.table(std::move(mlp.value), s.heads, rows(), 1), {},
                                      form == SwinV2Form::cr ? 1 : 16);
  swin_v2_window(*this).add_lines(kSwinV2, t, out);
  if (class_token) t.pair = detail::patches_alone(out);
  if (cosine) {
    std::vector<double> scale = value["logit_scale"];
    for (double& x : scale) x = std::exp(std::min(x, std::log(100.0)));
    out.requests.scale = 1;
    out.requests.head_scale = out.array(std::move(scale), std::vector<Index>{1, s.heads});
    Stage l2;
    l2.kind = StageKind::l2;
    // As the normalisation of PyTorch's functions.
    l2.epsilon = 1e-12;
    out.requests.prepare = {l2};
  }
  out.add(t);
}

void SwinV2::bind(const ScoreShape&, std::span<const ConstTensorView>, const CallData& call,
                  std::span<Term> terms, TermStore&) const {
  if (class_token) detail::bind_classes(kSwinV2, call, terms);
}

// Beyond ln 100 the logit scale has no gradient.
void SwinV2::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                       const LoweredGradient& g, std::span<const TensorView> dp,
                       std::span<const TensorView>) const {
  const detail::LearnedValues value(*this, s, p);
  const Layers mlp(*this, s, value);
  detail::LearnedGradients to(value);
  mlp.pull_back(
      gradient_values(kSwinV2, gradient_of(kSwinV2, g.terms, 0).table, {1, s.heads, rows(), 1}),
      to);
  if (cosine) {
    std::vector<double> scale = gradient_values(kSwinV2, g.head_scale, {1, s.heads});
    const std::vector<double> logit = value["logit_scale"];
    for (std::size_t h = 0; h < scale.size(); ++h)
      scale[h] = logit[h] > std::log(100.0) ? 0 : scale[h] * std::exp(logit[h]);
    to["logit_scale"] = std::move(scale);
  }
  to.accumulate(dp);
}

void SwinV2::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kSwinV2);
  swin_v2_window(*this).check(kSwinV2);
  if (pretrained_height < 0 || pretrained_height > 4096)
    refuse_field(kSwinV2, "pretrained_height", "must lie between 0 and 4096", pretrained_height);
  if (pretrained_width < 0 || pretrained_width > 4096)
    refuse_field(kSwinV2, "pretrained_width", "must lie between 0 and 4096", pretrained_width);
  if (hidden < 1 || hidden > 65536)
    refuse_field(kSwinV2, "hidden", "must lie between 1 and 65536", hidden);
}

}  // namespace posenc::v0
