// SPDX-License-Identifier: Apache-2.0
#include "advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common.h"
#include "posenc/model/read.h"
#include "posenc/registry/fields.h"

namespace posenc::report {
namespace {

// The rotary encoding of a checkpoint without its scalings; none: it does not
// rotate.
std::optional<Encoding> rotary_of_checkpoint(const ModelSpec& m) {
  for (const LayerSpec& layer : m.layers)
    for (const LayerEncoding& e : layer.encodings)
      if (is_rotary(e.value.scheme)) return Encoding{e.value.scheme, {}};
  return std::nullopt;
}

std::string encodings_of(const ModelSpec& m) {
  for (const LayerSpec& layer : m.layers)
    for (const LayerEncoding& e : layer.encodings) return to_text(e.value);
  for (const InputEncoding& e : m.input) return to_text(e.value);
  return "no encoding";
}

// The SCHEME of a scaling for this model; empty: it needs numbers of its own
// (longrope's lists).
std::string scaled_text(const Encoding& rope, const std::string& scaling, const Advice& a) {
  const std::string factor = number_text(a.question.ratio);
  const auto with = [&](const std::string& words) { return to_text(rope) + " + " + words; };
  if (scaling == "none") return to_text(rope);
  if (scaling == "linear") return with("linear factor=" + factor);
  if (scaling == "ntk") return with("ntk formula=alpha factor=" + factor);
  if (scaling == "yarn" || scaling == "ntk_by_parts")
    return with(fmt::format("{} factor={} original_context={}", scaling, factor, a.trained));
  if (scaling == "dynamic")
    return with(fmt::format("dynamic factor={} original_context={}", factor, a.trained));
  return "";
}

void read_checkpoint(const AdviceOptions& o, Advice& a) {
  const ModelSpec m = read_model_argument(o.checkpoint);
  if (m.has_error())
    throw InputError(m.file +
                     ": the positions of this model cannot be determined; posenc doctor "
                     "says why");
  if (a.trained == 0) a.trained = m.trained_context.value_or(0);
  if (a.trained == 0)
    throw UsageError(fmt::format("--trained N is needed: {} does not state its trained length",
                                 o.checkpoint.text));
  a.checkpoint = encodings_of(m);
  const std::optional<Encoding> rope = rotary_of_checkpoint(m);
  a.question.scalings = true;
  if (!rope) {
    a.unknown.push_back(
        fmt::format("The checkpoint uses {}. No scaling of it "
                    "has a number, so none is recommended.",
                    a.checkpoint));
    a.next.push_back(
        {fmt::format("posenc law trained {} --trained {}", o.checkpoint.text, a.trained),
         "the length up to which nothing is new for the checkpoint"});
    return;
  }
  a.rope = rope;
  a.checkpoint = to_text(*rope);
}

// What the scalings are for this checkpoint. Those that its frequencies do not allow have no SCHEME.
void add_schemes(Advice& a) {
  if (!a.rope) return;
  for (const char* scaling : {"none", "linear", "ntk", "ntk_by_parts", "yarn", "dynamic"}) {
    std::string text = scaled_text(*a.rope, scaling, a);
    try {
      (void)resolve(parse_encoding(text), {a.wanted});
      a.schemes.emplace_back(scaling, std::move(text));
    } catch (const std::invalid_argument&) {
    }
  }
}

void add_comparisons(const AdviceOptions& o, Advice& a) {
  const std::vector<LabRun> runs = o.results.empty() ? packaged_runs() : read_runs(o.results);
  a.comparisons = compare_runs(runs, a.question);
  for (Comparison& c : compare_tables(a.question)) a.comparisons.push_back(std::move(c));
  for (Ranked& r : rank(a.comparisons))
    (r.score() < 0 ? a.alone : a.ranking).push_back(std::move(r));
}

void add_unknown(Advice& a) {
  double longest = 0;
  bool measured = false, published = false;
  for (const Comparison& c : a.comparisons) {
    longest = std::max(longest, c.ratio.value_or(0));
    (c.is_measured ? measured : published) = true;
  }
  const auto say = [&](std::string sentence) { a.unknown.push_back(std::move(sentence)); };
  if (a.comparisons.empty()) {
    say(
        fmt::format("Nothing measured or published here is about {} {} beyond "
                    "the trained length.",
                    a.role == "encoder" ? "an encoder and" : "a decoder and",
                    a.question.scalings ? "scalings of RoPE" : "the task " + a.question.task));
    return;
  }
  if (longest < a.question.ratio * (1 - 1e-9))
    say(
        fmt::format("No number reaches {} times the trained length; the "
                    "longest is {} times.",
                    short_number(a.question.ratio), short_number(longest)));
  if (!measured) say("No run of the lab is about this; all numbers are published ones.");
  if (!published)
    say("No published table is about this; all numbers are runs of small "
        "models.");
  if (measured)
    say("Runs of the lab are models of about 0.1 million parameters on texts "
        "of some hundred "
        "characters. Large models can have another order.");
  if (!a.question.scalings) {
    Index without = 0;
    for (const SchemeInfo& s : all_schemes()) {
      bool found = false;
      for (const auto* list : {&a.ranking, &a.alone})
        for (const Ranked& r : *list)
          found |= r.scheme.substr(0, r.scheme.find(' ')) == s.card.name;
      without += !found;
    }
    say(
        fmt::format("{} schemes of `posenc list` have no number for this and "
                    "are not recommended.",
                    without));
  }
}

bool is_scheme(const std::string& name) {
  return std::ranges::any_of(all_schemes(),
                             [&](const SchemeInfo& s) { return s.card.name == name; });
}

// A scheme as ./lab accepts it; empty: its label has options beside the scheme.
std::string lab_scheme(const Ranked& r) {
  if (is_scheme(r.scheme)) return r.scheme;
  for (const auto& [c, e] : r.numbers)
    if (c->is_measured && !e->label.starts_with("randomized")) return "\"" + e->text + "\"";
  return "";
}

void add_next(const AdviceOptions& o, Advice& a) {
  const Index train = 64;
  const Index test = train * static_cast<Index>(std::ceil(std::min(a.question.ratio, 64.0)));
  if (a.question.scalings) {
    for (const Ranked& r : a.ranking)
      for (const auto& [scaling, text] : a.schemes)
        if (scaling == r.scheme && !text.empty()) {
          a.next.push_back({fmt::format("posenc law trained \"{}\" --trained {}", text, a.trained),
                            "the length up to which this scaling meets no new angle"});
          a.next.push_back(
              {fmt::format("posenc plot {} --kind scaling -o scaling.svg", o.checkpoint.text),
               "what a scaling does to each pair"});
          return;
        }
    return;
  }
  std::string schemes;
  for (std::size_t i = 0, named = 0; i < a.ranking.size() && named < 3; ++i)
    if (const std::string text = lab_scheme(a.ranking[i]); !text.empty()) {
      schemes += fmt::format(" --scheme {}", text);
      ++named;
    }
  static constexpr std::pair<const char*, const char*> kLabTasks[] = {
      {"recall", "passkey"}, {"addressing", "shift"}, {"state", "flipflop"}};
  std::string task = a.question.task == "lm" && a.question.encoder ? "masked" : a.question.task;
  for (const auto& [name, lab] : kLabTasks)
    if (task == name) task = lab;
  a.next.push_back(
      {fmt::format("./lab {}{} --train {} --test {} --seeds 3 -o DIR", task, schemes, train, test),
       "the same comparison with three seeds; add your own scheme by "
       "--scheme"});
  a.next.push_back({fmt::format("posenc advise --trained {} --wanted {} --task {} --results DIR",
                                a.trained, a.wanted, a.question.task),
                    "the advice with these results"});
}

}  // namespace

Advice advise(const AdviceOptions& o) {
  if (o.decoder && o.encoder) throw UsageError("--decoder and --encoder: choose one");
  if (o.decoder && o.task == "direction")
    throw UsageError("--task direction is a task of encoders: omit --decoder");
  Advice a;
  a.question.task = o.task;
  a.question.encoder = o.encoder || o.task == "direction";
  a.role = a.question.encoder      ? "encoder"
           : o.task == "translate" ? "encoder and decoder"
                                   : "decoder";
  a.trained = o.trained.value_or(0);
  a.wanted = o.wanted;
  if (!o.checkpoint.text.empty()) {
    read_checkpoint(o, a);
  } else if (o.checkpoint.context || !o.checkpoint.assume.empty() || !o.checkpoint.reader.empty()) {
    throw UsageError("--context, --assume and --reader say how a model is read: add --checkpoint");
  }
  if (a.trained == 0) throw UsageError("--trained N is needed: tokens of a text in training");
  if (a.wanted <= a.trained)
    throw UsageError(
        fmt::format("--wanted must be above --trained {}, got {}: within the trained "
                    "length nothing has to be extended",
                    a.trained, a.wanted));
  a.question.ratio = static_cast<double>(a.wanted) / static_cast<double>(a.trained);
  if (a.question.scalings && o.task != "lm" && o.task != "recall")
    throw UsageError(
        fmt::format("--checkpoint has numbers for --task lm and recall, got {}", o.task));
  if (a.question.scalings && !a.rope) return a;  // no scaling of its scheme
  add_schemes(a);
  add_comparisons(o, a);
  add_unknown(a);
  add_next(o, a);
  return a;
}

}  // namespace posenc::report
