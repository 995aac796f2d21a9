// SPDX-License-Identifier: Apache-2.0
// The one list that readers, towers and the doctor report into.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "posenc/core/printable.h"
#include "posenc/model/finding.h"

namespace posenc {

// Findings in the order in which they came, each once: where code, place and message come again the
// higher severity counts, with its fix and value. Texts may quote a file: they are made printable.
class Diagnostics {
 public:
  // Without a fix: that of the code (finding_codes.h).
  void add(Finding);
  void add(Severity severity, std::string code, std::string message, std::string where,
           std::string fix = "", std::optional<double> value = {}) {
    add({severity, std::move(code), std::move(message), std::move(where), std::move(fix), value});
  }
  void add(const std::vector<Finding>& all) {
    for (const Finding& f : all) add(f);
  }
  void error(std::string code, std::string message, std::string where, std::string fix = "",
             std::optional<double> value = {}) {
    add({Severity::error, std::move(code), std::move(message), std::move(where), std::move(fix),
         value});
  }
  void warn(std::string code, std::string message, std::string where, std::string fix = "",
            std::optional<double> value = {}) {
    add({Severity::warning, std::move(code), std::move(message), std::move(where), std::move(fix),
         value});
  }
  void note(std::string code, std::string message, std::string where, std::string fix = "",
            std::optional<double> value = {}) {
    add({Severity::note, std::move(code), std::move(message), std::move(where), std::move(fix),
         value});
  }

  void error(std::string code, std::string message, std::string where,
             std::optional<double> value) {
    error(std::move(code), std::move(message), std::move(where), "", value);
  }
  void warn(std::string code, std::string message, std::string where, std::optional<double> value) {
    warn(std::move(code), std::move(message), std::move(where), "", value);
  }

  const std::vector<Finding>& findings() const noexcept { return findings_; }
  std::size_t errors() const noexcept { return errors_; }
  // The findings; none are left here.
  std::vector<Finding> take();

 private:
  std::vector<Finding> findings_;
  std::unordered_map<std::string, std::size_t> seen_;  // code, place and message; where it stands
  std::size_t errors_ = 0;
};

}  // namespace posenc
