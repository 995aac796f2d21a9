// SPDX-License-Identifier: Apache-2.0
// One object of a config.json seen with the names and defaults of its class, each value with where
// it came from; and what its reader reports.
#pragma once
#include <concepts>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "model/diagnostics.h"
#include "model/hugging_face/class_rules/class_rules.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::hf {

using Value = Sourced<Json>;

// A key that was looked for: by which class, and what counts where the file has none ("" where
// nothing does).
struct Asked {
  std::string class_name, otherwise;
};

// What one reading of a file reports, what a person assumed, and which keys were visited.
struct Report : Diagnostics {
  explicit Report(std::string name, std::map<std::string, std::string> given = {},
                  std::set<std::string> counted = {})
      : file(std::move(name)), assume(std::move(given)), used(std::move(counted)) {}

  std::string file;  // for `where`: the name without folders
  std::map<std::string, std::string> assume;
  std::set<std::string> used;                     // of `assume`
  std::set<std::string> assumable{};              // every key that `assume` could have
  std::set<std::string> visited{};                // `where` of every key that was found
  std::map<std::string, Asked> asked{};           // `where` of every key that was looked for
  std::map<std::string, std::string> of_class{};  // keys that a class filled in, and what with
  std::string own_code{};                         // what auto_map of the file names

  // The value a person gave for `key` (a SCHEME field or a plain config key), read as JSON where it
  // is JSON and as text otherwise.
  std::optional<Value> assumed(std::string_view key);
  // Another report on the same file: the same assumptions, no findings.
  Report another() const { return Report(file, assume, used); }
  // What that one used, visited and looked for counts here too.
  void merge_visits(const Report& other);
};

// What Python takes as true.
bool truthy(const Json&);

// What a function returns behind an error: no value, or false.
struct Refused {
  template <std::same_as<bool> B>
  operator B() const {
    return false;
  }
  template <class T>
  operator std::optional<T>() const {
    return std::nullopt;
  }
};

// Where a finding points: a text, or where a value came from.
struct Place {
  std::string where;
  Place(std::string text) : where(std::move(text)) {}
  template <class T>
  Place(const Sourced<T>& v) : where(v.where) {}
};

// A dictionary whose values remember where they came from (rope_parameters after merging).
class Dict {
 public:
  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value);
  bool set_default(std::string_view key, Value);  // false when the key is there already
  const std::vector<std::pair<std::string, Value>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, Value>> items_;
  std::map<std::string, std::size_t, std::less<>> places_;  // in items_
};

class ConfigView {
 public:
  // path: JSON pointer of the object in the file ("" or "/text_config"); rules: of its model type;
  // held: what stands under the object's keys (of the class around a part). All outlive the view.
  ConfigView(const Json& object, std::string path, const ClassRules& rules, Report& report,
             const Dict* held = nullptr)
      : object_(&object), path_(std::move(path)), rules_(&rules), report_(&report), held_(held) {}

  // The same object with other rules.
  ConfigView(const ConfigView& other, const ClassRules& rules) : ConfigView(other) {
    rules_ = &rules;
  }
  // The same object, read into another list of findings.
  ConfigView(const ConfigView& other, Report& report) : ConfigView(other) { report_ = &report; }

  const Json& object() const { return *object_; }
  const ClassRules& rules() const { return *rules_; }
  Report& report() const { return *report_; }
  std::string where(std::string_view key = {}) const;  // config.json#/text_config/key
  // Of a value that was found, else of its key.
  Place place(const std::optional<Value>& v, std::string_view key) const {
    return v ? v->where : where(key);
  }
  std::string pointer(std::string_view key) const;  // /text_config/key
  std::string class_name() const;
  // What reads the file: transformers, or code of the model's own repository.
  std::string program() const;
  // Where the table has from which channels turn together.
  std::string layout_source() const;

  // What the file (or a person, or the class around the part) says; null counts. Looks at the
  // attribute's other names too.
  std::optional<Value> stated(std::string_view key) const;
  // The same, or what the class holds. Absent and a null default: none.
  std::optional<Value> value(std::string_view key) const;
  // The same two, and none for null.
  std::optional<Value> stated_value(std::string_view key) const { return not_null(stated(key)); }
  std::optional<Value> value_or_none(std::string_view key) const { return not_null(value(key)); }

