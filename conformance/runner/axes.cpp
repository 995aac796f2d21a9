// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner/axes.h"

#include <string>

#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

// The letters of each stored axis: "bt(hd)" -> b | t | hd.
std::vector<std::string> grouped(std::string_view letters) {
  std::vector<std::string> groups;
  bool inside = false;
  for (const char c : letters) {
    if (c == '(') {
      inside = true;
      groups.emplace_back();
    } else if (c == ')') {
      inside = false;
    } else if (inside) {
      groups.back() += c;
    } else {
      groups.emplace_back(1, c);
    }
  }
  return groups;
}

bool is_fixed(char c) {
  return c >= '1' && c <= '9';
}

// Sizes of the members of one stored axis: all but one must be known.
std::vector<Index> member_sizes(const std::string& group, Index size,
                                const std::map<char, Index>& known) {
  std::vector<Index> sizes(group.size(), 0);
  Index product = 1;
  std::size_t open = group.size();
  for (std::size_t i = 0; i < group.size(); ++i) {
    const auto found = known.find(group[i]);
    if (is_fixed(group[i]))
      sizes[i] = group[i] - '0';
    else if (found != known.end() && group.size() > 1 && found->second > 0)
      sizes[i] = found->second;
    else if (found != known.end() && group.size() > 1)
      refuse("axes", "a merged axis needs the size of its letter " + std::string(1, group[i]),
             found->second);
    else if (open == group.size())
      open = i;
    else
      refuse("axes", "a merged axis leaves more than one size open", group);
    if (sizes[i] > 0) product *= sizes[i];
  }
  if (product == 0 || size % product != 0 || (open == group.size() && size != product))
    refuse("axes", "an axis does not divide as its letters say: " + group, size);
  if (open < group.size()) sizes[open] = size / product;
  return sizes;
}

}  // namespace

Axes::Axes(const std::vector<Index>& shape, std::string_view letters,
           const std::map<char, Index>& known) {
  const std::vector<std::string> groups = grouped(letters);
  if (groups.size() != shape.size())
    refuse("axes", "an array has another number of axes than " + std::string(letters),
           static_cast<Index>(shape.size()));
  Index stride = 1;  // from the last, fastest member to the first
  for (std::size_t g = groups.size(); g-- > 0;) {
    const std::vector<Index> sizes = member_sizes(groups[g], shape[g], known);
    for (std::size_t i = sizes.size(); i-- > 0;) {
      const char letter = is_fixed(groups[g][i]) ? 'd' : groups[g][i];
      auto [at, fresh] = axes_.try_emplace(letter, Axis{sizes[i], stride});
      if (!fresh) {
        if (at->second.stride * at->second.size != stride)
          refuse("axes", "an axis stored as several must be stored row by row", letters);
        at->second.size *= sizes[i];
      }
      stride *= sizes[i];
    }
  }
  count_ = stride;
}

Axis Axes::operator[](char letter) const {
  const auto found = axes_.find(letter);
  return found == axes_.end() ? Axis{} : found->second;
}

std::vector<Index> Axes::walk(std::string_view letters) const {
  std::vector<Index> at(letters.size(), 0), out;
  Index count = 1;
  for (const char c : letters) count *= (*this)[c].size;
  if (count != count_)
    refuse("axes", "every axis of an array must be one of the letters " + std::string(letters),
           count_);
  for (Index n = 0; n < count; ++n) {
    Index offset = 0;
    for (std::size_t i = 0; i < letters.size(); ++i) offset += at[i] * (*this)[letters[i]].stride;
    out.push_back(offset);
    for (std::size_t i = letters.size(); i-- > 0;) {
      if (++at[i] < (*this)[letters[i]].size) break;
      at[i] = 0;
    }
  }
  return out;
}

}  // namespace posenc::conformance
