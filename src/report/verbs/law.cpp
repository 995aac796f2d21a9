// SPDX-License-Identifier: Apache-2.0
// posenc law: laws of lengths, include/posenc/laws.h.
#include <fmt/format.h>

#include <memory>

#include "call_words.h"
#include "common.h"
#include "laws/law.h"
#include "posenc/report/verb.h"
#include "utf8.h"

namespace posenc::report {
namespace {

// Whether a list of names has this one.
bool lists(const char* names, const std::string& name) {
  return fmt::format(" {} ", names).find(fmt::format(" {} ", name)) != std::string::npos;
}

bool chooses_layers(const std::string& name) {
  return name == "context" || name == "layer" || name == "tower" || name == "assume" ||
         name == "reader";
}

// Rejects an option that the law does not read, and one that it lacks.
void check_words(const Law& law, const Words& words) {
  for (const Word& word : words.all()) {
    const std::string name = word.name();
    if (name == "NAME" || name == "json") continue;
    const bool is_given = !word.given.empty();
    const std::string shown = word.is_positional() ? name : "--" + name;
    if (lists(law.needs, name)) {
      if (!is_given) throw UsageError(fmt::format("{} needs {}", law.name, shown));
      continue;
    }
    const bool has_subject = lists(law.needs, "MODEL|SCHEME") || lists(law.reads, "MODEL|SCHEME");
    if (!is_given || lists(law.reads, name) || (has_subject && chooses_layers(name)) ||
        (name == "arrays" && has_subject))
      continue;
    throw UsageError(fmt::format("{} is not read by {}, which reads {}{}{}", shown, law.name,
                                 law.needs, *law.needs && *law.reads ? " " : "", law.reads));
  }
}

Report answer(const LawOptions& o, const Words& words, const Request& r) {
  const Law& law = law_of(o.name);
  check_words(law, words);
  const LawAnswer a = law.run(o);
  if (r.json) {
    Json notes = Json::array();
    for (const std::string& note : a.notes) notes.push(note);
    const Json report = Json::object({{"schema", "posenc.law/1"},
                                      {"law", law.name},
                                      {"title", law.title},
                                      {"source", law.source},
                                      {"equation", law.equation},
                                      {"subject", o.subject.text},
                                      {"values", a.values},
                                      {"notes", notes}});
    return {.text = in_utf8(report).dump(2) + "\n"};
  }
  const Style style{r.color};
  std::string text =
      fmt::format("{} ({})\n  {}\n\n", style.bold(law.title), law.source, style.dim(law.equation));
  if (!o.subject.text.empty()) text += fmt::format("  {:<26} {}\n", "of", o.subject.text);
  text += a.text;
  for (const std::string& note : a.notes) text += "\n" + note + "\n";
  return {.text = text};
}

std::string names_text() {
  std::string text = "the law:";
  for (const Law& law : laws())
    text += fmt::format("\n{}: {} ({})", law.name, law.title, law.source);
  return text;
}

Verb::Run declare_law(Words& w) {
  auto o = std::make_shared<LawOptions>();
  w.text("NAME", o->name, "", names_text().c_str()).required();
  w.subject(o->subject, Takes::model_or_scheme).is_required = false;
  const Index most = Index{1} << 40;
  w.whole("--trained", o->trained, 1, most, "N",
          "critical, trained: tokens of a text in training (default: a model's own)");
  w.whole("--tuned", o->tuned, 1, most, "N",
          "critical: tokens of a text in fine-tuning (default: as --trained)");
  w.real("--base", o->base, "B", "critical: the base in fine-tuning");
  w.whole("--wanted", o->wanted, 1, most, "N", "critical, base: the length to reach, in tokens");
  w.whole("--length", o->length, 1, most, "N",
          "turns: tokens over which pairs rotate (default: a model's context)");
  w.whole("--heads", o->heads, 1, 65536, "N", "decay: number of attention heads");
  w.whole("--head-dim", o->head_dim, 1, 65536, "N",
          "decay, trained: channels of a head, for schemes that depend on it")
      .otherwise("64");
  w.real("--share", o->share, "S", "decay: the share of the weight at distance 0")
      .otherwise("0.001");
  add_params(w, o->params);
  add_inputs(w, o->inputs);
  w.whole("--window", o->window, 1, most, "N",
          "window: tokens that a layer sees, its own included (sliding_window of a config)");
  w.whole("--layers", o->layers, 1, 65536, "N", "window: layers with that window");
  w.flag("--both", o->both,
         "window: the window is centred, half of it before the token and half after");
  w.whole("--chunk", o->chunk, 1, most, "N",
          "window: chunks of so many tokens instead of a window");
  w.whole("--sinks", o->sinks, 1, most, "N", "window: first tokens that every layer sees");
  w.json();
  return [o, words = &w](const Request& r) { return answer(*o, *words, r); };
}

}  // namespace

const Verb law_verb{
    "law", "compute a law of lengths: critical dimension and base, rotations, decay, windows",
    &declare_law,
    "Examples:\n"
    "  posenc law critical \"rope head_dim=128 pairing=half_split\" --trained 4096 --tuned 16384\n"
    "  posenc law base \"rope head_dim=128 pairing=half_split\" --wanted 32768\n"
    "  posenc law turns models/llama --length 8192 --json\n"
    "  posenc law decay alibi --heads 8\n"
    "  posenc law window --window 4096 --layers 32\n"
    "  posenc law trained \"t5 bidirectional=false\" --trained 64",
    true};

}  // namespace posenc::report
