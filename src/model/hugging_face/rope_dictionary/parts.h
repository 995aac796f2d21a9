// SPDX-License-Identifier: Apache-2.0
// What the rules for rope_parameters share (rope_parameters.cpp: the common one; rope_by_class.cpp,
// rope_by_layer.cpp: those of single classes).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/hugging_face/rope_dictionary/rope_set.h"

namespace posenc::hf {

// The table's "rope" rule; an empty one when there is none.
const RopeRules& rope_rules(const ConfigView&);
// A dictionary of the file at `place`, values with their paths.
Dict dict_of(const ConfigView&, const Json& object, const std::string& place, Origin);

// rope_scaling or rope_parameters as the file has them: an object, or none after a finding.
struct Stated {
  std::optional<Value> scaling, parameters;
};
Stated stated_dicts(const ConfigView&);
// The object that the common rule reads, with the place it came from.
std::optional<Value> chosen(const ConfigView&, RopeSet&);
// Which members of it are dictionaries of layer types (or the class's own labels).
std::vector<std::string> labels_of(const ConfigView&, const Json& object,
                                   const std::vector<std::string>& layer_types);
// One part a label; false after a finding.
bool add_nested(const ConfigView&, RopeSet&, const Value& all,
                const std::vector<std::string>& labels);
// rope_theta (or the class's other name for it) beside the dictionary, else the class's.
Value theta_outside(const ConfigView&);
// The same theta stands inside and outside, or a warning says that they differ.
void theta_beside(const ConfigView&, RopeSet::Part&, const Value& outside);
// 500000 where JSON's shortest text is 5e+05.
std::string plain(const Json&);
// rope_type, and original_max_position_embeddings where the type needs it.
void complete(const ConfigView&, Dict&, bool nested);
// Whether transformers refuses the type without original_max_position_embeddings.
bool needs_original(const std::string& rope_type);

// False after a finding: a class that takes layer types only (strict_labels) and finds another key.
bool only_layer_types(const ConfigView&, const Value& all, const Json& known);

// The set of a class whose rule has a name of its own; none when `rule` is the common one.
std::optional<RopeSet> rope_by_class(const ConfigView&, const std::vector<std::string>& layer_types,
                                     const std::string& rule);
// A class of remote code with keys of its own (rope_own_keys.cpp).
RopeSet own_keys(const ConfigView&);
// DeepSeek-V4, Step-3.5, dots3-note, NeoMME, Cohere Compass (rope_by_layer.cpp).
std::optional<RopeSet> rope_by_layer(const ConfigView&, const std::vector<std::string>& layer_types,
                                     const std::string& rule);

}  // namespace posenc::hf
