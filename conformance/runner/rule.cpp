// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner/rule.h"

#include <algorithm>
#include <charconv>

namespace posenc::conformance {
namespace {

double parse_number(std::string_view text, std::string_view key) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    refuse_field("rule", key, "must be a number", text);
  return value;
}

Index whole(double value, std::string_view key) {
  const auto i = static_cast<Index>(value);
  if (static_cast<double>(i) != value) refuse_field("rule", key, "must be an integer", value);
  return i;
}

}  // namespace

Rule::Rule(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find(' ', from), text.size());
    if (to > from) words.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  if (words.empty()) refuse("rule", "a rule needs a name");
  name_ = std::string(words[0]);
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equal = words[i].find('=');
    if (equal == std::string_view::npos) refuse("rule", "must be key=value", words[i]);
    const auto [at, fresh] = values_.emplace(words[i].substr(0, equal), words[i].substr(equal + 1));
    if (!fresh) refuse("rule", "a key is given twice", at->first);
  }
}

bool Rule::has(std::string_view key) const {
  return values_.find(key) != values_.end();
}

const std::string& Rule::text(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) refuse("rule", name_ + " needs a key", key);
  used_[std::string(key)] = true;
  return found->second;
}

double Rule::number(std::string_view key) const {
  return parse_number(text(key), key);
}
double Rule::number(std::string_view key, double fallback) const {
  return has(key) ? number(key) : fallback;
}
Index Rule::integer(std::string_view key) const {
  return whole(number(key), key);
}
Index Rule::integer(std::string_view key, Index fallback) const {
  return has(key) ? integer(key) : fallback;
}

bool Rule::flag(std::string_view key) const {
  if (!has(key)) return false;
  if (text(key) != "true" && text(key) != "false")
    refuse_field("rule", key, "must be true or false", text(key));
  return text(key) == "true";
}

std::vector<double> Rule::numbers(std::string_view key) const {
  std::string_view list = text(key);
  if (list.size() < 2 || list.front() != '[' || list.back() != ']')
    refuse_field("rule", key, "must be a list", list);
  list = list.substr(1, list.size() - 2);
  std::vector<double> out;
  for (std::size_t from = 0; from <= list.size() && !list.empty();) {
    const std::size_t to = std::min(list.find(',', from), list.size());
    out.push_back(parse_number(list.substr(from, to - from), key));
    from = to + 1;
  }
  return out;
}

std::vector<Index> Rule::integers(std::string_view key) const {
  std::vector<Index> out;
  for (const double v : numbers(key)) out.push_back(whole(v, key));
  return out;
}

void Rule::all_used() const {
  for (const auto& [key, value] : values_)
    if (used_.find(key) == used_.end()) refuse("rule", name_ + " knows no such key", key);
}

}  // namespace posenc::conformance
