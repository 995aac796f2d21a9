// SPDX-License-Identifier: Apache-2.0
// A verb: one file of src/report/verbs and one line of the table in src/report/verbs.cpp. The
// command line, its help and the functions of Python are made from the table.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "posenc/io/json.h"
#include "posenc/report/request.h"
#include "posenc/report/words.h"

namespace posenc::report {

struct Verb {
  using Run = std::function<Report(const Request&)>;
  const char* name;
  const char* summary;
  Run (*declare)(Words&);  // adds the words; the result runs the verb once they are read
  const char* examples;    // below the options of --help
  bool has_twin = false;   // the Python package has a function made from this entry
};

// In the order of --help.
std::span<const Verb* const> verbs();
const Verb* find_verb(std::string_view name);  // nullptr: there is none
// Names, summaries, words and examples of all verbs, for generators.
Json verbs_json();

}  // namespace posenc::report
