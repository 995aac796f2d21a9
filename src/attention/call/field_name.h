// SPDX-License-Identifier: Apache-2.0
// The name of an argument in error messages, made of parts without allocating: a check that passes
// builds no string. A longer name is cut.
#pragma once
#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "posenc/core/error.h"

namespace posenc::inline v0::detail {

class FieldName {
 public:
  FieldName(const char* name) : FieldName(std::string_view(name), {}) {}
  FieldName(std::string_view a, std::string_view b, std::string_view c = {}) {
    for (const std::string_view part : {a, b, c}) {
      const std::size_t n = std::min(part.size(), text_.size() - size_);
      std::copy_n(part.begin(), n, text_.begin() + static_cast<std::ptrdiff_t>(size_));
      size_ += n;
    }
  }
  // Without the blank that joins it to the name of a part.
  std::string_view name() const noexcept {
    const std::string_view all = *this;
    return all.ends_with(' ') ? all.substr(0, all.size() - 1) : all;
  }
  operator std::string_view() const noexcept { return {text_.data(), size_}; }

  // Of messages.
  friend std::string operator+(const FieldName& a, std::string_view b) {
    return std::string(std::string_view(a)).append(b);
  }
  friend std::string operator+(std::string_view a, const FieldName& b) {
    return std::string(a).append(std::string_view(b));
  }

 private:
  std::array<char, 80> text_;
  std::size_t size_ = 0;
};

// As refuse_sentence, with the number that was got.
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_number(std::string_view who,
                                                                 std::string_view field,
                                                                 std::string_view sentence,
                                                                 Index got) {
  throw ArgumentError(who, field, sentence, std::to_string(got));
}
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_number(std::string_view who,
                                                                 std::string_view field,
                                                                 std::string_view sentence,
                                                                 double got) {
  throw ArgumentError(who, field, sentence, number_text(got));
}

}  // namespace posenc::v0::detail
