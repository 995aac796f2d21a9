// SPDX-License-Identifier: Apache-2.0
#include "model/hugging_face/scheme_signs.h"

#include "model/hugging_face/config_view.h"

namespace posenc::inline v0::hf {
namespace {

std::vector<std::string> words_of(const Json& list) {
  std::vector<std::string> out;
  for (const Json& word : list.as_array()) out.push_back(word.as_string());
  return out;
}

}  // namespace

const std::vector<SchemeSigns>& all_scheme_signs() {
  static const auto all = [] {
    std::vector<SchemeSigns> out;
    for (const auto& [scheme, j] : table_member("schemes").as_object())
      out.push_back({.scheme = scheme,
                     .called = j.at("called").as_string(),
                     .words = words_of(j.at("words")),
                     .word_part = j.at("word_part").as_string(),
                     .signs = words_of(j.at("signs")),
                     .keys = words_of(j.at("keys")),
                     .cache_forgets = j.at("cache_forgets").as_bool(),
                     .advice = j.at("advice").as_string()});
    return out;
  }();
  return all;
}

const SchemeSigns* signs_of(std::string_view scheme) {
  for (const SchemeSigns& s : all_scheme_signs())
    if (s.scheme == scheme) return &s;
  return nullptr;
}

}  // namespace posenc::v0::hf
