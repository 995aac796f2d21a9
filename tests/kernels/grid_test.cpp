// SPDX-License-Identifier: Apache-2.0
// Every kernel on every instruction set, native entries on and off, dtype, pairing, awkward sizes,
// storages, in and out of place, senses, and sources of cosine and sine; guards around the output.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <random>
#include <set>

#include "posenc/core/isa.h"
#include "posenc/rotary/plan.h"
#include "rotary/plan_state.h"
#include "support/rotate_reference.h"
#include "support/sanitized.h"

namespace posenc {
namespace {

using test::Matrix;
using test::Storage;
using test::Tensor;

constexpr Index kBatch = 2, kTokens = 3, kQ = 3, kK = 2;
const Index kPositions[kBatch * kTokens] = {0, 5, 4095, 131071, 17, 3};

enum class Source { phase, rows, half, duplicated, repeated, lookup, broken };
constexpr Source kSources[] = {Source::phase,      Source::rows,     Source::half,
                               Source::duplicated, Source::repeated, Source::lookup};

struct Case {
  RotarySpec spec;
  DType dtype;
  RotateMode sense;
  Source source;
};

RotarySpec make_spec(Index pairs, Pairing pairing, OutputOrder order, std::int32_t direction,
                     Index offset, Index tail) {
  RotarySpec spec;
  spec.head_dim = offset + 2 * pairs + tail;
  RotaryBlock b;
  b.offset = offset, b.pairing = pairing, b.output_order = order, b.direction = direction;
  b.spectrum = geometric_spectrum(10000, 2 * pairs);
  b.spectrum.gain = 1.1386294361119891;
  spec.blocks.push_back(b);
  return spec;
}

std::vector<double> random_values(Index n, DType type, unsigned seed) {
  std::mt19937 gen(seed);
  // Multiples of 2^-6 in [-2, 2): every dtype holds them.
  std::vector<double> r;
  for (Index i = 0; i < n; ++i) r.push_back((static_cast<int>(gen() % 256) - 128) / 64.0);
  (void)type;
  return r;
}

// Rows of the caller's: nothing like a rotation, members differ unless the layout is half.
struct Table {
  Index columns = 0;
  std::vector<double> cos, sin;
  std::vector<float> cos_f, sin_f;
  Table(Index rows, Index columns_in) : columns(columns_in) {
    std::mt19937 gen(7);
    for (Index i = 0; i < rows * columns; ++i) {
      cos.push_back((static_cast<int>(gen() % 128) + 64) / 128.0);
      sin.push_back((static_cast<int>(gen() % 128) - 64) / 128.0);
    }
    cos_f.assign(cos.begin(), cos.end()), sin_f.assign(sin.begin(), sin.end());
  }
};
TableLayout layout_of(Source s) {
  return s == Source::duplicated ? TableLayout::duplicated
         : s == Source::repeated ? TableLayout::repeated
                                 : TableLayout::half;
}
bool is_caller(Source s) {
  return s == Source::half || s == Source::duplicated || s == Source::repeated;
}

Matrix matrix_of(const Case& c, const Table& table, Index row, Index k) {
  const RotaryBlock& b = c.spec.blocks[0];
  const auto d = static_cast<long double>(b.direction);
  if (is_caller(c.source)) {
    const Index n = b.pairs();
    const Index ia = c.source == Source::repeated ? 2 * k : k;
    const Index ib = c.source == Source::half       ? k
                     : c.source == Source::repeated ? 2 * k + 1
                                                    : n + k;
    const auto at = [&](const std::vector<double>& v, Index i) {
      return static_cast<long double>(v[static_cast<std::size_t>(row * table.columns + i)]);
    };
    return test::sense_of(
        {at(table.cos, ia), -d * at(table.sin, ia), d * at(table.sin, ib), at(table.cos, ib)},
        c.sense);
  }
  const auto p = static_cast<long double>(kPositions[row]);
  const auto f = static_cast<long double>(b.spectrum.frequency[static_cast<std::size_t>(k)]);
  const long double phi = p * f, rest = fmal(p, f, -phi);  // the product is phi + rest
  long double g = static_cast<long double>(b.spectrum.gain);
  if (c.sense == RotateMode::shift) g = 1;
  const long double co = g * (cosl(phi) - rest * sinl(phi));
  const long double si = g * d * (sinl(phi) + rest * cosl(phi));
  return test::sense_of({co, -si, si, co}, c.sense);
}

std::vector<long double> reference(const Case& c, const Table& table, const std::vector<double>& x,
                                   Index heads) {
  const Index dim = c.spec.head_dim;
  std::vector<long double> y(x.begin(), x.end());
  for (Index r = 0; r < kBatch * kTokens; ++r) {
    std::vector<Matrix> m;
    for (Index k = 0; k < c.spec.blocks[0].pairs(); ++k) m.push_back(matrix_of(c, table, r, k));
    for (Index h = 0; h < heads; ++h) {
      const Index at = (r * heads + h) * dim;
      test::turn_head(c.spec.blocks[0], c.sense, x.data() + at, y.data() + at,
                      [&](Index k) { return m[static_cast<std::size_t>(k)]; });
    }
  }
  return y;
}

Positions grid_positions() {
  Positions p = positions(std::span<const Index>(kPositions, kTokens));
  p.batch = kBatch, p.batch_stride = kTokens;
  return p;
}

void run(const RotaryPlan& plan, const Case& c, const Table& table, const QK& in, const QK& out) {
  const Positions p = grid_positions();
  const Index rows = kBatch * kTokens;
  const bool wide = c.dtype == DType::f64;
  if (c.source == Source::phase) return plan.apply(in, out, p, c.sense, inline_executor());
  if (is_caller(c.source)) {
    CallerRows r;
    r.layout = layout_of(c.source);
    const Index shape[] = {kBatch, kTokens, table.columns};
    r.cos = wide ? tensor(static_cast<const void*>(table.cos.data()), DType::f64, shape)
                 : tensor(static_cast<const void*>(table.cos_f.data()), DType::f32, shape);
    r.sin = wide ? tensor(static_cast<const void*>(table.sin.data()), DType::f64, shape)
                 : tensor(static_cast<const void*>(table.sin_f.data()), DType::f32, shape);
    return plan.apply_rows(in, out, r, c.sense, inline_executor());
  }
  const Index columns = plan.row_columns();
  std::vector<double> memory(static_cast<std::size_t>(rows * columns));
  const Index shape[] = {rows, columns};
  const TensorView v =
      tensor(static_cast<void*>(memory.data()), wide ? DType::f64 : DType::f32, shape);
  plan.rows(p, v, inline_executor());
  if (c.source == Source::rows) return plan.apply_rows(in, out, v, c.sense, inline_executor());
  // Looked up: row r by its number.
  const Index numbers[kBatch * kTokens] = {0, 1, 2, 3, 4, 5};
  Positions index = positions(std::span<const Index>(numbers, kTokens));
  index.batch = kBatch, index.batch_stride = kTokens;
  detail::RowSource source;
  source.cos.data = v.data, source.cos.dtype = v.dtype, source.cos.token_stride = columns;
  source.index = &index;
  detail::apply_lookup(detail::StateAccess::of(plan), in, out, source, c.sense, inline_executor());
}

long double allowed(DType t, long double want) {
  const long double size = fabsl(want);
  if (t == DType::f64) return 3e-15L;
  const long double f32 = 1.2e-6L;  // values up to 2 sqrt 2 * gain, 1.1e-7 of the phase each
  if (t == DType::f32) return f32;
  if (t == DType::f16) return f32 + size * 0x1p-11L;
  return f32 + size * 0x1p-8L;
}

void compare(const Case& c, const std::vector<double>& got, const std::vector<long double>& want,
             const std::string& where) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const long double error = fabsl(static_cast<long double>(got[i]) - want[i]);
    if (!(error <= allowed(c.dtype, want[i]))) {
      ADD_FAILURE() << where << " element " << i << ": got " << got[i] << ", want "
                    << static_cast<double>(want[i]);
      return;
    }
  }
}

