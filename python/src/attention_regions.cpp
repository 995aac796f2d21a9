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

Regions::Regions(const nb::object& given, const std::vector<std::string>& encodings) {
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
    const auto positions = [&](const char* which) {
      return positions_
          .emplace_back(options.get((name + which).c_str()), Name{kAttentionName, "regions"})
          .value();
    };
    ScoreRegion& r = list_.emplace_back();
    r.chunk = bound(0), r.low = bound(1), r.high = bound(2);
    r.query_positions = positions(".query"), r.key_positions = positions(".key");
    if (const nb::object own = options.get((name + ".rotation").c_str()); !own.is_none())
      r.rotary = &specs_.emplace_back(spec_of(own));
    else if (!rotates)
      refuse_field(kAttentionName, "regions",
                   "rotate q and k at other positions and need a rotary encoding");
  }
}

void Regions::require_in_place() const {
  for (const PositionsArgument& p : positions_) p.require_in_place(kAttentionName);
}

}  // namespace posenc::python
