// SPDX-License-Identifier: Apache-2.0
// Calls of the fast attention engine with a position term, in turns with the same call without it; and one call on two
// threads, in turns with itself on one.
#include <memory>

#include "fast_call.h"
#include "line.h"

namespace posenc::bench {
namespace {

Line beside_plain(const FastShape& s, double goal) {
  Line l;
  l.name = s.name() + "/beside_plain";
  l.bytes = 4.0 * 4 * static_cast<double>(s.batch * s.tokens * s.heads * s.dim);
  l.limit_name = "plain", l.goal = goal;
  l.prepare = [=] {
    FastShape without = s;
    without.by = By::plain;
    if (s.gradient == Gradient::table) without.gradient = Gradient::inputs;
    const auto call = std::make_shared<FastAttend>(s),
               plain = std::make_shared<FastAttend>(without);
    call->forward(), plain->forward();
    Prepared r;
    r.max_error = s.gradient == Gradient::none ? call->error() : call->backward_error();
    r.bound = 5e-6;
    r.run = [call] { call->run(); };
    r.limit = [plain] { plain->run(); };
    return r;
  };
  return l;
}

// Twice as fast: the ratio 0.5.
Line on_two_threads(const FastShape& s, double goal) {
  Line l;
  l.name = s.name() + "/threads:2";
  l.bytes = 4.0 * 4 * static_cast<double>(s.batch * s.tokens * s.heads * s.dim);
  l.limit_name = "one_thread", l.goal = goal;
  l.prepare = [=] {
    const auto call = std::make_shared<FastAttend>(s);
    call->forward();
    Executor two = default_executor();
    two.concurrency = std::min<Index>(two.concurrency, 2);
    Prepared r;
    r.max_error = s.gradient == Gradient::none ? call->error() : call->backward_error();
    r.bound = 5e-6;
    r.run = [=] { call->run(two); };
    r.limit = [call] { call->run(); };
    return r;
  };
  return l;
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
  for (const By by : {By::alibi, By::kerple, By::t5})
    all.push_back(beside_plain({4096, 8, 64, true, by, Gradient::table}, 1.06));
  all.push_back(beside_plain({4096, 1, 64, false, By::sam, Gradient::table}, 0));
  all.push_back(beside_plain({2048, 8, 64, true, By::forgetting, Gradient::inputs}, 0));
  for (const Gradient gradient : {Gradient::none, Gradient::inputs})
    all.push_back(on_two_threads({4096, 8, 64, true, By::plain, gradient}, 1 / 1.9));
  return all;
}

}  // namespace posenc::bench
