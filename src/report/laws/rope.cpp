// SPDX-License-Identifier: Apache-2.0
// posenc law critical, base and turns: what follows from the frequencies of a rotation.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "append.h"
#include "common.h"
#include "law.h"
#include "posenc/laws.h"

namespace posenc::report {
namespace {

// What rotates in the chosen layer, with its scalings.
Encoding rotary_encoding(const Subject& s, const SubjectOptions& o) {
  if (s.encoding) return *s.encoding;
  const LayerSpec& layer = chosen_layer(*s.model, o);
  for (const LayerEncoding& e : layer.encodings)
    if (is_rotary(e.value.scheme)) return e.value;
  (void)rotary_of(s, o);  // says what the layer uses instead
  throw InputError(
      fmt::format("{}: layer {} has frequencies that are no SCHEME", s.model->file, layer.index));
}

// The frequencies of a subject as a rotation; those of sinusoids and of pope as one block.
RotarySpec frequencies_of(const Subject& s, const SubjectOptions& o) {
  if (!s.encoding || is_rotary(s.encoding->scheme)) return rotary_of(s, o);
  RotarySpec spec;
  RotaryBlock& block = spec.blocks.emplace_back();
  block.spectrum = resolve_spectrum(*s.encoding, {o.context.value_or(0)});
  block.pairing = Pairing::half_split;
  spec.head_dim = block.width();
  return spec;
}

Index trained_length(const LawOptions& o, const Subject& s) {
  if (o.trained) return *o.trained;
  if (s.model && s.model->trained_context) return *s.model->trained_context;
  throw UsageError("--trained N is needed: the length in tokens that the model was trained on");
}

std::string tokens_text(double n) {
  return fmt::format("{} tokens", with_commas(std::llround(n)));
}

void add_tuned(LawAnswer& a, const Geometric& law, double trained, Index dimension,
               const LawOptions& o) {
  const double tuned = static_cast<double>(o.tuned.value_or(static_cast<Index>(trained)));
  const auto smaller = smaller_bases(tuned);
  a.line("tuned", static_cast<Index>(tuned), tokens_text(tuned) + " of fine-tuning");
  a.line("smaller_bases", Json::array({smaller[0], smaller[1], smaller[2]}),
         fmt::format("{}, {}, {}: every pair goes through a quarter, a half, a whole rotation",
                     short_number(smaller[0], 6), short_number(smaller[1], 6),
                     short_number(smaller[2], 6)));
  const double critical = critical_base(law.base, trained, tuned);
  a.line("critical_base", critical,
         fmt::format("{}: tuning below it trains more pairs, above it {} stay untrained",
                     short_number(critical, 7), (law.width - dimension) / 2));
  if (!o.base) return;
  const Index after = tuned_dimension(dimension, *o.base, law.width, tuned);
  const std::optional<double> longest = longest_of_base(*o.base, law.width, after);
  a.line("base", *o.base, fmt::format("{} in fine-tuning", short_number(*o.base, 8)));
  a.line("tuned_dimension", after, fmt::format("{} of {}", after, law.width));
  a.line("longest", longest ? Json(*longest) : Json(),
         longest ? "about " + tokens_text(*longest) : "no end: every pair completes a rotation");
}

}  // namespace

LawAnswer critical_law(const LawOptions& o) {
  const Subject s = read_subject(o.subject);
  Encoding e = rotary_encoding(s, o.subject);
  e.scalings.clear();
  const std::optional<Geometric> law = resolve_spectrum(e).geometric;
  if (!law)
    throw InputError(
        fmt::format("\"{}\" has no base: its frequencies are not base^(-2i/width)", to_text(e)));
  const auto trained = static_cast<double>(trained_length(o, s));
  const Index dimension = critical_dimension(law->base, law->width, trained);
  LawAnswer a;
  a.line("trained_base", law->base, short_number(law->base, 8));
  a.line("width", law->width, fmt::format("{} channels rotate", law->width));
  a.line("trained", static_cast<Index>(trained), tokens_text(trained));
  a.line("critical_dimension", dimension,
         fmt::format("{} of {}: {} of {} pairs count as trained", dimension, law->width,
                     dimension / 2, law->width / 2));
  add_tuned(a, *law, trained, dimension, o);
  if (o.wanted) {
    const double wanted = static_cast<double>(*o.wanted);
    const double least = least_base_of(wanted, law->width, dimension);
    const double critical = critical_base(law->base, trained, wanted);
    a.line("wanted", *o.wanted, tokens_text(wanted));
    a.line("least_base", least,
           fmt::format("{}, by whole pairs; without rounding {}", short_number(least, 7),
                       short_number(critical, 7)));
    a.values.set("least_base_unrounded", critical);
  }
  a.notes.emplace_back(
      "The paper fine-tuned LLaMA-2 and measured perplexity; \"longest\" is where perplexity "
      "rises, "
      "not where recall ends.");
  return a;
}

LawAnswer base_law(const LawOptions& o) {
  const Subject s = read_subject(o.subject);
  const RotarySpec spec = frequencies_of(s, o.subject);
  constexpr Index kMaxTokens = Index{1} << 20;
  const std::optional<Index> first = first_negative(spec, kMaxTokens);
  LawAnswer a;
  Index rotated = 0;
  for (const RotaryBlock& b : spec.blocks) rotated += b.width();
  a.line("width", rotated, fmt::format("{} of {} channels rotate", rotated, spec.head_dim));
  a.line("context", first ? Json(*first) : Json(),
         first ? fmt::format("{} tokens: at distance {} the sum is {}", with_commas(*first),
                             with_commas(*first),
                             short_number(similarity(spec, static_cast<double>(*first)), 3))
               : fmt::format("no end up to {} tokens", with_commas(kMaxTokens)));
  if (o.wanted) {
    const double least = least_base(rotated, *o.wanted, (spec.head_dim - rotated) / 2);
    a.line("wanted", *o.wanted, tokens_text(static_cast<double>(*o.wanted)));
    a.line("least_base", least, short_number(least, 6));
  }
  a.notes.emplace_back(
      "The law is about random vectors. It bounds what attention can tell apart and does not "
      "promise "
      "recall; the paper found low perplexity below the bound.");
  return a;
}

LawAnswer turns_law(const LawOptions& o) {
  const Subject s = read_subject(o.subject);
  const RotarySpec spec = frequencies_of(s, o.subject);
  if (!o.length && !s.model)
    throw UsageError("--length N is needed: the number of tokens over which pairs rotate");
  const Index length = o.length ? *o.length : s.model->context.value;
  LawAnswer a;
  a.line("length", length, tokens_text(static_cast<double>(length)));
  Json rows = Json::array();
  std::string table = "   block  head  pair          period           turns\n";
  Index incomplete = 0, still = 0, all = 0;
  for (std::size_t b = 0; b < spec.blocks.size(); ++b)
    for (const PairTurns& t : turns_over(spec.blocks[b].spectrum, length)) {
      ++all;
      still += t.is_still();
      incomplete += !t.is_still() && !t.is_complete();
      const double period = 2 * std::numbers::pi / std::abs(t.frequency);
      rows.push(Json::object({{"block", static_cast<Index>(b)},
                              {"head", t.head},
                              {"pair", t.pair},
                              {"frequency", t.frequency},
                              {"period", t.is_still() ? Json() : Json(period)},
                              {"turns", t.turns}}));
      append(table, "  {:>6}{:>6}{:>6}{:>16}{:>16}{}\n", b, t.head, t.pair,
             t.is_still() ? "never" : short_number(period, 6), short_number(t.turns, 6),
             t.is_still() || t.is_complete() ? "" : "  incomplete");
    }
  a.line("pairs", all, std::to_string(all));
  a.line("incomplete", incomplete,
         fmt::format("{}: they complete no rotation, and reach new angles beyond", incomplete));
  a.line("still", still, fmt::format("{}: they do not rotate", still));
  a.values.set("turns", std::move(rows));
  a.text += "\n" + table;
  return a;
}

}  // namespace posenc::report
