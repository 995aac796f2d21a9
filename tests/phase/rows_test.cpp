// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "core/convert.h"
#include "phase/reference.h"
#include "posenc/core/isa.h"
#include "posenc/phase.h"

namespace posenc {
namespace {

constexpr double kBases[] = {1e4, 5e5, 1e6, 1.5e5};
const std::vector<Index> kPositions{
    0,         1,          -1,          4095,           131071,
    1048575,   2147483647, -2147483648, Index{1} << 37, -(Index{1} << 37),
    268435455, 268435456,  -268435457};
// Half a unit in the last place of values in [1/2, 1], and what double arithmetic adds.
constexpr double kF32 = 3.0e-8, kF64 = 2.3e-16;

class EveryIsa : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { reset_isa(); }
};
std::string isa_name(const ::testing::TestParamInfo<Isa>& i) {
  return std::string(isa_name(i.param));
}

template <class T>
struct Rows {
  std::vector<T> cos, sin;
};
template <class T>
Rows<T> rows_of(const Spectrum& s, const Positions& p, TableLayout layout = TableLayout::half,
                Precision precision = Precision::exact) {
  const Index columns = s.heads * s.pairs() * (layout == TableLayout::half ? 1 : 2);
  const Index rows = p.batch * p.count;
  Rows<T> r;
  r.cos.assign(static_cast<std::size_t>(rows * columns), T(7));
  r.sin = r.cos;
  phase_rows(s, p, tensor(r.cos.data(), {rows, columns}), tensor(r.sin.data(), {rows, columns}),
             layout, precision);
  return r;
}

template <class T, class P>
double worst(const Spectrum& s, const std::vector<P>& positions_, const Rows<T>& r) {
  test::Angle angle;
  double e = 0;
  const auto n = static_cast<std::size_t>(s.pairs());
  for (std::size_t t = 0; t < positions_.size(); ++t)
    for (std::size_t i = 0; i < n; ++i) {
      angle.clear();
      angle.add(positions_[t], s.frequency[i]);
      angle.done();
      e = std::max({e, angle.cos_error(static_cast<double>(r.cos[t * n + i]), s.gain),
                    angle.sin_error(static_cast<double>(r.sin[t * n + i]), s.gain)});
    }
  return e;
}

TEST_P(EveryIsa, RowsMeetTheirBoundsAtEveryPosition) {
  double f32 = 0, f64 = 0;
  for (const double base : kBases)
    for (const Index width : {Index{2}, Index{10}, Index{128}}) {
      const Spectrum s = geometric_spectrum(base, width);
      const Positions p = positions(kPositions);
      f32 = std::max(f32, worst(s, kPositions, rows_of<float>(s, p)));
      f64 = std::max(f64, worst(s, kPositions, rows_of<double>(s, p)));
    }
  RecordProperty("f32", std::to_string(f32));
  std::printf("  %-8s f32 %.4g  f64 %.4g\n", std::string(isa_name(GetParam())).c_str(), f32, f64);
  EXPECT_LE(f32, kF32);
  EXPECT_LE(f64, kF64);
  EXPECT_GT(f64, 0);
}

TEST_P(EveryIsa, RunsOfPositionsMeetTheSameBound) {
  for (const Index start : {Index{-700}, Index{0}, Index{131072 - 300}, Index{(1 << 28) - 300},
                            Index{2147483647} - 100, (Index{1} << 37) - 256}) {
    std::vector<Index> p(600);
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = start + static_cast<Index>(i);
    for (const Index width : {Index{6}, Index{38}, Index{128}}) {
      Spectrum s = geometric_spectrum(1e4, width);
      EXPECT_LE(worst(s, p, rows_of<float>(s, positions(p))), kF32) << start;
    }
  }
}

TEST_P(EveryIsa, RandomPositionsWithManyPairs) {
  std::mt19937_64 random(5);
  std::vector<Index> p(17);
  for (Index& x : p) x = static_cast<Index>(random() % 1000000) - 500000;
  const Spectrum s = geometric_spectrum(1e4, 2 * 300);  // more than one chunk
  EXPECT_LE(worst(s, p, rows_of<float>(s, positions(p))), kF32);
  EXPECT_LE(worst(s, p, rows_of<double>(s, positions(p))), kF64);
}

TEST_P(EveryIsa, SixteenBitRowsAreRoundedOnce) {
  std::vector<Index> p = kPositions;
  for (Index i = 0; i < 300; ++i) p.push_back(4096 + i);
  Spectrum s = geometric_spectrum(1e4, 70);
  s.frequency.back() = 1e-12;
  s.frequency[3] = 3e-6;  // float16 subnormals
  s.gain = 1.1386294361119891;
  const auto d = rows_of<double>(s, positions(p));
  const Index rows = static_cast<Index>(p.size()), columns = s.pairs();
  for (const DType type : {DType::f16, DType::bf16}) {
    std::vector<std::uint16_t> c(static_cast<std::size_t>(rows * columns)), si(c.size());
    const Index shape[] = {rows, columns};
    phase_rows(s, positions(p), tensor(static_cast<void*>(c.data()), type, shape),
               tensor(static_cast<void*>(si.data()), type, shape));
    Index off = 0;
    for (std::size_t i = 0; i < c.size(); ++i) {
      const auto want = [&](double x) { return type == DType::f16 ? f16_from(x) : bf16_from(x); };
      off += (c[i] != want(d.cos[i])) + (si[i] != want(d.sin[i]));
    }
    // a run's rows and the rows one by one differ by 1e-13: ties apart they round alike
    EXPECT_LE(off, 1) << dtype_name(type);
  }
}

TEST_P(EveryIsa, FractionsOfAPosition) {
  std::vector<double> p{0.5,           -0.5,    0.25,       1e-20,     -1e-20, 1.0 / 3,
                        1e6 + 1.0 / 3, -4095.9, 1e10 + 0.7, 1048575.0, 0x1p37, 0x1p37 + 0.5,
                        3.0,           0.0,     -0.0,       1e-300};
  for (const double scale : {1.0, 6.283185307179586, 100.0, -3.7, 1e6}) {
    Spectrum s = geometric_spectrum(1e4, 32);
    for (double& f : s.frequency) f *= scale;
    s.geometric.reset();
    EXPECT_LE(worst(s, p, rows_of<float>(s, positions(p))), kF32) << scale;
    EXPECT_LE(worst(s, p, rows_of<double>(s, positions(p))), kF64 + 6e-20 * std::fabs(scale));
  }
}

TEST_P(EveryIsa, GainIsMultipliedIn) {
  Spectrum s = geometric_spectrum(1e6, 128);
  s.gain = 1.2772588722239782;
  EXPECT_LE(worst(s, kPositions, rows_of<float>(s, positions(kPositions))), 2 * kF32);
  EXPECT_LE(worst(s, kPositions, rows_of<double>(s, positions(kPositions))),
            kF64 * s.gain + 0x1p-53);
  s.gain = 0;
  for (const float x : rows_of<float>(s, positions(kPositions)).cos) EXPECT_EQ(x, 0);
}

TEST_P(EveryIsa, SeveralAxesAndHeads) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  const Index heads = 3, axes = 2, pairs = 5, batch = 2, tokens = 4;
  Spectrum s;
  s.heads = heads, s.axes = axes;
  for (Index i = 0; i < heads * axes * pairs; ++i) s.frequency.push_back(normal(random));
  std::vector<std::int32_t> p(static_cast<std::size_t>(axes * batch * tokens));
  for (auto& x : p) x = static_cast<std::int32_t>(random() % 4000) - 2000;
  const Index pshape[] = {axes, batch, tokens};
  const Positions view = positions(tensor(static_cast<void*>(p.data()), DType::i32, pshape));
  std::vector<double> flat(static_cast<std::size_t>(batch * tokens * heads * pairs)), other(flat);
  phase_rows(s, view, tensor(flat.data(), {batch * tokens, heads * pairs}),
             tensor(other.data(), {batch, tokens, heads, pairs}));
  test::Angle angle;
  for (Index b = 0; b < batch; ++b)
    for (Index t = 0; t < tokens; ++t)
      for (Index h = 0; h < heads; ++h)
        for (Index i = 0; i < pairs; ++i) {
          angle.clear();
          for (Index a = 0; a < axes; ++a)
            angle.add(std::int64_t{p[static_cast<std::size_t>((a * batch + b) * tokens + t)]},
                      s.frequency[static_cast<std::size_t>((h * axes + a) * pairs + i)]);
          angle.done();
          const auto at = static_cast<std::size_t>(((b * tokens + t) * heads + h) * pairs + i);
          ASSERT_LE(angle.cos_error(flat[at], 1), kF64);
          ASSERT_LE(angle.sin_error(other[at], 1), kF64);
        }
}

