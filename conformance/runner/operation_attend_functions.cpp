// SPDX-License-Identifier: Apache-2.0
// attend with a `function`: attention whose score is no sum of terms, selective or path.
#include <algorithm>

#include "conformance/runner/attend_call.h"
#include "posenc/attention/path.h"
#include "posenc/attention/selective.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

HeadsArray like(const HeadsArray& x) {
  HeadsArray y = x;
  std::fill(y.data.bytes.begin(), y.data.bytes.end(), std::byte{0});
  return y;
}

HeadsArray read(const Check& letters, const Slice& s) {
  // Numbers for each token and head have no channels: [b, h, t].
  const std::string fallback = s.shape.size() == 3 ? "bht" : "bhtd";
  return heads_of(s, DType::f64, letters_of(letters, s, fallback), 0);
}

void expect(Check& check, const Check& letters, const char* ours, HeadsArray& got) {
  const std::string* name = check.array_name("out", ours);
  if (name == nullptr) return;
  const Slice want = slice(check.in_case, *name);
  expect_heads(check, ours, got, letters_of(letters, want, want.shape.size() == 3 ? "bht" : "bhtd"),
               got.axes['d'].size);
}

void selective(Check& check) {
  AttendCall call(check);
  HeadsArray out = like(call.q);
  const AttentionResult result{out.view(), {}};
  attend_selective(call.scaled(), result);
  expect(check, check, "out", out);
  const Json* members = check.part("gradient");
  if (members == nullptr) return;
  Check back(check, *members, "gradient");
  back.comparison = std::move(check.comparison);
  HeadsArray d_out = read(check, back.input("out"));
  HeadsArray dq = like(call.q), dk = like(call.k), dv = like(call.v);
  AttentionGradients g;
  g.q = dq.view(), g.k = dk.view(), g.v = dv.view();
  attend_selective_backward(call.scaled(), result, {d_out.view(), {}}, g);
  expect(back, check, "q", dq);
  expect(back, check, "k", dk);
  expect(back, check, "v", dv);
  check.comparison = std::move(back.comparison);
}

void path(Check& check) {
  const char* names[] = {"q", "k", "v", "w", "beta", "log_gate"};
  std::vector<HeadsArray> in;
  for (const char* name : names) in.push_back(read(check, check.input(name)));
  PathArgs a;
  a.q = in[0].view(), a.k = in[1].view(), a.v = in[2].view();
  a.w = in[3].view(), a.beta = in[4].view(), a.log_gate = in[5].view();
  HeadsArray out = like(in[0]);
  attend_path(a, {out.view(), {}});
  expect(check, check, "out", out);
  const Json* members = check.part("gradient");
  if (members == nullptr) return;
  Check back(check, *members, "gradient");
  back.comparison = std::move(check.comparison);
  HeadsArray d_out = read(check, back.input("out"));
  std::vector<HeadsArray> d;
  for (const HeadsArray& x : in) d.push_back(like(x));
  PathGradients g;
  g.q = d[0].view(), g.k = d[1].view(), g.v = d[2].view();
  g.w = d[3].view(), g.beta = d[4].view(), g.log_gate = d[5].view();
  attend_path_backward(a, {d_out.view(), {}}, g);
  for (std::size_t n = 0; n < d.size(); ++n) expect(back, check, names[n], d[n]);
  check.comparison = std::move(back.comparison);
}

}  // namespace

void run_attend_function(Check& check) {
  const std::string name = check.text("function");
  if (name == "selective") return selective(check);
  if (name == "path") return path(check);
  throw NotExpressible("no function of attention is called " + name);
}

}  // namespace posenc::conformance
