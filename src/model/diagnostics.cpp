// SPDX-License-Identifier: Apache-2.0
#include "model/diagnostics.h"

#include <utility>

#include "model/finding_codes.h"

namespace posenc::inline v0 {
namespace {

std::string_view default_fix(std::string_view code) {
  for (const DefaultFix& known : kDefaultFixes)
    if (known.code == code) return known.fix;
  return "";
}

}  // namespace

std::string shown(const Json& j) {
  std::string text = j.dump();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string filled(std::string_view form, std::initializer_list<std::string> values) {
  std::string out;
  for (const std::string& value : values) {
    const std::size_t at = form.find("{}");
    out.append(form.substr(0, at)) += value;
    form.remove_prefix(at + 2);
  }
  return out.append(form);
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

void Diagnostics::add(Finding f) {
  if (f.fix.empty()) f.fix = default_fix(f.code);
  for (std::string* text : {&f.code, &f.message, &f.where, &f.fix})
    *text = printable(*text, std::string::npos);
  const auto [at, added] =
      seen_.try_emplace(f.code + '\n' + f.where + '\n' + f.message, findings_.size());
  if (!added && findings_[at->second].severity >= f.severity) return;
  errors_ += f.severity == Severity::error;
  if (added)
    findings_.push_back(std::move(f));
  else
    findings_[at->second] = std::move(f);
}

std::vector<Finding> Diagnostics::take() {
  seen_.clear();
  errors_ = 0;
  return std::exchange(findings_, {});
}

}  // namespace posenc::v0
