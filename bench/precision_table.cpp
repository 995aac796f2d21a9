// SPDX-License-Identifier: Apache-2.0
// The error table of docs/numerics.md: worst |cos - exact|, |sin - exact| of every precision near
// 4k, 128k, 1M and 10M positions, against MPFR. Prints Markdown.
#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "posenc/io/array.h"
#include "posenc/rotary/rope.h"
#include "posenc/rotary/table.h"

namespace {

using namespace posenc;

constexpr Index kPairs = 64, kSampled = 256;

struct Exact {
  std::vector<double> cos, sin;
};

Exact exact(const Spectrum& s, const std::vector<Index>& positions) {
  Exact r;
  mpfr_t x, sine, cosine;
  mpfr_inits2(256, x, sine, cosine, static_cast<mpfr_ptr>(nullptr));
  for (const Index p : positions)
    for (const double f : s.frequency) {
      mpfr_set_d(x, f, MPFR_RNDN);
      mpfr_mul_si(x, x, p, MPFR_RNDN);
      mpfr_sin_cos(sine, cosine, x, MPFR_RNDN);
      r.cos.push_back(mpfr_get_d(cosine, MPFR_RNDN));
      r.sin.push_back(mpfr_get_d(sine, MPFR_RNDN));
    }
  mpfr_clears(x, sine, cosine, static_cast<mpfr_ptr>(nullptr));
  return r;
}

double worst(const Exact& want, const std::vector<double>& cos, const std::vector<double>& sin) {
  double e = 0;
  for (std::size_t i = 0; i < cos.size(); ++i)
    e = std::max({e, std::fabs(cos[i] - want.cos[i]), std::fabs(sin[i] - want.sin[i])});
  return e;
}

double rows_error(const Spectrum& s, const std::vector<Index>& p, const Exact& want, DType dtype,
                  Precision precision) {
  const auto n = static_cast<Index>(p.size());
  Array cos = make_array(dtype, {n, kPairs}), sin = make_array(dtype, {n, kPairs});
  phase_rows(s, positions(p), cos.view(), sin.view(), TableLayout::half, precision);
  return worst(want, cos.doubles(), sin.doubles());
}

// Turning (1, 0) leaves cosine and sine.
template <class T>
double table_free_error(const Spectrum& s, const std::vector<Index>& p, const Exact& want) {
  Rope rope;
  rope.head_dim = 2 * kPairs;
  rope.pairing = Pairing::half_split;
  const RotaryPlan plan(rope.place(s), dtype_of<T>);
  std::vector<T> x(p.size() * 2 * kPairs, T(0));
  for (std::size_t t = 0; t < p.size(); ++t)
    std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(t * 2 * kPairs), kPairs, T(1));
  QK qk;
  qk.q = heads(x.data(), static_cast<Index>(p.size()), 1, 2 * kPairs);
  plan.apply(qk, positions(p));
  std::vector<double> cos, sin;
  for (std::size_t t = 0; t < p.size(); ++t)
    for (std::size_t i = 0; i < kPairs; ++i) {
      cos.push_back(static_cast<double>(x[t * 2 * kPairs + i]));
      sin.push_back(static_cast<double>(x[t * 2 * kPairs + kPairs + i]));
    }
  return worst(want, cos, sin);
}

double error_of(int row, const Spectrum& s, const std::vector<Index>& p, const Exact& want) {
  switch (row) {
    case 0:
      return table_free_error<double>(s, p, want);
    case 1:
      return rows_error(s, p, want, DType::f64, Precision::exact);
    case 2:
      return table_free_error<float>(s, p, want);
    case 3:
      return rows_error(s, p, want, DType::f32, Precision::exact);
    case 4:
      return rows_error(s, p, want, DType::f16, Precision::exact);
    case 5:
      return rows_error(s, p, want, DType::bf16, Precision::exact);
    case 6:
      return rows_error(s, p, want, DType::f32, Precision::hf_float32);
    case 7:
      return rows_error(s, p, want, DType::f32, Precision::hf_bfloat16_table);
    default:
      return rows_error(s, p, want, DType::f32, Precision::ggml);
  }
}

constexpr const char* kRows[] = {"exact, table-free, f64",
                                 "exact, rows, f64",
                                 "exact, table-free, f32",
                                 "exact, rows and tables, f32",
                                 "exact, rows and tables, f16",
                                 "exact, rows and tables, bf16",
                                 "`hf_float32`",
                                 "`hf_bfloat16_table`",
                                 "`ggml`"};

}  // namespace

int main() {
  const std::pair<const char*, Index> lengths[] = {
      {"4k", 4096}, {"128k", 131072}, {"1M", 1048576}, {"10M", 10000000}};
  for (const double base : {1e4, 5e5, 1e6}) {
    const Spectrum s = geometric_spectrum(base, 2 * kPairs);
    std::printf("| base %g, 64 pairs | 4k | 128k | 1M | 10M |\n|---|---|---|---|---|\n", base);
    std::vector<std::vector<Index>> sampled;
    std::vector<Exact> want;
    for (const auto& [name, length] : lengths) {
      std::vector<Index> p(kSampled);
      for (Index i = 0; i < kSampled; ++i)  // the last eighth, the last position included
        p[static_cast<std::size_t>(i)] = length - 1 - i * (length / 8 / kSampled);
      want.push_back(exact(s, p));
      sampled.push_back(std::move(p));
    }
    for (int row = 0; row < static_cast<int>(std::size(kRows)); ++row) {
      std::printf("| %s |", kRows[row]);
      for (std::size_t i = 0; i < sampled.size(); ++i)
        std::printf(" %.1e |", error_of(row, s, sampled[i], want[i]));
      std::printf("\n");
    }
    std::printf("\n");
  }
  return 0;
}
