// SPDX-License-Identifier: Apache-2.0
// A verb: one file and one line of the table in verbs.cpp.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "posenc/io/array.h"
#include "posenc/io/json.h"
#include "words.h"

namespace posenc::cli {

// What a verb is asked for beside its own words.
struct Request {
  std::string path, format;  // of -o; empty: nothing is written
  bool json = false;
  bool in_memory = false;  // a function: arrays are returned, nothing is printed
  bool color = false;
  std::function<void(const char* what, Index done, Index total)> progress{};
  char** argv = nullptr;  // for verbs that another program runs

  // Neither written nor returned: printed.
  bool printed() const { return path.empty() && !in_memory; }
};

// What a verb answers. One of arrays, bytes and text; json where it was asked for.
struct Report {
  int code = 0;                        // 1: a negative answer
  std::string schema{};                // of what --json says of the arrays
  Arrays arrays{};                     // what -o holds
  std::optional<std::string> bytes{};  // or these: a picture, an ONNX model
  std::string text{};                  // for a person, or JSON
  std::string written{};               // for a person, once the bytes are written
};

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
// Names, summaries, words and examples of all verbs, for programs that make something of them.
Json verbs_json();

}  // namespace posenc::cli
