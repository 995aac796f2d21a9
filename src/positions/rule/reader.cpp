// SPDX-License-Identifier: Apache-2.0
#include "positions/rule/reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/element.h"

namespace posenc::inline v0::detail {
namespace {

template <class T>
bool parse(std::string_view text, T& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  return error == std::errc{} && end == text.data() + text.size();
}

bool is_word_of(std::string_view list, std::string_view word) {
  const std::vector<std::string_view> all = words_of(list);
  return std::find(all.begin(), all.end(), word) != all.end();
}

// "count" of "count" and of "count=1".
std::string_view key_of(std::string_view word) {
  return word.substr(0, word.find('='));
}

std::vector<std::string_view> items_of(std::string_view list) {
  std::vector<std::string_view> items;
  list = list.substr(1, list.size() - 2);
  for (std::size_t from = 0; from <= list.size() && !list.empty();) {
    const std::size_t to = std::min(list.find(',', from), list.size());
    items.push_back(list.substr(from, to - from));
    from = to + 1;
  }
  return items;
}

template <class F>
void each_element(const ConstTensorView& v, const F& f) {
  for (Index i = 0; i < v.shape[0]; ++i) f(i * v.stride[0]);
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find(' ', from), text.size());
    if (to > from) words.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return words;
}

RuleReader::RuleReader(std::string_view text, std::span<const PositionArray> arrays)
    : about_(&position_rule(text)), arrays_(arrays) {
  const std::vector<std::string_view> words = words_of(text);
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::size_t equal = words[i].find('=');
    if (equal == std::string_view::npos || equal + 1 == words[i].size())
      refuse_field("rule", name(), "needs key=value after its name", words[i]);
    const auto [at, is_new] = given_.emplace(words[i].substr(0, equal), words[i].substr(equal + 1));
    if (!is_new) refuse_key(at->first, "must be given once", words[i]);
  }
  check_keys();
  check_arrays();
}

void RuleReader::refuse_key(std::string_view key, const std::string& rule,
                            std::string_view got) const {
  refuse_field("rule", key, "of " + std::string(name()) + " " + rule, got);
}

void RuleReader::check_keys() const {
  const std::vector<std::string_view> known = words_of(about_->keys);
  for (const auto& given : given_) {
    const std::string_view key = given.first;
    if (std::any_of(known.begin(), known.end(), [&](auto word) { return key_of(word) == key; }))
      continue;
    std::string names;
    for (const std::string_view word : known)
      names += (names.empty() ? "" : ", ") + std::string(key_of(word));
    refuse(
        "rule",
        "a key of " + std::string(name()) +
            (names.empty() ? " must be omitted: the rule has no keys" : " must be one of " + names),
        key);
  }
  for (const std::string_view word : known)
    if (word.find('=') == std::string_view::npos && !given_.contains(word))
      refuse_sentence("rule", word, std::string(name()) + " needs " + std::string(word) + "=");
}

void RuleReader::check_arrays() const {
  for (const PositionArray& a : arrays_)
    if (!is_word_of(about_->arrays, a.name) && !is_word_of(about_->optional, a.name))
      refuse_field("rule", a.name, "is not read by " + std::string(name()));
  for (const std::string_view needed : words_of(about_->arrays))
    if (!has_array(needed))
      refuse_sentence("rule", needed,
                      std::string(name()) + " needs the array " + std::string(needed));
}

std::string_view RuleReader::value(std::string_view key) const {
  if (const auto found = given_.find(key); found != given_.end()) return found->second;
  for (const std::string_view word : words_of(about_->keys))
    if (key_of(word) == key) return word.substr(key.size() + 1);
  return {};
}

Index RuleReader::whole(std::string_view key) const {
  Index n = 0;
  if (!parse(value(key), n)) refuse_key(key, "must be a whole number of 64 bits", value(key));
  return n;
}

double RuleReader::real(std::string_view key) const {
  double x = 0;
  if (!parse(value(key), x) || !std::isfinite(x))
    refuse_key(key, "must be a finite number", value(key));
  return x;
}

