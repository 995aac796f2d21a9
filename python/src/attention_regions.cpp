// SPDX-License-Identifier: Apache-2.0
#include "attention_regions.h"

#include "posenc/registry.h"

namespace posenc::python {
namespace {

// The one rotary encoding among them.
RotarySpec encoding_among(const std::vector<std::string>& encodings, Index length) {
  for (const std::string& text : encodings) {
    const Encoding e = parse_encoding(text);
    if (is_rotary(e.scheme)) return resolve(e, Context{.length = length});
  }
  refuse_field(kAttentionName, "regions",
               "rotate q and k at other positions and need a rotary encoding");
}

// Of one region: its own, or that of the encodings.
RotarySpec rotation_of(nb::handle own, const std::vector<std::string>& encodings, Index length) {
  if (own.is_none()) return encoding_among(encodings, length);
  const RotaryPlan* plan = nullptr;
  if (!nb::try_cast(own, plan, false) || plan == nullptr)
    refuse_field(kAttentionName, "regions", "must have a RotaryPlan as their rotation",
                 text_of(own.type()));
  return plan->spec();
}

// Dense memory of the shape of x.
Heads dense_like(std::vector<std::byte>& memory, const ConstHeads& x, DType t) {
  memory.assign(static_cast<std::size_t>(x.batch * x.tokens * x.heads * x.dim * size_of(t)),
                std::byte{0});
  return heads(tensor(static_cast<void*>(memory.data()), t, {x.batch, x.tokens, x.heads, x.dim}),
               HeadsLayout::bthd);
}

template <class T>
void add_to(const Heads& to, const Heads& from) {
  for (Index b = 0; b < to.batch; ++b)
    for (Index t = 0; t < to.tokens; ++t)
      for (Index h = 0; h < to.heads; ++h)
        for (Index d = 0; d < to.dim; ++d) {
          const auto at = [&](const Heads& x) -> T& {
            return static_cast<T*>(x.data)[b * x.batch_stride + t * x.token_stride +
                                           h * x.head_stride + d * x.dim_stride];
          };
          at(to) += at(from);
        }
}

}  // namespace

Regions::Regions(const CallArguments& call, const nb::object& given,
                 const std::vector<std::string>& encodings, Index length)
    : call_(call) {
  const AttentionArgs& a = call.args();
  if (!a.block_table.empty()) refuse_field(kAttentionName, "regions", "need keys without pages");
  if (!nb::isinstance<nb::dict>(given))
    refuse_field(kAttentionName, "regions", "must be those of self_extend, rerope or dual_chunk",
                 text_of(nb::repr(given)));
  const Options options{nb::cast<nb::dict>(given)};
  for (Index n = 0;; ++n) {
    const std::string name = std::to_string(n), bounds_name = name + ".bounds";
    const nb::object bounds = options.get(bounds_name.c_str());
    if (bounds.is_none()) break;
    const Borrowed array(bounds, {kAttentionName, "regions"}, Use::read);
    const ConstTensorView& v = array.const_view();
    if (v.rank != 1 || v.shape[0] != 3 || v.dtype != DType::i64)
      refuse_field(kAttentionName, "regions", "must have chunk, low and high as int64");
    const auto bound = [&](Index i) { return static_cast<const Index*>(v.data)[i * v.stride[0]]; };
    ScoreRegion& r = list_.emplace_back();
    r.chunk = bound(0), r.low = bound(1), r.high = bound(2);
    for (const char* which : {".query", ".key"})
      positions_.emplace_back(options.get((name + which).c_str()), Name{kAttentionName, "regions"});
    Copy& copy = copies_.emplace_back();
    const nb::object own = options.get((name + ".rotation").c_str());
    const RotaryPlan plan(specs_.emplace_back(rotation_of(own, encodings, length)), a.q.dtype,
                          {.outside = OutsideRange::allow});
    const QK to{dense_like(copy.q, a.q, a.q.dtype), dense_like(copy.k, a.k, a.q.dtype)};
    plan.apply(ConstQK{a.q, {}}, QK{to.q, {}}, (positions_.end() - 2)->value());
    plan.apply(ConstQK{{}, a.k}, QK{{}, to.k}, positions_.back().value());
    r.qk = to;
  }
}

std::span<const QK> Regions::gradients(DType t) {
  sums_.clear();
  gradients_.clear();
  for (const ScoreRegion& r : list_) {
    Copy& copy = sums_.emplace_back();
    gradients_.push_back({dense_like(copy.q, r.qk.q, t), dense_like(copy.k, r.qk.k, t)});
  }
  return gradients_;
}

void Regions::pull_back(const Heads& d_q, const Heads& d_k) {
  if (gradients_.empty()) return;
  const DType t = gradients_.front().q.dtype;
  std::size_t n = 0;
  for (const QK& g : gradients_) {
    const RotaryPlan plan(specs_[n / 2], t, {.outside = OutsideRange::allow});
    const Positions &query = positions_[n].value(), &key = positions_[n + 1].value();
    n += 2;
    const auto pull = [&](const Heads& to, const Heads& from, const QK& rotated,
                          const Positions& p) {
      if (to.data == nullptr) return;
      plan.apply(rotated, p, RotateMode::gradient);
      if (t == DType::f64)
        add_to<double>(to, from);
      else
        add_to<float>(to, from);
    };
    pull(d_q, g.q, {g.q, {}}, query);
    pull(d_k, g.k, {{}, g.k}, key);
  }
}

}  // namespace posenc::python
