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

std::string terms_row(const std::string& text) {
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
  columns[0].insert(columns[0].begin(), "q·k");
  std::string line = "| `" + text + "` |";
  for (const auto& words : columns) {
    std::string cell;
    for (const std::string& w : words) cell += (cell.empty() ? "" : ", ") + w;
    line += cell.empty() ? " |" : " " + cell + " |";
  }
  std::string brought;
  for (const Input& i : s.inputs) brought += (brought.empty() ? "" : ", ") + i.name;
  return line + (brought.empty() ? " |" : " " + brought + " |");
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

// The rows of the table between <!-- name --> and <!-- /name --> are what `row` makes of their
// schemes, and every scheme of the registry has one.
void check_table(const std::string& file, const std::string& name,
                 std::string (*row)(const std::string&)) {
  const std::string path = std::string(POSENC_SOURCE_DIR) + file;
  std::stringstream read;
  read << std::ifstream(path).rdbuf();
  const std::string page = read.str();
  const std::size_t begin = page.find("<!-- " + name + " -->\n"),
                    end = page.find("<!-- /" + name + " -->");
  ASSERT_NE(begin, std::string::npos) << path;
  ASSERT_NE(end, std::string::npos) << path;
  std::istringstream lines(page.substr(begin, end - begin));
  std::string line, made;
  std::set<std::string> names;
  while (std::getline(lines, line)) {
    if (line.rfind("| `", 0) == 0) {
      const std::string text = line.substr(3, line.find('`', 3) - 3);
      names.insert(text.substr(0, text.find(' ')));
      line = row(text);
    }
    made += line + "\n";
  }
  const bool update = std::getenv("POSENC_UPDATE_GOLDEN") != nullptr;
  std::set<std::string> registered;
  for (const SchemeInfo& scheme : all_schemes()) {
    if (scheme.family != "relative") continue;
    registered.insert(std::string(scheme.card.name));
    if (update && names.insert(std::string(scheme.card.name)).second)
      made += row(to_json(scheme).at("at").as_string()) + "\n";
  }
  EXPECT_EQ(names, registered);
  if (update)
    std::ofstream(path) << page.substr(0, begin) << made << page.substr(end);
  else
    EXPECT_EQ(made, page.substr(begin, end - begin));
}

TEST(TablesOfDocs, TermsAreWhatSchemesLowerTo) {
  check_table("/docs/four_terms.md", "terms", terms_row);
}

TEST(TablesOfDocs, MemoryIsThatOfWhatSchemesLowerTo) {
  check_table("/docs/relative/README.md", "memory", memory_row);
}

}  // namespace
}  // namespace posenc
