// SPDX-License-Identifier: Apache-2.0
// The one list that readers, towers and the doctor report into.
#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "posenc/core/error.h"
#include "posenc/core/printable.h"
#include "posenc/io/json.h"
#include "posenc/model/finding.h"

namespace posenc::inline v0 {

// Short text of a value for a message.
std::string shown(const Json&);
// A value as a person writes it: texts, numbers, JSON.
template <class T>
std::string in_words(const T& x) {
  if constexpr (std::is_convertible_v<T, std::string_view>)
    return std::string(std::string_view(x));
  else if constexpr (std::is_integral_v<T>)
    return std::to_string(x);
  else if constexpr (std::is_floating_point_v<T>)
    return number_text(x);
  else
    return shown(x);
}

// {"{} is not read by {class}", key}: a form whose {} are replaced by its values, and {class} by the class
// that reads the file. A std::string is the sentence itself.
class Sentence {
 public:
  Sentence(std::string text) : values_{std::move(text)} {}
  template <class... Values>
  Sentence(const char* form, const Values&... values) : form_(form), values_{in_words(values)...} {}
  std::string of(const std::string& class_name) const;

 private:
  const char* form_ = "{}";
  std::vector<std::string> values_;
};
// The same without a class: message("{} is not read", key).
template <class... Values>
std::string message(const char* form, const Values&... values) {
  return Sentence(form, values...).of("");
}

// "a, b, c".
template <class Values = std::initializer_list<std::string_view>>
std::string listed(const Values& values) {
  std::string out;
  for (const auto& value : values) (out += out.empty() ? "" : ", ") += in_words(value);
  return out;
}

// Findings in the order in which they came, each once: where code, place and message come again the
// higher severity counts, with its fix and value. Texts may quote a file: they are made printable.
// Of one code and severity in one object or list of a file the first kMostAlike are kept, and the
// last of them says how many more there were.
class Diagnostics {
 public:
  static constexpr std::size_t kMostAlike = 20;
  // Without a fix: that of the code.
  void add(Finding);
  void add(Severity severity, std::string code, const Sentence& text, std::string where,
           const Sentence& fix = "", std::optional<double> value = {}) {
    add({severity, std::move(code), text.of(""), std::move(where), fix.of(""), value});
  }
  void add(const std::vector<Finding>& all) {
    for (const Finding& f : all) add(f);
  }
  // False, for a check that ends with it.
  bool error(std::string code, const Sentence& text, std::string where, const Sentence& fix = "",
             std::optional<double> value = {}) {
    add(Severity::error, std::move(code), text, std::move(where), fix, value);
    return false;
  }
  void warn(std::string code, const Sentence& text, std::string where, const Sentence& fix = "",
            std::optional<double> value = {}) {
    add(Severity::warning, std::move(code), text, std::move(where), fix, value);
  }
  void note(std::string code, const Sentence& text, std::string where, const Sentence& fix = "",
            std::optional<double> value = {}) {
    add(Severity::note, std::move(code), text, std::move(where), fix, value);
  }

  const std::vector<Finding>& findings() const noexcept { return findings_; }
  std::size_t errors() const noexcept { return errors_; }
  // The findings; none are left here.
  std::vector<Finding> take();

 private:
  struct Seen {
    std::optional<Severity> severity;
    std::optional<std::size_t> kept;  // where it stands in findings_
  };
  struct Alike {
    std::size_t kept = 0, more = 0, last = 0;  // last: of the kept ones, in findings_
  };
  std::vector<Finding> findings_;
  std::unordered_map<std::string, Seen> seen_;    // by code, place and message
  std::unordered_map<std::string, Alike> alike_;  // by code, severity and holder of the place
  std::size_t errors_ = 0;
};

struct LayerSpec;
// A note, where the frequencies of a layer change with the length; `value` is the last length before.
std::optional<Finding> switch_length(const LayerSpec&);
void note_switches(const std::vector<LayerSpec>&, Diagnostics&);

}  // namespace posenc::v0
