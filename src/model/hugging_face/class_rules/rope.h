// SPDX-License-Identifier: Apache-2.0
// What the table of model types says of a class's rotary: members of ClassRules.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/hugging_face/class_rules/names.h"
#include "posenc/io/json.h"

namespace posenc::hf {

// rope_scaling as code of a model's own repository reads it.
struct OwnScalingRules {
  std::string key;
  std::vector<std::string> type_keys;
  NameMap types;
  Json reads;
  Json outside;
  std::optional<Index> fields;
  bool pair = false;
  Json factor_default;
  std::string factor;
  std::string base;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("key", s.key, "the key");
    v("type_keys", s.type_keys, "its members that name the type; default: type");
    v("types", s.types, "the type here of each of its names");
    v("reads", s.reads, "keys read with each type, and what stands for them");
    v("outside", s.outside, "keys that stand beside the dictionary");
    v("fields", s.fields, "how many members the dictionary must have");
    v("pair", s.pair, "exactly type and factor");
    v("factor_default", s.factor_default, "factor where the dictionary has none");
    v("factor", s.factor, "its member that holds the factor; default: factor");
    v("base", s.base, "its member that holds the base");
  }
};

// How the dictionary of rotary parameters is read.
struct RopeRules {
  std::string rule;
  std::vector<std::string> only;
  NameMap rename;
  NameMap rename_late;
  NameMap aliases;
  std::vector<std::string> labels;
  Json thetas;
  std::string theta_list;
  std::string theta_zero;
  bool thetas_by_layer = false;
  Json fractions;
  std::string fraction;
  std::string width;
  std::string width_rule;
  Json partial_forced;
  std::string partial_from;
  bool partial_is_mla = false;
  std::vector<std::string> fills;
  bool fills_from_class = false;
  bool fixed = false;
  bool fixed_original = false;
  bool ignores_scaling = false;
  std::optional<OwnScalingRules> scaling;
  std::vector<std::string> scaling_to;
  std::string scaled_layers;
  Json steps;
  Json times;
  bool table_at_once = false;
  bool mscales = false;
  Json layers;
  std::string why;
  std::string mend;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("rule", s.rule,
      "flat, by_layer_type, own_keys, fixed_base, refused, or the name of a function");
    v("only", s.only, "rope types that the class takes");
    v("rename", s.rename, "types renamed on loading");
    v("rename_late", s.rename_late, "types renamed after the checks of the dictionary");
    v("aliases", s.aliases, "older names of members");
    v("labels", s.labels, "names of the nested dictionaries, where they are no layer types");
    v("thetas", s.thetas, "theta of each layer type: a number, or its key and default");
    v("theta_list", s.theta_list, "key of a list, one theta a layer");
    v("theta_zero", s.theta_zero, "from_end: every fourth layer from the end has none");
    v("thetas_by_layer", s.thetas_by_layer, "lists of thetas by layer are read");
    v("fractions", s.fractions, "turned fraction of each layer type");
    v("fraction", s.fraction, "key of the turned fraction");
    v("width", s.width, "key of the turned width");
    v("width_rule", s.width_rule, "a function that knows the width");
    v("partial_forced", s.partial_forced, "the turned fraction, whatever the file says");
    v("partial_from", s.partial_from, "key over head_dim makes the fraction");
    v("partial_is_mla", s.partial_is_mla,
      "the fraction must come to the turned part of a latent head");
    v("fills", s.fills, "members that the class fills into nested dictionaries");
    v("fills_from_class", s.fills_from_class, "with its own values, not the file's");
    v("fixed", s.fixed, "the base stands in the code");
    v("fixed_original", s.fixed_original, "the original length is the class's");
    v("ignores_scaling", s.ignores_scaling, "rope_scaling is not read");
    v("scaling", s.scaling, "rope_scaling in the words of its own code");
    v("scaling_to", s.scaling_to, "layer types that the scaling acts on");
    v("scaled_layers", s.scaled_layers, "key that lists the layers with the scaling");
    v("steps", s.steps, "key and length of stepwise NTK");
    v("times", s.times,
      "a ratio that multiplies the base or divides positions, by the name of the release");
    v("table_at_once", s.table_at_once, "the table is made for the longest text at once");
    v("mscales", s.mscales, "short_mscale and long_mscale are gains");
    v("layers", s.layers, "thetas by layer");
    v("why", s.why, "why it is refused");
    v("mend", s.mend, "what to do then");
  }
};

// Rotary of several axes.
struct MropeRules {
  std::string layout;
  Json sections;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("layout", s.layout,
      "how the pairs of a head go to the axes: chunked, interleaved, ernie, openpangu ...");
    v("sections", s.sections,
      "pairs of each axis, where the file has none; null: half of the pairs each");
  }
};

// Names at the top level that the class takes for members of the dictionary.
struct OwnKeys {
  std::string theta;
  std::string partial;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("theta", s.theta, "of rope_theta");
    v("partial", s.partial, "of partial_rotary_factor");
  }
};

// Rotary only where a key has a value.
struct RotaryIf {
  std::string key;
  Json equals;
  std::string otherwise;
  std::string other_equals;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("key", s.key, "the key");
    v("equals", s.equals, "the value");
    v("otherwise", s.otherwise, "what acts with another value");
    v("other_equals", s.other_equals, "then only with this value; a third one is none");
  }
};

}  // namespace posenc::hf
