// SPDX-License-Identifier: Apache-2.0
#include "model/diagnostics.h"

#include <algorithm>
#include <utility>

#include "model/finding_codes.h"

namespace posenc {
namespace {

// Length of the UTF-8 sequence at the front of `s`, 0 when it is none or a control character.
std::size_t utf8_length(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  std::size_t n = 0;
  if (lead >= 0xc2 && lead < 0xe0) n = 2;
  if (lead >= 0xe0 && lead < 0xf0) n = 3;
  if (lead >= 0xf0 && lead < 0xf5) n = 4;
  if (n == 0 || s.size() < n) return 0;
  for (std::size_t i = 1; i < n; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if (lead == 0xc2 && byte(1) < 0xa0) return 0;  // U+0080 .. U+009F control a terminal too
  if (lead == 0xe0 && byte(1) < 0xa0) return 0;
  if (lead == 0xed && byte(1) >= 0xa0) return 0;
  if (lead == 0xf0 && byte(1) < 0x90) return 0;
  if (lead == 0xf4 && byte(1) >= 0x90) return 0;
  return n;
}

std::string_view default_fix(std::string_view code) {
  for (const DefaultFix& known : kDefaultFixes)
    if (known.code == code) return known.fix;
  return "";
}

}  // namespace

std::string printable(std::string_view s, std::size_t most) {
  std::string out;
  out.reserve(std::min(s.size(), most));
  while (!s.empty() && out.size() < most) {
    const std::size_t n = utf8_length(s);
    if (n == 0)
      out += '?';
    else
      out.append(s.substr(0, n));
    s.remove_prefix(n == 0 ? 1 : n);
  }
  if (!s.empty()) out += "...";
  return out;
}

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

}  // namespace posenc
