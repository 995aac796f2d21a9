// SPDX-License-Identifier: Apache-2.0
// Calls with orders of queries and keys, in turns with the same call with an offset.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "line.h"
#include "posenc/attention/attend.h"
#include "posenc/positions/sequence.h"

namespace posenc::bench {
namespace {

constexpr Index kHeads = 8;

// What is summed over the keys of a row: nothing, the gates of a forgetting head, what is left of a stick.
enum class Scan : std::uint8_t { none, gates, sticks };
constexpr const char* kScan[] = {"", "gates/", "sticks/"};

struct OrderShape {
  Index queries, keys, dim;
  bool ascends;  // else a ring buffer, whose newest keys overwrote the oldest ones
  Scan scan = Scan::none;
};

// The queries are the newest tokens. Both calls see as many pairs.
struct OrderedAttend {
  explicit OrderedAttend(const OrderShape& s) : shape(s) {
    const Index sizes[] = {s.queries, s.keys, s.keys};
    for (std::size_t array = 0; array < 3; ++array)
      for (Index i = 0; i < sizes[array] * kHeads * s.dim; ++i)
        x[array].push_back(static_cast<float>(
            std::sin(static_cast<double>(i) * static_cast<double>(array + 2) * 0.37)));
    out.resize(x[0].size());
    of_queries.resize(static_cast<std::size_t>(s.queries));
    of_keys.resize(static_cast<std::size_t>(s.keys));
    std::iota(of_queries.begin(), of_queries.end(), s.keys - s.queries);
    std::iota(of_keys.begin(), of_keys.end(), Index{0});
    if (!s.ascends) std::rotate(of_keys.begin(), of_keys.begin() + s.keys / 3, of_keys.end());
    offset.q = view(x[0], s.queries), offset.k = view(x[1], s.keys), offset.v = view(x[2], s.keys);
    offset.scale = 1 / std::sqrt(static_cast<double>(s.dim));
    offset.mask.causal = true;
    if (s.scan == Scan::sticks) {  // so low that something is left after all keys
      offset.normalisation = Normalisation::stick_breaking;
      std::get<ProductTerm>(terms.emplace_back(ProductTerm{})).table = tensor(&low, {1, 1, 1, 1});
    }
    if (s.scan == Scan::gates) {
      GatesTerm& t = std::get<GatesTerm>(terms.emplace_back(GatesTerm{}));
      t.query = t.key = kContent, t.gate = Gate::log_sigmoid;
      t.gate_scale = *offset.scale, t.scale = 0.05;
    }
    offset.terms = terms;
    ordered = offset;
    offset.mask.query_offset = s.keys - s.queries;
    ordered.mask.query_order = tensor(std::as_const(of_queries).data(), {1, s.queries});
    ordered.mask.key_order = tensor(std::as_const(of_keys).data(), {1, s.keys});
  }
  OrderedAttend(const OrderedAttend&) = delete;
  ConstHeads view(const std::vector<float>& v, Index tokens) const {
    return heads(v.data(), tokens, kHeads, shape.dim);
  }
  void run(const AttentionArgs& a) {
    attend(a, {heads(out.data(), shape.queries, kHeads, shape.dim), {}}, inline_executor());
  }
  double error() {
    run(ordered);
    const std::vector<float> got = out;
    AttentionArgs exact = ordered;
    exact.exact = true;
    run(exact);
    double worst = 0;
    for (std::size_t n = 0; n < got.size(); ++n)
      worst = std::max(worst, std::abs(static_cast<double>(got[n]) - static_cast<double>(out[n])));
    return worst;
  }

  OrderShape shape;
  std::vector<float> x[3], out;
  std::vector<Index> of_queries, of_keys;
  std::vector<Term> terms;
  const double low = -12;
  AttentionArgs offset, ordered;
};

Line order_line(const OrderShape& s, double goal) {
  Line l;
  l.name = "attend/f32/" + std::string(s.ascends ? "ascending_orders/" : "orders/") +
           kScan[static_cast<std::size_t>(s.scan)] + "causal/" + std::to_string(s.queries) + 'x' +
           std::to_string(s.keys) + 'x' + std::to_string(kHeads) + 'x' + std::to_string(s.dim);
  l.bytes = 8.0 * static_cast<double>((s.queries + s.keys) * kHeads * s.dim);
  l.limit_name = "offset", l.goal = goal;
  l.prepare = [=] {
    const auto call = std::make_shared<OrderedAttend>(s);
    Prepared r;
    r.max_error = call->error(), r.bound = 5e-6;
    r.run = [call] { call->run(call->ordered); };
    r.limit = [call] { call->run(call->offset); };
    return r;
  };
  return l;
}

}  // namespace

std::vector<Line> order_lines() {
  return {order_line({1, 16384, 128, true}, 1.05),
          order_line({1, 16384, 128, false}, 1.2),
          order_line({16, 16384, 128, true}, 1.05),
          order_line({2048, 2048, 64, true}, 1.05),
          order_line({2048, 2048, 64, false}, 1.6),
          order_line({1, 16384, 128, true, Scan::gates}, 1.05),
          order_line({2048, 2048, 64, true, Scan::gates}, 1.05),
          order_line({1, 16384, 128, true, Scan::sticks}, 1.05),
          order_line({2048, 2048, 64, true, Scan::sticks}, 1.05)};
}

}  // namespace posenc::bench
