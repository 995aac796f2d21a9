// SPDX-License-Identifier: Apache-2.0
// Calls of the fast attention engine with a position term, in turns with the same call without it; and one call on two
// threads, in turns with itself on one.
#include <memory>

#include "fast_call.h"
#include "line.h"

namespace posenc::bench {
namespace {

// A call on some threads beside another one on one thread.
Line beside(const FastShape& s, const char* what, Index threads, const FastShape& other,
            const char* limit, double goal) {
  Line l;
  l.name = s.name() + what;
  l.bytes = 4.0 * 4 * static_cast<double>(s.batch * s.tokens * s.heads * s.dim);
  l.limit_name = limit, l.goal = goal;
  l.prepare = [=] {
    const auto call = std::make_shared<FastAttend>(s), beside = std::make_shared<FastAttend>(other);
    call->forward(), beside->forward();
    Executor executor = threads == 1 ? inline_executor() : default_executor();
    executor.concurrency = std::min(executor.concurrency, threads);
    Prepared r;
    r.max_error = s.gradient == Gradient::none ? call->error() : call->backward_error();
    r.bound = 5e-6;
    r.run = [=] { call->run(executor); };
    r.limit = [beside] { beside->run(); };
    return r;
  };
  return l;
}

Line beside_plain(const FastShape& s, double goal) {
  FastShape plain = s;
  plain.by = By::plain;
  if (s.gradient == Gradient::table) plain.gradient = Gradient::inputs;
  return beside(s, "/beside_plain", 1, plain, "plain", goal);
}

// Twice as fast: the ratio 0.5.
Line on_two_threads(const FastShape& s, double goal) {
  return beside(s, "/threads:2", 2, s, "one_thread", goal);
}

}  // namespace

std::vector<Line> beside_plain_lines() {
  std::vector<Line> all;
  for (const By by : {By::alibi, By::kerple, By::t5})
    for (const bool causal : {true, false})
      all.push_back(beside_plain({4096, 8, 64, causal, by}, 1.04));
  all.push_back(beside_plain({1024, 8, 64, true, By::alibi}, 1.04));
  all.push_back(beside_plain({1024, 8, 64, false, By::alibi, Gradient::none, 1, 1}, 1.04));
  all.push_back(beside_plain({196, 12, 64, false, By::swin, Gradient::none, 4}, 1.1));
  all.push_back(beside_plain({2048, 8, 64, true, By::decay}, 1.1));
  all.push_back(beside_plain({4096, 1, 64, false, By::sam}, 0));
  all.push_back(beside_plain({196, 12, 64, false, By::sam, Gradient::none, 4}, 0));
  all.push_back(beside_plain({2048, 8, 64, true, By::forgetting}, 0));
  for (const By by : {By::segments, By::mixed_segments, By::t5_segments, By::class_token})
    all.push_back(beside_plain({2048, 8, 64, false, by}, by == By::mixed_segments ? 1.15 : 1.1));
  all.push_back(beside_plain({2048, 8, 64, false, By::layoutlm}, 1.6));
  for (const By by : {By::alibi, By::kerple, By::t5})
    all.push_back(beside_plain({4096, 8, 64, true, by, Gradient::table}, 1.06));
  all.push_back(beside_plain({2048, 8, 64, false, By::layoutlm, Gradient::table}, 1.5));
  all.push_back(beside_plain({4096, 1, 64, false, By::sam, Gradient::table}, 0));
  all.push_back(beside_plain({2048, 8, 64, true, By::forgetting, Gradient::inputs}, 0));
  for (const By by : {By::segments, By::mixed_segments, By::t5_segments, By::class_token})
    all.push_back(beside_plain({2048, 8, 64, false, by, Gradient::table},
                               by == By::mixed_segments ? 1.15 : 1.1));
  for (const Gradient gradient : {Gradient::none, Gradient::inputs})
    all.push_back(on_two_threads({4096, 8, 64, true, By::plain, gradient}, 1 / 1.9));
  return all;
}

}  // namespace posenc::bench