// One case over all storages, in place, out of place, and from one storage to another.
// `share`: a third of the storages (under sanitizers an eleventh), another with every case.
std::size_t run_case(const Case& c, const std::string& where, std::size_t share) {
  const RotaryPlan plan(c.spec, c.dtype);
  const Index dim = c.spec.head_dim, pairs = c.spec.blocks[0].pairs();
  const Table table(kBatch * kTokens, pairs * (layout_of(c.source) == TableLayout::half ? 1 : 2));
  const auto xq = random_values(kBatch * kTokens * kQ * dim, c.dtype, 1);
  const auto xk = random_values(kBatch * kTokens * kK * dim, c.dtype, 2);
  const auto wq = reference(c, table, xq, kQ), wk = reference(c, table, xk, kK);
  const auto q_storages = test::storages(kBatch, kTokens, kQ, dim);
  const auto k_storages = test::storages(kBatch, kTokens, kK, dim);
  std::size_t count = 0;
  const std::size_t step = test::kSanitized ? 11 : 3;
  for (std::size_t s = share % step; s < q_storages.size(); s += step)
    for (const bool in_place : {true, false}) {
      const std::size_t to = in_place ? s : (s * 5 + 1) % q_storages.size();
      Tensor q(c.dtype, kBatch, kTokens, kQ, dim, q_storages[s]);
      Tensor k(c.dtype, kBatch, kTokens, kK, dim, k_storages[s]);
      Tensor oq(c.dtype, kBatch, kTokens, kQ, dim, q_storages[to]);
      Tensor ok(c.dtype, kBatch, kTokens, kK, dim, k_storages[to]);
      q.fill(xq), k.fill(xk);
      const QK in{q.heads(), k.heads()}, out{oq.heads(), ok.heads()};
      run(plan, c, table, in, in_place ? in : out);
      const std::string at = where + " " + q_storages[s].name + " -> " + q_storages[to].name;
      const Tensor &rq = in_place ? q : oq, &rk = in_place ? k : ok;
      compare(c, rq.values(), wq, at + " q");
      compare(c, rk.values(), wk, at + " k");
      EXPECT_TRUE(q.guarded() && k.guarded() && oq.guarded() && ok.guarded()) << at;
      if (!in_place) {
        EXPECT_EQ(q.values(), xq) << at;
      }
      ++count;
      if (::testing::Test::HasFailure()) return count;
    }
  return count;
}

