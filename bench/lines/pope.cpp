// SPDX-License-Identifier: Apache-2.0
// PoPE: a softplus of every channel, turned by a phase of its own into two.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "limits.h"
#include "line.h"
#include "posenc/positions/sequence.h"
#include "posenc/rotary/pope.h"

namespace posenc::bench {
namespace {

constexpr Index kHeads = 8, kDim = 64, kFirst = 1000;

struct Turn {
  PopePlan plan;
  OwnedPositions at;
  SharedBuffer in, out;
  std::vector<double> bias;
  Heads from, to;
  TensorView bias_view;

  Turn(Index tokens, bool keys)
      : plan(Pope{.head_dim = kDim}, DType::f32), at(arange(kFirst, tokens)) {
    const Index n = tokens * kHeads * kDim;
    in = buffer(static_cast<std::size_t>(4 * n));
    out = buffer(static_cast<std::size_t>(8 * n));
    for (Index i = 0; i < n; ++i)
      in->as<float>()[i] = static_cast<float>(i * 37 % 101 - 50) / 16.0f;
    from = heads(in->as<float>(), tokens, kHeads, kDim);
    to = heads(out->as<float>(), tokens, kHeads, 2 * kDim);
    if (!keys) return;
    for (Index i = 0; i < kHeads * kDim; ++i) bias.push_back(-static_cast<double>(i % 6));
    bias_view = tensor(bias.data(), {kHeads, kDim});
  }
  double error(Index tokens) const {
    double worst = 0;
    for (Index t = 0; t < tokens; t += 61)
      for (Index h = 0; h < kHeads; ++h)
        for (Index i = 0; i < kDim; ++i) {
          const Index row = t * kHeads + h;
          const double x = static_cast<double>(in->as<float>()[row * kDim + i]);
          const double mu = std::log1p(std::exp(x)), d = static_cast<double>(kDim);
          double phi =
              static_cast<double>(kFirst + t) * std::pow(10000, -static_cast<double>(i) / d);
          if (!bias.empty()) phi += bias[static_cast<std::size_t>(h * kDim + i)];
          const float* y = out->as<float>() + row * 2 * kDim + i;
          worst = std::max({worst, std::abs(static_cast<double>(y[0]) - mu * std::cos(phi)),
                            std::abs(static_cast<double>(y[kDim]) - mu * std::sin(phi))});
        }
    return worst;
  }
};

// One number is read where two are written: the limit copies the same bytes.
Line pope_line(Index tokens, bool keys) {
  Line l;
  l.name = std::string("pope/f32/") + (keys ? "keys/" : "queries/") + std::to_string(tokens) + 'x' +
           std::to_string(kHeads) + 'x' + std::to_string(kDim);
  const auto count = static_cast<std::size_t>(tokens * kHeads * kDim);
  l.bytes = 12 * static_cast<double>(count);
  l.limit_name = "copy";
  l.goal = 5;
  l.prepare = [=] {
    const auto c = std::make_shared<Turn>(tokens, keys);
    const auto other = buffer(6 * count), target = buffer(6 * count);
    Prepared r;
    r.run = [c] { c->plan.apply(c->from, c->to, c->at, c->bias_view, inline_executor()); };
    r.run();
    r.max_error = c->error(tokens);
    r.bound = 2.4e-7;  // one rounding of numbers below 4
    const Copy copy = best_copy(6 * count);
    r.limit = [=] { copy(target->as<float>(), other->as<float>(), count * 3 / 2); };
    return r;
  };
  return l;
}

}  // namespace

std::vector<Line> pope_lines() {
  return {pope_line(1, false), pope_line(2048, false), pope_line(2048, true)};
}

}  // namespace posenc::bench
