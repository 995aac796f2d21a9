// SPDX-License-Identifier: Apache-2.0
#include "language.h"

#include <optional>

#include "common.h"
#include "phrases.h"

namespace posenc::report {
namespace {

std::vector<std::string_view> literals_of(std::string_view pattern) {
  std::vector<std::string_view> all;
  for (std::size_t hole; (hole = pattern.find("{}")) != std::string_view::npos;) {
    all.push_back(pattern.substr(0, hole));
    pattern.remove_prefix(hole + 2);
  }
  all.push_back(pattern);
  return all;
}

// What stands in place of each {} of the pattern; none where the text is another one.
std::optional<std::vector<std::string_view>> matched(std::string_view pattern,
                                                     std::string_view text) {
  const std::vector<std::string_view> literals = literals_of(pattern);
  std::vector<std::string_view> values;
  if (literals.size() == 1) return text == pattern ? std::optional(values) : std::nullopt;
  if (!text.starts_with(literals.front())) return std::nullopt;
  text.remove_prefix(literals.front().size());
  for (std::size_t n = 1; n < literals.size(); ++n) {
    const bool last = n + 1 == literals.size();
    if (last && (!text.ends_with(literals[n]) || text.size() < literals[n].size()))
      return std::nullopt;
    const std::size_t end = last ? text.size() - literals[n].size() : text.find(literals[n]);
    if (end == std::string_view::npos || end == 0) return std::nullopt;
    values.push_back(text.substr(0, end));
    text.remove_prefix(end + literals[n].size());
  }
  return values;
}

std::string filled(std::string_view pattern, const std::vector<std::string_view>& values) {
  std::string text;
  const std::vector<std::string_view> literals = literals_of(pattern);
  for (std::size_t n = 0; n < literals.size(); ++n) {
    text += literals[n];
    if (n < values.size()) text += translated(values[n]);
  }
  return text;
}

// Each piece between separators by itself.
std::string by_pieces(std::string_view text, std::string_view separator,
                      std::string_view separator_there) {
  std::string out;
  while (true) {
    const std::size_t end = text.find(separator);
    out += translated(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    out += separator_there;
    text.remove_prefix(end + separator.size());
  }
}

void translate(Axis& a) {
  a.label = translated(a.label);
  a.unit = translated(a.unit);
}

void translate(LineChart& c) {
  c.title = translated(c.title);
  translate(c.x), translate(c.y);
  for (Series& s : c.series) s.name = translated(s.name);
  for (Rule& r : c.rules) r.label = translated(r.label);
  c.note = translated(c.note);
}

void translate(HeatMap& h) {
  h.title = translated(h.title);
  translate(h.x), translate(h.y);
  h.value_label = translated(h.value_label);
  h.note = translated(h.note);
}

void translate(Dials& d) {
  d.title = translated(d.title);
  d.row_label = translated(d.row_label);
  d.column_label = translated(d.column_label);
  d.note = translated(d.note);
}

}  // namespace

std::string translated(std::string_view text) {
  for (const Phrase& p : kPhrases)
    if (const auto values = matched(p.english, text)) return filled(p.chinese, *values);
  if (text.find(". ") != std::string_view::npos) return by_pieces(text, ". ", "。");
  if (text.ends_with(".") && text.size() > 1)
    return translated(text.substr(0, text.size() - 1)) + "。";
  if (text.find("; ") != std::string_view::npos) return by_pieces(text, "; ", "；");
  return std::string(text);
}

void check_language(const std::string& language) {
  if (language != "en" && language != "zh")
    throw UsageError("--language must be en or zh, got \"" + language + "\"");
}

void translate(std::vector<Figure>& figures, const std::string& language) {
  check_language(language);
  if (language == "en") return;
  for (Figure& f : figures) {
    std::visit([](auto& chart) { translate(chart); }, f.chart);
    f.caption = translated(f.caption);
  }
}

}  // namespace posenc::report
