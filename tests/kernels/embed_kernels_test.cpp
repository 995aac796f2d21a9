// SPDX-License-Identifier: Apache-2.0
// Sums of rows with LayerNorm, their gradient and weighted sums of 16-bit rows on every instruction
// set, against long double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/convert.h"
#include "core/element.h"
#include "kernels/embed_back.h"
#include "kernels/embed_rows.h"
#include "kernels/weighted_sum.h"
#include "support/random.h"

namespace posenc {
namespace {

using Real = long double;
constexpr double kEpsilon = 1e-5;
const std::vector<Index> kSizes{1, 2, 7, 8, 9, 15, 16, 33, 64, 100, 771};
const std::vector<DType> kTypes{DType::f64, DType::f32, DType::f16, DType::bf16};

// Elements of a float type from the beginning of a line on, with a guard behind them.
class Elements {
 public:
  Elements(DType type, Index n)
      : type_(type), n_(n), memory_(static_cast<std::size_t>((n + 1) * 8 + 64)) {}
  void* data() { return memory_.data() + at(); }
  const void* data() const { return memory_.data() + at(); }
  void set(Index i, double x) { detail::put_element(data(), type_, i, x); }
  double get(Index i) const { return detail::float_element(data(), type_, i); }
  void guard() { set(n_, 7); }
  bool guarded() const { return get(n_) == 7; }

 private:
  std::size_t at() const {
    return (64 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64) % 64;
  }
  DType type_;
  Index n_;
  std::vector<std::byte> memory_;
};
Elements random_row(DType type, Index n, std::uint64_t seed, double mean) {
  test::Random random(seed);
  Elements e(type, n);
  for (Index i = 0; i < n; ++i) e.set(i, random.normal() + mean);
  return e;
}

// `got` is the number of its type that lies nearest to `want`, but for what double lost.
void expect_nearest(DType type, double got, Real want, Real lost) {
  if (type == DType::f64) {
    EXPECT_NEAR(got, static_cast<double>(want), static_cast<double>(lost));
    return;
  }
  double nearest = 0;
  detail::put_element(&nearest, type, 0, static_cast<double>(want));
  nearest = detail::float_element(&nearest, type, 0);
  EXPECT_LE(std::abs(got - want), std::abs(nearest - want) + lost) << got << " for " << want;
}

// Tokens that read three tables; the second and third token share all but row 0 with the first.
struct Tokens {
  static constexpr Index kCount = 5;
  Index parts, width;
  std::vector<double> weight{1.5, 1, -0.75};
  std::vector<Elements> row;
  std::vector<const void*> rows;
  std::vector<Index> read;  // of each token and part

