// SPDX-License-Identifier: Apache-2.0
// The numbers behind posenc advise: runs of the lab and published tables, as
// comparisons of schemes.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "posenc/core/dtype.h"
#include "posenc/io/json.h"

namespace posenc::report {

// One line of results.jsonl, or a mean over several seeds of the packaged file.
struct LabRun {
  std::string task, label, scheme, provenance;
  Index seeds = 1, parameters = 0;
  Json options, values;
};
// results.jsonl, or a folder with it. Throws FormatError by line: JSON, another
// schema, a missing member, one run twice with other numbers.
std::vector<LabRun> read_runs(const std::string& path);
std::vector<LabRun> packaged_runs();

struct Question {
  double ratio = 0;  // wanted / trained
  std::string task;  // of advise
  bool encoder = false;
  bool scalings = false;  // of a trained rotary model
};

// One scheme in a comparison.
struct Entry {
  std::string scheme, label,
      text;  // as advise, its source and the SCHEME grammar call it
  double value = 0;
  std::optional<double> in_length{}, least{}, most{};
  Index seeds = 0;
  bool at_least = false;  // the source prints a bound
};
// Schemes whose numbers can be compared: the same runs or table, the same
// length.
struct Comparison {
  bool is_measured = false, higher_is_better = false, is_tuned = false;
  std::string source, model, data, metric, column, command;
  std::optional<Index> trained, length;
  std::optional<double> ratio;  // length / trained; none: the column is no length
  std::vector<Entry> entries;

  // Differences below it do not count, and schemes that are further than it
  // behind the best are equally lost. In the unit of `cost`.
  double margin() const;
  double hopeless() const;
  double cost(const Entry&) const;  // lower is better; perplexity by its logarithm
};

// At the least measured length that reaches the ratio, or else the longest.
std::vector<Comparison> compare_runs(const std::vector<LabRun>&, const Question&);
std::vector<Comparison> compare_tables(const Question&);

struct Ranked {
  std::string scheme;
  Index won = 0, tied = 0, lost = 0;
  // Share of the comparisons with another scheme that it won; a tie is half of one. One won and one
  // lost comparison are added, so that few of them count less. Negative: there are none.
  double score() const;
  std::vector<std::pair<const Comparison*, const Entry*>> numbers;
};
// Best first. Schemes that no comparison has beside another one come last.
std::vector<Ranked> rank(const std::vector<Comparison>&);

}  // namespace posenc::report
