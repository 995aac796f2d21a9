// SPDX-License-Identifier: Apache-2.0
// A small JSON value. Objects keep the order of the file. Strict: no NaN or Infinity, no duplicate
// keys, at most 200 levels and 4 million values; numbers without fraction or exponent that fit 64
// bits are integers, all others doubles (rejected if they overflow).
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "posenc/core/export.h"
#include "posenc/core/file_path.h"

namespace posenc::inline v0 {

class POSENC_API Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;
  using Value =
      std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object>;

  // Out of line: less code at every use, less to compile for includers, and gcc 12 warns
  // incorrectly about inlined variants.
  Json();
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();
  Json(std::nullptr_t);
  Json(bool);
  Json(int);
  Json(std::int64_t);
  Json(double);
  Json(const char*);
  Json(std::string);
  Json(std::string_view);
  Json(Array);
  Json(Object);
  static Json object(std::initializer_list<Member> = {});
  static Json array(std::initializer_list<Json> = {});

  bool is_null() const { return value.index() == 0; }
  bool is_bool() const { return value.index() == 1; }
  bool is_integer() const { return value.index() == 2; }
  bool is_number() const { return value.index() == 2 || value.index() == 3; }
  bool is_string() const { return value.index() == 4; }
  bool is_array() const { return value.index() == 5; }
  bool is_object() const { return value.index() == 6; }

  bool as_bool() const;  // these throw std::invalid_argument("[json] ...") on another type
  std::int64_t as_integer() const;
  double as_number() const;
  const std::string& as_string() const;
  const Array& as_array() const;
  const Object& as_object() const;
  Array& as_array();
  Object& as_object();

  const Json* find(std::string_view key) const;    // null when absent or not an object
  const Json& at(std::string_view key) const;      // throws when absent
  const Json* at_pointer(std::string_view) const;  // "/layers/0/rotary"; null when absent
  void set(std::string_view key, Json);            // replaces or appends
  void push(Json);
  bool operator==(const Json&) const;

  // indent < 0: one line. Doubles in their shortest round-trip form; NaN and infinities are
  // rejected.
  std::string dump(int indent = -1) const;

  Value value;
};

// Throws FormatError(file, "byte N" or "#/path", problem).
POSENC_API Json parse_json(std::string_view text, const std::string& file);
// At most 100 MB. `-` is not treated specially here.
POSENC_API Json read_json(const FilePath&);

}  // namespace posenc::v0
