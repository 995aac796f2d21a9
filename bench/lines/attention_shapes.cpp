// SPDX-License-Identifier: Apache-2.0
// Attention in the shapes of models: one query behind a cache beside a plain loop over the same
// rows, selective attention and PaTH beside the exact engine with the same shape, and a plan's call
// beside `attend`.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "line.h"
#include "posenc/attention/attend.h"
#include "posenc/attention/path.h"
#include "posenc/attention/plan.h"
#include "posenc/attention/selective.h"
#include "posenc/positions/sequence.h"

namespace posenc::bench {
namespace {

using Floats = std::vector<float>;

Floats waves(Index n, double step) {
  Floats x;
  for (Index i = 0; i < n; ++i)
    x.push_back(static_cast<float>(std::sin(static_cast<double>(i) * step)));
  return x;
}
double largest_difference(const Floats& x, const Floats& y) {
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    most = std::max(most, std::fabs(static_cast<double>(x[i]) - static_cast<double>(y[i])));
  return most;
}

// One query behind 16,384 keys, contiguous or in pages of 16 in reverse order.
struct Decode {
  static constexpr Index kKeys = 16384, kHeads = 8, kDim = 64, kPage = 16;
  Decode(Index window, bool paged, bool exact)
      : first(std::max<Index>(0, kKeys - window)),
        q(waves(kHeads * kDim, 0.37)),
        k(waves(kKeys * kHeads * kDim, 0.11)),
        v(waves(kKeys * kHeads * kDim, 0.23)),
        out(q),
        want(q) {
    for (Index n = kKeys / kPage; n-- > 0;) pages.push_back(n);
    args.q = heads(std::as_const(q).data(), 1, kHeads, kDim);
    const std::vector<Index> shape = paged ? std::vector<Index>{kKeys / kPage, kPage, kHeads, kDim}
                                           : std::vector<Index>{1, kKeys, kHeads, kDim};
    args.k = heads(tensor(std::as_const(k).data(), DType::f32, shape), HeadsLayout::bthd);
    args.v = heads(tensor(std::as_const(v).data(), DType::f32, shape), HeadsLayout::bthd);
    args.scale = 0.125, args.mask.causal = true, args.mask.query_offset = kKeys - 1;
    args.exact = exact;
    if (window < kKeys) args.mask.window_left = window - 1;
    if (!paged) return;
    args.block_table = tensor(std::as_const(pages).data(), {1, kKeys / kPage});
    args.mask.key_length = tensor(&length, {1});
  }
  Decode(const Decode&) = delete;
  void run() { attend(args, {heads(out.data(), 1, kHeads, kDim), {}}, inline_executor()); }

  const float* row(const Floats& x, Index h, Index j) const {
    const Index slot = args.block_table.empty()
                           ? j
                           : pages[static_cast<std::size_t>(j / kPage)] * kPage + j % kPage;
    return x.data() + (slot * kHeads + h) * kDim;
  }
  // The same sums in double, from the rows as they are.
  void plain() {
    std::vector<double> p(static_cast<std::size_t>(kKeys - first));
    for (Index h = 0; h < kHeads; ++h) {
      double top = -HUGE_VAL, total = 0, sum[kDim] = {};
      for (Index j = first; j < kKeys; ++j) {
        const float *x = q.data() + h * kDim, *y = row(k, h, j);
        double s = 0;
        for (Index d = 0; d < kDim; ++d) s += static_cast<double>(x[d]) * static_cast<double>(y[d]);
        p[static_cast<std::size_t>(j - first)] = s * *args.scale;
        top = std::max(top, s * *args.scale);
      }
      for (double& s : p) total += s = std::exp(s - top);
      for (Index j = first; j < kKeys; ++j) {
        const double w = p[static_cast<std::size_t>(j - first)] / total;
        for (Index d = 0; d < kDim; ++d) sum[d] += w * static_cast<double>(row(v, h, j)[d]);
      }
      for (Index d = 0; d < kDim; ++d)
        want[static_cast<std::size_t>(h * kDim + d)] = static_cast<float>(sum[d]);
    }
  }

