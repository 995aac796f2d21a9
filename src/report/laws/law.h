// SPDX-License-Identifier: Apache-2.0
// The laws of posenc law: each with its source, its equation and the options that it reads.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "posenc/io/json.h"
#include "posenc/report/subject.h"

namespace posenc::report {

struct LawOptions {
  std::string name;
  SubjectOptions subject;  // text empty: none
  std::optional<Index> trained, tuned, wanted, length, window, layers, chunk, sinks;
  std::optional<double> base;
  double share = 0.001;
  bool both = false;
  Index heads = 0, head_dim = 64;
  std::string params;
  std::vector<std::string> inputs;
};

struct LawAnswer {
  Json values = Json::object();
  std::string text{};                // lines for a person
  std::vector<std::string> notes{};  // one sentence each

  // One line, and the value of its name.
  void line(const char* name, Json value, const std::string& shown);
};

struct Law {
  const char* name;
  const char* title;
  const char* source;
  const char* equation;
  const char* needs;  // options that it needs, MODEL|SCHEME among them
  const char* reads;  // others that it reads
  LawAnswer (*run)(const LawOptions&);
};

std::span<const Law> laws();
const Law& law_of(const std::string& name);  // throws UsageError

LawAnswer critical_law(const LawOptions&);
LawAnswer base_law(const LawOptions&);
LawAnswer turns_law(const LawOptions&);
LawAnswer decay_law(const LawOptions&);
LawAnswer window_law(const LawOptions&);
LawAnswer trained_law(const LawOptions&);

}  // namespace posenc::report
