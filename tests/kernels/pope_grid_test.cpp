// SPDX-License-Identifier: Apache-2.0
// PoPE at awkward sizes and strides, in every dtype and on every instruction set, against the
// formula in long double; the same bits however a call is split.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <random>
#include <vector>

#include "core/convert.h"
#include "posenc/core/isa.h"
#include "posenc/rotary/pope.h"

namespace posenc {
namespace {

constexpr Index kBatch = 2, kTokens = 3, kHeads = 3;
// Long double holds their angles to 6e-17; pope_accuracy_test goes further.
const Index kAt[kBatch * kTokens] = {0, 5, 1023, -7, 514, 2};
constexpr DType kTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
constexpr std::byte kGuard{0x5a};

double narrowed(DType type, double x) {
  switch (type) {
    case DType::f64:
      return x;
    case DType::f32:
      return static_cast<float>(x);
    case DType::f16:
      return f32_from_f16(f16_from(x));
    default:
      return f32_from_bf16(bf16_from(x));
  }
}

// A tensor [batch, tokens, heads, dim] whose elements stand `step` apart, with guards all around.
struct Block {
  DType type;
  Index dim, step, token;
  std::vector<std::byte> bytes;

  Block(DType t, Index d, Index s)
      : type(t),
        dim(d),
        step(s),
        token(kHeads * d * s + 5),
        bytes(static_cast<std::size_t>((kBatch * kTokens * token + 16) * size_of(t)), kGuard) {}
  Heads view() {
    Heads h;
    h.data = bytes.data() + 8 * size_of(type);
    h.batch = kBatch, h.tokens = kTokens, h.heads = kHeads, h.dim = dim, h.dtype = type;
    h.batch_stride = kTokens * token, h.token_stride = token;
    h.head_stride = dim * step, h.dim_stride = step;
    return h;
  }
  std::size_t place(Index row, Index head, Index i) const {
    return static_cast<std::size_t>((8 + row * token + (head * dim + i) * step) * size_of(type));
  }
  void put(Index row, Index head, Index i, double x) {
    const float f = static_cast<float>(x);
    const std::uint16_t half = type == DType::f16 ? f16_from(x) : bf16_from(x);
    const void* from = type == DType::f64   ? static_cast<const void*>(&x)
                       : type == DType::f32 ? static_cast<const void*>(&f)
                                            : static_cast<const void*>(&half);
    std::memcpy(bytes.data() + place(row, head, i), from, static_cast<std::size_t>(size_of(type)));
  }
  double get(Index row, Index head, Index i) const {
    double x = 0;
    float f = 0;
    std::uint16_t half = 0;
    void* to = type == DType::f64   ? static_cast<void*>(&x)
               : type == DType::f32 ? static_cast<void*>(&f)
                                    : static_cast<void*>(&half);
    std::memcpy(to, bytes.data() + place(row, head, i), static_cast<std::size_t>(size_of(type)));
    if (type == DType::f64) return x;
    if (type == DType::f32) return static_cast<double>(f);
    return type == DType::f16 ? f32_from_f16(half) : f32_from_bf16(half);
  }
  // Whether everything between the elements is as it was.
  bool guarded() const {
    std::vector<bool> inside(bytes.size());
    for (Index row = 0; row < kBatch * kTokens; ++row)
      for (Index head = 0; head < kHeads; ++head)
        for (Index i = 0; i < dim; ++i)
          for (Index k = 0; k < size_of(type); ++k)
            inside[place(row, head, i) + static_cast<std::size_t>(k)] = true;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (!inside[i] && bytes[i] != kGuard) return false;
    return true;
  }
};

// Which numbers come in; the smallest floats of every dtype go out of -14 to -90.
double number(std::mt19937& gen) {
  const double x = static_cast<double>(gen() % 4096) / 256 - 8;
  return gen() % 4 != 0 ? x : x * 12;
}

struct Case {
  DType type;
  Index channels, step;
  bool keys;
  Block in, out, d_in;
  std::vector<double> bias, d_bias;