  // The key under which the file has a value, for a message; `key` where it is not the file's.
  static std::string name_in_file(const Value&, std::string_view key);
  // A whole number in [low, high]; a finding and none when it is something else. `null` and absent
  // (with no default) give none; with `required` also a finding.
  std::optional<Sourced<Index>> integer(std::string_view key, Index low, Index high,
                                        bool required = false) const;
  // A switch. transformers' classes take true and false only, null where they say so (it is off
  // then): anything else is a finding. A key that the class does not hold is taken as Python takes
  // it, with a finding.
  bool flag(std::string_view key, bool otherwise) const;
  // The finding of a value that is no switch.
  void not_a_flag(std::string_view key, const Json& value, const std::string& where) const;
  // The class holds the attribute, so that transformers checks its type on loading.
  bool holds(std::string_view key) const;
  // null is refused on loading: the class holds a value and does not say that null may stand there.
  bool refuses_null(std::string_view key) const;
  // What the class holds for the attribute; null when it has none.
  const Json* held_by_class(std::string_view key) const;

  // Findings, with the arguments of Diagnostics.
  void add(Severity, std::string code, const Sentence&, const Place&, const Sentence& fix = "",
           std::optional<double> value = {}) const;
  Refused error(std::string code, const Sentence& text, const Place& at, const Sentence& fix = "",
                std::optional<double> value = {}) const {
    add(Severity::error, std::move(code), text, at, fix, value);
    return {};
  }
  void warn(std::string code, const Sentence& text, const Place& at, const Sentence& fix = "",
            std::optional<double> value = {}) const {
    add(Severity::warning, std::move(code), text, at, fix, value);
  }
  void note(std::string code, const Sentence& text, const Place& at, const Sentence& fix = "",
            std::optional<double> value = {}) const {
    add(Severity::note, std::move(code), text, at, fix, value);
  }
  // An error of code wrong_type.
  Refused wrong_type(const Sentence& text, const Place& at,
                     const Sentence& fix = "state the sizes of the model",
                     std::optional<double> value = {}) const {
    return error("wrong_type", text, at, fix, value);
  }
  // "NAME must be WANTED, got VALUE", at the value's place.
  Refused must_be(std::string_view name, std::string_view wanted, const Value& got,
                  const Sentence& fix = "", std::optional<double> value = {}) const {
    return wrong_type({"{} must be {}, got {}", name, wanted, got.value}, got, fix, value);
  }
  // What the class has of its own.
  template <class T>
  Sourced<T> of_class(T x) const {
    return {std::move(x), Origin::class_default, class_name()};
  }
  Value of_class(const char* text) const { return of_class(Json(text)); }

 private:
  static std::optional<Value> not_null(std::optional<Value> v) {
    return v && v->value.is_null() ? std::nullopt : std::move(v);
  }
  // The finding of two names of one attribute whose values differ.
  void two_names(const Value& counts, const Value& other) const;

  const Json* object_;
  std::string path_;
  const ClassRules* rules_;
  Report* report_;
  const Dict* held_;
};

// BERT and similar models as decoders; a class without the attribute is none, whatever a file says.
bool is_decoder(const ConfigView&);

// None for what is no number.
inline std::optional<double> number_of(const Json& j) {
  return j.is_number() ? std::optional(j.as_number()) : std::nullopt;
}
inline std::optional<double> number_of(const Value* v) {
  return v ? number_of(v->value) : std::nullopt;
}
inline std::optional<double> number_of(const std::optional<Value>& v) {
  return v ? number_of(v->value) : std::nullopt;
}
// Behind the last / of a path.
inline std::string last_word(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}
// Whole number of a JSON value: 8 and 8.0; none for anything else.
std::optional<Index> whole_number(const Json&);
inline Value derived(Json value, std::string where) {
  return {std::move(value), Origin::derived, std::move(where)};
}
// A number that others make.
inline Sourced<Index> counted(Index n, std::string where) {
  return {n, Origin::derived, std::move(where)};
}
template <class T>
FieldValue field_of(std::string name, const Sourced<T>& v) {
  return {std::move(name), v.value, v.origin, v.where};
}

// A member of data/hugging_face/keys.json: keys_of_positions, aliases, layer_types ... Throws if there is none.
const Json& table_member(std::string_view name);
// One that is a list of words.
std::vector<std::string_view> table_words(std::string_view name);
// 500000 where JSON's shortest text is 5e+05.
std::string plain(const Json&);
// The "rope" rule of the class; an empty one when there is none.
const RopeRules& rope_rules(const ConfigView&);
// What a file says of rotary.
inline constexpr std::string_view kRotaryKeys[] = {"rope_theta", "rope_scaling", "rope_parameters",
                                                   "partial_rotary_factor"};

}  // namespace posenc::v0::hf