  Index first;
  Floats q, k, v, out, want;
  std::vector<Index> pages;
  Index length = kKeys;
  AttentionArgs args;
};

Line decode_line(const std::string& mask, Index window, bool paged, bool exact) {
  Line l;
  l.name = std::string("attention/f32/") + (exact ? "exact" : "none") + "/decode/" + mask +
           "/1x16384x8x64/threads:1";
  const auto keys = static_cast<double>(std::min(window, Decode::kKeys));
  l.bytes = 2 * keys * Decode::kHeads * Decode::kDim * sizeof(float);
  l.flops = 4 * keys * Decode::kHeads * Decode::kDim;
  l.limit_name = "plain_loop", l.goal = 3;
  l.prepare = [=] {
    const auto call = std::make_shared<Decode>(window, paged, exact);
    call->run();
    call->plain();
    return Prepared{[call] { call->run(); }, [call] { call->plain(); },
                    largest_difference(call->out, call->want), 1e-6};
  };
  return l;
}

// Tokens of one sequence, with the gradients of everything.
struct Sequence {
  Sequence(Index tokens, Index heads_count, Index dim) : T(tokens), H(heads_count), D(dim) {
    for (Floats* array : {&q, &k, &v, &up})
      *array = waves(T * H * D, 0.11 * static_cast<double>(array - &q + 1));
    out = d_q = d_k = d_v = q;
    w = d_w = waves(T * D, 0.2), beta = d_beta = waves(T, 0.3);
    for (Index t = 0; t < T; ++t) {  // reflections by unit vectors
      float* x = w.data() + t * D;
      double squares = 0;
      for (Index d = 0; d < D; ++d) squares += static_cast<double>(x[d] * x[d]);
      for (Index d = 0; d < D; ++d) x[d] /= static_cast<float>(std::sqrt(squares) + 1e-6);
    }
    args.q = view(q), args.k = view(k), args.v = view(v);
    args.scale = 0.125, args.mask.causal = true;
    args.exact = true;  // selective attention and PaTH have no other engine
    path.q = args.q, path.k = args.k, path.v = args.v;
    path.w = heads(w.data(), T, 1, D), path.beta = heads(beta.data(), T, 1, 1);
    gradients.q = view(d_q), gradients.k = view(d_k), gradients.v = view(d_v);
  }
  Sequence(const Sequence&) = delete;
  Heads view(Floats& x) const { return heads(x.data(), T, H, D); }
  AttentionResult result() { return {view(out), {}}; }
  ConstAttentionResult gradient() { return {view(up), {}}; }
  void plain(bool back) {
    const Executor& one = inline_executor();
    if (back) return attend_backward(args, result(), gradient(), gradients, one);
    attend(args, result(), one);
  }
  void selective(bool back) {
    const Executor& one = inline_executor();
    if (back) return attend_selective_backward(args, result(), gradient(), gradients, {}, one);
    attend_selective(args, result(), {}, one);
  }
  void reflected(bool back) {
    const Executor& one = inline_executor();
    if (!back) return attend_path(path, result(), one);
    PathGradients g{.q = gradients.q, .k = gradients.k, .v = gradients.v};
    g.w = heads(d_w.data(), T, 1, D), g.beta = heads(d_beta.data(), T, 1, 1);
    attend_path_backward(path, gradient(), g, one);
  }
  // The first query sees its own key alone: its output is that key's value.
  double error() const {
    double most = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(H * D); ++i)
      most = std::max(most, std::fabs(static_cast<double>(out[i]) - static_cast<double>(v[i])));
    return most;
  }

