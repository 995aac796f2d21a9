// SPDX-License-Identifier: Apache-2.0
// Gradients against differences of the forward turn, in double, and the same for any thread count.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include "posenc/rotary/plan.h"
#include "support/random.h"

namespace posenc {
namespace {

using test::Random;

// Every task on a thread of its own, last first: nothing may depend on the order.
void run_threads(void*, Index n, void (*task)(void*, Index), void* arg) {
  std::vector<std::thread> threads;
  for (Index i = n; i-- > 0;) threads.emplace_back(task, arg, i);
  for (auto& t : threads) t.join();
}
Executor threads(Index n) {
  Executor e;
  e.concurrency = n, e.run = run_threads;
  return e;
}

struct Problem {
  RotarySpec spec;
  Index batch = 2, tokens = 5, q_heads = 3, k_heads = 3;
  std::vector<double> position;  // [axes, batch, tokens]
  std::vector<double> q, k, gq, gk;

  explicit Problem(const RotarySpec& s) : spec(s) {
    Random random(11);
    const Index n = batch * tokens;
    for (Index i = 0; i < s.axes() * n; ++i) position.push_back(random.uniform(-3, 9));
    q = random.normals(static_cast<std::size_t>(n * q_heads * s.head_dim));
    k = random.normals(static_cast<std::size_t>(n * k_heads * s.head_dim));
    gq = random.normals(q.size()), gk = random.normals(k.size());
  }
  Heads view(const std::vector<double>& v, Index h) const {
    Heads r;
    r.data = const_cast<double*>(v.data()), r.dtype = DType::f64;
    r.batch = batch, r.tokens = tokens, r.heads = h, r.dim = spec.head_dim;
    r.batch_stride = tokens * h * r.dim, r.token_stride = h * r.dim, r.head_stride = r.dim;
    return r;
  }
  Positions where() const {
    Positions p;
    p.data = position.data(), p.type = DType::f64;
    p.axes = static_cast<std::int32_t>(spec.axes()), p.count = tokens, p.batch = batch;
    p.batch_stride = tokens, p.axis_stride = tokens * batch;
    return p;
  }
  double loss() const {
    std::vector<double> y = q, z = k;
    RotaryPlan(spec, DType::f64)
        .apply({view(q, q_heads), view(k, k_heads)}, {view(y, q_heads), view(z, k_heads)}, where());
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * gq[i];
    for (std::size_t i = 0; i < z.size(); ++i) sum += z[i] * gk[i];
    return sum;
  }
};

double slope(double& x, const std::function<double()>& f) {
  const double held = x, h = 1e-4;
  const auto at = [&](double v) {
    x = v;
    return f();
  };
  const double r =
      (8 * (at(held + h) - at(held - h)) - (at(held + 2 * h) - at(held - 2 * h))) / (12 * h);
  x = held;
  return r;
}

struct Result {
  std::vector<double> frequency, gain, position, d_q, d_k;
};
Result gradients(const Problem& p, Index block, const Executor& executor) {
  const Spectrum& s = p.spec.blocks[static_cast<std::size_t>(block)].spectrum;
  Result r;
  r.frequency.assign(s.frequency.size(), 0), r.gain.assign(1, 0);
  r.position.assign(static_cast<std::size_t>(s.axes * p.batch * p.tokens), 0);
  PhaseGradients want;
  want.block = block;
  want.frequency = tensor(r.frequency.data(), {s.heads, s.axes, s.pairs()});
  want.gain = tensor(r.gain.data(), {1});
  want.position = tensor(r.position.data(), {s.axes, p.batch, p.tokens});
  const RotaryPlan plan(p.spec, DType::f64);
  const QK x{p.view(p.q, p.q_heads), p.view(p.k, p.k_heads)};
  const QK g{p.view(p.gq, p.q_heads), p.view(p.gk, p.k_heads)};
  std::vector<std::byte> work(plan.phase_gradients_workspace(x));
  plan.phase_gradients(x, g, p.where(), want, work, executor);
  r.d_q = p.gq, r.d_k = p.gk;
  plan.apply({p.view(r.d_q, p.q_heads), p.view(r.d_k, p.k_heads)}, p.where(), RotateMode::gradient);
  return r;
}

void check_all(Problem p) {
  Index blocks = static_cast<Index>(p.spec.blocks.size());
  std::vector<double> position(p.position.size());
  for (Index block = 0; block < blocks; ++block) {
    const Result r = gradients(p, block, inline_executor());
    Spectrum& s = p.spec.blocks[static_cast<std::size_t>(block)].spectrum;
    const auto loss = [&] { return p.loss(); };
    for (std::size_t i = 0; i < s.frequency.size(); ++i)
      EXPECT_NEAR(r.frequency[i], slope(s.frequency[i], loss), 2e-7) << "frequency " << i;
    EXPECT_NEAR(r.gain[0], slope(s.gain, loss), 1e-7);
    for (std::size_t i = 0; i < r.position.size(); ++i) position[i] += r.position[i];
    if (block > 0) continue;
    for (std::size_t i = 0; i < p.q.size(); i += 7)
      EXPECT_NEAR(r.d_q[i], slope(p.q[i], loss), 1e-8) << "q " << i;
    for (std::size_t i = 0; i < p.k.size(); i += 7)
      EXPECT_NEAR(r.d_k[i], slope(p.k[i], loss), 1e-8) << "k " << i;
    for (const Index n : {2, 3, 16}) {
      const Result again = gradients(p, block, threads(n));
      EXPECT_EQ(r.frequency, again.frequency) << n;
      EXPECT_EQ(r.gain, again.gain) << n;
      EXPECT_EQ(r.position, again.position) << n;
    }
  }
  for (std::size_t i = 0; i < position.size(); ++i)
    EXPECT_NEAR(position[i], slope(p.position[i], [&] { return p.loss(); }), 1e-7) << i;
}

RotarySpec one_block(Spectrum s, Pairing pairing, Index offset = 0, Index tail = 0) {
  RotarySpec spec;
  RotaryBlock b;
  b.offset = offset, b.pairing = pairing, b.spectrum = std::move(s);
  spec.head_dim = offset + b.width() + tail;
  spec.blocks.push_back(b);
  return spec;
}

TEST(PhaseGradients, OneBlock) {
  Spectrum s = geometric_spectrum(100, 8);
  s.gain = 1.1386;
  check_all(Problem(one_block(s, Pairing::half_split, 2, 2)));
  RotarySpec spec = one_block(s, Pairing::interleaved);
  spec.blocks[0].direction = -1;
  check_all(Problem(spec));
  spec.blocks[0].output_order = OutputOrder::even_then_odd;
  check_all(Problem(spec));
}

TEST(PhaseGradients, SeveralAxesAndHeads) {
  Spectrum s;
  s.heads = 3, s.axes = 2;
  Random random(3);
  for (int i = 0; i < 3 * 2 * 4; ++i) s.frequency.push_back(random.uniform(-1, 1));
  check_all(Problem(one_block(s, Pairing::interleaved)));
}

TEST(PhaseGradients, TwoBlocks) {
  RotarySpec spec = one_block(geometric_spectrum(100, 4), Pairing::half_split, 0, 8);
  RotaryBlock b = spec.blocks[0];
  b.offset = 6, b.spectrum = geometric_spectrum(20, 6), b.pairing = Pairing::interleaved;
  spec.blocks.push_back(b);
  check_all(Problem(spec));
}

TEST(PhaseGradients, DecayOfXpos) {
  RotarySpec spec = one_block(geometric_spectrum(100, 8), Pairing::interleaved);
  spec.blocks[0].log2_decay = {-1.8, -1.1, -0.69, -0.28};
  spec.blocks[0].decay_center = 2, spec.blocks[0].decay_scale = 8;
  spec.blocks[0].spectrum.gain = 0.9;
  check_all(Problem(spec));
}

TEST(RowGradients, EveryLayoutAndShape) {
  Problem p(one_block(geometric_spectrum(100, 6), Pairing::half_split, 2, 0));
  for (const bool zipped : {false, true})
    for (const TableLayout layout :
         {TableLayout::half, TableLayout::duplicated, TableLayout::repeated})
      for (const int shape : {0, 1, 2, 3}) {  // [t, C], [b, t, C], [b, t, h, C], a cache
        RotaryBlock& block = p.spec.blocks[0];
        block.pairing = zipped ? Pairing::interleaved : Pairing::half_split;
        block.direction = shape == 1 ? -1 : 1;
        const Index c = layout == TableLayout::half ? 3 : 6;
        const Index rows = shape == 0   ? p.tokens
                           : shape == 1 ? p.batch * p.tokens
                           : shape == 2 ? p.batch * p.tokens * p.q_heads
                                        : 4;
        Random random(5);
        std::vector<double> cos = random.normals(static_cast<std::size_t>(rows * c));
        std::vector<double> sin = random.normals(cos.size());
        std::vector<double> d_cos(cos.size()), d_sin(cos.size());
        const std::vector<std::int32_t> index{0, 3, 1, 1, 2, 0, 0, 3, 2, 2};
        const auto view = [&](std::vector<double>& v) {
          if (shape == 1) return tensor(v.data(), {p.batch, p.tokens, c});
          if (shape == 2) return tensor(v.data(), {p.batch, p.tokens, p.q_heads, c});
          return tensor(v.data(), {rows, c});
        };
        CallerRows table;
        table.layout = layout;
        table.cos = view(cos), table.sin = view(sin);
        if (shape == 3) {
          table.index = positions(std::span<const std::int32_t>(index.data(), 5));
          table.index.batch = 2, table.index.batch_stride = 5;
        }
        const RotaryPlan plan(p.spec, DType::f64);
        const QK x{p.view(p.q, p.q_heads), p.view(p.k, p.k_heads)};
        const QK g{p.view(p.gq, p.q_heads), p.view(p.gk, p.k_heads)};
        const auto loss = [&] {
          std::vector<double> y = p.q, z = p.k;
          plan.apply_rows(x, {p.view(y, p.q_heads), p.view(z, p.k_heads)}, table);
          double sum = 0;
          for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * p.gq[i];
          for (std::size_t i = 0; i < z.size(); ++i) sum += z[i] * p.gk[i];
          return sum;
        };
        plan.row_gradients(x, g, table, {view(d_cos), view(d_sin)}, inline_executor());
        for (std::size_t i = 0; i < cos.size(); ++i) {
          EXPECT_NEAR(d_cos[i], slope(cos[i], loss), 1e-8) << shape << " cos " << i;
          EXPECT_NEAR(d_sin[i], slope(sin[i], loss), 1e-8) << shape << " sin " << i;
        }
        // The gradient of x is the transpose, whatever the numbers are.
        std::vector<double> d = p.gq;
        plan.apply_rows({p.view(d, p.q_heads), {}}, {p.view(d, p.q_heads), {}}, table,
                        RotateMode::gradient);
        for (std::size_t i = 0; i < p.q.size(); i += 5)
          EXPECT_NEAR(d[i], slope(p.q[i], loss), 1e-8) << shape << " q " << i;
        // And the inverse undoes it.
        std::vector<double> back = p.q;
        const QK there{p.view(back, p.q_heads), {}};
        plan.apply_rows(there, there, table);
        plan.apply_rows(there, there, table, RotateMode::inverse);
        for (std::size_t i = 0; i < back.size(); ++i) EXPECT_NEAR(back[i], p.q[i], 1e-9) << i;
        std::vector<double> a(cos.size()), b(cos.size());
        plan.row_gradients(x, g, table, {view(a), view(b)}, threads(3));
        EXPECT_EQ(a, d_cos);
        EXPECT_EQ(b, d_sin);
      }
}

}  // namespace
}  // namespace posenc
