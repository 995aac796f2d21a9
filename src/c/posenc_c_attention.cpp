// SPDX-License-Identifier: Apache-2.0
// The C interface to attention with position terms.
#include <optional>
#include <vector>

#include "c/support.h"
#include "posenc/attention/plan.h"
#include "posenc/core/key_blocks.h"

using namespace posenc::c;

struct posenc_attention {
  posenc::AttentionPlan plan;
  std::optional<posenc::LoweredAttention> lowered;  // by posenc_attention_lower
  std::vector<posenc::Parameter> parameters;
  std::vector<posenc::Input> inputs;
};

namespace {

posenc::ConstTensorView optional_view(const PosencDLTensor* t) {
  return t == nullptr ? posenc::ConstTensorView{} : posenc::const_from_dlpack(*t);
}

posenc::Positions optional_positions(const PosencDLTensor* t) {
  return t == nullptr ? posenc::Positions{} : posenc::positions(posenc::const_from_dlpack(*t));
}

posenc::HeadsLayout call_layout(const posenc_attention_call& c) {
  return posenc::layout_from_name(std::string_view(&need(c.layout, "call.layout")));
}

// Pages have the batch in front, whatever q has.
posenc::HeadsLayout key_layout(const posenc_attention_call& c) {
  const posenc::HeadsLayout layout = call_layout(c);
  return c.block_table != nullptr && layout == posenc::HeadsLayout::thd ? posenc::HeadsLayout::bthd
                                                                        : layout;
}

posenc::Heads heads_in(const PosencDLTensor* t, posenc::HeadsLayout layout) {
  return t == nullptr ? posenc::Heads{} : posenc::heads(posenc::from_dlpack(*t), layout);
}

posenc_attention_call known_call(const posenc_attention_call* given) {
  posenc_attention_call defaults{};
  defaults.struct_size = sizeof defaults;
  return taken(need(given, "call"), defaults, "call");
}

// Score regions, and where their gradients go.
class Regions {
 public:
  explicit Regions(const posenc_attention_call& c) {
    const auto* at = reinterpret_cast<const std::byte*>(c.regions);
    for (std::size_t n = 0; n < c.region_count; ++n) {
      const auto& given = *reinterpret_cast<const posenc_score_region*>(
          at + n * need(c.regions, "call.regions").struct_size);
      if (given.struct_size != c.regions->struct_size)
        posenc::refuse_field("c", "regions", "must have the struct_size of the first",
                             static_cast<posenc::Index>(given.struct_size));
      posenc_score_region defaults{};
      defaults.struct_size = sizeof defaults;
      add(c, taken(given, defaults, "regions"));
    }
  }
  std::span<const posenc::ScoreRegion> list() const noexcept { return list_; }
  // Empty: none is wanted.
  std::span<const posenc::QK> gradients() const noexcept {
    return wanted_ ? std::span(gradients_) : std::span<const posenc::QK>();
  }
  bool wanted() const noexcept { return wanted_; }