// Many rows are written around the cache, line by line; few are not.
template <class T>
void expect_streamed_rows_are_equal(DType dtype, Index pairs) {
  const Spectrum s = geometric_spectrum(1e4, 2 * pairs);
  const Index rows = (Index{9} << 20) / (pairs * static_cast<Index>(sizeof(T))),
              few = 1024;  // anchors are 256 apart
  std::vector<T> memory(static_cast<std::size_t>(2 * rows * pairs) + 64);
  void* at = memory.data();
  std::size_t room = memory.size() * sizeof(T);
  T* cos = static_cast<T*>(std::align(64, memory.size() * sizeof(T) - 64, at, room));
  T* sin = cos + rows * pairs;
  const auto plane = [&](T* data, Index n) {
    return tensor(static_cast<void*>(data), dtype, {n, pairs});
  };
  const auto all = arange(0, rows);
  phase_rows(s, all, plane(cos, rows), plane(sin, rows), TableLayout::half, Precision::exact,
             inline_executor());
  std::vector<T> own(static_cast<std::size_t>(2 * few * pairs));
  for (Index first = 0; first < rows; first += 7 * few) {
    const Index n = std::min(few, rows - first);
    phase_rows(s, arange(first, n), plane(own.data(), n), plane(own.data() + n * pairs, n),
               TableLayout::half, Precision::exact, inline_executor());
    const auto size = static_cast<std::size_t>(n * pairs) * sizeof(T);
    ASSERT_EQ(std::memcmp(own.data(), cos + first * pairs, size), 0) << first << " " << pairs;
    ASSERT_EQ(std::memcmp(own.data() + n * pairs, sin + first * pairs, size), 0) << first;
  }
}

