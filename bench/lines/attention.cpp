// SPDX-License-Identifier: Apache-2.0
// The exact engine beside the multiply-adds that it needs: two products a pair forward, five
// backward, on one thread.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "limits.h"
#include "line.h"
#include "posenc/attention/attend.h"
#include "posenc/positions/sequence.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/rope.h"

namespace posenc::bench {
namespace {

constexpr Index kTokens = 1024, kHeads = 2;
enum class With : std::uint8_t { plain, t5, alibi, rotary };
constexpr const char* kNames[] = {"plain", "t5", "alibi", "rotary"};

struct Attend {
  Attend(With with, bool causal, Index head_dim)
      : kind(with), dim(head_dim), at(arange(0, kTokens)) {
    const auto n = static_cast<std::size_t>(kTokens * kHeads * dim);
    for (std::size_t array = 0; array < 4; ++array)
      for (std::size_t i = 0; i < n; ++i)
        x[array].push_back(std::sin(static_cast<double>(i * (array + 2)) * 0.37));
    for (auto& y : out) y.assign(n, 0.0);
    args.q = view(x[0]), args.k = view(x[1]), args.v = view(x[2]);
    args.scale = 1 / std::sqrt(static_cast<double>(dim));
    args.query_positions = args.key_positions = at;
    args.mask.causal = causal;
    for (std::size_t i = 0; i < table.size(); ++i)
      table[i] = 0.01 * std::cos(static_cast<double>(i));
    if (kind == With::rotary) rotate();
    if (kind == With::t5 || kind == With::alibi) add_term();
    gradients.q = heads(out[1].data(), kTokens, kHeads, dim);
    gradients.k = heads(out[2].data(), kTokens, kHeads, dim);
    gradients.v = heads(out[3].data(), kTokens, kHeads, dim);
    const double all = static_cast<double>(kTokens * kTokens);
    pairs = static_cast<double>(kHeads) * (causal ? (all + kTokens) / 2 : all);
  }
  Attend(const Attend&) = delete;
  ConstHeads view(const std::vector<double>& v) const {
    return heads(v.data(), kTokens, kHeads, dim);
  }
  void rotate() {
    spec = resolve(Rope{.head_dim = dim, .base = 10000, .pairing = Pairing::half_split});
    stage.kind = StageKind::rotate, stage.rotary = &spec;
    args.prepare = std::span(&stage, 1);
  }
  void add_term() {
    const Index rows = kind == With::t5 ? kRows : 1, channels = kind == With::t5 ? 1 : 2;
    for (std::int32_t d = -64; d <= 64; ++d) line.push_back((d + 64) / 5);
    const ConstTensorView of_heads =
        tensor(std::as_const(table).data(), {1, kHeads, rows, channels});
    if (kind == With::t5) {
      ProductTerm t5;
      t5.lines[0] = {line.data(), static_cast<Index>(line.size()), -64};
      t5.table = of_heads;
      term = t5;
    } else {
      term = LinearTerm{.table = of_heads};
    }
    term_gradient.table = tensor(d_table.data(), {1, kHeads, rows, channels});
    args.terms = std::span(&term, 1);
    gradients.terms = std::span(&term_gradient, 1);
  }
  void forward() {
    attend(args, {heads(out[0].data(), kTokens, kHeads, dim), {}}, inline_executor());
  }
  void backward() {
    attend_backward(args, {heads(out[0].data(), kTokens, kHeads, dim), {}}, {view(x[3]), {}},
                    gradients, inline_executor());
  }