  Case(DType t, Index d, Index s, bool learned)
      : type(t), channels(d), step(s), keys(learned), in(t, d, s), out(t, 2 * d, s), d_in(t, d, s) {
    std::mt19937 gen(static_cast<unsigned>(d));
    for (Index r = 0; r < kBatch * kTokens; ++r)
      for (Index h = 0; h < kHeads; ++h)
        for (Index i = 0; i < d; ++i) in.put(r, h, i, number(gen));
    for (Index i = 0; learned && i < kHeads * d; ++i)  // on both sides of the clamp's ends too
      bias.push_back(1 - static_cast<double>(gen() % 1000) / 110);
    if (learned) d_bias.assign(static_cast<std::size_t>(kHeads * d * step), 0.25);
  }
  TensorView bias_view() { return keys ? tensor(bias.data(), {kHeads, channels}) : TensorView{}; }
  TensorView d_bias_view() {
    if (!keys) return {};
    TensorView v = tensor(d_bias.data(), {kHeads, channels});
    v.stride[0] = channels * step, v.stride[1] = step;
    return v;
  }
  double raw_bias(Index h, Index i) const {
    return keys ? bias[static_cast<std::size_t>(h * channels + i)] : 0;
  }
  std::string text() const {
    return std::string(dtype_name(type)) + " " + std::to_string(channels) + " channels, stride " +
           std::to_string(step) + (keys ? " keys" : " queries");
  }
  static Positions at() {
    Positions p = positions(kAt);
    p.batch = kBatch, p.count = kTokens, p.batch_stride = kTokens;
    return p;
  }
  void forward(const Executor& e = inline_executor()) {
    PopePlan(Pope{.head_dim = channels}, type).apply(in.view(), out.view(), at(), bias_view(), e);
  }
  void backward(const Executor& e = inline_executor()) {
    PopePlan(Pope{.head_dim = channels}, type)
        .gradient(in.view(), out.view(), at(), bias_view(), d_in.view(), d_bias_view(), e);
  }
};

struct Reference {
  long double length, slope, cosine, sine;
};
Reference reference(const Case& c, const Spectrum& s, Index row, Index head, Index i) {
  const long double x = c.in.get(row, head, i);
  const long double raw = c.raw_bias(head, i);
  const long double shift = std::min(0.0L, std::max<long double>(-2 * std::numbers::pi, raw));
  const long double angle =
      static_cast<long double>(kAt[row]) * s.frequency[static_cast<std::size_t>(i)] + shift;
  return {log1pl(expl(x)), 1 / (1 + expl(-x)), cosl(angle), sinl(angle)};
}

// One rounding of a number within `room` of `exact`.
void expect_rounded(DType type, double got, long double exact, long double room) {
  EXPECT_GE(got, narrowed(type, static_cast<double>(exact - room))) << exact;
  EXPECT_LE(got, narrowed(type, static_cast<double>(exact + room))) << exact;
}

// Of ln(1 + e^x), its slope, cosine and sine before the rounding, as pope.h promises.
long double room_of(DType type) {
  return type == DType::f64 ? 1e-15L : 7.1e-11L;
}

void check_forward(Case& c) {
  c.forward();
  const long double room = room_of(c.type);
  const Spectrum s = Pope{.head_dim = c.channels}.spectrum();
  for (Index r = 0; r < kBatch * kTokens; ++r)
    for (Index h = 0; h < kHeads; ++h)
      for (Index i = 0; i < c.channels; ++i) {
        const Reference e = reference(c, s, r, h, i);
        expect_rounded(c.type, c.out.get(r, h, i), e.length * e.cosine, room * e.length);
        expect_rounded(c.type, c.out.get(r, h, c.channels + i), e.length * e.sine, room * e.length);
      }
  EXPECT_TRUE(c.out.guarded());
}

// What came out serves as the gradient that comes in.
void check_backward(Case& c) {
  c.backward();
  const long double room = room_of(c.type);
  const Spectrum s = Pope{.head_dim = c.channels}.spectrum();
  for (Index h = 0; h < kHeads; ++h)
    for (Index i = 0; i < c.channels; ++i) {
      long double sum = 0.25L, size = 0.25L;
      for (Index r = 0; r < kBatch * kTokens; ++r) {
        const Reference e = reference(c, s, r, h, i);
        const long double gc = c.out.get(r, h, i), gs = c.out.get(r, h, c.channels + i);
        const long double whole = fabsl(gc) + fabsl(gs);
        expect_rounded(c.type, c.d_in.get(r, h, i), e.slope * (gc * e.cosine + gs * e.sine),
                       1.5L * room * e.slope * whole);
        sum += e.length * (gs * e.cosine - gc * e.sine), size += e.length * whole;
      }
      if (!c.keys) continue;
      const double raw = c.raw_bias(h, i);
      const bool open = raw < 0 && raw > -2 * std::numbers::pi;
      const double got = c.d_bias[static_cast<std::size_t>((h * c.channels + i) * c.step)];
      if (open)
        EXPECT_NEAR(got, static_cast<double>(sum), static_cast<double>(2 * room * size));
      else
        EXPECT_EQ(got, 0.25);
    }
  EXPECT_TRUE(c.d_in.guarded());
}

class PopeGrid : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { reset_isa(); }
};

TEST_P(PopeGrid, AwkwardSizes) {
  for (const DType type : kTypes)
    for (const Index channels : {1, 3, 7, 9, 64, 100, 300})
      for (const Index step : {1, 3})
        for (const bool keys : {false, true}) {
          Case c(type, channels, step, keys);
          SCOPED_TRACE(c.text());
          check_forward(c);
          check_backward(c);
          if (HasFailure()) return;
        }
}

// Every 16-bit number goes in, NaN and infinities too; the wide result is the same in bits.
TEST_P(PopeGrid, EveryHalf) {
  for (const DType type : {DType::f16, DType::bf16}) {
    constexpr Index kCount = 32768;
    std::vector<std::uint16_t> x(2 * kCount), y(4 * kCount);
    std::vector<double> wide(2 * kCount), wide_y(4 * kCount);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<std::uint16_t>(i);
      wide[i] = type == DType::f16 ? f32_from_f16(x[i]) : f32_from_bf16(x[i]);
    }
    const Index at[] = {3, 4}, in[] = {2, 1, kCount}, out[] = {2, 1, 2 * kCount};
    PopePlan(Pope{.head_dim = kCount}, type)
        .apply(heads(tensor(static_cast<void*>(x.data()), type, in), HeadsLayout::thd),
               heads(tensor(static_cast<void*>(y.data()), type, out), HeadsLayout::thd),
               positions(at));
    PopePlan(Pope{.head_dim = kCount}, DType::f64)
        .apply(heads(wide.data(), 2, 1, kCount), heads(wide_y.data(), 2, 1, 2 * kCount),
               positions(at));
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (std::isnan(wide_y[i])) {
        EXPECT_TRUE(std::isnan(type == DType::f16 ? f32_from_f16(y[i]) : f32_from_bf16(y[i])));
        continue;
      }
      ASSERT_EQ(y[i], type == DType::f16 ? f16_from(wide_y[i]) : bf16_from(wide_y[i]))
          << dtype_name(type) << " " << wide_y[i];
    }
  }
}