TEST_P(EveryIsa, RowsWrittenAroundTheCacheAreTheSame) {
  expect_streamed_rows_are_equal<float>(DType::f32, 64);
  expect_streamed_rows_are_equal<float>(DType::f32, 80);  // an odd number of lines
  expect_streamed_rows_are_equal<std::uint16_t>(DType::bf16,
                                                96);  // a vector of 16-bit numbers and a rest
  expect_streamed_rows_are_equal<std::uint16_t>(DType::f16, 64);
}

INSTANTIATE_TEST_SUITE_P(Rows, EveryIsa, ::testing::ValuesIn(supported_isas()), isa_name);

TEST(RowLayouts, AllFromHalf) {
  const Spectrum s = geometric_spectrum(1e4, 14);
  const Index n = s.pairs(), rows = 40;
  std::vector<Index> p(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<Index>(i);
  const auto half = rows_of<float>(s, positions(p));
  const auto duplicated = rows_of<float>(s, positions(p), TableLayout::duplicated);
  const auto repeated = rows_of<float>(s, positions(p), TableLayout::repeated);
  std::vector<float> joined(static_cast<std::size_t>(rows * 2 * n)), both(joined.size() * 2);
  phase_rows(s, positions(p), tensor(joined.data(), {rows, 2 * n}), TableLayout::pairs);
  phase_rows(s, positions(p), tensor(both.data(), {rows, 4 * n}), TableLayout::repeated);
  std::vector<float> halves(joined.size());
  phase_rows(s, positions(p), tensor(halves.data(), {rows, 2 * n}), TableLayout::half);
  for (Index r = 0; r < rows; ++r)
    for (Index i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(r * n + i),
                 row = static_cast<std::size_t>(2 * r * n);
      const float c = half.cos[at], d = half.sin[at];
      const auto k = static_cast<std::size_t>(i), m = static_cast<std::size_t>(n);
      ASSERT_EQ(duplicated.cos[row + k], c);
      ASSERT_EQ(duplicated.cos[row + k + m], c);
      ASSERT_EQ(duplicated.sin[row + k], d);
      ASSERT_EQ(duplicated.sin[row + k + m], d);
      // rows one by one and by angle addition may round apart
      ASSERT_NEAR(repeated.cos[row + 2 * k], c, 6e-8);
      ASSERT_EQ(repeated.cos[row + 2 * k + 1], repeated.cos[row + 2 * k]);
      ASSERT_NEAR(repeated.sin[row + 2 * k], d, 6e-8);
      ASSERT_EQ(joined[row + 2 * k], repeated.cos[row + 2 * k]);
      ASSERT_EQ(joined[row + 2 * k + 1], repeated.sin[row + 2 * k]);
      ASSERT_EQ(both[2 * row + 2 * k + 1], repeated.cos[row + 2 * k]);
      ASSERT_EQ(both[2 * row + 2 * m + 2 * k], repeated.sin[row + 2 * k]);
      ASSERT_EQ(halves[row + k], c);
      ASSERT_EQ(halves[row + m + k], d);
    }
}

TEST(RowStrides, OnlyTheRowsAreWritten) {
  const Spectrum s = geometric_spectrum(1e4, 20);
  std::vector<Index> p(30);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = 5 + static_cast<Index>(i);
  const auto want = rows_of<float>(s, positions(p));
  for (const Index column : {Index{1}, Index{3}})
    for (const bool backwards : {false, true}) {
      const Index stride = 37 * (backwards ? -1 : 1), n = s.pairs();
      std::vector<float> memory(30 * 37 + 64, -5.0f);
      float* first = memory.data() + (backwards ? 29 * 37 : 0) + 4;
      const Index shape[] = {30, n}, strides[] = {stride, column};
      phase_rows(s, positions(p), tensor(static_cast<void*>(first), DType::f32, shape, strides),
                 TensorView{});
      std::size_t written = 0;
      for (const float x : memory) written += x != -5.0f;
      EXPECT_EQ(written, 300u);
      for (Index r = 0; r < 30; ++r)
        for (Index i = 0; i < n; ++i)
          ASSERT_NEAR(first[r * stride + i * column], want.cos[static_cast<std::size_t>(r * n + i)],
                      6e-8);
    }
}

TEST(RowThreads, DoNotChangeTheRows) {
  const Spectrum s = geometric_spectrum(5e5, 64);
  std::vector<Index> p(5000);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<Index>(i % 3000);
  std::vector<float> a(p.size() * 64), b(a.size());
  const auto rows = static_cast<Index>(p.size());
  phase_rows(s, positions(p), tensor(a.data(), {rows, 64}), TableLayout::half, Precision::exact,
             inline_executor());
  for (const Index threads : {Index{2}, Index{3}, Index{64}}) {
    Executor e;
    e.concurrency = threads;
    e.run = [](void*, Index n, void (*task)(void*, Index), void* arg) {
      for (Index i = n; i-- > 0;) task(arg, i);
    };
    std::fill(b.begin(), b.end(), 9.0f);
    phase_rows(s, positions(p), tensor(b.data(), {rows, 64}), TableLayout::half, Precision::exact,
               e);
    ASSERT_EQ(a, b);
  }
}

TEST(RowEdges, NothingToDo) {
  const Spectrum s = geometric_spectrum(1e4, 8);
  const Positions none = positions(std::span<const Index>{});
  EXPECT_NO_THROW(phase_rows(s, none, TensorView{}, TensorView{}));
  EXPECT_NO_THROW(phase_rows(s, none, TensorView{}, TableLayout::pairs));
  const std::vector<Index> p{1, 2};
  Spectrum empty;
  std::vector<float> out(8);
  EXPECT_NO_THROW(phase_rows(empty, positions(p), tensor(out.data(), {2, 0}), TensorView{}));
}

TEST(RowRefusals, NameTheRule) {
  const Spectrum s = geometric_spectrum(1e4, 8);
  const std::vector<Index> p{1, 2, 3};
  std::vector<float> out(64);
  std::vector<std::int32_t> ints(64);
  const auto refused = [&](const Spectrum& spectrum, const Positions& at, const TensorView& c,
                           TableLayout layout, const char* starts) {
    try {
      phase_rows(spectrum, at, c, TensorView{}, layout);
      ADD_FAILURE() << "accepted: " << starts;
    } catch (const std::invalid_argument& e) {
      EXPECT_EQ(std::string(e.what()).rfind(starts, 0), 0u) << e.what();
    }
  };
  const Positions view = positions(p);
  refused(s, view, tensor(out.data(), {3, 5}), TableLayout::half, "[rows] output must be [3, 4]");
  refused(s, view, tensor(out.data(), {2, 4}), TableLayout::half, "[rows] output must be");
  refused(s, view, tensor(out.data(), {3, 4}), TableLayout::duplicated, "[rows] output must be");
  refused(s, view, tensor(out.data(), {3, 4}), TableLayout::pairs, "[rows] layout pairs");
  refused(s, view, tensor(ints.data(), {3, 4}), TableLayout::half, "[rows] output must be f64");
  Spectrum two = s;
  two.axes = 2;
  refused(two, view, tensor(out.data(), {3, 2}), TableLayout::half,
          "[rows] positions must have 2 axes, got 1");
  Positions pairs = view;
  pairs.axes = 2;
  refused(s, pairs, tensor(out.data(), {3, 2}), TableLayout::half,
          "[rows] positions must have 1 axis, got 2");
  Spectrum bad = s;
  bad.frequency[0] = NAN;
  refused(bad, view, tensor(out.data(), {3, 4}), TableLayout::half, "[phase] frequency");
  for (const double x : {static_cast<double>(NAN), static_cast<double>(INFINITY), 1e30}) {
    const std::vector<double> q{0.0, x, 1.0};
    refused(s, positions(q), tensor(out.data(), {3, 4}), TableLayout::half,
            "[rows] real positions must be finite");
  }
  Spectrum no_form = s;
  no_form.drop_ggml("this");
  no_form.drop_ggml("a second reason");
  EXPECT_EQ(no_form.ggml_dropped, s.ggml_dropped);  // a reason is no number
  const auto says = [&](const char* why) {
    try {
      phase_rows(no_form, view, tensor(out.data(), {3, 4}), TensorView{}, TableLayout::half,
                 Precision::ggml);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what()).ends_with(why);
    }
    return false;
  };
  EXPECT_TRUE(says("got \"this\""));
  no_form.ggml_dropped.why = "";
  EXPECT_TRUE(says("got \"a scheme with others\""));
}

}  // namespace
}  // namespace posenc
