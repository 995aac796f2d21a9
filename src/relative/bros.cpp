// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/bros.h"

#include <algorithm>
#include <cmath>

#include "kernels/matmul.h"
#include "posenc/core/error.h"
#include "relative/call_inputs.h"
#include "relative/learned.h"
#include "relative/lowering.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kBros = Bros::card.name;
using BrosList = std::vector<double>;

BrosList bros_boxes(const detail::CallInputs& given, const char* name) {
  return parameter_values(kBros, {name, given.shape(name), {}, {}}, given[name]);
}

// A box's angles: fn(token, place of its sine, place of its cosine, coordinate, rate of the angle,
// angle).
template <class F>
void bros_angles(const Bros& x, const BrosList& boxes, const F& fn) {
  const auto c = static_cast<std::size_t>(x.coordinates),
             f = static_cast<std::size_t>(x.frequencies);
  for (std::size_t t = 0; t < boxes.size() / c; ++t)
    for (std::size_t m = 0; m < c; ++m)
      for (std::size_t n = 0; n < f; ++n) {
        const double rate =
            x.unit * std::pow(x.base, -static_cast<double>(n) / static_cast<double>(f));
        fn(t, 2 * m * f + n, (2 * m + 1) * f + n, m, rate, rate * boxes[t * c + m]);
      }
}

// q W of every token and head, [batch tokens heads, width], and its factor: rotated by the query's
// own angles. q may have rows for a batch that the boxes do not have.
struct BrosQuery {
  BrosList q, boxes, projected, rotated;
  std::size_t width, heads, repeats;

  BrosQuery(const Bros& x, const ScoreShape& s, const BrosList& w, const detail::CallInputs& given)
      : q(detail::call_values(kBros, given["q"])),
        boxes(bros_boxes(given, "query_bbox")),
        width(static_cast<std::size_t>(x.width())),
        heads(static_cast<std::size_t>(s.heads)),
        repeats(static_cast<std::size_t>(given["q"].shape[0] /
                                         std::max<Index>(1, given["query_bbox"].shape[0]))) {
    const Index n = static_cast<Index>(q.size()) / s.head_dim;
    projected.assign(static_cast<std::size_t>(n) * width, 0.0);
    detail::add_product({q.data(), n, s.head_dim, s.head_dim, 1},
                        {w.data(), s.head_dim, x.width(), x.width(), 1},
                        {projected.data(), x.width(), 1});
    rotated = projected;
    each(x, [&](std::size_t sine, std::size_t cosine, std::size_t, double, double angle) {
      const double a = projected[sine], b = projected[cosine];
      rotated[sine] = a * std::cos(angle) + b * std::sin(angle);
      rotated[cosine] = b * std::cos(angle) - a * std::sin(angle);
    });
  }
  // fn(sine, cosine, place of the coordinate in the boxes, rate, angle) of every row and head.
  template <class F>
  void each(const Bros& x, const F& fn) const {
    const auto c = static_cast<std::size_t>(x.coordinates);
    const std::size_t tokens = boxes.size() / c;
    bros_angles(x, boxes,
                [&](std::size_t t, std::size_t sine, std::size_t cosine, std::size_t m, double rate,
                    double angle) {
                  for (std::size_t r = 0; r < repeats; ++r)
                    for (std::size_t h = 0; h < heads; ++h) {
                      const std::size_t at = ((r * tokens + t) * heads + h) * width;
                      fn(at + sine, at + cosine, t * c + m, rate, angle);
                    }
                });
  }
};

detail::CallInputs bros_inputs(const Bros& x, const ScoreShape& s, const CallData& call) {
  const detail::CallInputs given(x, s, call);
  for (const char* name : {"query_bbox", "key_bbox"})
    if (given[name].rank != 3 || given[name].shape[2] != x.coordinates)
      refuse_field(kBros, name, "must be [batch, tokens, coordinates], coordinates", x.coordinates);
  return given;
}

}  // namespace

std::vector<Parameter> Bros::parameters(const ScoreShape& s) const {
  check_fields(s);
  const ScoreAxes axes(s);
  return {{"w_bbox", {axes.head_dim, width()}, {InitialKind::normal, 0, 0.02}, {}}};
}

std::vector<Input> Bros::inputs(const ScoreShape& s) const {
  const ScoreAxes axes(s);
  return {{"q", {kBatch, kQueries, axes.heads, axes.head_dim}},
          {"query_bbox", {kBatch, kQueries, coordinates}},
          {"key_bbox", {kBatch, kKeys, coordinates}}};
}