 private:
  void add(const posenc_attention_call& c, const posenc_score_region& r) {
    const auto read = [](const PosencDLTensor* t, posenc::HeadsLayout layout) {
      return t == nullptr ? posenc::ConstHeads{}
                          : posenc::heads(posenc::const_from_dlpack(*t), layout);
    };
    posenc::ScoreRegion& to = list_.emplace_back();
    to.qk = {read(r.q, call_layout(c)), read(r.k, key_layout(c))};
    to.chunk = r.chunk, to.low = std::max(r.low, -posenc::kUnbounded), to.high = r.high;
    if (r.axis < 0 || r.axis > INT32_MAX)
      posenc::refuse_field("c", "axis of a region", "must be that of the positions",
                           posenc::Index{r.axis});
    to.axis = static_cast<std::int32_t>(r.axis);
    to.query_positions = optional_positions(r.query_positions);
    to.key_positions = optional_positions(r.key_positions);
    if (r.rotation != nullptr) to.rotary = &r.rotation->plan.spec();
    gradients_.push_back({heads_in(r.d_q, call_layout(c)), heads_in(r.d_k, key_layout(c))});
    wanted_ = wanted_ || r.d_q != nullptr || r.d_k != nullptr;
  }
  std::vector<posenc::ScoreRegion> list_;
  std::vector<posenc::QK> gradients_;
  bool wanted_ = false;
};

posenc::AttentionArgs arguments(const posenc_attention_call& c, const Regions& regions) {
  const posenc::HeadsLayout layout = call_layout(c);
  const auto given = [&](const PosencDLTensor* t, const char* name, posenc::HeadsLayout axes) {
    return posenc::heads(posenc::const_from_dlpack(need(t, name)), axes);
  };
  const auto given_keys = [&](const PosencDLTensor* t, const char* name) {
    const posenc::ConstTensorView x = posenc::const_from_dlpack(need(t, name));
    return x.dtype == posenc::DType::u8 ? posenc::key_blocks(x, key_layout(c))
                                        : posenc::heads(x, key_layout(c));
  };
  posenc::AttentionArgs a;
  a.q = given(c.q, "call.q", layout);
  a.k = given_keys(c.k, "call.k");
  a.v = given_keys(c.v, "call.v");
  a.query_positions = optional_positions(c.query_positions);
  a.key_positions = optional_positions(c.key_positions);
  a.softcap = c.softcap;
  a.softcap_after_terms = c.softcap_after_terms != 0;
  a.exact = c.exact != 0;
  a.block_table = optional_view(c.block_table);
  a.sink = optional_view(c.sink);
  a.query_factor = optional_view(c.query_factor);
  a.head_scale = optional_view(c.head_scale);
  a.mix_before = optional_view(c.mix_before);
  a.mix_after = optional_view(c.mix_after);
  a.regions = regions.list();
  posenc::Mask& m = a.mask;
  m.causal = c.causal != 0;
  m.query_offset = c.query_offset;
  if (c.has_window != 0) m.window_left = c.window_left, m.window_right = c.window_right;
  m.chunk = c.chunk;
  m.chunk_origin = optional_view(c.chunk_origin);
  m.query_offsets = optional_view(c.query_offsets);
  m.query_order = optional_view(c.query_order);
  m.key_order = optional_view(c.key_order);
  m.head_side = optional_view(c.head_side);
  m.sink_tokens = c.sink_tokens;
  m.visible = optional_view(c.visible);
  m.bias = optional_view(c.bias);
  m.key_visible = optional_view(c.key_visible);
  m.key_length = optional_view(c.key_length);
  m.prefix = optional_view(c.prefix);
  m.query_document = optional_view(c.query_document);
  m.key_document = optional_view(c.key_document);
  m.query_cu_seqlens = optional_view(c.query_cu_seqlens);
  m.key_cu_seqlens = optional_view(c.key_cu_seqlens);
  return a;
}

std::vector<posenc::NamedArray> arrays_of(const posenc_named_tensor* list, std::size_t count,
                                          const char* what) {
  std::vector<posenc::NamedArray> all;
  for (std::size_t i = 0; i < count; ++i) {
    const posenc_named_tensor& t = (&need(list, what))[i];
    all.push_back({&need(t.name, "name"), posenc::const_from_dlpack(need(t.tensor, t.name))});
  }
  return all;
}

// Schemes that learn nothing and do not depend on distances need no posenc_attention_lower.
posenc::LoweredAttention lowered(const posenc_attention* attention) {
  const posenc_attention& a = need(attention, "attention");
  if (a.lowered) return *a.lowered;
  if (!a.parameters.empty())
    posenc::refuse_field("attention_plan", "lower", "must be called before a call runs");
  return a.plan.lower({});
}

void describe(const posenc_attention& a, std::size_t index, posenc_attention_array_info& to) {
  posenc_attention_array_info info{};
  const bool input = index >= a.parameters.size();
  const posenc::ArrayShape* shape = nullptr;
  if (input) {
    const posenc::Input& i = a.inputs[index - a.parameters.size()];
    info.name = i.name.c_str(), shape = &i.shape;
    info.is_integer = i.integer ? 1 : 0, info.is_optional = i.optional ? 1 : 0;
  } else {
    info.name = a.parameters[index].name.c_str(), shape = &a.parameters[index].shape;
  }
  info.is_input = input ? 1 : 0;
  info.rank = static_cast<std::int64_t>(shape->size());
  for (std::size_t n = 0; n < shape->size() && n < 5; ++n) info.shape[n] = (*shape)[n];
  fill(to, info, "info");
}

}  // namespace

