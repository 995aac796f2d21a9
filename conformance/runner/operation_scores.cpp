// SPDX-License-Identifier: Apache-2.0
// scores: q.k after rotation, pair by pair in double, with one rotation a region of the score where
// a distance map cuts it (Self-Extend, ReRoPE, dual chunk).
#include <cmath>

#include "conformance/runner/encoding.h"
#include "conformance/runner/position_list.h"
#include "conformance/runner/rule.h"
#include "conformance/runner/tensors.h"
#include "posenc/core/error.h"
#include "posenc/rotary/plan.h"

namespace posenc::conformance {
namespace {

std::vector<Index> whole(const OwnedPositions& p) {
  if (p.value.index() != 0) refuse("case", "a distance map needs whole positions");
  return std::get<std::vector<Index>>(p.value);
}

// Plain rotary is one region that holds every pair.
DistanceMap plain(const OwnedPositions& query, const OwnedPositions& key) {
  DistanceRegion region;
  region.query = query;
  region.key = key;
  return {region};
}

DistanceMap map_of(const Check& check, const OwnedPositions& query, const OwnedPositions& key) {
  if (check.find("map") == nullptr) return plain(query, key);
  const Rule rule(check.text("map"));
  const std::vector<Index> q = whole(query), k = whole(key);
  DistanceMap map;
  if (rule.name() == "self_extend")
    map = self_extend(q, k, rule.integer("window"), rule.integer("group"),
                      rule.choice("ratio", SelfExtendRatio::floored));
  else if (rule.name() == "rerope")
    map = rerope(q, k, rule.integer("window"));
  else if (rule.name() == "leaky_rerope")
    map = leaky_rerope(q, k, rule.integer("window"), rule.number("factor"));
  else if (rule.name() == "dual_chunk")
    map = dual_chunk(q, k, {rule.integer("chunk_size"), rule.integer("local_size")});
  else
    throw NotExpressible("no distance map is called " + rule.name());
  rule.all_used();
  return map;
}

struct Vectors {
  HeadsArray data;
  std::vector<double> values;

