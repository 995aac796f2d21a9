// SPDX-License-Identifier: Apache-2.0
// An encoding made field by field, each with where its value came from.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/diagnostics.h"
#include "posenc/core/error.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0 {

struct FieldRef;  // core/field_ref.h

class EncodingBuilder {
 public:
  EncodingBuilder() = default;
  explicit EncodingBuilder(std::string_view scheme) { begin(scheme); }
  // The next part: the scheme, then its scalings. Throws [scheme] where the registry has no such.
  void begin(std::string_view name);
  // A value that the field does not take is kept for `finish` to report. A text is read as the
  // SCHEME grammar reads the value.
  void set(std::string_view field, Sourced<Json> value);
  void set(std::string_view field, Json value, Origin origin, std::string where) {
    set(field, Sourced<Json>{std::move(value), origin, std::move(where)});
  }
  void set(std::string_view field, const Sourced<Index>& v) {
    set(field, v.value, v.origin, v.where);
  }
  // "yarn.factor" of a scaling, "head_dim" of a scheme.
  std::string full_name(std::string_view field) const;
  const std::vector<FieldValue>& fields() const { return fields_; }

  // The encoding, when every part has what it requires and `check` passes. A refusal becomes one
  // error, at the key that the field's value came from, else at `where`.
  std::optional<Encoding> finish(Diagnostics&, const std::string& where,
                                 const std::function<void(const Encoding&)>& check);

 private:
  std::vector<FieldRef> refs();
  std::string_view part_name() const;
  void check_given();
  void report(const ArgumentError&, Diagnostics&, const std::string& where) const;

  Encoding encoding_;
  bool begun_ = false;
  std::vector<bool> given_;  // of the part that was begun last
  std::vector<FieldValue> fields_;
  std::optional<ArgumentError> refusal_;  // the first
  std::string refused_;                   // full name of its field
};

// The parameters of a scheme that acts at the input, or in the score of one head of one channel.
std::vector<Parameter> parameters_of(const Encoding&);
// The check of such schemes, by the parameters they would have.
inline void check_parameters(const Encoding& e) {
  (void)parameters_of(e);
}

}  // namespace posenc::v0