extern "C" {

posenc_status posenc_attention_create(const char* const* schemes, size_t count,
                                      const posenc_attention_sizes* sizes,
                                      posenc_attention** attention, posenc_error* error) {
  return guarded(error, [&] {
    posenc_attention_sizes defaults{};
    defaults.struct_size = sizeof defaults;
    const posenc_attention_sizes s = taken(need(sizes, "sizes"), defaults, "sizes");
    if (s.context < 0)
      posenc::refuse_field("c", "sizes.context", "must not be negative", posenc::Index{s.context});
    std::vector<std::string_view> texts;
    for (std::size_t i = 0; i < count; ++i) {
      const char* const text = (&need(schemes, "schemes"))[i];
      texts.emplace_back(&need(text, "schemes"));
    }
    posenc_attention*& out = need(attention, "attention");
    if (s.has_scale == 0 && s.scale != 0)
      posenc::refuse_field("c", "sizes.scale", "needs sizes.has_scale = 1", s.scale);
    posenc::AttentionSizes known{s.heads, s.head_dim, s.key_heads, s.value_dim};
    if (s.has_scale != 0) known.scale = s.scale;
    posenc::AttentionPlan plan(texts, known, s.context);
    auto parameters = plan.parameters();
    auto inputs = plan.inputs();
    out = new posenc_attention{std::move(plan), {}, std::move(parameters), std::move(inputs)};
  });
}

void posenc_attention_free(posenc_attention* attention) {
  delete attention;
}

int64_t posenc_attention_arrays(const posenc_attention* attention) {
  return attention == nullptr
             ? 0
             : static_cast<int64_t>(attention->parameters.size() + attention->inputs.size());
}

posenc_status posenc_attention_array(const posenc_attention* attention, int64_t index,
                                     posenc_attention_array_info* info, posenc_error* error) {
  return guarded(error, [&] {
    const posenc_attention& a = need(attention, "attention");
    if (index < 0 || index >= posenc_attention_arrays(attention))
      posenc::refuse_field("c", "index", "must be that of an array", posenc::Index{index});
    describe(a, static_cast<std::size_t>(index), need(info, "info"));
  });
}

posenc_status posenc_attention_lower(posenc_attention* attention,
                                     const posenc_named_tensor* parameters, size_t count,
                                     const PosencDLTensor* query_positions,
                                     const PosencDLTensor* key_positions, posenc_error* error) {
  return guarded(error, [&] {
    posenc_attention& a = need(attention, "attention");
    const auto distance = posenc::distance_ranges(
        posenc::positions(posenc::const_from_dlpack(need(query_positions, "query_positions"))),
        posenc::positions(posenc::const_from_dlpack(need(key_positions, "key_positions"))));
    a.lowered = a.plan.lower(arrays_of(parameters, count, "parameters"), distance);
  });
}

posenc_status posenc_attention_forward(const posenc_attention* attention,
                                       const posenc_attention_call* call,
                                       const posenc_named_tensor* inputs, size_t count,
                                       const PosencDLTensor* out, const PosencDLTensor* log_sum_exp,
                                       posenc_error* error) {
  return guarded(error, [&] {
    const posenc_attention_call c = known_call(call);
    posenc::AttentionResult r{heads_in(&need(out, "out"), call_layout(c)), {}};
    if (log_sum_exp != nullptr) r.log_sum_exp = posenc::from_dlpack(*log_sum_exp);
    const Regions regions(c);
    if (c.log_sum_exp != nullptr || c.d_log_sum_exp != nullptr || c.whole != 0 || regions.wanted())
      posenc::refuse("c",
                     "log_sum_exp, d_log_sum_exp and whole of a call, d_q and d_k of a region "
                     "belong to the backward pass");
    lowered(attention).forward(arguments(c, regions), arrays_of(inputs, count, "inputs"), r);
  });
}

posenc_status posenc_attention_backward(const posenc_attention* attention,
                                        const posenc_attention_call* call,
                                        const posenc_named_tensor* inputs, size_t input_count,
                                        const PosencDLTensor* out, const PosencDLTensor* d_out,
                                        const PosencDLTensor* d_q, const PosencDLTensor* d_k,
                                        const PosencDLTensor* d_v,
                                        const posenc_named_tensor* gradients, size_t gradient_count,
                                        posenc_error* error) {
  return guarded(error, [&] {
    const posenc_attention_call c = known_call(call);
    const auto read = [&](const PosencDLTensor* t, const char* name) {
      return posenc::heads(posenc::const_from_dlpack(need(t, name)), call_layout(c));
    };
    posenc::AttentionGradients g;
    g.q = heads_in(d_q, call_layout(c));
    g.k = heads_in(d_k, key_layout(c));
    g.v = heads_in(d_v, key_layout(c));
    std::vector<posenc::NamedGradient> named;
    for (std::size_t i = 0; i < gradient_count; ++i) {
      const posenc_named_tensor& t = (&need(gradients, "gradients"))[i];
      named.push_back({&need(t.name, "name"), posenc::from_dlpack(need(t.tensor, t.name))});
    }
    const Regions regions(c);
    g.regions = regions.gradients();
    posenc::ConstAttentionResult result(read(out, "out"), optional_view(c.log_sum_exp));
    result.whole = c.whole != 0;
    lowered(attention).backward(arguments(c, regions), arrays_of(inputs, input_count, "inputs"),
                                result, {read(d_out, "d_out"), optional_view(c.d_log_sum_exp)}, g,
                                named);
  });
}

}  // extern "C"