// A little beside half of the smallest bfloat16: rounded to float first, it would be the half
// itself.
TEST_P(PopeGrid, OneRoundingOfTheSmallest) {
  std::vector<std::uint16_t> x, g(20, 0), d(10), want;
  for (int i = 0; i < 10; ++i) {
    const bool up = i % 2 == 0;
    x.push_back(bf16_from(up ? 0x1p-20 : -0x1p-20));  // slope 1/2 +- 2^-22
    g[static_cast<std::size_t>(i)] = up ? 1 : 3;      // x 2^-133
    want.push_back(1);
  }
  const Index at[] = {0}, in[] = {1, 1, 10}, out[] = {1, 1, 20};
  const auto view = [](std::vector<std::uint16_t>& v, const Index(&shape)[3]) {
    return heads(tensor(static_cast<void*>(v.data()), DType::bf16, shape), HeadsLayout::thd);
  };
  PopePlan(Pope{.head_dim = 10}, DType::bf16)
      .gradient(view(x, in), view(g, out), positions(at), {}, view(d, in));
  EXPECT_EQ(d, want);
}

// Tasks one after the other, the last first: a split shows where tasks are not alone.
Executor backwards(Index tasks) {
  return {nullptr, tasks, [](void*, Index n, void (*task)(void*, Index), void* arg) {
            for (Index i = n; i-- > 0;) task(arg, i);
          }};
}

TEST_P(PopeGrid, AnySplitGivesTheSameBits) {
  for (const DType type : {DType::f64, DType::bf16})
    for (const Index step : {1, 2}) {
      Case whole(type, 300, 1, true);
      whole.forward(), whole.backward();
      for (const Index tasks : {2, 3, 5, 6, 100}) {
        Case c(type, 300, step, true);
        c.forward(backwards(tasks)), c.backward(backwards(tasks));
        SCOPED_TRACE(c.text() + " in " + std::to_string(tasks));
        for (Index r = 0; r < kBatch * kTokens; ++r)
          for (Index h = 0; h < kHeads; ++h)
            for (Index i = 0; i < 600; ++i) {
              ASSERT_EQ(c.out.get(r, h, i), whole.out.get(r, h, i));
              if (i >= 300) continue;
              ASSERT_EQ(c.d_in.get(r, h, i), whole.d_in.get(r, h, i));
            }
        for (std::size_t i = 0; i < whole.d_bias.size(); ++i)
          ASSERT_EQ(c.d_bias[i * static_cast<std::size_t>(step)], whole.d_bias[i]);
      }
    }
}

// A token alone is as it is among others.
TEST_P(PopeGrid, TokensAlone) {
  Case whole(DType::f32, 100, 1, true), c(DType::f32, 100, 1, true);
  whole.forward(), whole.backward();
  const PopePlan plan(Pope{.head_dim = 100}, DType::f32);
  const auto one = [](Heads h, Index row) {
    h.data = static_cast<float*>(h.data) + row * h.token_stride;
    h.batch = h.tokens = 1;
    return h;
  };
  for (Index r = 0; r < kBatch * kTokens; ++r) {
    const Positions p = positions(std::span(kAt + r, 1));
    plan.apply(one(c.in.view(), r), one(c.out.view(), r), p, c.bias_view());
    plan.gradient(one(c.in.view(), r), one(c.out.view(), r), p, c.bias_view(),
                  one(c.d_in.view(), r), c.d_bias_view());
  }
  EXPECT_EQ(c.out.bytes, whole.out.bytes);
  EXPECT_EQ(c.d_in.bytes, whole.d_in.bytes);
  EXPECT_EQ(c.d_bias, whole.d_bias);
}

INSTANTIATE_TEST_SUITE_P(All, PopeGrid, ::testing::ValuesIn(supported_isas()),
                         [](const auto& isa) { return std::string(isa_name(isa.param)); });

}  // namespace
}  // namespace posenc
