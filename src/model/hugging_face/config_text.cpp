// SPDX-License-Identifier: Apache-2.0
// The text of a config.json: JSON, and Python's NaN and Infinity where nobody reads a position.
#include <set>

#include "io/json_tokens.h"
#include "model/hugging_face/class_rules/class_rules.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

bool of_positions(const std::string& key) {
  // Every key that a class of the table holds or reads under another name.
  static const std::set<std::string> known = hf::keys_of_classes();
  if (known.count(key)) return true;
  for (const char* word : {"rope", "rotary", "position", "alibi", "theta", "attention", "layer",
                           "head", "yarn", "mscale"})
    if (key.find(word) != std::string::npos) return true;
  return false;
}

}  // namespace

Json parse_config(std::string_view text, const std::string& file) {
  std::vector<NonFinite> found;
  Json config = parse_json(text, file, found);
  for (const NonFinite& n : found) {
    bool known = n.path.empty();  // of a list, which is no config
    for (const std::string& key : n.path) known = known || of_positions(key);
    if (known)
      throw FormatError(file, n.place,
                        "must be finite, got " + n.token + " (JSON has no NaN or Infinity)");
  }
  return config;
}

}  // namespace posenc::v0
