// SPDX-License-Identifier: Apache-2.0
#include "attention/plan/plan_call.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/call/check_parts.h"
#include "attention/call/order_view.h"
#include "core/extent.h"
#include "core/q8_0.h"
#include "core/shape.h"
#include "posenc/attention/order.h"
#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"

namespace posenc::inline v0::detail {
namespace {

const ConstHeads& call_tensor(const AttentionArgs& a, std::string_view name) {
  return name == "q" ? a.q : name == "k" ? a.k : a.v;
}

Index wanted_size(Index size, const CallData& c) {
  return size == kQueries ? c.queries : size == kKeys ? c.keys : size;
}

bool fits(Index got, Index want, const CallData& c) {
  return want == kBatch ? got == c.batch || got == 1 : got == wanted_size(want, c);
}

[[noreturn]] void refuse_input(const Input& input, const std::string& name,
                               const ConstTensorView& v, const CallData& call) {
  std::string want;
  for (std::size_t a = 0; a < input.shape.size(); ++a) {
    const Index size = input.shape[a];
    want += (a == 0 ? "[" : ", ") +
            std::to_string(size == kBatch ? call.batch : wanted_size(size, call)) +
            (size == kBatch && call.batch != 1 ? " or 1" : "");
  }
  refuse_shape(kPlan, name, std::string("must have the shape ") + want + "]", shape_text(v));
}

// An input against its shape; a batch axis may be 1.
void check_input(const Input& input, const std::string& name, const ConstTensorView& v,
                 const CallData& call) {
  if (v.empty() && input.optional) return;
  if (v.device != Device::cpu) refuse_field(kPlan, name, "must be in the CPU's memory");
  check_extent(kPlan, name, v);
  bool same = v.rank == static_cast<std::int32_t>(input.shape.size());
  for (std::size_t a = 0; same && a < input.shape.size(); ++a)
    same = fits(v.shape[a], input.shape[a], call);
  if (!same) refuse_input(input, name, v, call);
  const bool integer = v.dtype == DType::i64 || v.dtype == DType::i32;
  const bool real = v.dtype == DType::f64 || v.dtype == DType::f32;
  if (input.integer ? !integer : !real)
    refuse_field(kPlan, name, input.integer ? "must be i64 or i32" : "must be f64 or f32",
                 dtype_name(v.dtype));
  if (v.empty() && v.count() > 0) refuse_field(kPlan, name, "must not be null");
}

// What a scheme lowered to must fit the call; told by the scheme's name, since a user knows no term.
// A table of each row of a batch is that of slopes for each sequence.
void check_fit(const PlanScheme& scheme, std::span<const Term> terms, const AttentionArgs& a) {
  const Index batch = a.q.batch;
  const auto check_axis = [&](std::int32_t axis) {
    for (const Positions* p : {&a.query_positions, &a.key_positions})
      if (p->data != nullptr && axis >= p->axes)
        refuse_field(kPlan, p == &a.query_positions ? "query_positions" : "key_positions",
                     std::string("must have the axes that ") + scheme.name() + " reads, at least " +
                         std::to_string(axis + 1) + " as [axes, batch, tokens]",
                     Index{p->axes});
  };
  for (const Term& t : terms) {
    if (const auto* linear = std::get_if<LinearTerm>(&t)) check_axis(linear->axis);
    if (const auto* mlp = std::get_if<DistanceMlpTerm>(&t)) check_axis(mlp->axis);
    if (const PickedRows* rows = picked_rows(t))
      for (const IndexLine& line : rows->lines)
        if (line.row != nullptr) check_axis(line.axis);
    const ConstTensorView table = term_arrays(t).table;
    if (table.rank == 4 && table.shape[0] != 1 && table.shape[0] != batch)
      refuse_field(kPlan, "q",
                   "must have the batch that " + scheme.name() + " has numbers for, " +
                       std::to_string(table.shape[0]),
                   batch);
  }
}

}  // namespace

[[noreturn]] void refuse_missing(std::string_view list, const std::string& name,
                                 std::string_view scheme, const std::string& shape,
                                 std::string_view types) {
  refuse_field(kPlan, list,
               std::string("must have the array \"") + name + "\" of " + std::string(scheme) +
                   ", " + shape + " of " + std::string(types) + ", which is missing");
}

std::string shape_words(std::span<const Index> shape) {
  std::string text = "[";
  for (const Index size : shape)
    text += (text.size() > 1 ? ", " : "") + (size == kBatch     ? "batch or 1"
                                             : size == kQueries ? "queries"
                                             : size == kKeys    ? "keys"
                                                                : std::to_string(size));
  return text + "]";
}

PlanCall::PlanCall(const LoweredState& s, const AttentionArgs& call,
                   std::span<const NamedArray> inputs, CallArena& arena)
    : args(call), arena_(arena) {
  const AttentionSizes& plan = s.plan->sizes;
  const Index got[] = {call.q.heads, call.q.dim, call.k.heads, head_size(call.v)};
  const Index want[] = {plan.heads, plan.head_dim, plan.key_heads, plan.value_dim};
  const char* what[][2] = {
      {"q", "heads"}, {"q", "head_dim"}, {"k", "key_heads"}, {"v", "value_dim"}};
  for (std::size_t n = 0; n < 4; ++n)
    if (got[n] != want[n])
      refuse_field(
          kPlan, what[n][0],
          std::string("must have the ") + what[n][1] + " of the plan, " + std::to_string(want[n]),
          got[n]);
  check_tensors(args);
  const CallSizes sizes(args);
  check_positions(args.query_positions, sizes.batch, sizes.queries, "query_positions");
  check_positions(args.key_positions, sizes.key_rows, sizes.keys, "key_positions");
  fill_positions();
  check_distances(s);
  merge_requests(s);
  add_stages(s);
  add_rotations(s);
  bind_schemes(s, inputs);
}

// Tokens count up unless something else says where they are.
void PlanCall::fill_positions() {
  const Index keys = CallSizes(args).keys;
  const bool queries = args.query_positions.data == nullptr && args.q.tokens > 0;
  if (!queries && (args.key_positions.data != nullptr || keys <= 0)) return;
  check_mask(args, CallSizes(args));
  check_attention_indices(args);
  const OrderPositions of_order = positions_by_order(args, arena_);
  if (queries) args.query_positions = of_order.query;
  if (args.key_positions.data == nullptr && keys > 0) args.key_positions = of_order.key;
}

// A line is constant beyond what was lowered, which most schemes are not, and holds anything between
// distances that were. What a causal mask, a window or a chunk hides needs no row.
void PlanCall::check_distances(const LoweredState& s) const {
  if (!s.by_distance || s.shape.distance.empty() ||
      args.query_positions.axes != args.key_positions.axes)
    return;
  const Mask& m = args.mask;
  const bool all_future = !m.causal && m.window_right == kUnbounded && m.chunk == 0;
  const bool all_past = m.window_left == kUnbounded && m.chunk == 0;
  check_distance_positions(args.query_positions, args.key_positions);
  for (std::int32_t axis = 0; axis < args.query_positions.axes; ++axis) {
    const DistanceRange of_call = distance_range(args.query_positions, args.key_positions, axis);
    if (const auto a = static_cast<std::size_t>(axis); a < s.shape.distance.size())
      check_lowered(of_call, s.shape.distance[a], all_future, all_past);
  }
}

void PlanCall::merge_requests(const LoweredState& s) {
  if (args.scale && *args.scale != s.scale)
    refuse_number(
        kPlan, "scale",
        "scale of the call must be absent or that of the plan, which AttentionSizes::scale sets",
        *args.scale);
  args.scale = s.scale;
  const CallRequests& r = s.requests;
  if (!r.head_scale.empty()) {
    if (!args.head_scale.empty())
      refuse_field(kPlan, "head_scale", "must be empty where a scheme has its own");
    args.head_scale = r.head_scale;
  }
  if (!r.head_side.empty()) {
    if (!args.mask.head_side.empty())
      refuse_field(kPlan, "head_side", "must be empty where a scheme has its own");
    args.mask.head_side = r.head_side;
  }
  if (r.normalisation == Normalisation::softmax) return;
  if (args.normalisation != Normalisation::softmax && args.normalisation != r.normalisation)
    refuse_sentence(kPlan, "normalisation", "normalisation of the call must be that of the scheme",
                    enum_text(args.normalisation));
  args.normalisation = r.normalisation;
}

// The caller's, the plan's rotation at its place or after them, what schemes ask for.
void PlanCall::add_stages(const LoweredState& s) {
  const std::optional<RotarySpec>& rotary = s.plan->rotary;
  stages = args.prepare.size();
  const auto marks_place = [](const Stage& stage) {
    return stage.kind == StageKind::rotate && stage.rotary == nullptr;
  };
  const bool placed = std::any_of(args.prepare.begin(), args.prepare.end(), marks_place);
  const bool added = rotary && !placed;
  stages_ = arena_.objects<Stage>(
      static_cast<Index>(stages + (added ? 1 : 0) + s.requests.prepare.size()));
  auto next = std::copy(args.prepare.begin(), args.prepare.end(), stages_.begin());
  if (added) *next++ = {.kind = StageKind::rotate, .rotary = &*rotary};
  std::copy(s.requests.prepare.begin(), s.requests.prepare.end(), next);
  rotations_ = arena_.objects<const RotaryPlan*>(static_cast<Index>(stages_.size()));
  narrow_rotations_ = arena_.objects<const RotaryPlan*>(static_cast<Index>(stages_.size()));
  for (std::size_t n = 0; n < stages_.size(); ++n) {
    Stage& stage = stages_[n];
    if (n < stages && marks_place(stage)) {
      if (!rotary)
        refuse_sentence(kPlan, "prepare",
                        "a rotate stage without a rotation needs a rotary encoding in the plan");
      stage.rotary = &*rotary;
    }
    if (!rotary || stage.rotary != &*rotary) continue;
    rotations_[n] = &*s.plan->rotation;
    narrow_rotations_[n] = &*s.plan->narrow_rotation;
  }
  args.prepare = stages_;
}

// Regions without q and k of their own are those of the plan's rotation.
void PlanCall::add_rotations(const LoweredState& s) {
  const std::optional<RotarySpec>& rotary = s.plan->rotary;
  if (rotary)
    spec_ = &*rotary, of_spec_ = &*s.plan->rotation, narrow_of_spec_ = &*s.plan->narrow_rotation;
  regions_ = arena_.objects<ScoreRegion>(static_cast<Index>(args.regions.size()));
  std::copy(args.regions.begin(), args.regions.end(), regions_.begin());
  for (ScoreRegion& r : regions_) {
    if (r.rotary != nullptr || r.qk.q.dim != 0 || r.qk.k.dim != 0) continue;
    if (!rotary)
      refuse_sentence(kPlan, "regions",
                      "regions without qk rotate q and k and need a rotary encoding");
    r.rotary = spec_;
  }
  args.regions = regions_;
}

void PlanCall::bind_inputs(const PlanScheme& scheme, std::span<const NamedArray> inputs,
                           Bound& to) {
  const std::span<ConstTensorView> views =
      arena_.objects<ConstTensorView>(static_cast<Index>(scheme.inputs.size()));
  for (std::size_t n = 0; n < scheme.inputs.size(); ++n) {
    const std::string& name = scheme.input_names[n];
    if (is_call_tensor(name)) {
      if (name != "q" && !args.block_table.empty())
        refuse_sentence(kPlan, "block_table",
                        "a scheme that reads keys or values needs them without pages; it reads",
                        name);
      if (has_blocks(call_tensor(args, name)))
        refuse_field(kPlan, name, "must not be in q8_0 blocks: " + scheme.name() + " reads it");
      views[n] = as_tensor(call_tensor(args, name));
      continue;
    }
    const NamedArray* a = find_array(inputs, name);
    if (a == nullptr && !scheme.inputs[n].optional)
      refuse_missing("inputs", name, scheme.name(), shape_words(scheme.inputs[n].shape),
                     scheme.inputs[n].integer ? "i64 or i32" : "f64 or f32");
    if (a != nullptr) views[n] = a->array;
    check_input(scheme.inputs[n], name, views[n], to.data);
  }
  to.inputs = to.data.inputs = views;
}

void PlanCall::bind_schemes(const LoweredState& s, std::span<const NamedArray> inputs) {
  check_known_names(inputs, "inputs", [&](const auto& fn) {
    for (const PlanScheme& scheme : s.plan->schemes)
      for (const std::string& name : scheme.input_names)
        if (!is_call_tensor(name)) fn(name);
  });
  find_own_keys();
  own = args.terms.size();
  terms_ = arena_.objects<Term>(static_cast<Index>(s.terms + own));
  bands_ = arena_.objects<const Band*>(static_cast<Index>(s.terms + own));
  schemes = arena_.objects<Bound>(static_cast<Index>(s.schemes.size()));
  more_stores_.resize(std::max(s.schemes.size(), stores_.size()) - stores_.size());
  std::size_t first = 0;
  const CallData data{.batch = args.q.batch,
                      .queries = args.q.tokens,
                      .keys = CallSizes(args).keys,
                      .query_offset = args.mask.query_offset,
                      .query_positions = args.query_positions,
                      .key_positions = args.key_positions,
                      .own_keys = own_keys_,
                      .query_orders = query_orders_,
                      .keys_by_order = keys_by_order_};
  for (std::size_t n = 0; n < s.schemes.size(); ++n) {
    const PlanScheme& scheme = s.plan->schemes[n];
    const SchemeTerms& lowered = s.schemes[n];
    Bound& b = schemes[n];
    b.data = data;
    bind_inputs(scheme, inputs, b);
    b.first = first;
    const std::span<Term> terms = terms_.subspan(first, lowered.lowered.terms.size());
    std::copy(lowered.lowered.terms.begin(), lowered.lowered.terms.end(), terms.begin());
    std::copy(lowered.bands.begin(), lowered.bands.end(),
              bands_.begin() + static_cast<std::ptrdiff_t>(first));
    scheme.scheme.bind(s.shape, lowered.values, b.data, terms,
                       n < stores_.size() ? stores_[n] : more_stores_[n - stores_.size()]);
    check_fit(scheme, terms, args);
    first += terms.size();
  }
  std::copy(args.terms.begin(), args.terms.end(),
            terms_.begin() + static_cast<std::ptrdiff_t>(first));
  move_network_last();
  first_own = s.terms - (moved_ ? 1 : 0);
  args.terms = terms_;
}

// And the orders of the queries. Where they are not the keys from query_offset on.
void PlanCall::find_own_keys() {
  const Mask& m = args.mask;
  if (m.query_cu_seqlens.empty() && m.query_order.empty() && m.query_offsets.empty()) return;
  check_mask(args, CallSizes(args));
  check_attention_indices(args);
  const OrderView o(args, arena_);
  const bool rows = !m.query_offsets.empty() || o.query_order_rows > 1 || o.key_order_rows > 1;
  const Index count = rows && m.query_cu_seqlens.empty() ? args.q.batch : 1;
  const std::span<Index> own_keys = arena_.objects<Index>(count * o.Tq);
  const std::span<Index> query_orders = arena_.objects<Index>(count * o.Tq);
  std::size_t n = 0;
  for (Index b = 0; b < count; ++b)
    for (Index i = 0; i < o.Tq; ++i, ++n) {
      const QueryPlace place = o.place(b, i);
      own_keys[n] = o.key_at_own_order(place);
      query_orders[n] = place.order;
    }
  own_keys_ = own_keys, query_orders_ = query_orders;
  keys_by_order_ = o.keys_by_order;
}

// A network over scores reads the other terms, the caller's too, and is the last.
void PlanCall::move_network_last() {
  const auto end = terms_.end() - static_cast<std::ptrdiff_t>(own);
  const auto network = std::find_if(
      terms_.begin(), end, [](const Term& t) { return std::holds_alternative<ScoreMlpTerm>(t); });
  if (network == end) return;
  moved_ = static_cast<std::size_t>(network - terms_.begin());
  std::rotate(network, network + 1, terms_.end());
  const auto band = bands_.begin() + static_cast<std::ptrdiff_t>(*moved_);
  std::rotate(band, band + 1, bands_.end());
}

std::size_t PlanCall::term_index(std::size_t scheme, std::size_t n) const noexcept {
  const std::size_t at = schemes[scheme].first + n;
  if (!moved_ || at < *moved_) return at;
  return at == *moved_ ? terms_.size() - 1 : at - 1;
}

}  // namespace posenc::v0::detail
