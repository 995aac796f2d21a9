// SPDX-License-Identifier: Apache-2.0
// Every verb of posenc. Nothing else lists them.
#include <array>

#include "posenc/report/verb.h"

namespace posenc::report {

extern const Verb list_verb, explain_verb, doctor_verb, table_verb, apply_verb, attend_verb,
    bias_verb, positions_verb, rerotate_verb, law_verb, advise_verb, emit_verb, extend_verb,
    plot_verb, selftest_verb, bench_verb, completion_verb, man_verb;

std::span<const Verb* const> verbs() {
  static constexpr std::array all{
      &list_verb,   &explain_verb, &doctor_verb,    &table_verb, &apply_verb,      &rerotate_verb,
      &attend_verb, &bias_verb,    &positions_verb, &law_verb,   &advise_verb,     &emit_verb,
      &extend_verb, &plot_verb,    &selftest_verb,  &bench_verb, &completion_verb, &man_verb};
  return all;
}

const Verb* find_verb(std::string_view name) {
  for (const Verb* verb : verbs())
    if (verb->name == name) return verb;
  return nullptr;
}

Json verbs_json() {
  Json all = Json::array();
  for (const Verb* verb : verbs()) {
    Words words;
    (void)verb->declare(words);
    Json list = Json::array();
    for (const Word& word : words.all())
      list.push(Json::object({{"name", word.name()},
                              {"type", word.type},
                              {"help", word.help},
                              {"default", word.fallback},
                              {"positional", word.is_positional()},
                              {"flag", word.is_flag()},
                              {"required", word.is_required},
                              {"repeatable", word.is_repeatable},
                              {"file", word.is_file},
                              {"model", word.is_model},
                              {"output", word.is_output}}));
    all.push(Json::object({{"name", verb->name},
                           {"summary", verb->summary},
                           {"examples", verb->examples},
                           {"twin", verb->has_twin},
                           {"words", list}}));
  }
  return all;
}

}  // namespace posenc::report
