// SPDX-License-Identifier: Apache-2.0
#include "attention_regions.h"

#include <algorithm>

#include "posenc/registry.h"

namespace posenc::python {
namespace {

const RotarySpec& spec_of(nb::handle rotation) {
  const RotaryPlan* plan = nullptr;
  if (!nb::try_cast(rotation, plan, false) || plan == nullptr)
    refuse_field(kAttentionName, "regions", "must have a RotaryPlan as their rotation",
                 text_of(rotation.type()));
  return plan->spec();
}

}  // namespace

Regions::Regions(const nb::object& given, const std::vector<std::string>& encodings,
                 const CallArguments& call)
    : layout_(call.layout()), key_layout_(call.key_layout()) {
  if (!nb::isinstance<nb::dict>(given))
    refuse_field(kAttentionName, "regions", "must be those of self_extend, rerope or dual_chunk",
                 text_of(nb::repr(given)));
  const Options options{nb::cast<nb::dict>(given)};
  const bool rotates = std::any_of(encodings.begin(), encodings.end(), [](const std::string& text) {
    return is_rotary(parse_encoding(text).scheme);
  });
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
    const auto of = [&](const char* which) { return options.get((name + which).c_str()); };
    if (const nb::object q = of(".q"); !q.is_none()) {
      const auto take = [&](const nb::object& x, const char* what, HeadsLayout layout) {
        return heads(arrays_.emplace_back(x, Name{kAttentionName, what}, Use::read).const_view(),
                     layout);
      };
      r.qk = {take(q, "q of a region", layout_), take(of(".k"), "k of a region", key_layout_)};
      continue;
    }
    const auto positions = [&](const char* which) {
      return positions_.emplace_back(of(which), Name{kAttentionName, "regions"}).value();
    };
    r.query_positions = positions(".query"), r.key_positions = positions(".key");
    if (const nb::object own = of(".rotation"); !own.is_none())
      r.rotary = &specs_.emplace_back(spec_of(own));
    else if (!rotates)
      refuse_field(kAttentionName, "regions",
                   "rotate q and k at other positions and need a rotary encoding");
  }
}

std::vector<QK> Regions::gradients(nb::dict& all, Wanted& is_wanted) const {
  if (arrays_.empty() || !is_wanted("regions")) return {};
  std::vector<QK> made(list_.size());
  nb::list regions;
  auto array = arrays_.begin();
  for (std::size_t n = 0; n < list_.size(); ++n) {
    nb::dict of_region;
    if (list_[n].qk.q.dim != 0) {
      const auto zeros = [&](const char* name, HeadsLayout layout) {
        const TensorView& x = (array++)->view();
        return heads(zeros_in(of_region, name, gradient_type(x.dtype), shape_of(x)), layout);
      };
      made[n].q = zeros("q", layout_);
      made[n].k = zeros("k", key_layout_);
    }
    regions.append(of_region);
  }
  all["regions"] = regions;
  return made;
}

void Regions::require_in_place() const {
  for (const PositionsArgument& p : positions_) p.require_in_place(kAttentionName);
  for (const Borrowed& b : arrays_) b.require_in_place(kAttentionName);
}

}  // namespace posenc::python
