// SPDX-License-Identifier: Apache-2.0
// By which words and keys a file speaks of a scheme: "schemes" of data/hugging_face/keys.json.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace posenc::inline v0::hf {

struct SchemeSigns {
  std::string scheme;              // its name in the registry
  std::string called;              // in a sentence
  std::vector<std::string> words;  // values of position_embedding_type that mean it
  std::string word_part;           // and a part of such a value; empty: none
  std::vector<std::string> signs;  // how keys begin that only models with it have
  std::vector<std::string> keys;   // switches and numbers that say nothing else
  bool cache_forgets = false;      // transformers gives its decoders a cache that drops old keys
  std::string advice;              // what to do where the model type is not known
};

// In the order in which a file is held against them.
const std::vector<SchemeSigns>& all_scheme_signs();
// Null where the table has none of this scheme.
const SchemeSigns* signs_of(std::string_view scheme);

}  // namespace posenc::v0::hf
