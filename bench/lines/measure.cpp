// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "line.h"
#include "posenc/core/error.h"

namespace posenc::bench {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The sample that a share of all is faster than.
double quantile(std::vector<double>& v, double share) {
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(v.size()));
  std::nth_element(v.begin(), v.begin() + at, v.end());
  return v[static_cast<std::size_t>(at)];
}

// A sample is many calls of a short function, so that the clock's own 30 ns do not count.
double sample(const std::function<void()>& f, int calls) {
  const double t = now();
  for (int i = 0; i < calls; ++i) f();
  return (now() - t) / calls;
}

int calls_for(const std::function<void()>& f) {
  f();
  const double once = std::max(sample(f, 1), 1e-9);
  return static_cast<int>(std::clamp(50e-6 / once, 1.0, 10000.0));
}

}  // namespace

Line self_timed(std::string name, std::string bound, std::function<Measured(double)> measured) {
  Line l;
  l.name = std::move(name);
  l.limit_name = std::move(bound);
  l.goal = 1;
  l.measured = std::move(measured);
  return l;
}

std::vector<Line> lines() {
  std::vector<Line> all = rotation_lines();
  for (const auto& more :
       {table_lines(),        rerotation_lines(), key_cache_lines(), pope_lines(),
        input_lines(),        embed_lines(),      attention_lines(), fast_attention_lines(),
        beside_plain_lines(), beside_f32_lines(), word_lines(),      order_lines(),
        decode_lines(),       region_lines(),     ring_lines(),      attention_shape_lines(),
        lowering_lines(),     stall_lines(),      small_lines(),     overhead_lines()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

Measured measure(const Line& line, double seconds) {
  if (line.measured) return line.measured(seconds);
  const Prepared p = line.prepare();
  if (!(p.max_error <= p.bound))
    throw std::runtime_error(line.name + ": wrong result, error " + number_text(p.max_error) +
                             " above " + number_text(p.bound));
  const int calls = calls_for(p.run), limit_calls = p.limit ? calls_for(p.limit) : 0;
  std::vector<double> run, limit;
  for (const double end = now() + seconds; now() < end || run.size() < 7;) {
    run.push_back(sample(p.run, calls));
    if (p.limit) limit.push_back(sample(p.limit, limit_calls));
  }
  Measured m;
  m.samples = static_cast<int>(run.size());
  m.seconds = quantile(run, 0.5);
  m.quiet_seconds = quantile(run, 0.1);
  if (!limit.empty()) {
    m.limit_seconds = quantile(limit, 0.5);
    m.quiet_limit_seconds = quantile(limit, 0.1);
  }
  m.max_error = p.max_error;
  return m;
}

}  // namespace posenc::bench
