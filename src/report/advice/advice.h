// SPDX-License-Identifier: Apache-2.0
// What posenc advise says, as data and as text.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "evidence.h"
#include "posenc/registry.h"
#include "posenc/report/request.h"
#include "posenc/report/subject.h"

namespace posenc::report {

struct AdviceOptions {
  std::optional<Index> trained;
  Index wanted = 0;
  bool decoder = false, encoder = false;
  std::string task = "lm", results;
  SubjectOptions checkpoint;  // text empty: none
};

struct Step {
  std::string command, why;
};

struct Advice {
  Question question;
  Index trained = 0, wanted = 0;
  std::string role, checkpoint;           // checkpoint: what the model uses
  std::optional<Encoding> rope{};         // of the checkpoint, without scalings
  std::vector<Comparison> comparisons{};  // that `ranking` points to
  std::vector<Ranked> ranking{};          // schemes that were compared, best first
  std::vector<Ranked> alone{};            // with numbers, but beside no other scheme
  std::vector<std::pair<std::string, std::string>> schemes{};  // SCHEME of a ranked scaling
  std::vector<std::string> unknown{};                          // sentences
  std::vector<Step> next{};
};

Advice advise(const AdviceOptions&);
Json advice_json(const Advice&);
std::string advice_text(const Advice&, const Style&);

}  // namespace posenc::report
