// SPDX-License-Identifier: Apache-2.0
#include "relative/term_names.h"

#include <stdexcept>
#include <string>

#include "posenc/core/parameter.h"

namespace posenc::inline v0::detail {
namespace {

[[noreturn]] void mistaken(std::string_view who, const char* what, std::string_view name) {
  throw std::logic_error("[" + std::string(who) + "] " + what + std::string(name));
}

}  // namespace

std::size_t TermNames::operator[](std::string_view name) const {
  for (std::size_t n = 0; n < count_; ++n)
    if (names_[n] == name) return n;
  mistaken(who_, "has no term ", name);
}

void NamedTerms::add(std::string_view name, const Term& term) {
  if (out_.terms.size() - first_ != names_[name])
    mistaken(names_.who(), "adds out of its order the term ", name);
  out_.add(term);
}

const TermGradient& TermGradients::operator[](std::string_view name) const {
  return gradient_of(names_.who(), terms_, names_[name]);
}

std::vector<double> TermGradients::table(std::string_view name,
                                         const std::vector<Index>& shape) const {
  return gradient_values(names_.who(), (*this)[name].table, shape);
}

}  // namespace posenc::v0::detail
