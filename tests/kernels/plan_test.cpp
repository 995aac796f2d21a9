// SPDX-License-Identifier: Apache-2.0
// Plans: refusals, empty tensors, several blocks, per-head spectra, xPos, threads, wide heads.
#include "posenc/rotary/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "posenc/positions/sequence.h"
#include "posenc/rotary/rope.h"
#include "support/random.h"
#include "support/rotate_reference.h"

namespace posenc {
namespace {

using test::Random;
using ::testing::HasSubstr;

template <class F>
void refuses(F&& f, const std::string& says) {
  try {
    f();
    ADD_FAILURE() << "not refused: " << says;
  } catch (const std::invalid_argument& e) {
    EXPECT_THAT(e.what(), HasSubstr("["));
    EXPECT_THAT(e.what(), HasSubstr(says));
  }
}
RotarySpec half(Index dim) {
  return resolve(Rope{.head_dim = dim, .pairing = Pairing::half_split});
}

TEST(Spec, Refusals) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  RotarySpec s = half(8);
  const auto with = [&](auto&& change) {
    RotarySpec r = s;
    change(r);
    return [r] { check_rotary(r); };
  };
  check_rotary(s);
  refuses(with([](auto& r) { r.head_dim = 7; }), "head_dim must be positive, even");
  refuses(with([](auto& r) { r.head_dim = 0; }), "head_dim");
  refuses(with([](auto& r) { r.head_dim = -8; }), "got -8");
  refuses(with([](auto& r) { r.head_dim = 65538; }), "65536");
  refuses(with([](auto& r) { r.head_dim = 6; }), "inside");
  refuses(with([](auto& r) { r.blocks[0].offset = 1; }), "inside");
  refuses(with([](auto& r) { r.blocks[0].offset = -1; }), "inside");
  refuses(with([](auto& r) { r.blocks[0].offset = kUnbounded; }), "inside");
  refuses(with([](auto& r) { r.blocks[0].pairing = Pairing::unset; }), "pairing");
  refuses(with([](auto& r) { r.blocks[0].direction = 2; }), "direction");
  refuses(with([](auto& r) { r.blocks[0].output_order = OutputOrder::even_then_odd; }),
          "interleaved");
  refuses(with([](auto& r) { r.blocks.push_back(r.blocks[0]); }), "overlap");
  refuses(with([&](auto& r) { r.blocks[0].spectrum.frequency[1] = nan; }), "frequency");
  refuses(with([&](auto& r) { r.blocks[0].spectrum.frequency[1] = inf; }), "frequency");
  refuses(with([&](auto& r) { r.blocks[0].spectrum.gain = nan; }), "gain");
  refuses(with([&](auto& r) { r.blocks[0].spectrum.gain = 0; }), "gain");
  refuses(with([&](auto& r) { r.blocks[0].spectrum.frequency.clear(); }), "pairs");
  refuses(with([&](auto& r) { r.blocks[0].log2_decay = {1, 2}; }), "log2_decay");
  refuses(with([&](auto& r) { r.blocks[0].log2_decay = {1, 2, 3, nan}; }), "log2_decay");
  refuses(with([&](auto& r) {
            r.blocks[0].log2_decay = {1, 2, 3, 4};
            r.blocks[0].decay_scale = 0;
          }),
          "decay_scale");
  refuses([&] { RotaryPlan(s, DType::i32); }, "dtype");
  s.precision = Precision::hf_bfloat16_table;
  refuses([&] { RotaryPlan(s, DType::f32); }, "hf_bfloat16_table");
}

TEST(Spec, FactsOfBlocks) {
  RotarySpec s = half(8);
  EXPECT_EQ(s.axes(), 1);
  EXPECT_EQ(s.logit_factor(), 1);
  EXPECT_EQ(RotarySpec{}.logit_factor(), 1);
  EXPECT_EQ(s.hash(), half(8).hash());
  RotarySpec other = s;
  other.blocks[0].spectrum.gain = 2;
  EXPECT_NE(s.hash(), other.hash());
  s.blocks[0].spectrum.valid_from = 10, s.blocks[0].spectrum.valid_to = 20;
  EXPECT_EQ(s.valid_from(), 10);
  EXPECT_EQ(s.valid_to(), 20);
  s.blocks.push_back(s.blocks[0]);
  s.blocks[1].spectrum.logit_factor = 2;
  refuses([&] { (void)s.logit_factor(); }, "logit factor");
}

TEST(Plan, RefusesCalls) {
  const RotaryPlan plan(half(8), DType::f32);
  std::vector<float> x(256), y(256);
  std::vector<double> wide(64);
  const Index p[] = {0, 1, 2};
  const Positions three = positions(p);
  const Heads q = heads(x.data(), 3, 2, 8), out = heads(y.data(), 3, 2, 8);
  const auto turn = [&](const QK& in, const QK& to, const Positions& at) {
    return [=] { plan.apply(in, to, at); };
  };
  plan.apply({q, {}}, three);
  refuses(turn({heads(wide.data(), 3, 2, 8), {}}, {out, {}}, three), "dtype");
  refuses(turn({heads(x.data(), 3, 2, 10), {}}, {out, {}}, three), "head size");
  refuses(turn({q, {}}, {heads(y.data(), 2, 2, 8), {}}, three), "tokens");
  refuses(turn({q, {}}, {heads(y.data(), 3, 1, 8), {}}, three), "heads");
  refuses(turn({q, {}}, {{}, {}}, three), "");
  refuses(turn({q, heads(y.data(), 2, 2, 8)}, {q, heads(y.data(), 2, 2, 8)}, three), "tokens");
  refuses(turn({q, {}}, {q, {}}, positions(std::span<const Index>(p, 2))), "position");
  for (Index Heads::*size : {&Heads::batch, &Heads::tokens, &Heads::heads}) {
    Heads less = q;
    less.*size = -1;
    refuses(turn({less, {}}, {less, {}}, three), "negative");
  }
  Positions bad = three;
  bad.axes = 2;
  refuses(turn({q, {}}, {q, {}}, bad), "1 axis, got 2");
  bad = three, bad.batch = 2;
  refuses(turn({q, {}}, {q, {}}, bad), "batch");
  bad = three, bad.type = DType::f32;
  refuses(turn({q, {}}, {q, {}}, bad), "i64");
  bad = three, bad.data = nullptr;
  refuses(turn({q, {}}, {q, {}}, bad), "memory");
  for (const double v : {std::nan(""), HUGE_VAL, -HUGE_VAL, 1e30}) {
    const double real[] = {0, v, 1};
    refuses(turn({q, {}}, {q, {}}, positions(real)), "finite");
  }
  const std::vector<float> fixed(48);
  const ConstHeads constant = heads(fixed.data(), 3, 2, 8);
  plan.apply({constant, {}}, {out, {}}, three);
  // Overlap: shifted by less than the tensor, the same start with other strides, q over k.
  refuses(turn({q, {}}, {heads(x.data() + 8, 3, 2, 8), {}}, three), "overlap");
  Heads turned = q;
  turned.dim_stride = 2, turned.head_stride = 1;
  refuses(turn({q, {}}, {turned, {}}, three), "overlap");
  refuses(turn({q, q}, {q, q}, three), "overlap");
  refuses(turn({q, out}, {out, heads(y.data() + 128, 3, 2, 8)}, three), "overlap");
  Heads broadcast = out;
  broadcast.head_stride = 0;
  refuses(turn({q, {}}, {broadcast, {}}, three), "stride");
  // The same memory by strides that are not 0: tokens half a head apart, heads as far as tokens.
  Heads windows = out;
  windows.token_stride = 4;
  refuses(turn({q, {}}, {windows, {}}, three), "share memory: its strides");
  windows = out, windows.token_stride = windows.head_stride;
  refuses(turn({q, {}}, {windows, {}}, three), "share memory");
  windows = q, windows.token_stride = 4;
  refuses(turn({windows, {}}, {windows, {}}, three), "share memory");
  plan.apply({windows, {}}, {out, {}}, three);  // an input may
  // Channels two apart, heads between them; all reversed: no element twice.
  Heads woven = out;
  woven.dim_stride = 2, woven.head_stride = 1;
  plan.apply({q, {}}, {woven, {}}, three);
  woven.data = y.data() + 47, woven.dim_stride = -2, woven.head_stride = -1;
  woven.token_stride = -16;
  plan.apply({q, {}}, {woven, {}}, three);
  // q, k and v in one packed tensor do not overlap.
  const Heads packed = heads(x.data(), 3, 6, 8);
  const QK qk{slice_heads(packed, 0, 2), slice_heads(packed, 2, 1)};
  plan.apply(qk, three);
  plan.apply({qk.q, {}}, {slice_heads(packed, 3, 2), {}}, three);
}

TEST(Plan, NothingToDo) {
  const RotaryPlan plan(half(8), DType::f32);
  std::vector<float> x(64, 1);
  const Positions none = positions(std::span<const Index>());
  plan.apply({heads(x.data(), 0, 2, 8), {}}, none);
  const Index p[] = {1, 2};
  plan.apply({heads(x.data(), 2, 0, 8), {}}, positions(p));
  plan.apply({heads(x.data(), 2, 0, 8), heads(x.data(), 2, 0, 8)}, positions(p));
  Heads numpy = heads(x.data(), 2, 0, 8);  // numpy gives empty arrays strides of 0
  numpy.batch_stride = numpy.token_stride = numpy.head_stride = numpy.dim_stride = 0;
  plan.apply({numpy, {}}, positions(p));
  // Rows of a cache, of which no tokens take none.
  const std::vector<float> cache(12, 1);
  const ConstTensorView rows = tensor(cache.data(), {3, 4});
  CallerRows caller{rows, rows, TableLayout::half, none};
  for (const Heads& q : {heads(x.data(), 0, 2, 8), heads(static_cast<float*>(nullptr), 0, 2, 8)})
    plan.apply_rows({q, {}}, {q, {}}, caller);
  EXPECT_EQ(x, std::vector<float>(64, 1));
  // An index has memory where there are tokens; it is not left out, though the rows would fit.
  caller.index.count = 3;
  const Heads three = heads(x.data(), 3, 2, 8);
  refuses([&] { plan.apply_rows({three, {}}, {three, {}}, caller); }, "index must have memory");
}

TEST(Plan, NoBlocksCopies) {
  RotarySpec s;
  s.head_dim = 6;
  const RotaryPlan plan(s, DType::f16);
  std::vector<std::uint16_t> x{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, y(12);
  const Index shape[] = {2, 1, 6}, p[] = {3, 4};
  const auto view = [&](auto& v) {
    return heads(tensor(static_cast<void*>(v.data()), DType::f16, shape), HeadsLayout::thd);
  };
  plan.apply({view(x), {}}, {view(y), {}}, positions(p));
  EXPECT_EQ(x, y);
}

// Two blocks, each with axes of its own, and channels around them.
TEST(Plan, SeveralBlocksAxesAndHeads) {
  RotarySpec s;
  s.head_dim = 34;
  Random random(1);
  for (const Index offset : {2, 18}) {
    RotaryBlock b;
    b.offset = offset, b.pairing = offset == 2 ? Pairing::half_split : Pairing::interleaved;
    b.spectrum.axes = offset == 2 ? 2 : 1, b.spectrum.heads = 3;
    for (int i = 0; i < 3 * b.spectrum.axes * 7; ++i)
      b.spectrum.frequency.push_back(random.uniform(-1, 1));
    b.spectrum.gain = offset == 2 ? 1.5 : 0.7;
    s.blocks.push_back(b);
  }
  const Index tokens = 4;
  const auto x = random.normals(static_cast<std::size_t>(tokens * 3 * 34));
  const std::vector<Index> p{3, -4, 100, 7, 9, 2, -8, 1};  // [2 axes, tokens]
  Positions at = positions(std::span<const Index>(p.data(), 4));
  at.axes = 2, at.axis_stride = 4;
  std::vector<double> y = x;
  const RotaryPlan plan(s, DType::f64);
  plan.apply({heads(y.data(), tokens, 3, 34), {}}, at);
  std::vector<double> rows(static_cast<std::size_t>(tokens * plan.row_columns()));
  const TensorView table = tensor(rows.data(), {tokens, plan.row_columns()});
  plan.rows(at, table);
  std::vector<double> z(x.size());
  std::vector<double> source = x;
  plan.apply_rows({heads(source.data(), tokens, 3, 34), {}}, {heads(z.data(), tokens, 3, 34), {}},
                  table);
  for (Index t = 0; t < tokens; ++t)
    for (Index h = 0; h < 3; ++h) {
      const auto base = static_cast<std::size_t>((t * 3 + h) * 34);
      std::vector<long double> want(x.begin() + static_cast<Index>(base),
                                    x.begin() + static_cast<Index>(base) + 34);
      for (const RotaryBlock& b : s.blocks)
        test::turn_head(b, RotateMode::forward, x.data() + base, want.data(), [&](Index k) {
          long double phi = 0;
          for (Index a = 0; a < b.spectrum.axes; ++a)
            phi +=
                static_cast<long double>(p[static_cast<std::size_t>(a * 4 + t)]) *
                b.spectrum.frequency[static_cast<std::size_t>((h * b.spectrum.axes + a) * 7 + k)];
          const long double g = b.spectrum.gain;
          return test::Matrix{g * cosl(phi), -g * sinl(phi), g * sinl(phi), g * cosl(phi)};
        });
      for (std::size_t i = 0; i < 34; ++i) {
        EXPECT_NEAR(y[base + i], static_cast<double>(want[i]), 1e-14) << t << h << i;
        EXPECT_NEAR(z[base + i], static_cast<double>(want[i]), 1e-14) << t << h << i;
      }
    }
  refuses([&] { plan.apply({heads(y.data(), tokens, 2, 34), {}}, at); }, "heads");
}

TEST(Plan, XposSenses) {
  RotarySpec s = resolve(Rope{.head_dim = 8, .pairing = Pairing::interleaved});
  const double zeta[] = {.285714, .464286, .642857, .821429};
  for (const double z : zeta) s.blocks[0].log2_decay.push_back(std::log2(z));
  s.blocks[0].decay_center = 2, s.blocks[0].spectrum.gain = 1.25;
  const RotaryPlan plan(s, DType::f64), plain(
                                            [&] {
                                              RotarySpec r = s;
                                              r.blocks[0].log2_decay.clear();
                                              return r;
                                            }(),
                                            DType::f64);
  Random random(2);
  const auto q = random.normals(8), k = random.normals(8);
  const Index p[] = {700};
  const auto turn = [&](const RotaryPlan& with, RotateMode sense) {
    std::pair r(q, k);
    with.apply({heads(r.first.data(), 1, 1, 8), heads(r.second.data(), 1, 1, 8)}, positions(p),
               sense);
    return r;
  };
  for (const RotateMode sense :
       {RotateMode::forward, RotateMode::gradient, RotateMode::inverse, RotateMode::shift}) {
    const auto with = turn(plan, sense), without = turn(plain, sense);
    for (std::size_t i = 0; i < 8; ++i) {
      double power = (700 - (sense == RotateMode::shift ? 0 : 2)) / 512.0;
      if (sense == RotateMode::inverse) power = -power;
      const double decay = std::pow(zeta[i / 2], power);
      EXPECT_NEAR(with.first[i], without.first[i] * decay, 1e-13);
      EXPECT_NEAR(with.second[i], without.second[i] / decay, 1e-13);
    }
  }
  std::vector<double> x(8), rows(8);
  refuses(
      [&] {
        plan.apply_rows({heads(x.data(), 1, 1, 8), {}}, {heads(x.data(), 1, 1, 8), {}},
                        tensor(rows.data(), {1, 8}));
      },
      "xPos");
}

void run_threads(void*, Index n, void (*task)(void*, Index), void* arg) {
  std::vector<std::thread> threads;
  for (Index i = n; i-- > 0;) threads.emplace_back(task, arg, i);
  for (auto& t : threads) t.join();
}

TEST(Plan, AnyNumberOfThreadsGivesTheSameBits) {
  const RotaryPlan plan(half(128), DType::f32);
  Random random(4);
  const auto x = random.normals<float>(300 * 10 * 128);
  std::vector<Index> p;
  for (Index i = 0; i < 300; ++i) p.push_back(i * 31);
  const auto turn = [&](const Executor& e) {
    std::vector<float> y = x;
    plan.apply({heads(y.data(), 300, 10, 128), {}}, {heads(y.data(), 300, 10, 128), {}},
               positions(std::span<const Index>(p)), RotateMode::forward, e);
    return y;
  };
  const auto want = turn(inline_executor());
  for (const Index n : {2, 3, 7}) {
    Executor e;
    e.concurrency = n, e.run = run_threads;
    EXPECT_EQ(turn(e), want) << n;
  }
  EXPECT_EQ(turn(default_executor()), want);
}

TEST(Plan, OnePlanFromManyThreads) {
  const RotaryPlan plan(half(64), DType::bf16);
  std::vector<std::uint16_t> x(8 * 4 * 64, 0x3f80);
  const Index shape[] = {8, 4, 64}, p[] = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<std::vector<std::uint16_t>> results(4, x);
  std::vector<std::thread> threads;
  for (auto& r : results)
    threads.emplace_back([&] {
      const RotaryPlan copy = plan;
      const Heads h =
          heads(tensor(static_cast<void*>(r.data()), DType::bf16, shape), HeadsLayout::thd);
      copy.apply({h, {}}, positions(p));
    });
  for (auto& t : threads) t.join();
  for (const auto& r : results) EXPECT_EQ(r, results[0]);
  EXPECT_NE(results[0], x);
}

TEST(Plan, WidestHead) {
  for (const OutputOrder order : {OutputOrder::in_place, OutputOrder::even_then_odd}) {
    Rope rope{.head_dim = 65536, .pairing = Pairing::interleaved};
    rope.output_order = order;
    const RotaryPlan plan(resolve(rope), DType::f32);
    Random random(9);
    const auto x = random.normals<float>(65536);
    std::vector<float> y = x, z(65536), source = x;
    const Index p[] = {12345};
    plan.apply({heads(y.data(), 1, 1, 65536), {}}, positions(p));
    plan.apply({heads(source.data(), 1, 1, 65536), {}}, {heads(z.data(), 1, 1, 65536), {}},
               positions(p));
    EXPECT_EQ(y, z);
    plan.apply({heads(y.data(), 1, 1, 65536), {}}, positions(p), RotateMode::inverse);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 2e-6) << i;
  }
}

}  // namespace
}  // namespace posenc
