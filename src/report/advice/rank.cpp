// SPDX-License-Identifier: Apache-2.0
// The order of schemes by the comparisons that each has won.
#include <algorithm>
#include <cmath>

#include "evidence.h"

namespace posenc::report {
namespace {

bool is_loss(const std::string& metric) {
  return metric == "loss" || metric == "perplexity";
}

// Accuracy 0 .. 1 or in percent, BLEU in points, a rank 0 .. 1, a length in
// tokens.
double unit_of(const Comparison& c) {
  double largest = 0;
  for (const Entry& e : c.entries) largest = std::max(largest, std::abs(e.value));
  return largest <= 1 ? 1 : largest <= 100 ? 100 : largest;
}

Ranked& ranked(std::vector<Ranked>& all, const std::string& scheme) {
  for (Ranked& r : all)
    if (r.scheme == scheme) return r;
  return all.emplace_back(Ranked{scheme, 0, 0, 0, {}});
}

// The best variant of a scheme (KERPLE has two kernels in one table).
std::vector<const Entry*> best_of_each(const Comparison& c) {
  std::vector<const Entry*> best;
  for (const Entry& e : c.entries) {
    const auto same = std::find_if(best.begin(), best.end(),
                                   [&](const Entry* b) { return b->scheme == e.scheme; });
    if (same == best.end())
      best.push_back(&e);
    else if (c.cost(e) < c.cost(**same))
      *same = &e;
  }
  return best;
}

}  // namespace

double Comparison::cost(const Entry& e) const {
  if (metric == "perplexity") return std::log(e.value);
  return (higher_is_better ? -e.value : e.value) / (metric == "loss" ? 1 : unit_of(*this));
}

// Seeds of small runs differ by 0.05 to 0.2 in loss.
double Comparison::margin() const {
  if (metric.ends_with("BLEU")) return 0.01;
  Index seeds = 3;
  if (is_measured)
    for (const Entry& e : entries) seeds = std::min(seeds, e.seeds);
  if (is_loss(metric)) return is_measured ? (seeds < 3 ? 0.15 : 0.05) : 0.01;
  return is_measured ? 0.05 : 0.01;
}

double Comparison::hopeless() const {
  return metric.ends_with("BLEU") ? 1 : is_loss(metric) ? 0.5 : 0.3;
}

double Ranked::score() const {
  const Index all = won + tied + lost;
  if (all == 0) return -1;
  return (static_cast<double>(won) + static_cast<double>(tied) / 2 + 1) /
         static_cast<double>(all + 2);
}

std::vector<Ranked> rank(const std::vector<Comparison>& comparisons) {
  std::vector<Ranked> all;
  for (const Comparison& c : comparisons) {
    for (const Entry& e : c.entries) ranked(all, e.scheme).numbers.emplace_back(&c, &e);
    const std::vector<const Entry*> best = best_of_each(c);
    if (best.size() < 2) continue;
    double least = c.cost(*best.front());
    for (const Entry* e : best) least = std::min(least, c.cost(*e));
    for (const Entry* a : best)
      for (const Entry* b : best) {
        if (a == b) continue;
        const double x = c.cost(*a), y = c.cost(*b);
        const bool both_lost = x - least > c.hopeless() && y - least > c.hopeless();
        Ranked& r = ranked(all, a->scheme);
        if (both_lost || std::abs(x - y) <= c.margin())
          ++r.tied;
        else
          ++(x < y ? r.won : r.lost);
      }
  }
  std::stable_sort(all.begin(), all.end(), [](const Ranked& a, const Ranked& b) {
    const double x = a.score(), y = b.score();
    return x != y ? x > y : a.won + a.tied + a.lost > b.won + b.tied + b.lost;
  });
  return all;
}

}  // namespace posenc::report
