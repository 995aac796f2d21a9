// SPDX-License-Identifier: Apache-2.0
// Tables of the docs that are made from what the schemes of the registry lower to: by what their
// terms read (docs/four_terms.md), and how much memory they need (docs/relative/README.md).
// POSENC_UPDATE_GOLDEN=1 writes them again, with a line for each scheme that has none.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "posenc/attention/plan.h"
#include "posenc/registry.h"
#include "posenc/registry/fields.h"

namespace posenc {
namespace {

struct LoweredScheme {
  LoweredTerms low;
  std::vector<Input> inputs;
  Index learned = 0;
};

LoweredScheme lowered_of(const std::string& text, const ScoreShape& shape) {
  const AnyRelativeScheme scheme = relative_scheme(parse_encoding(text));
  std::vector<std::vector<double>> values;
  std::vector<ConstTensorView> views;
  const std::vector<Parameter> parameters = scheme.parameters(shape);
  values.reserve(parameters.size());
  for (const Parameter& p : parameters) {
    Index n = 1;
    for (const Index s : p.shape) n *= s;
    values.emplace_back();
    for (Index i = 0; i < n; ++i) values.back().push_back(0.5 + 0.1 * std::sin(7.0 * i));
    views.push_back(tensor(static_cast<const void*>(values.back().data()), DType::f64, p.shape));
  }
  LoweredScheme out{{}, scheme.inputs(shape)};
  for (const std::vector<double>& v : values) out.learned += static_cast<Index>(v.size());
  scheme.lower(shape, views, out.low);
  return out;
}

// What a term is called in its column; gates with a table read it by the query's content.
struct WordOf {
  std::string operator()(const LinearTerm&) const { return "slope"; }
  std::string operator()(const DecayTerm&) const { return "running sum"; }
  std::string operator()(const GatesTerm& t) const {
    return t.table.empty() ? "sum of gates" : "rows at sums of gates";
  }
  std::string operator()(const DistanceMlpTerm&) const { return "network"; }
  std::string operator()(const ScoreMlpTerm&) const { return "network of all heads' scores"; }
  std::string operator()(const ValueRowsTerm&) const { return "rows added to values"; }
  std::string operator()(const ProductTerm& t) const {
    if (t.table.empty()) return "vectors";
    return t.table.shape[3] > 1 ? "rows" : "numbers";
  }
};
std::string kind_of(const Term& t) {
  return std::visit(WordOf{}, t);
}

// By the rule of attend_scores: products, gates with a table (query), the others neither.
std::size_t column_of(const Term& term) {
  if (std::holds_alternative<ValueRowsTerm>(term) || std::holds_alternative<ScoreMlpTerm>(term))
    return 4;
  const TermArrays t = term_arrays(term);
  const auto reads = [](const Factor& f) { return f.content || f.made_of_content; };
  const bool query =
      reads(t.query) || (std::holds_alternative<GatesTerm>(term) && !t.table.empty());
  return query ? (reads(t.key) ? 0 : 1) : reads(t.key) ? 2 : 3;
}

// What a scheme adds to q·k, by the term it belongs to: the cell of its row.
std::string terms_of(const std::string& text) {
  const ScoreShape shape{
      .heads = 4, .head_dim = 4, .scale = 0.4, .distance = {{-6, 9}, {-6, 9}, {-6, 9}}};
  const LoweredScheme s = lowered_of(text, shape);
  std::array<std::vector<std::string>, 5> columns;
  for (const Term& t : s.low.terms) {
    std::vector<std::string>& words = columns[column_of(t)];
    const std::string kind = kind_of(t);
    if (std::find(words.begin(), words.end(), kind) == words.end()) words.push_back(kind);
  }
  const CallRequests& r = s.low.requests;
  if (r.normalisation != Normalisation::softmax) columns[4].push_back("another normalisation");
  if (!r.prepare.empty()) columns[4].push_back("q and k normalised");
  if (!r.head_scale.empty()) columns[4].push_back("a scale a head");
  constexpr std::array<const char*, 5> kNames{
      "content-content: ", "content-position: ", "position-content: ", "position-position: ", ""};
  std::string cell;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    std::string words;
    for (const std::string& w : columns[c]) words += (words.empty() ? kNames[c] : ", ") + w;
    if (!words.empty()) cell += (cell.empty() ? "" : "; ") + words;
  }
  return cell.empty() ? "nothing" : cell;
}

// A row for all schemes with the same terms, in the order of their first.
std::string terms_rows(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const std::string& text : texts) {
    const std::string cell = terms_of(text);
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.first == cell; });
    if (row == rows.end())
      rows.emplace_back(cell, "`" + text + "`");
    else
      row->second += ", `" + text + "`";
  }
  std::string made = "| added to q·k | schemes |\n|---|---|\n";
  for (const auto& [cell, schemes] : rows) made += "| " + cell + " | " + schemes + " |\n";
  return made;
}

