// SPDX-License-Identifier: Apache-2.0
// sqrt(width) on the embedding, and what that means beside a sinusoid of norm sqrt(width / 2).
#include <cmath>

#include "model/hugging_face/input_side.h"

namespace posenc::inline v0::hf {
namespace {

// Three digits behind the point.
double rounded(double x) {
  return std::round(x * 1000) / 1000;
}

// Said of a sinusoid, beside which the factor counts.
void say(const ConfigView& view, const InputScale& rule, const std::string& key,
         const std::optional<Value>& stated, bool on, Index width) {
  const double root = std::sqrt(static_cast<double>(width));
  const std::string by = message("sqrt({}) = {}", width, rounded(root));
  const std::string says = rule.always ? "the class always scales"
                           : stated    ? message("{} is {}", key, stated->value)
                                       : message("no {}, and the class has {}", key, Json(on));
  const std::string sizes = message(
      "rows of the sinusoid have norm {}, embeddings initialised with deviation 0.02 have norm {}",
      rounded(root / std::sqrt(2.0)), rounded(0.02 * root));
  const bool unlike = rule.published && *rule.published != on;
  view.report().add(unlike ? Severity::warning : Severity::note, "embedding_scale",
                    unlike ? message("{}: token embeddings are not multiplied by {}, as they are "
                                     "in published checkpoints of this class; {}",
                                     says, by, sizes)
                           : message("{}: token embeddings are multiplied by {}; without it, "
                                     "positions dominate the tokens: {}",
                                     says, on ? by : "1", sizes),
                    stated ? stated->where : view.class_name(),
                    unlike ? "state " + key + " as the model was trained"
                           : "nothing to do here; a port must multiply by it too",
                    on ? root : 1);
}

}  // namespace

std::optional<Value> input_gain(const ConfigView& view, Index width, bool learned) {
  const std::optional<InputScale>& rule = view.rules().input_scale;
  if (!rule) return std::nullopt;
  const std::string key = rule->key.empty() ? "scale_embedding" : rule->key;
  const auto stated = view.stated(key);
  if (rule->ignored) {
    if (stated && view.flag(key, false))
      view.warn("key_ignored", {"{} is true, but {class} ignores it", key}, *stated,
                "the key does nothing");
    return std::nullopt;
  }
  const bool on = rule->always || view.flag(key, rule->on);
  if (!learned) say(view, *rule, key, stated, on, width);
  if (!on) return std::nullopt;
  return derived(std::sqrt(static_cast<double>(width)), stated ? stated->where : view.class_name());
}

}  // namespace posenc::v0::hf
