// SPDX-License-Identifier: Apache-2.0
// Precompute or compute? The cost of a table: cold start, growth, replacement, beside the write
// limit.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "limits.h"
#include "line.h"
#include "posenc/registry.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/table.h"

namespace posenc::bench {
namespace {

constexpr Index kPairs = 64;

double table_error(const RotaryTable& t, const RotarySpec& spec) {
  const RotaryTable::Snapshot s = t.snapshot();
  const std::vector<double>& f = spec.blocks.front().spectrum.frequency;
  const float* x = static_cast<const float*>(s.cos_sin.data);
  double worst = 0;
  for (Index p = 0; p < s.size; p += 997)
    for (Index i = 0; i < kPairs; ++i) {
      const double phi = static_cast<double>(p) * f[static_cast<std::size_t>(i)];
      const Index at = p * s.cos_sin.stride[0] + i;
      worst = std::max({worst, std::abs(static_cast<double>(x[at]) - std::cos(phi)),
                        std::abs(static_cast<double>(x[at + kPairs]) - std::sin(phi))});
    }
  return worst;
}

std::function<void()> fill_limit(std::size_t bytes) {
  const SharedBuffer b = buffer(bytes);
  const Fill fill = best_fill(bytes);
  return [b, fill, bytes] { fill(b->as<float>(), bytes / 4, 1.0f); };
}

// What makes a table of n rows, against writing as many bytes.
Line line_of(const std::string& what, Index n) {
  Line l;
  l.name = "table/f32/" + what + "/" + std::to_string(n) + "x64";
  l.bytes = static_cast<double>(n * 2 * kPairs * 4);
  l.limit_name = "write";
  return l;
}

// Rows of every position into memory that is there already: the arithmetic and the stores alone.
Line build_line(Index n, double goal) {
  Line l = line_of("rows", n);
  l.name += "/threads:1";
  l.goal = goal;
  l.prepare = [n] {
    const RotarySpec spec = llama31();
    const std::size_t bytes = static_cast<std::size_t>(n * 2 * kPairs) * 4;
    const SharedBuffer out = buffer(bytes);
    std::vector<Index> p(static_cast<std::size_t>(n));
    for (Index i = 0; i < n; ++i) p[static_cast<std::size_t>(i)] = i;
    const auto owned = std::make_shared<std::vector<Index>>(std::move(p));
    const auto plan = std::make_shared<RotaryPlan>(spec, DType::f32);
    Prepared r;
    r.run = [=] {
      plan->rows(positions(std::span<const Index>(*owned)),
                 tensor(out->as<float>(), {n, 2 * kPairs}), inline_executor());
    };
    r.run();
    const std::vector<double>& f = spec.blocks.front().spectrum.frequency;
    for (Index t = 0; t < n; t += 997)
      for (Index i = 0; i < kPairs; ++i) {
        const double phi = static_cast<double>(t) * f[static_cast<std::size_t>(i)];
        const float* row = out->as<float>() + t * 2 * kPairs;
        r.max_error = std::max({r.max_error, std::abs(static_cast<double>(row[i]) - std::cos(phi)),
                                std::abs(static_cast<double>(row[i + kPairs]) - std::sin(phi))});
      }
    r.bound = 3.1e-8;
    r.limit = fill_limit(bytes);
    return r;
  };
  return l;
}

// From nothing to a table that can be read, on the pool: first touch of the memory included.
Line cold_line(Index n) {
  Line l = line_of("cold_start", n);
  l.prepare = [n] {
    const RotarySpec spec = llama31();
    Prepared r;
    r.max_error = table_error(RotaryTable(spec, n), spec);
    r.bound = 3.1e-8;
    r.run = [spec, n] { const RotaryTable t(spec, n); };
    r.limit = fill_limit(static_cast<std::size_t>(n * 2 * kPairs) * 4);
    return r;
  };
  return l;
}

Line grow_line() {
  Line l;
  l.name = "table/f32/grow/32768_to_131072x64";
  l.bytes = 98304.0 * 2 * kPairs * 4;
  l.limit_name = "write";
  l.prepare = [] {
    const RotarySpec spec = llama31();
    Prepared r;
    RotaryTable t(spec, 32768);
    t.grow(131072);
    r.max_error = table_error(t, spec);
    r.bound = 3.1e-8;
    r.run = [spec] {
      RotaryTable table(spec, 32768);
      table.grow(131072);
    };
    r.limit = fill_limit(std::size_t{131072} * 2 * kPairs * 4);
    return r;
  };
  return l;
}

// A changed scaling: every row made anew beside the old ones, which readers go on to read.
Line replace_line(Index n) {
  Line l = line_of("replace", n);
  l.prepare = [n] {
    const RotarySpec spec = llama31();
    const RotarySpec linear = resolve(
        parse_encoding("rope head_dim=128 base=500000 pairing=half_split + linear factor=4"));
    const auto table = std::make_shared<RotaryTable>(linear, n);
    table->replace(spec);
    Prepared r;
    r.max_error = table_error(*table, spec);
    r.bound = 3.1e-8;
    const auto next = std::make_shared<int>(0);
    r.run = [=] { table->replace(++*next % 2 != 0 ? linear : spec); };
    r.limit = fill_limit(static_cast<std::size_t>(n * 2 * kPairs) * 4);
    return r;
  };
  return l;
}

}  // namespace

RotarySpec llama31() {
  return resolve(
      parse_encoding("rope head_dim=128 base=500000 pairing=half_split + llama3 factor=8 "
                     "low_freq_factor=1 high_freq_factor=4 original_context=8192"));
}

std::vector<Line> table_lines() {
  return {build_line(131072, 1.35),
          build_line(1048576, 0),
          cold_line(131072),
          cold_line(1048576),
          grow_line(),
          replace_line(131072),
          replace_line(1048576)};
}

std::vector<Line> small_lines() {
  Line plan;
  plan.name = "plan/f32/llama3";
  plan.limit_name = "";
  plan.prepare = [] {
    const RotarySpec spec = llama31();
    Prepared p;
    p.bound = 1;
    p.run = [spec] { const RotaryPlan made(spec, DType::f32); };
    return p;
  };
  Line rescaled = plan;
  rescaled.name = "plan/f32/llama3/resolve_and_plan";
  rescaled.prepare = [] {
    const Encoding e = parse_encoding(
        "rope head_dim=128 base=500000 pairing=half_split + yarn factor=4 original_context=8192");
    Prepared p;
    p.bound = 1;
    p.run = [e] { const RotaryPlan made(resolve(e), DType::f32); };
    return p;
  };
  return {plan, rescaled};
}

}  // namespace posenc::bench
