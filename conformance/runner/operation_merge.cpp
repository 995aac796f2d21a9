// SPDX-License-Identifier: Apache-2.0
// merge: results over disjoint keys, and its gradient.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>

#include "conformance/runner/attend_call.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

// out and log_sum_exp of one part, in double.
struct Part {
  HeadsArray out;
  std::vector<double> lse;  // [batch, heads, queries]
  AttentionResult view() {
    const Heads o = out.view();
    return {o, tensor(lse.data(), {o.batch, o.heads, o.tokens})};
  }
};

std::string lse_letters(const Check& check, const Slice& s) {
  return letters_of(check, s,
                    std::string_view("bhq").substr(3 - std::min<std::size_t>(s.shape.size(), 3)));
}

// Of a logarithm of another base.
double unit_of(const Check& check) {
  const Json* base = check.find("base");
  return base == nullptr || base->is_string() ? 1 : std::log(base->as_number());
}

std::vector<double> lse_of(const Check& check, const Slice& s) {
  const std::vector<double> values = s.values();
  std::vector<double> ordered;
  for (const Index i : Axes(s.shape, lse_letters(check, s), {}).walk("bhq"))
    ordered.push_back(values[static_cast<std::size_t>(i)] * unit_of(check));
  if (check.text("empty") == "+inf")  // as FlashAttention 2 writes it
    for (double& x : ordered)
      if (std::isinf(x)) x = -HUGE_VAL;
  return ordered;
}

void check_rows(const Part& p, const Slice& lse) {
  const Axes& a = p.out.axes;
  if (static_cast<Index>(p.lse.size()) != a['b'].size * a['h'].size * a['t'].size)
    refuse_field("case", "log_sum_exp", "must have a number for each row of out", lse.text);
}

Part part_of(const Check& check, const std::string& out, const std::string& lse) {
  const Slice o = slice(check.in_case, out), l = slice(check.in_case, lse);
  Part p{heads_of(o, DType::f64, attention_letters(check, o), 0), lse_of(check, l)};
  check_rows(p, l);
  return p;
}

// Queries for which a part counts: for the others it is one without visible keys.
void leave_out(const Check& check, std::size_t n, Part& p) {
  const Json* list = check.member("in", "rows");
  if (list == nullptr || list->as_array().at(n).as_string().empty()) return;
  const std::vector<double> counts = slice(check.in_case, list->as_array()[n].as_string()).values();
  if (counts.empty() || p.lse.size() % counts.size() != 0)
    refuse_field("case", "rows", "must have a number for each query",
                 static_cast<Index>(counts.size()));
  for (std::size_t i = 0; i < p.lse.size(); ++i)
    if (counts[i % counts.size()] == 0) p.lse[i] = -HUGE_VAL;
}

const std::vector<Json>& names(const Check& check, const char* group, const char* ours) {
  const Json* list = check.member(group, ours);
  if (list == nullptr || !list->is_array())
    refuse_field("case", "merge", "needs lists of arrays", ours);
  return list->as_array();
}

Part zeros_like(const Part& p) {
  Part z = p;
  std::fill(z.out.data.bytes.begin(), z.out.data.bytes.end(), std::byte{0});
  std::fill(z.lse.begin(), z.lse.end(), 0.0);
  return z;
}

void expect_part(Check& check, Part& got, const std::string* out, const std::string* lse,
                 const Check& letters) {
  if (out != nullptr) {
    const Slice want = slice(check.in_case, *out);
    const Axes axes(want.shape, attention_letters(letters, want), {});
    const std::vector<double> values = got.out.data.doubles();
    const std::vector<Index> from = got.out.axes.walk("bthd"), to = axes.walk("bthd");
    if (from.size() != to.size()) refuse("case", "the result has another shape than " + want.text);
    std::vector<double> ordered(from.size());
    for (std::size_t i = 0; i < from.size(); ++i)
      ordered[static_cast<std::size_t>(to[i])] = values[static_cast<std::size_t>(from[i])];
    check.expect(want, ordered);
  }
  if (lse == nullptr) return;
  const Slice want = slice(check.in_case, *lse);
  const std::vector<Index> to = Axes(want.shape, lse_letters(letters, want), {}).walk("bhq");
  if (to.size() != got.lse.size()) refuse("case", "the result has another shape than " + want.text);
  std::vector<double> ordered(to.size());
  for (std::size_t i = 0; i < to.size(); ++i)
    ordered[static_cast<std::size_t>(to[i])] = got.lse[i] / unit_of(letters);
  check.expect(want, ordered);
}

void run_gradient(Check& check, std::deque<Part>& parts,
                  const std::vector<ConstAttentionResult>& views, Part& whole) {
  const Json* members = check.part("gradient");
  if (members == nullptr) return;
  Check back(check, *members, "gradient");
  back.comparison = std::move(check.comparison);
  Part d = zeros_like(whole);
  if (const std::string* out = back.array_name("in", "out")) {
    const Slice s = slice(check.in_case, *out);
    d.out = heads_of(s, DType::f64, attention_letters(check, s), 0);
  }
  if (const std::string* lse = back.array_name("in", "log_sum_exp")) {
    const Slice s = slice(check.in_case, *lse);
    d.lse = lse_of(check, s);
    check_rows(d, s);
  }
  if (d.lse.size() != whole.lse.size())
    refuse("case", "the upstream gradient must have the shape of the result",
           static_cast<Index>(d.lse.size()));
  std::deque<Part> d_parts;
  std::vector<AttentionResult> d_views;
  for (const Part& p : parts) {
    d_parts.push_back(zeros_like(p));
    d_views.push_back(d_parts.back().view());
  }
  merge_backward(views, whole.view(), d.view(), d_views);
  for (const char* ours : {"out", "log_sum_exp"}) {
    const Json* list = back.member("out", ours);
    if (list == nullptr) continue;
    for (std::size_t n = 0; n < parts.size(); ++n) {
      const std::string& name = list->as_array().at(n).as_string();
      expect_part(back, d_parts[n], ours[0] == 'o' ? &name : nullptr,
                  ours[0] == 'l' ? &name : nullptr, check);
    }
  }
  check.comparison = std::move(back.comparison);
}

}  // namespace

void run_merge(Check& check) {
  const auto &outs = names(check, "in", "out"), &lses = names(check, "in", "log_sum_exp");
  if (outs.size() != lses.size() || outs.empty())
    refuse_field("case", "merge", "needs as many log_sum_exp as out",
                 static_cast<Index>(lses.size()));
  std::deque<Part> parts;
  std::vector<ConstAttentionResult> views;
  for (std::size_t n = 0; n < outs.size(); ++n) {
    parts.push_back(part_of(check, outs[n].as_string(), lses[n].as_string()));
    leave_out(check, n, parts.back());
    views.emplace_back(parts.back().view());
  }
  Part whole = zeros_like(parts.front());
  merge(views, whole.view());
  expect_part(check, whole, check.array_name("out", "out"), check.array_name("out", "log_sum_exp"),
              check);
  run_gradient(check, parts, views, whole);
}

}  // namespace posenc::conformance
