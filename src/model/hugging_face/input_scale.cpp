// SPDX-License-Identifier: Apache-2.0
// sqrt(width) on the embedding, and what that means beside a sinusoid of norm sqrt(width / 2).
#include <cmath>

#include "model/hugging_face/layers.h"

namespace posenc::inline v0::hf {
namespace {

// Three digits behind the point.
double rounded(double x) {
  return std::round(x * 1000) / 1000;
}

struct Scale {
  std::string key;
  std::optional<Value> stated;
  bool on = false;
  double root = 1;
};

void say(const ConfigView& view, const Json& rule, const Scale& scale, Index width) {
  const Json* published = rule.find("published");
  const std::string says = rule.find("always") ? std::string("the class always scales")
                           : scale.stated      ? scale.key + " is " + shown(scale.stated->value)
                                               : "no " + scale.key + ", and the class has " +
                                                std::string(scale.on ? "true" : "false");
  const std::string where = scale.stated ? scale.stated->where : view.class_name();
  const std::string sizes = "rows of the sinusoid have norm " +
                            number_text(rounded(scale.root / std::sqrt(2.0))) +
                            ", embeddings that start with deviation 0.02 have norm " +
                            number_text(rounded(0.02 * scale.root));
  if (published && published->as_bool() != scale.on)
    view.report().warn("embedding_scale",
                       says + ": token embeddings are not multiplied by sqrt(" +
                           std::to_string(width) + ") = " + number_text(rounded(scale.root)) +
                           ", as they are in published checkpoints of this class; " + sizes,
                       where, "state " + scale.key + " as the model was trained",
                       scale.on ? scale.root : 1);
  else
    view.report().note(
        "embedding_scale",
        says + ": token embeddings are multiplied by " +
            (scale.on ? "sqrt(" + std::to_string(width) + ") = " + number_text(rounded(scale.root))
                      : std::string("1")) +
            "; a program that forgets it drowns the tokens: " + sizes,
        where, "nothing to do here; a port must multiply by it too", scale.on ? scale.root : 1);
}

}  // namespace

std::optional<Value> input_gain(const ConfigView& view, Index width, bool learned) {
  const Json* rule = view.entry().find("input_scale");
  if (!rule) return std::nullopt;
  const Json* named = rule->find("key");
  Scale scale;
  scale.key = named ? named->as_string() : "scale_embedding";
  scale.stated = view.stated(scale.key);
  if (rule->find("ignored")) {
    if (scale.stated && view.flag(scale.key, false))
      view.report().warn("key_ignored",
                         "scale_embedding is true in the file, but " + view.class_name() +
                             " multiplies nothing by it",
                         scale.stated->where, "the key does nothing");
    return std::nullopt;
  }
  scale.root = std::sqrt(static_cast<double>(width));
  scale.on = rule->find("always") || view.flag(scale.key, rule->at("default").as_bool());
  if (!learned) say(view, *rule, scale, width);
  if (!scale.on) return std::nullopt;
  return Value{scale.root, Origin::derived, scale.stated ? scale.stated->where : view.class_name()};
}

}  // namespace posenc::v0::hf
