// SPDX-License-Identifier: Apache-2.0
// The table of docs/four_terms.md: what each scheme of the registry lowers to, by what its terms
// read. POSENC_UPDATE_GOLDEN=1 writes it again.
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

namespace posenc {
namespace {

const std::string kPage = std::string(POSENC_SOURCE_DIR) + "/docs/four_terms.md";
constexpr const char *kBegin = "<!-- terms -->\n", *kEnd = "<!-- /terms -->";

struct LoweredScheme {
  LoweredTerms low;
  std::vector<Input> inputs;
};

LoweredScheme lowered_of(const AnyRelativeScheme& scheme) {
  const ScoreShape shape{.heads = 4,
                         .head_dim = 4,
                         .value_dim = 4,
                         .scale = 0.4,
                         .distance = {{-6, 9}, {-6, 9}, {-6, 9}}};
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
  scheme.lower(shape, views, out.low);
  return out;
}

// What a term is called in its column; gates with a table read it by the query's content.
std::string kind_of(const Term& t) {
  switch (t.kind) {
    case TermKind::linear:
      return "slope";
    case TermKind::decay:
      return "running sum";
    case TermKind::gates:
      return t.table.empty() ? "sum of gates" : "rows at sums of gates";
    case TermKind::distance_mlp:
      return "network";
    case TermKind::score_mlp:
      return "network of all heads' scores";
    case TermKind::value_rows:
      return "rows added to values";
    case TermKind::product:
      break;
  }
  if (t.table.empty()) return "vectors";
  return t.table.shape[3] > 1 ? "rows" : "numbers";
}

// By the rule of attend_scores: products, gates with a table (query), the others neither.
std::size_t column_of(const Term& t) {
  if (t.kind == TermKind::value_rows || t.kind == TermKind::score_mlp) return 4;
  const bool query = t.query.content || (t.kind == TermKind::gates && !t.table.empty());
  return query ? (t.key.content ? 0 : 1) : t.key.content ? 2 : 3;
}

std::string row_of_table(const std::string& text) {
  const LoweredScheme s = lowered_of(relative_scheme(parse_encoding(text)));
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

TEST(FourTerms, TheTableOfThePageIsWhatSchemesLowerTo) {
  std::ifstream file(kPage);
  std::stringstream read;
  read << file.rdbuf();
  const std::string page = read.str();
  const std::size_t begin = page.find(kBegin), end = page.find(kEnd);
  ASSERT_NE(begin, std::string::npos) << kPage;
  ASSERT_NE(end, std::string::npos) << kPage;
  std::istringstream lines(page.substr(begin, end - begin));
  std::string line, made;
  std::set<std::string> names;
  while (std::getline(lines, line)) {
    if (line.rfind("| `", 0) == 0) {
      const std::string text = line.substr(3, line.find('`', 3) - 3);
      names.insert(text.substr(0, text.find(' ')));
      line = row_of_table(text);
    }
    made += line + "\n";
  }
  std::set<std::string> registered;
  for_each(RelativeSchemes{}, [&]<class S>() { registered.insert(std::string(S::card.name)); });
  EXPECT_EQ(names, registered);
  if (std::getenv("POSENC_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(kPage) << page.substr(0, begin) << made << page.substr(end);
    return;
  }
  EXPECT_EQ(made, page.substr(begin, end - begin));
}

}  // namespace
}  // namespace posenc
