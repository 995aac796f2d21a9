// SPDX-License-Identifier: Apache-2.0
// posenc plot --kind error: how far each precision is from the exact cos and sin.
#include <algorithm>
#include <cmath>

#include "rotary.h"

namespace posenc::report {
namespace {

double worst(const std::vector<double>& exact, const std::vector<double>& other) {
  double w = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) w = std::max(w, std::abs(exact[i] - other[i]));
  return w;
}

std::vector<double> row(const Spectrum& s, Index position, Precision precision, DType dtype) {
  const std::vector<Index> p(static_cast<std::size_t>(s.axes), position);
  Positions view = positions(std::span<const Index>(p.data(), 1));
  view.axes = static_cast<std::int32_t>(s.axes);
  view.axis_stride = 1;
  Array a = make_array(dtype, {1, 2 * s.pairs() * s.heads});
  phase_rows(s, view, a.view(), TableLayout::half, precision, inline_executor());
  return a.doubles();
}

// Powers of two up to the length asked for, which is the last; without one, far enough to see what
// is lost.
std::vector<Index> lengths(const Drawn& d) {
  const Index last = d.context_given ? *d.context : std::max(Index{1} << 24, d.context.value_or(0));
  std::vector<Index> all;
  for (Index n = 2; n < last; n *= 2) all.push_back(n);
  all.push_back(last);
  return all;
}

}  // namespace

std::vector<Figure> plot_error(const Drawn& d) {
  require_two_tokens(d.context, "error");
  LineChart c;
  c.title = "Error of cos and sin by precision";
  c.subtitle = d.title;
  c.x = {"position", "tokens", true};
  c.y = {"largest error over the pairs", "absolute", true};
  struct Kind {
    const char* name;
    Precision precision;
    DType dtype;
  };
  std::vector<Kind> kinds{{"exact rows, f32", Precision::exact, DType::f32},
                          {"hf_float32", Precision::hf_float32, DType::f32},
                          {"hf_bfloat16_table", Precision::hf_bfloat16_table, DType::f32}};
  bool ggml = true;
  for (const RotaryBlock& b : d.spec.blocks) ggml = ggml && b.spectrum.ggml;
  if (ggml) kinds.push_back({"ggml", Precision::ggml, DType::f32});
  for (const Kind& k : kinds) c.series.push_back({k.name, {}, {}, false, true});
  for (const Index tokens : lengths(d)) {
    // The worst of a few neighbours: one position alone may be lucky.
    std::vector<double> w(kinds.size(), 0);
    for (Index j = 0; j < (tokens >= 16 ? 8 : 1); ++j) {
      const Index p = tokens - 1 - j;
      for (const RotaryBlock& b : d.spec.blocks) {
        const std::vector<double> truth = row(b.spectrum, p, Precision::exact, DType::f64);
        for (std::size_t k = 0; k < kinds.size(); ++k)
          w[k] =
              std::max(w[k], worst(truth, row(b.spectrum, p, kinds[k].precision, kinds[k].dtype)));
      }
    }
    for (std::size_t k = 0; k < kinds.size(); ++k)
      c.series[k].x.push_back(static_cast<double>(tokens)),
          c.series[k].y.push_back(std::max(w[k], 1e-17));
  }
  if (d.context) c.rules.push_back(context_rule(*d.context, true));
  return {{std::move(c),
           "Against the exact rows in double. Float32 angles lose about 6e-8 of the position; a "
           "bfloat16 table loses eight bits everywhere."}};
}

}  // namespace posenc::report
