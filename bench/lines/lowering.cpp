// SPDX-License-Identifier: Apache-2.0
// Schemes that project a table, lowered and pulled back beside the multiply-adds of their products,
// on one thread: 4096 tokens, 8 heads of 64 channels, width 512.
#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <utility>

#include "limits.h"
#include "line.h"
#include "posenc/attention/plan.h"
#include "posenc/registry.h"

namespace posenc::bench {
namespace {

constexpr Index kHeads = 8, kHeadDim = 64, kWidth = kHeads * kHeadDim, kTokens = 4096;

struct Projecting {
  const char* name;
  const char* text;
  Index past, future, rows;        // distances, rows of a table
  double products, back_products;  // of rows x width x width
};
// Gradients: those of weights, and of rows that are learned.
constexpr Projecting kSchemes[] = {
    {"transformer_xl", "transformer_xl d_model=512", kTokens - 1, 0, kTokens, 1, 1},
    {"xlnet", "xlnet d_model=512", kTokens - 1, kTokens - 1, 2 * kTokens - 1, 1, 1},
    {"conformer", "conformer d_model=512", kTokens - 1, kTokens - 1, 2 * kTokens - 1, 1, 1},
    {"deberta", "deberta max_relative_positions=2048 position_buckets=0 projection=own",
     kTokens - 1, kTokens - 1, kTokens, 2, 4},
    {"tupe", "tupe positions=4096", kTokens - 1, kTokens - 1, kTokens, 2, 4}};

struct Lowering {
  explicit Lowering(const Projecting& p)
      : scheme(relative_scheme(parse_encoding(p.text))),
        shape{.heads = kHeads, .head_dim = kHeadDim, .distance = {{-p.future, p.past}}} {
    for (const Parameter& one : scheme.parameters(shape)) {
      Index n = 1;
      for (const Index size : one.shape) n *= size;
      auto& values = arrays.emplace_back();
      for (Index i = 0; i < n; ++i)
        values.push_back(0.05 * std::sin(static_cast<double>(i * 7 + n)));
      parameters.push_back(tensor(static_cast<const void*>(values.data()), DType::f64, one.shape));
      auto& d = arrays.emplace_back(values.size(), 0.0);
      gradients.push_back(tensor(static_cast<void*>(d.data()), DType::f64, one.shape));
    }
    inputs.resize(scheme.inputs(shape).size());
    d_inputs.resize(inputs.size());
    call.inputs = inputs;
    scheme.lower(shape, parameters, first);
    for (const Term& t : first.terms) {
      TermGradient g;
      if (const ConstTensorView table = term_arrays(t).table; !table.empty()) {
        const std::span<const Index> size(table.shape.data(), static_cast<std::size_t>(table.rank));
        Index n = 1;
        for (const Index s : size) n *= s;
        auto& values = arrays.emplace_back(static_cast<std::size_t>(n), 0.5);
        g.table = tensor(static_cast<void*>(values.data()), DType::f64, size);
      }
      of_terms.push_back(g);
    }
  }
  void lower() {
    LoweredTerms out;
    scheme.lower(shape, parameters, out);
  }
  void pull_back() {
    LoweredGradient g;
    g.terms = of_terms;
    scheme.pull_back(shape, parameters, call, g, gradients, d_inputs);
  }
  // Numbers that are not finite would be slow or fast for no reason.
  double error() const {
    for (const Term& t : first.terms) {
      const ConstTensorView table = term_arrays(t).table;
      for (Index i = 0, n = table.empty() ? 0 : table.count(); i < n; ++i)
        if (!std::isfinite(static_cast<const double*>(table.data)[i])) return 1;
    }
    return 0;
  }

  AnyRelativeScheme scheme;
  ScoreShape shape;
  std::deque<std::vector<double>> arrays;
  std::vector<ConstTensorView> parameters, inputs;
  std::vector<TensorView> gradients, d_inputs;
  std::vector<TermGradient> of_terms;
  LoweredTerms first;
  CallData call;
};

Line lowering_line(const Projecting& p, bool back) {
  Line l;
  l.name = std::string(back ? "pull_back" : "lower") + "/f64/" + p.name + "/4096x8x64";
  const double products =
      (back ? p.back_products : p.products) * static_cast<double>(p.rows * kWidth * kWidth);
  l.flops = 2 * products;
  l.bytes = static_cast<double>(8 * p.rows * kWidth);
  l.limit_name = "fma_f64";
  l.goal = 2;
  l.prepare = [&p, products, back] {
    const auto work = std::make_shared<Lowering>(p);
    Prepared r;
    r.max_error = work->error();
    r.run = [work, back] { back ? work->pull_back() : work->lower(); };
    r.limit = [products] {
      volatile double sink = fused_multiply_adds_f64(static_cast<std::size_t>(products));
      (void)sink;
    };
    return r;
  };
  return l;
}

}  // namespace

std::vector<Line> lowering_lines() {
  std::vector<Line> all;
  for (const bool back : {false, true})
    for (const Projecting& p : kSchemes) all.push_back(lowering_line(p, back));
  return all;
}

}  // namespace posenc::bench