  double at(Index b, Index t, Index h, Index d) const {
    const Axes& a = data.axes;
    return values[static_cast<std::size_t>(b * a['b'].stride + t * a['t'].stride +
                                           h * a['h'].stride + d * a['d'].stride)];
  }
};

Vectors turned(const RotaryPlan& plan, const HeadsArray& x, const OwnedPositions& positions,
               bool as_query) {
  Vectors out{x, {}};
  const Heads view = out.data.view();
  const QK qk = as_query ? QK{view, {}} : QK{{}, view};
  plan.apply(qk, positions);
  out.values = out.data.data.doubles();
  return out;
}

// log-n and the like: a factor on q by its position.
std::vector<double> query_factors(const Check& check, const OwnedPositions& positions) {
  std::vector<double> factors(static_cast<std::size_t>(positions.count()), 1.0);
  if (check.find("temperature") == nullptr) return factors;
  const Rule rule(check.text("temperature"));
  QueryTemperature temperature;
  if (rule.name() != "log_n") throw NotExpressible("no temperature is called " + rule.name());
  temperature.form = TemperatureForm::log_n;
  temperature.period = rule.integer("period");
  rule.all_used();
  const Positions view = positions;
  for (Index t = 0; t < positions.count(); ++t)
    factors[static_cast<std::size_t>(t)] = query_factor(temperature, position_at(view, 0, 0, t));
  return factors;
}

void check_sizes(const HeadsArray& q, const HeadsArray& k, const OwnedPositions& query,
                 const OwnedPositions& key) {
  const Index heads = k.axes['h'].size;
  if (heads < 1 || q.axes['h'].size % heads != 0)
    refuse("case", "heads of k must divide those of q", heads);
  if (q.axes['b'].size != k.axes['b'].size)
    refuse("case", "q and k must have one batch", k.axes['b'].size);
  if (query.count() != q.axes['t'].size)
    refuse_field("case", "q", "needs a position each", query.count());
  if (key.count() != k.axes['t'].size)
    refuse_field("case", "k", "needs a position each", key.count());
}

double dot(const Vectors& q, const Vectors& k, Index b, Index h, Index i, Index j) {
  const Index dim = q.data.axes['d'].size;
  const Index group = q.data.axes['h'].size / k.data.axes['h'].size;
  double sum = 0;
  for (Index d = 0; d < dim; ++d) sum += q.at(b, i, h, d) * k.at(b, j, h / group, d);
  return sum;
}

bool holds(const DistanceRegion& region, const Positions& query, const Positions& key, Index i,
           Index j, bool everything) {
  return everything ||
         region.contains(integer_position_at(query, 0, 0, i), integer_position_at(key, 0, 0, j));
}

void expect_distances(Check& check, const DistanceMap& map, const OwnedPositions& query,
                      const OwnedPositions& key) {
  const std::string* name = check.array_name("out", "distance");
  if (name == nullptr) return;
  const std::vector<Index> q = whole(query), k = whole(key);
  std::vector<double> distances;
  for (std::size_t i = 0; i < q.size(); ++i)
    for (std::size_t j = 0; j < k.size(); ++j) {
      const bool hidden = check.flag("causal") && k[j] > q[i];
      distances.push_back(
          hidden ? 0 : mapped_distance(map, q, k, static_cast<Index>(i), static_cast<Index>(j)));
    }
  check.expect("distance", distances, {query.count(), key.count()});
}

}  // namespace

void run_scores(Check& check) {
  const RotarySpec spec = rotary_of(check);
  const RotaryPlan plan(spec, DType::f64, {.outside = OutsideRange::allow});
  // Programs that turn cached keys by another rule than queries.
  const RotaryPlan k_plan(
      check.find("k_scheme") == nullptr ? spec : resolve(encoding_of(check, "k_scheme")),
      DType::f64, {.outside = OutsideRange::allow});
  const Slice q = check.input("q"), k = check.input("k");
  const std::string letters = letters_of(check, q);
  const HeadsArray q_in = heads_of(q, DType::f64, letters, spec.head_dim);
  const HeadsArray k_in = heads_of(k, DType::f64, letters_of(check, k, letters), spec.head_dim);
  const OwnedPositions query = positions_of(check, "q_positions");
  const OwnedPositions key = positions_of(check, "k_positions");
  check_sizes(q_in, k_in, query, key);
  const DistanceMap map = map_of(check, query, key);
  const bool everything = check.find("map") == nullptr, causal = check.flag("causal");
  const std::vector<double> factors = query_factors(check, query);
  const double scale = check.number("scale", 1 / std::sqrt(static_cast<double>(spec.head_dim)));
  const Index batch = q_in.axes['b'].size, heads = q_in.axes['h'].size;
  const Index rows = q_in.axes['t'].size, columns = k_in.axes['t'].size;
  std::vector<double> scores(static_cast<std::size_t>(batch * heads * rows * columns), 0);
  const Positions qp = query, kp = key;
  for (const DistanceRegion& region : map) {
    const Vectors tq = turned(plan, q_in, region.query, true);
    const Vectors tk = turned(k_plan, k_in, region.key, false);
    std::size_t at = 0;
    for (Index b = 0; b < batch; ++b)
      for (Index h = 0; h < heads; ++h)
        for (Index i = 0; i < rows; ++i)
          for (Index j = 0; j < columns; ++j, ++at) {
            if (!holds(region, qp, kp, i, j, everything)) continue;
            if (causal && position_at(kp, 0, 0, j) > position_at(qp, 0, 0, i)) continue;
            scores[at] = scale * factors[static_cast<std::size_t>(i)] * dot(tq, tk, b, h, i, j);
          }
  }
  check.expect("scores", scores, {batch, heads, rows, columns});
  expect_distances(check, map, query, key);
}

}  // namespace posenc::conformance