bool RuleReader::flag(std::string_view key) const {
  const std::string_view v = value(key);
  if (v != "true" && v != "false") refuse_key(key, "must be true or false", v);
  return v == "true";
}

std::vector<Index> RuleReader::wholes(std::string_view key) const {
  const std::string_view list = value(key);
  std::vector<Index> all;
  const bool is_list = list.size() > 1 && list.front() == '[' && list.back() == ']';
  for (const std::string_view item : is_list ? items_of(list) : std::vector{list})
    if (Index n = 0; is_list && parse(item, n))
      all.push_back(n);
    else
      refuse_key(key, "must be a list of whole numbers such as [24,24]", list);
  return all;
}

std::vector<double> RuleReader::reals(std::string_view key) const {
  const std::string_view list = value(key);
  std::vector<double> all;
  const bool is_list = list.size() > 1 && list.front() == '[' && list.back() == ']';
  for (const std::string_view item : is_list ? items_of(list) : std::vector{list})
    if (double x = 0; is_list && parse(item, x) && std::isfinite(x))
      all.push_back(x);
    else
      refuse_key(key, "must be a list of numbers such as [16,16]", list);
  return all;
}

bool RuleReader::has_array(std::string_view name) const {
  return std::any_of(arrays_.begin(), arrays_.end(), [&](const auto& a) { return a.name == name; });
}

ConstTensorView RuleReader::array(std::string_view name) const {
  for (const PositionArray& a : arrays_)
    if (a.name == name) return a.array;
  return {};
}

std::vector<Index> RuleReader::whole_array(std::string_view name) const {
  const ConstTensorView v = array(name);
  if (v.rank != 1 || (v.dtype != DType::i64 && v.dtype != DType::i32 && v.dtype != DType::u8))
    refuse_field("rule", name, "must have one axis and be u8, i32 or i64");
  std::vector<Index> all;
  each_element(v, [&](Index at) { all.push_back(integer_element(v.data, v.dtype, at)); });
  return all;
}

std::vector<double> RuleReader::real_array(std::string_view name) const {
  if (!has_array(name)) return {};
  const ConstTensorView v = array(name);
  const bool real = v.dtype == DType::f64 || v.dtype == DType::f32;
  if (v.rank != 1 || (!real && v.dtype != DType::i64 && v.dtype != DType::i32))
    refuse_field("rule", name, "must have one axis and be i32, i64, f32 or f64");
  std::vector<double> all;
  each_element(v, [&](Index at) {
    all.push_back(real ? float_element(v.data, v.dtype, at) : real_element(v.data, v.dtype, at));
  });
  return all;
}

std::vector<VisionGrid> RuleReader::grids(std::string_view name, std::string_view seconds) const {
  if (!has_array(name)) {
    if (!seconds.empty() && has_array(seconds))
      refuse_field("rule", seconds, "needs the array " + std::string(name));
    return {};
  }
  const ConstTensorView v = array(name);
  if (v.rank != 2 || v.shape[1] != 3 || (v.dtype != DType::i64 && v.dtype != DType::i32))
    refuse_field("rule", name, "must be [n, 3] of i32 or i64: frames, rows, columns");
  std::vector<VisionGrid> grids;
  for (Index i = 0; i < v.shape[0]; ++i) {
    const auto at = [&](Index axis) {
      return integer_element(v.data, v.dtype, i * v.stride[0] + axis * v.stride[1]);
    };
    grids.push_back({at(0), at(1), at(2), 1});
  }
  if (seconds.empty() || !has_array(seconds)) return grids;
  const std::vector<double> times = real_array(seconds);
  if (times.size() != grids.size())
    refuse_field("rule", seconds, "must have one number for each of " + std::string(name),
                 std::to_string(times.size()));
  for (std::size_t i = 0; i < grids.size(); ++i) grids[i].seconds = times[i];
  return grids;
}

}  // namespace posenc::v0::detail
