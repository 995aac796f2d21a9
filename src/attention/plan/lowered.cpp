// SPDX-License-Identifier: Apache-2.0
// The schemes of a plan lowered: copies of the parameters, terms, and what they request of a call.
#include <algorithm>
#include <bit>

#include "attention/call/field_name.h"
#include "attention/plan/plan_call.h"
#include "core/element.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

// Two schemes that ask for different things are refused.
void join_requests(const std::string& who, const CallRequests& own, CallRequests& all) {
  if (own.scale) {
    if (all.scale && *all.scale != *own.scale)
      refuse_field(kPlan, "schemes",
                   "must require the same scale of q.k; " + who + " requires another", *own.scale);
    all.scale = own.scale;
  }
  if (!own.head_scale.empty()) {
    if (!all.head_scale.empty())
      refuse_sentence(kPlan, "schemes",
                      "only one scheme may require a scale for each head; a second one is", who);
    all.head_scale = own.head_scale;
  }
  if (!own.head_side.empty()) {
    if (!all.head_side.empty())
      refuse_sentence(kPlan, "schemes",
                      "only one scheme may require a side for each head; a second one is", who);
    all.head_side = own.head_side;
  }
  if (own.normalisation != Normalisation::softmax) {
    if (all.normalisation != Normalisation::softmax && all.normalisation != own.normalisation)
      refuse_field(kPlan, "schemes",
                   "must require the same normalisation; another one is required by", who);
    all.normalisation = own.normalisation;
  }
  all.prepare.insert(all.prepare.end(), own.prepare.begin(), own.prepare.end());
}

// A scheme that reads the distances of an axis that it was not given: told in the words of a call.
void lower_scheme(const PlanScheme& scheme, const ScoreShape& shape, SchemeTerms& to) {
  to.lowered = {};
  try {
    scheme.scheme.lower(shape, to.values, to.lowered);
  } catch (const ArgumentError& e) {
    if (e.who() != "shape") throw;  // ScoreShape::range
    const std::string who = scheme.name();
    if (shape.distance.empty())
      refuse_field(
          kPlan, "lower",
          "must be given distance_ranges of the positions, by which " + who + " adds to the score");
    refuse_number(kPlan, "query_positions",
                  "query_positions and key_positions must have the axes that " + who +
                      " reads, as [axes, batch, tokens]",
                  static_cast<Index>(shape.distance.size()));
  }
}

// The lines of such a term have no row for distances that were not lowered.
bool goes_by_distance(const Term& t) {
  const PickedRows* rows = picked_rows(t);
  return rows != nullptr &&
         std::any_of(rows->lines.begin(), rows->lines.end(),
                     [](const IndexLine& l) { return l.row != nullptr && l.edges == nullptr; });
}

}  // namespace

LoweredState::LoweredState(std::shared_ptr<const PlanState> of,
                           std::span<const NamedArray> parameters,
                           std::span<const DistanceRange> distance)
    : plan(std::move(of)), shape(plan->shape) {
  copy_parameters(parameters);
  shape.distance.assign(distance.begin(), distance.end());
  lower_schemes();
  // What one scheme requests is the content's scale for the terms of the others.
  if (!plan->sizes.scale && requests.scale && schemes.size() > 1) {
    shape.scale = requests.scale;
    lower_schemes();
  }
  scale = plan->sizes.scale ? *plan->sizes.scale
          : requests.scale
              ? *requests.scale
              : shape.content_scale() * (plan->rotary ? plan->rotary->logit_factor() : 1);
  for (SchemeTerms& s : schemes) {
    for (const Term& t : s.lowered.terms)
      s.bands.push_back(lowered_band(t, shape.distance, bands_));
    terms += s.lowered.terms.size();
    by_distance = by_distance || s.lowered.has_gaps ||
                  std::any_of(s.lowered.terms.begin(), s.lowered.terms.end(), goes_by_distance);
  }
}

void LoweredState::copy_parameters(std::span<const NamedArray> parameters) {
  check_known_names(parameters, "parameters", [&](const auto& fn) {
    for (const PlanScheme& s : plan->schemes)
      for (const std::string& name : s.parameter_names) fn(name);
  });
  for (const PlanScheme& s : plan->schemes) {
    SchemeTerms& to = schemes.emplace_back();
    for (std::size_t n = 0; n < s.parameters.size(); ++n) {
      const NamedArray* a = find_array(parameters, s.parameter_names[n]);
      if (a == nullptr)
        refuse_missing("parameters", s.parameter_names[n], s.name(),
                       shape_words(s.parameters[n].shape), "f64 or f32");
      to.values.push_back(
          parameters_.array(parameter_values(s.scheme.card().name, s.parameters[n], a->array),
                            s.parameters[n].shape));
    }
  }
}

