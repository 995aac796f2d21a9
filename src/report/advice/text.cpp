// SPDX-License-Identifier: Apache-2.0
// Advice as JSON and for a person.
#include <fmt/format.h>

#include <cmath>

#include "advice.h"
#include "append.h"
#include "common.h"

namespace posenc::report {
namespace {

template <class T>
Json or_null(const std::optional<T>& x) {
  return x ? Json(*x) : Json();
}

Json number_json(const Comparison& c, const Entry& e) {
  double best = e.value;
  for (const Entry& other : c.entries)
    if (c.higher_is_better ? other.value > best : other.value < best) best = other.value;
  return Json::object({{"source", c.source},
                       {"model", c.model},
                       {"data", c.data},
                       {"metric", c.metric},
                       {"better", c.higher_is_better ? "higher" : "lower"},
                       {"tuned", c.is_tuned},
                       {"trained", or_null(c.trained)},
                       {"length", c.length ? Json(*c.length) : Json(c.column)},
                       {"ratio", or_null(c.ratio)},
                       {"label", e.label},
                       {"scheme", e.text},
                       {"value", e.value},
                       {"at_least", e.at_least},
                       {"in_length", or_null(e.in_length)},
                       {"least", or_null(e.least)},
                       {"most", or_null(e.most)},
                       {"seeds", e.seeds > 0 ? Json(e.seeds) : Json()},
                       {"best", best},
                       {"run", c.command}});
}

Json ranked_json(const Ranked& r, const Advice& a) {
  Json measured = Json::array(), published = Json::array();
  for (const auto& [c, e] : r.numbers)
    (c->is_measured ? measured : published).push(number_json(*c, *e));
  Json one = Json::object({{"scheme", r.scheme},
                           {"won", r.won},
                           {"tied", r.tied},
                           {"lost", r.lost},
                           {"score", r.score() < 0 ? Json() : Json(r.score())},
                           {"measured", measured},
                           {"published", published}});
  if (a.question.scalings) {
    std::string text;
    for (const auto& [scaling, scheme] : a.schemes)
      if (scaling == r.scheme) text = scheme;
    one.set("for_checkpoint", text.empty() ? Json() : Json(text));
  }
  return one;
}

std::string length_text(const Comparison& c) {
  if (c.ratio && c.trained && c.length)
    return fmt::format("at {} ({} x)", with_commas(*c.length), short_number(*c.ratio, 3));
  return c.ratio ? fmt::format("at {} x", short_number(*c.ratio, 3)) : c.column;
}

void add_number(std::string& text, const Comparison& c, const Entry& e) {
  append(text, "       {} {} {}{} {}", c.is_measured ? "measured " : "published", c.metric,
         e.at_least ? "above " : "", short_number(e.value), length_text(c));
  if (e.in_length) append(text, ", {} in length", short_number(*e.in_length));
  if (e.least && *e.least != *e.most)
    append(text, ", seeds {} to {}", short_number(*e.least), short_number(*e.most));
  if (c.is_tuned) text += ", fine-tuned";
  append(text, "; {}{}", e.label == e.text || e.text.empty() ? e.label : e.text,
         c.trained ? fmt::format(", trained on {}", with_commas(*c.trained)) : "");
  append(text, "\n                 {}{}; {}\n", c.model, c.data.empty() ? "" : ", " + c.data,
         c.source);
  if (c.is_measured) append(text, "                 {}\n", c.command);
}

void add_ranked(std::string& text, const Ranked& r, const Advice& a) {
  for (const auto& [scaling, scheme] : a.schemes)
    if (scaling == r.scheme && !scheme.empty()) append(text, "       {}\n", scheme);
  for (const auto& [c, e] : r.numbers) add_number(text, *c, *e);
}

}  // namespace

Json advice_json(const Advice& a) {
  Json ranking = Json::array(), alone = Json::array(), unknown = Json::array(),
       next = Json::array();
  for (const Ranked& r : a.ranking) ranking.push(ranked_json(r, a));
  for (const Ranked& r : a.alone) alone.push(ranked_json(r, a));
  for (const std::string& sentence : a.unknown) unknown.push(sentence);
  for (const Step& s : a.next) next.push(Json::object({{"command", s.command}, {"why", s.why}}));
  return Json::object({{"schema", "posenc.advise/1"},
                       {"trained", a.trained},
                       {"wanted", a.wanted},
                       {"ratio", a.question.ratio},
                       {"role", a.role},
                       {"task", a.question.task},
                       {"checkpoint", a.checkpoint.empty() ? Json() : Json(a.checkpoint)},
                       {"ranking", ranking},
                       {"not_ranked", alone},
                       {"unknown", unknown},
                       {"next", next}});
}

std::string advice_text(const Advice& a, const Style& style) {
  std::string text = fmt::format("{}, task {}, trained on {} tokens, wanted {}: {} times\n", a.role,
                                 a.question.task, with_commas(a.trained), with_commas(a.wanted),
                                 short_number(a.question.ratio));
  if (!a.checkpoint.empty()) append(text, "checkpoint: {}\n", a.checkpoint);
  int place = 0;
  for (const Ranked& r : a.ranking) {
    append(text,
           "\n  {:>2}. {}  won {}, tied {}, lost {} of the comparisons with "
           "another scheme\n",
           ++place, style.bold(r.scheme), r.won, r.tied, r.lost);
    add_ranked(text, r, a);
  }
  if (!a.alone.empty()) text += "\n  Not ranked, because no other scheme stands beside them:\n";
  for (const Ranked& r : a.alone) {
    append(text, "\n      {}\n", style.bold(r.scheme));
    add_ranked(text, r, a);
  }
  text += "\nNot known\n";
  for (const std::string& sentence : a.unknown) append(text, "  {}\n", sentence);
  if (!a.next.empty()) text += "\nNext\n";
  for (const Step& s : a.next) append(text, "  {}\n      {}\n", s.command, s.why);
  return text;
}

}  // namespace posenc::report