std::string with_commas(Index n) {
  std::string s = std::to_string(n);
  for (std::size_t at = s.size(); at > 3; at -= 3) s.insert(at - 3, ",");
  return s;
}

// 8 heads of 64 channels, 1024 tokens, 32 rows and columns on further axes.
std::string memory_row(const std::string& text) {
  const ScoreShape shape{
      .heads = 8, .head_dim = 64, .distance = {{-1023, 1023}, {-31, 31}, {-31, 31}}};
  const LoweredScheme s = lowered_of(text, shape);
  std::size_t bytes = 0;
  for (const auto& v : s.low.values) bytes += v.size() * sizeof v[0];
  for (const auto& v : s.low.rows) bytes += v.size() * sizeof v[0];
  return "| `" + text + "` | " + with_commas(s.learned) + " | " +
         with_commas(static_cast<Index>(bytes)) + " |";
}

std::string memory_rows(const std::vector<std::string>& texts) {
  std::string made = "| scheme | learned numbers | bytes once a step |\n|---|---|---|\n";
  for (const std::string& text : texts) made += memory_row(text) + "\n";
  return made;
}

// The table between <!-- name --> and <!-- /name --> is what `rows` makes of the schemes that it
// names in code font, and every scheme of the registry is among them.
void check_table(const std::string& file, const std::string& name,
                 std::string (*rows)(const std::vector<std::string>&)) {
  const std::string path = std::string(POSENC_SOURCE_DIR) + file, head = "<!-- " + name + " -->\n";
  std::stringstream read;
  read << std::ifstream(path).rdbuf();
  const std::string page = read.str();
  const std::size_t start = page.find(head), end = page.find("<!-- /" + name + " -->");
  ASSERT_NE(start, std::string::npos) << path;
  ASSERT_NE(end, std::string::npos) << path;
  const std::size_t begin = start + head.size();
  const std::string table = page.substr(begin, end - begin);
  std::vector<std::string> texts;
  std::set<std::string> names;
  for (std::size_t at = table.find('`'); at != std::string::npos; at = table.find('`', at + 1)) {
    const std::size_t first = at + 1;
    at = table.find('`', first);
    texts.push_back(table.substr(first, at - first));
    names.insert(texts.back().substr(0, texts.back().find(' ')));
  }
  const bool update = std::getenv("POSENC_UPDATE_GOLDEN") != nullptr;
  std::set<std::string> registered;
  for (const SchemeInfo& scheme : all_schemes()) {
    if (scheme.family != "relative") continue;
    registered.insert(std::string(scheme.card.name));
    if (update && names.insert(std::string(scheme.card.name)).second)
      texts.push_back(to_json(scheme).at("at").as_string());
  }
  EXPECT_EQ(names, registered);
  if (update)
    std::ofstream(path) << page.substr(0, begin) << rows(texts) << page.substr(end);
  else
    EXPECT_EQ(rows(texts), table);
}

TEST(TablesOfDocs, TermsAreWhatSchemesLowerTo) {
  check_table("/docs/four_terms.md", "terms", terms_rows);
}

TEST(TablesOfDocs, MemoryIsThatOfWhatSchemesLowerTo) {
  check_table("/docs/relative/README.md", "memory", memory_rows);
}

}  // namespace
}  // namespace posenc