  Index T, H, D;
  Floats q, k, v, up, out, d_q, d_k, d_v, w, beta, d_w, d_beta;
  AttentionArgs args;
  PathArgs path;
  AttentionGradients gradients;
};

Line sequence_line(const std::string& scheme, Index tokens, bool back, double goal,
                   void (Sequence::*run)(bool)) {
  constexpr Index kHeads = 4, kDim = 64;
  Line l;
  l.name = "attention/f32/" + scheme + (back ? "/backward/causal/" : "/forward/causal/") +
           std::to_string(tokens) + "x4x64/threads:1";
  l.bytes = static_cast<double>(tokens * kHeads * kDim * (back ? 7 : 4)) * sizeof(float);
  l.limit_name = "exact_attend", l.goal = goal;
  l.prepare = [=] {
    const auto call = std::make_shared<Sequence>(tokens, kHeads, kDim);
    ((*call).*run)(false);
    return Prepared{[=] { ((*call).*run)(back); }, [=] { call->plain(back); }, call->error(), 1e-6};
  };
  return l;
}

// One query of a cache through a plan with T5's bias, in a workspace: what its checks, positions and
// terms cost beside the bare call. It allocates nothing (tests/no_allocation).
struct PlanCall {
  explicit PlanCall(Index keys)
      : T(keys),
        q(waves(kHeads * kDim, 0.37)),
        k(waves(T * kHeads * kDim, 0.11)),
        v(waves(T * kHeads * kDim, 0.23)),
        out(q) {
    args.q = heads(std::as_const(q).data(), 1, kHeads, kDim);
    args.k = heads(std::as_const(k).data(), T, kHeads, kDim);
    args.v = heads(std::as_const(v).data(), T, kHeads, kDim);
    args.scale = 1, args.mask.causal = true, args.mask.query_offset = T - 1;
    memory.resize(std::max(lowered.workspace_bytes(args, {}, inline_executor()),
                           workspace_bytes(args, inline_executor())));
  }
  PlanCall(const PlanCall&) = delete;
  AttentionResult result() { return {heads(out.data(), 1, kHeads, kDim), {}}; }
  void bind() { lowered.forward(args, {}, result(), inline_executor(), memory); }
  void plain() { attend(args, result(), inline_executor(), memory); }
  LoweredAttention lower() const {
    const AttentionPlan plan("t5 bidirectional=false", {.heads = kHeads, .head_dim = kDim});
    const NamedArray given{"table", tensor(table.data(), {32, kHeads})};
    const OwnedPositions at = arange(0, T), last = arange(T - 1, 1);
    return plan.lower({&given, 1}, distance_ranges(last, at));
  }
  // Of a bias that is 0 everywhere.
  double error() {
    bind();
    const Floats biased = out;
    plain();
    return largest_difference(biased, out);
  }

  static constexpr Index kHeads = 8, kDim = 64;
  Index T;
  Floats q, k, v, out, table = Floats(32 * kHeads);
  AttentionArgs args;
  LoweredAttention lowered = lower();
  std::vector<std::byte> memory;
};

Line plan_line(Index keys) {
  Line l;
  l.name = "attention/f32/t5/bind_plan/1x" + std::to_string(keys) + "x8x64/threads:1";
  l.bytes = static_cast<double>(2 * keys * PlanCall::kHeads * PlanCall::kDim) * sizeof(float);
  l.limit_name = "attend";
  l.prepare = [=] {
    const auto call = std::make_shared<PlanCall>(keys);
    return Prepared{[call] { call->bind(); }, [call] { call->plain(); }, call->error(), 1e-6};
  };
  return l;
}

}  // namespace

std::vector<Line> attention_shape_lines() {
  std::vector<Line> all{plan_line(1), plan_line(4096)};
  for (const bool exact : {true, false})
    for (const bool paged : {false, true}) {
      all.push_back(decode_line(paged ? "paged" : "causal", Decode::kKeys, paged, exact));
      all.push_back(decode_line(paged ? "window=1024,paged" : "window=1024", 1024, paged, exact));
    }
  for (const bool back : {false, true}) {
    all.push_back(sequence_line("selective", 1024, back, 1.5, &Sequence::selective));
    all.push_back(sequence_line("path", 256, back, 0, &Sequence::reflected));
  }
  return all;
}

}  // namespace posenc::bench
