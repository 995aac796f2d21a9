// SPDX-License-Identifier: Apache-2.0
// The terms of a scheme by name. One list says their order for lower, bind and pull_back.
#pragma once
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "posenc/relative/scheme.h"

namespace posenc::inline v0::detail {

// A term, and whether the fields of the scheme ask for it.
struct TermName {
  std::string_view name;
  bool there = true;
};

// A name that the list does not have is a mistake of the scheme: std::logic_error, which every call of the
// scheme throws.
class TermNames {
 public:
  // In the order in which lower adds them, at most 8. The names are literals.
  constexpr TermNames(std::string_view who, std::initializer_list<TermName> list) : who_(who) {
    for (const TermName& t : list)
      if (t.there) names_.at(count_++) = t.name;
  }

  std::size_t operator[](std::string_view name) const;
  Term& of(std::span<Term> terms, std::string_view name) const { return terms[(*this)[name]]; }
  std::string_view who() const noexcept { return who_; }

 private:
  std::string_view who_;
  std::array<std::string_view, 8> names_{};
  std::size_t count_ = 0;
};

// Adds the terms of lower. One that is not the next of the list is a std::logic_error.
class NamedTerms {
 public:
  NamedTerms(const TermNames& names, LoweredTerms& out)
      : names_(names), out_(out), first_(out.terms.size()) {}
  void add(std::string_view name, const Term&);

 private:
  const TermNames& names_;
  LoweredTerms& out_;
  std::size_t first_;
};

// The gradients of the terms, for pull_back.
class TermGradients {
 public:
  TermGradients(const TermNames& names, const LoweredGradient& g)
      : names_(names), terms_(g.terms) {}
  // Throws [scheme]: fewer gradients than terms.
  const TermGradient& operator[](std::string_view name) const;
  // As gradient_values: dense, in double.
  std::vector<double> table(std::string_view name, const std::vector<Index>& shape) const;

 private:
  const TermNames& names_;
  std::span<const TermGradient> terms_;
};

}  // namespace posenc::v0::detail