using Column = std::tuple<std::string, bool, DType>;  // instruction set, native entries, dtype

std::set<Column> expected(Isa isa) {
  std::set<Column> r;
  for (const DType t : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const bool native : {false, true})
      if (!native || (t == DType::bf16 && isa == Isa::avx512 && !native_features().empty()))
        r.insert({std::string(isa_name(isa)), native, t});
  return r;
}

// A test for each instruction set, so that the processes of tests/arm.sh share them.
class Grid : public ::testing::TestWithParam<Isa> {
 protected:
  void TearDown() override {
    reset_isa();
    enable_native_features(true);
  }
};

TEST_P(Grid, EveryKernelEveryWay) {
  enable_native_features(true);
  const std::set<Column> list = expected(GetParam());
  std::map<Column, std::size_t> done;
  const Index sizes[] = {1, 3, 5, 8, 20, 33, 48, 64};
  for (const Column& column : list) {
    const auto& [isa, native, dtype] = column;
    force_isa(isa_from_name(isa));
    enable_native_features(native);
    std::size_t turn = 0;
    for (const Index pairs : sizes)
      for (const Pairing pairing : {Pairing::half_split, Pairing::interleaved})
        for (const RotateMode sense :
             {RotateMode::forward, RotateMode::gradient, RotateMode::inverse, RotateMode::shift})
          for (const Source source : kSources) {
            if (is_caller(source) && sense == RotateMode::shift) continue;
            // The rarer properties take turns.
            ++turn;
            if (test::kEmulated && turn % 11 != static_cast<std::size_t>(dtype)) continue;
            const bool moved = pairing == Pairing::interleaved && turn % 3 == 0;
            const Case c{
                make_spec(pairs, pairing,
                          moved ? OutputOrder::even_then_odd : OutputOrder::in_place,
                          turn % 5 == 0 ? -1 : 1, turn % 2 == 0 ? 0 : 2, turn % 2 == 0 ? 0 : 4),
                dtype, sense, source};
            const std::string where =
                isa + (native ? " native " : " ") + std::string(dtype_name(dtype)) + " " +
                std::string(enum_text(pairing)) + (moved ? " even_then_odd" : "") + " pairs " +
                std::to_string(pairs) + " " + std::string(enum_text(sense)) + " source " +
                std::to_string(static_cast<int>(source));
            done[column] += run_case(c, where, turn + turn / 3);
            if (HasFailure()) return;
          }
  }
  for (const Column& column : list) {
    const auto& [isa, native, dtype] = column;
    EXPECT_GT(done[column], 0u) << isa << " was not run";
    std::printf("  %-8s %-6s %s  %zu combinations\n", isa.c_str(), native ? "native" : "",
                std::string(dtype_name(dtype)).c_str(), done[column]);
  }
  EXPECT_EQ(done.size(), list.size());
}
INSTANTIATE_TEST_SUITE_P(All, Grid, ::testing::ValuesIn(supported_isas()),
                         [](const auto& isa) { return std::string(isa_name(isa.param)); });

}  // namespace
}  // namespace posenc