void LoweredState::lower_schemes() {
  requests = {};
  for (std::size_t n = 0; n < schemes.size(); ++n) {
    lower_scheme(plan->schemes[n], shape, schemes[n]);
    join_requests(plan->schemes[n].name(), schemes[n].lowered.requests, requests);
  }
}

}  // namespace detail

const AttentionSizes& LoweredAttention::sizes() const noexcept {
  return state_->plan->sizes;
}
double LoweredAttention::scale() const noexcept {
  return state_->scale;
}
const CallRequests& LoweredAttention::requests() const noexcept {
  return state_->requests;
}

namespace {

bool same_distances(std::span<const DistanceRange> x, std::span<const DistanceRange> y) noexcept {
  const auto same_run = [](const DistanceRun& a, const DistanceRun& b) {
    return a.first == b.first && a.last == b.last;
  };
  return std::equal(
      x.begin(), x.end(), y.begin(), y.end(), [&](const DistanceRange& a, const DistanceRange& b) {
        return a.min == b.min && a.max == b.max &&
               std::equal(a.runs.begin(), a.runs.end(), b.runs.begin(), b.runs.end(), same_run);
      });
}

// Bits, so that a NaN equals itself and -0 is not 0. `kept` is dense f64.
bool same_numbers(const ConstTensorView& kept, const ConstTensorView& v) noexcept {
  const bool real = v.dtype == DType::f64 || v.dtype == DType::f32;
  if (!real || v.device != Device::cpu || v.empty() != kept.empty() || v.rank != kept.rank ||
      !std::equal(v.shape.begin(), v.shape.begin() + v.rank, kept.shape.begin()))
    return false;
  const auto* x = static_cast<const double*>(kept.data);
  std::array<Index, 5> at{};
  for (Index n = 0, count = kept.empty() ? 0 : kept.count(); n < count; ++n) {
    Index offset = 0;
    for (std::size_t a = 0; a < static_cast<std::size_t>(v.rank); ++a)
      offset += at[a] * v.stride[a];
    if (std::bit_cast<std::uint64_t>(x[n]) !=
        std::bit_cast<std::uint64_t>(detail::float_element(v.data, v.dtype, offset)))
      return false;
    for (auto a = static_cast<std::size_t>(v.rank); a-- > 0;) {
      if (++at[a] < v.shape[a]) break;
      at[a] = 0;
    }
  }
  return true;
}

}  // namespace

bool LoweredAttention::is_current(std::span<const NamedArray> parameters,
                                  std::span<const DistanceRange> distance) const noexcept {
  if (!same_distances(state_->shape.distance, distance)) return false;
  std::size_t known = 0;
  for (std::size_t s = 0; s < state_->schemes.size(); ++s) {
    const std::vector<std::string>& names = state_->plan->schemes[s].parameter_names;
    for (std::size_t n = 0; n < names.size(); ++n, ++known) {
      const auto given = std::find_if(parameters.begin(), parameters.end(),
                                      [&](const NamedArray& a) { return a.name == names[n]; });
      if (given == parameters.end() || !same_numbers(state_->schemes[s].values[n], given->array))
        return false;
    }
  }
  return known == parameters.size();
}

bool LoweredAttention::reads_content() const {
  const auto reads = [](const Term& t) {
    const TermArrays arrays = term_arrays(t);
    return arrays.query.content || arrays.key.content || std::holds_alternative<GatesTerm>(t) ||
           std::holds_alternative<ScoreMlpTerm>(t) || std::holds_alternative<ValueRowsTerm>(t);
  };
  for (std::size_t n = 0; n < state_->schemes.size(); ++n) {
    const std::vector<Term>& terms = state_->schemes[n].lowered.terms;
    const std::vector<std::string>& names = state_->plan->schemes[n].input_names;
    if (std::any_of(terms.begin(), terms.end(), reads) ||
        std::any_of(names.begin(), names.end(), detail::is_call_tensor))
      return true;
  }
  return false;
}

}  // namespace posenc::v0