  // Row i of head h by the definition, q and k as they are rotated: its output, or its d q.
  double error_of_row(const std::vector<double>& q, const std::vector<double>& k, Index h, Index i,
                      bool back) const {
    const auto row = [&](const std::vector<double>& y, Index t) {
      return y.data() + (t * kHeads + h) * dim;
    };
    const auto dot = [&](const double* a, const double* b) {
      double sum = 0;
      for (Index d = 0; d < dim; ++d) sum += a[d] * b[d];
      return sum;
    };
    const Index end = args.mask.causal ? i + 1 : kTokens;
    std::vector<double> p, y(static_cast<std::size_t>(dim));
    double total = 0, mean = 0;
    for (Index j = 0; j < end; ++j) {
      double s = *args.scale * dot(row(q, i), row(k, j));
      const Index delta = i - j;
      if (kind == With::t5)
        s += table[static_cast<std::size_t>(
            h * kRows + line[static_cast<std::size_t>(std::clamp<Index>(delta, -64, 64) + 64)])];
      if (kind == With::alibi)
        s += table[static_cast<std::size_t>(2 * h + (delta > 0 ? 0 : 1))] *
             static_cast<double>(std::abs(delta));
      p.push_back(std::exp(s));
      total += p.back();
    }
    for (double& weight : p) weight /= total;
    const auto value = [&](Index j) { return dot(row(x[3], i), row(x[2], j)); };
    for (Index j = 0; back && j < end; ++j) mean += p[static_cast<std::size_t>(j)] * value(j);
    for (Index j = 0; j < end; ++j) {
      const double weight =
          p[static_cast<std::size_t>(j)] * (back ? *args.scale * (value(j) - mean) : 1);
      for (Index d = 0; d < dim; ++d)
        y[static_cast<std::size_t>(d)] += weight * (back ? row(k, j) : row(x[2], j))[d];
    }
    double worst = 0;
    for (Index d = 0; d < dim; ++d)
      worst =
          std::max(worst, std::abs(y[static_cast<std::size_t>(d)] - row(out[back ? 1 : 0], i)[d]));
    return worst;
  }
  // A few rows; backward of a rotary one turns d q back, so that only its output is looked at.
  double error(bool back) {
    std::vector<double> q = x[0], k = x[1];
    if (kind == With::rotary) {
      const RotaryPlan plan(spec, DType::f64);
      plan.apply({heads(q.data(), kTokens, kHeads, dim), heads(k.data(), kTokens, kHeads, dim)}, at,
                 RotateMode::forward, inline_executor());
    }
    double worst = 0;
    for (const Index i : {0, 1, 63, 500, 1023})
      for (Index h = 0; h < kHeads; ++h) worst = std::max(worst, error_of_row(q, k, h, i, back));
    return worst;
  }

  static constexpr Index kRows = 32;
  With kind;
  Index dim;
  double pairs = 0;
  std::vector<double> x[4], out[4];
  std::vector<double> table = std::vector<double>(kHeads * kRows), d_table = table;
  std::vector<std::int32_t> line;
  OwnedPositions at;
  RotarySpec spec;
  Stage stage;
  Term term;
  TermGradient term_gradient;
  AttentionArgs args;
  AttentionGradients gradients;
};

Line attention_line(With with, bool causal, Index dim, bool back) {
  Line l;
  l.name = std::string(back ? "attend_backward" : "attend") + "/f64/" +
           kNames[static_cast<std::size_t>(with)] + (causal ? "/causal/" : "/full/") +
           std::to_string(kTokens) + 'x' + std::to_string(kHeads) + 'x' + std::to_string(dim);
  const double all = static_cast<double>(kTokens * kTokens);
  const double products =
      static_cast<double>(kHeads * dim * (back ? 5 : 2)) * (causal ? (all + kTokens) / 2 : all);
  l.flops = 2 * products;
  l.bytes = static_cast<double>(8 * kTokens * kHeads * dim * (back ? 7 : 4));
  l.limit_name = "fma_f64";
  l.goal = 4;
  l.prepare = [=] {
    const auto call = std::make_shared<Attend>(with, causal, dim);
    Prepared r;
    // Gradients are added: the check is made on the first call.
    if (back)
      call->backward();
    else
      call->forward();
    r.max_error = back && with == With::rotary ? 0 : call->error(back);
    r.bound = 1e-12;
    if (back)
      r.run = [call] { call->backward(); };
    else
      r.run = [call] { call->forward(); };
    r.limit = [=] {
      volatile double sink = fused_multiply_adds_f64(static_cast<std::size_t>(products));
      (void)sink;
    };
    return r;
  };
  return l;
}

}  // namespace

std::vector<Line> attention_lines() {
  std::vector<Line> all;
  for (const bool back : {false, true}) {
    for (const With with : {With::plain, With::t5, With::alibi, With::rotary})
      for (const bool causal : {false, true}) all.push_back(attention_line(with, causal, 64, back));
    all.push_back(attention_line(With::plain, false, 128, back));
    all.push_back(attention_line(With::plain, true, 128, back));
  }
  return all;
}

}  // namespace posenc::bench