void Bros::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
  check_parameter_count(kBros, 1, p.size());
  parameter_values(kBros, parameters(s)[0], p[0]);
  ProductTerm t;
  t.scale = s.content_scale();
  t.query.made_of_content = true;
  out.add(t);
}

void Bros::bind(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                std::span<Term> terms, TermStore& store) const {
  const detail::CallInputs given = bros_inputs(*this, s, call);
  BrosQuery query(*this, s, detail::LearnedValues(*this, s, p)["w_bbox"], given);
  const BrosList boxes = bros_boxes(given, "key_bbox");
  BrosList key(boxes.size() / static_cast<std::size_t>(coordinates) * query.width);
  bros_angles(
      *this, boxes,
      [&](std::size_t t, std::size_t sine, std::size_t cosine, std::size_t, double, double angle) {
        key[t * query.width + sine] = std::sin(angle);
        key[t * query.width + cosine] = std::cos(angle);
      });
  auto& t = std::get<ProductTerm>(terms[0]);
  t.query.given =
      store.vectors(std::move(query.rotated), given["q"].shape[0], call.queries, s.heads, width());
  t.key.given = store.vectors(std::move(key), given["key_bbox"].shape[0], call.keys, 1, width());
}

void Bros::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData& call,
                     const LoweredGradient& g, std::span<const TensorView> dp,
                     std::span<const TensorView> d_inputs) const {
  const detail::LearnedValues value(*this, s, p);
  detail::LearnedGradients to(value);
  to.check(dp);
  const detail::CallInputs given = bros_inputs(*this, s, call);
  const BrosList w = value["w_bbox"];
  const BrosQuery query(*this, s, w, given);
  const TermGradient& of = gradient_of(kBros, g.terms, 0);
  const Index batch = given["q"].shape[0];
  BrosList d = detail::vectors_gradient(kBros, of.query, {batch, call.queries, s.heads, width()});
  const BrosList d_key =
      detail::vectors_gradient(kBros, of.key, {given["key_bbox"].shape[0], call.keys, 1, width()});
  BrosList d_query_box(query.boxes.size());
  query.each(*this,
             [&](std::size_t sine, std::size_t cosine, std::size_t box, double rate, double angle) {
               const double a = d[sine], b = d[cosine];
               d_query_box[box] += rate * (a * query.rotated[cosine] - b * query.rotated[sine]);
               d[sine] = a * std::cos(angle) - b * std::sin(angle);
               d[cosine] = a * std::sin(angle) + b * std::cos(angle);
             });
  const BrosList boxes = bros_boxes(given, "key_bbox");
  BrosList d_key_box(boxes.size());
  bros_angles(*this, boxes,
              [&](std::size_t t, std::size_t sine, std::size_t cosine, std::size_t m, double rate,
                  double angle) {
                d_key_box[t * static_cast<std::size_t>(coordinates) + m] +=
                    rate * (d_key[t * query.width + sine] * std::cos(angle) -
                            d_key[t * query.width + cosine] * std::sin(angle));
              });
  const Index n = static_cast<Index>(query.q.size()) / s.head_dim;
  BrosList dw(w.size()), dq(query.q.size());
  detail::add_product({query.q.data(), s.head_dim, n, 1, s.head_dim},
                      {d.data(), n, width(), width(), 1}, {dw.data(), width(), 1});
  detail::add_product({d.data(), n, width(), width(), 1},
                      {w.data(), width(), s.head_dim, 1, width()}, {dq.data(), s.head_dim, 1});
  detail::InputGradients to_call(given);
  to_call["q"] = std::move(dq);
  to_call["query_bbox"] = std::move(d_query_box);
  to_call["key_bbox"] = std::move(d_key_box);
  to_call.check(d_inputs);
  to["w_bbox"] = std::move(dw);
  to.accumulate(dp);
  to_call.accumulate(d_inputs);
}

void Bros::check_fields(const ScoreShape& s) const {
  check_score_shape(s, kBros);
  if (coordinates < 1 || coordinates > 1024)
    refuse_field(kBros, "coordinates", "must lie between 1 and 1024", coordinates);
  if (frequencies < 1 || frequencies > 4096)
    refuse_field(kBros, "frequencies", "must lie between 1 and 4096", frequencies);
  if (!(std::isfinite(base) && base > 0))
    refuse_field(kBros, "base", "must be finite and above 0", base);
  if (!std::isfinite(unit)) refuse_field(kBros, "unit", "must be finite", unit);
}

}  // namespace posenc::v0