  Tokens(DType type, Index n_parts, Index n, double mean) : parts(n_parts), width(n) {
    for (std::uint64_t k = 0; k < 12; ++k) row.push_back(random_row(type, n, 100 + k, mean));
    for (Index i = 0; i < kCount + detail::kEmbedAhead; ++i)
      for (Index k = 0; k < parts; ++k) {
        read.push_back(k == 0 ? std::min<Index>(i, kCount - 1) : 5 + 2 * k + (i > 2 ? 1 : 0));
        rows.push_back(row[static_cast<std::size_t>(read.back())].data());
      }
  }
  std::vector<Real> sum(Index token) const {
    std::vector<Real> s(static_cast<std::size_t>(width), 0);
    for (Index k = 0; k < parts; ++k)
      for (Index c = 0; c < width; ++c)
        s[static_cast<std::size_t>(c)] +=
            Real{weight[static_cast<std::size_t>(k)]} *
            row[static_cast<std::size_t>(read[static_cast<std::size_t>(token * parts + k)])].get(c);
    return s;
  }
};
void normalise(std::vector<Real>& s, Real& mean, Real& deviation) {
  mean = 0;
  Real variance = 0;
  const auto n = static_cast<Real>(s.size());
  for (const Real x : s) mean += x / n;
  for (const Real x : s) variance += (x - mean) * (x - mean) / n;
  deviation = std::sqrt(variance + Real{kEpsilon});
  for (Real& x : s) x = (x - mean) / deviation;
}

// mean: 0, where sums of squares serve, and far off, where they do not.
void check_rows(Isa isa, DType type, Index parts, Index width, double mean, bool norm, bool gamma,
                bool stream) {
  SCOPED_TRACE(std::string(isa_name(isa)) + " " + std::string(dtype_name(type)) + " " +
               std::to_string(parts) + " parts of " + std::to_string(width) +
               (norm ? " norm" : "") + (gamma ? " gamma" : "") + (stream ? " stream" : "") +
               " mean " + std::to_string(mean));
  Tokens t(type, parts, width, mean);
  test::Random random(3);
  const auto g = random.normals<double>(static_cast<std::size_t>(width) + 64);
  const auto b = random.normals<double>(static_cast<std::size_t>(width) + 64);
  std::vector<Elements> y;
  std::vector<void*> out;
  for (Index i = 0; i < Tokens::kCount; ++i) y.emplace_back(type, width);
  for (Elements& e : y) e.guard(), out.push_back(e.data());
  std::vector<double> scratch(static_cast<std::size_t>(detail::embed_scratch(width)));
  detail::embed_kernels(isa, type).rows(
      {t.rows.data(), out.data(), t.weight.data(), parts, Tokens::kCount, width, norm, stream,
       kEpsilon, gamma ? g.data() : nullptr, gamma ? b.data() : nullptr, scratch.data()});
  for (Index i = 0; i < Tokens::kCount; ++i) {
    std::vector<Real> s = t.sum(i);
    Real middle = 0, deviation = 1;
    if (norm) normalise(s, middle, deviation);
    const Real lost =
        Real{2e-15} * (4 + std::abs(middle) / deviation) * (norm && type != DType::f64 ? 1000 : 1);
    EXPECT_TRUE(y[static_cast<std::size_t>(i)].guarded()) << "written beyond the row";
    for (Index c = 0; c < width; ++c) {
      const auto k = static_cast<std::size_t>(c);
      const Real want = gamma ? s[k] * g[k] + b[k] : s[k];
      expect_nearest(type, y[static_cast<std::size_t>(i)].get(c), want,
                     lost * (1 + std::abs(want) + std::abs(b[k])));
    }
  }
}

TEST(EmbedKernels, SumsAndNormsOnEveryInstructionSet) {
  for (const Isa isa : supported_isas())
    for (const DType type : kTypes)
      for (const Index width : kSizes) {
        for (const Index parts : {1, 2, 3})
          check_rows(isa, type, parts, width, 0, false, false, false);
        for (const double mean : {0.0, 400.0})
          check_rows(isa, type, 3, width, mean, true, false, false);
        check_rows(isa, type, 1, width, 0.25, true, true, false);
        check_rows(isa, type, 2, width, 0.25, true, true, false);
        if (width % 64 == 0) {
          check_rows(isa, type, 2, width, 0, false, false, true);
          check_rows(isa, type, 3, width, 0, true, false, true);
          check_rows(isa, type, 3, width, 0, true, true, true);
        }
      }
}

void check_back(Isa isa, DType type, Index width, double mean, bool with_gamma) {
  SCOPED_TRACE(std::string(isa_name(isa)) + " " + std::string(dtype_name(type)) + " " +
               std::to_string(width) + (with_gamma ? " gamma" : "") + " mean " +
               std::to_string(mean));
  const auto size = static_cast<std::size_t>(width);
  const Elements row = random_row(type, width, 1, mean), up = random_row(type, width, 2, 0);
  test::Random random(3);
  const auto base = random.normals<double>(size), gamma = random.normals<double>(size);
  std::vector<Real> z;
  for (Index c = 0; c < width; ++c)
    z.push_back(Real{2} * row.get(c) + base[static_cast<std::size_t>(c)]);
  Real middle = 0, deviation = 1, sum = 0, along = 0;
  normalise(z, middle, deviation);
  std::vector<Real> g;
  for (std::size_t i = 0; i < size; ++i) {
    g.push_back(Real{up.get(static_cast<Index>(i))} * (with_gamma ? gamma[i] : 1));
    sum += g[i] / static_cast<Real>(width), along += g[i] * z[i] / static_cast<Real>(width);
  }
  std::vector<double> s(size + 16), d(size + 16), d_alone(size + 16);
  std::vector<double> d_gamma(size, 0.5), d_beta(size, 0.25);
  detail::EmbedBack call{row.data(), 2,        base.data(),
                         row.data(), nullptr,  0,
                         width,      kEpsilon, with_gamma ? gamma.data() : nullptr,
                         up.data(),  s.data(), d_alone.data(),
                         nullptr,    nullptr};
  call.target = reinterpret_cast<const std::byte*>(s.data());
  const auto back = detail::embed_back_kernels(isa).back(type);
  back(call);
  call.d = d.data(), call.d_gamma = d_gamma.data(), call.d_beta = d_beta.data();
  back(call);
  const Real lost =
      Real{4e-15} * (4 + std::abs(middle) / deviation) * (type == DType::f64 ? 1 : 500);
  for (std::size_t i = 0; i < size; ++i) {
    const auto near = [&](double got, Real want, Real scale) {
      EXPECT_NEAR(got, static_cast<double>(want), static_cast<double>(lost * scale)) << i;
    };
    const Real u = up.get(static_cast<Index>(i));
    near(d[i], (g[i] - sum - z[i] * along) / deviation,
         (1 + std::abs(g[i]) + std::abs(z[i])) / deviation);
    near(d_gamma[i], Real{0.5} + u * z[i], 1 + std::abs(u));
    EXPECT_EQ(d_beta[i], 0.25 + up.get(static_cast<Index>(i)));
    EXPECT_EQ(d_alone[i], d[i]) << "sums that nobody wants change nothing";
  }
}

TEST(EmbedKernels, GradientsOnEveryInstructionSet) {
  for (const Isa isa : supported_isas())
    for (const DType type : kTypes)
      for (const Index width : kSizes)
        for (const double mean : {0.0, 3.0, 400.0})
          for (const bool gamma : {false, true}) check_back(isa, type, width, mean, gamma);
}

template <class Row, class To>
void check_added(Isa isa, Index n) {
  std::vector<Row> row;
  std::vector<To> to(static_cast<std::size_t>(n) + 1, To{7});
  std::vector<double> sum(static_cast<std::size_t>(n) + 1, 7);
  for (Index i = 0; i < n; ++i) row.push_back(static_cast<Row>(i % 19 - 9) / 4);
  const detail::EmbedBackKernels& k = detail::embed_back_kernels(isa);
  constexpr bool f32_row = sizeof(Row) == 4;
  k.add(f32_row, sizeof(To) == 4)({row.data(), 0.75, n, to.data()});
  const auto accumulate = f32_row ? k.accumulate_f32 : k.accumulate_f64;
  accumulate({row.data(), -3, n, sum.data(), true});
  accumulate({row.data(), 0.5, n, sum.data(), false});
  for (Index i = 0; i < n; ++i) {  // exact: the products have few bits
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(to[at], static_cast<To>(7 + 0.75 * static_cast<double>(row[at])));
    EXPECT_EQ(sum[at], -2.5 * static_cast<double>(row[at]));
  }
  EXPECT_EQ(to.back(), 7);
  EXPECT_EQ(sum.back(), 7);
}

TEST(EmbedKernels, AddedAndAccumulatedRows) {
  for (const Isa isa : supported_isas())
    for (const Index n : kSizes) {
      SCOPED_TRACE(std::string(isa_name(isa)) + " " + std::to_string(n));
      check_added<double, double>(isa, n);
      check_added<double, float>(isa, n);
      check_added<float, double>(isa, n);
      check_added<float, float>(isa, n);
    }
}

TEST(WeightedSumKernels, SixteenBitRowsOnEveryInstructionSet) {
  test::Random random(5);
  for (const Index n : kSizes) {
    const auto values = random.normals<float>(static_cast<std::size_t>(2 * n));
    std::vector<std::uint16_t> half, brain;
    for (const float x : values) half.push_back(f16_from(x)), brain.push_back(bf16_from(x));
    const double weight[] = {0.75, -3};
    for (const Isa isa : supported_isas())
      for (const DType type : {DType::f16, DType::bf16}) {
        const std::vector<std::uint16_t>& from = type == DType::f16 ? half : brain;
        const void* rows[] = {from.data(), from.data() + n};
        std::vector<double> out(static_cast<std::size_t>(n) + 1, 7);
        detail::weighted_sum_kernels(isa).into_f64(type)({rows, weight, 2, n, out.data()});
        const auto widened = [&](Index i) {
          const std::uint16_t bits = from[static_cast<std::size_t>(i)];
          return static_cast<double>(type == DType::f16 ? f32_from_f16(bits) : f32_from_bf16(bits));
        };
        for (Index i = 0; i < n; ++i)  // exact: the products have few bits
          EXPECT_EQ(out[static_cast<std::size_t>(i)], 0.75 * widened(i) - 3 * widened(n + i))
              << isa_name(isa) << " " << dtype_name(type) << " " << i << " of " << n;
        EXPECT_EQ(out.back(), 7) << "written beyond the row";
      }
  }
}

}  // namespace
}  // namespace posenc
