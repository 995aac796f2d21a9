// SPDX-License-Identifier: Apache-2.0
// A suite in memory, a case of it, and parts of its arrays.
#pragma once
#include <cmath>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "posenc/core/error.h"
#include "posenc/io/array.h"
#include "posenc/io/json.h"

namespace posenc::conformance {

// Thrown by an operation that posenc cannot express yet; the text is the reason.
struct NotExpressible : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A number of a case as T. Throws where T is an integer and cannot hold it (fractions are cut off).
template <class T>
T number_as(double x) {
  if constexpr (std::is_integral_v<T>)
    if (!(std::abs(x) <= 0x1p53)) refuse("case", "a whole number must lie within 2^53", x);
  return static_cast<T>(x);
}

struct Suite {
  std::filesystem::path dir;
  std::string name;
  Json cases;  // the list
  Arrays arrays;
  mutable std::map<std::string, Arrays> weights;  // of models, by folder, once they are asked for
};
// Reads cases.json and, where there, arrays.safetensors. Throws FormatError.
Suite load_suite(const std::filesystem::path& dir);
// The same of a cases.json that was read, without arrays.
Suite parse_suite(const Json& file, const std::filesystem::path& dir);

struct Case {
  const Suite& suite;
  const Json& json;
  std::string name;

  // An array by the short name of the inputs or outputs, or by its full name; "weights:NAME" is a
  // tensor of model.safetensors in the folder params.model_dir. Throws
  // std::invalid_argument("[case] no array ...").
  const Array& array(std::string_view name) const;
  bool has_array(std::string_view name) const;
  // "$a/b": a member of params; anything else: itself.
  Json parameter(std::string_view text) const;
};

// A part of an array, written as in NumPy: name, name[3], name[:, 1:4], name[:, 0::2]; negative
// numbers count from the end, a leading - negates the values.
struct Slice {
  std::string text, name;  // as written; the short name of the array
  const Array* array = nullptr;
  bool negative = false;
  Index offset = 0;                  // elements
  std::vector<Index> shape, stride;  // elements

  Index count() const;
  bool is_float() const { return posenc::is_float(array->dtype); }
  std::vector<double> values() const;             // row-major over `shape`
  std::vector<Index> offsets() const;             // flat index in the array of each of those
  std::vector<Index> index_of(Index flat) const;  // in the axes of the whole array
};
Slice slice(const Case&, std::string_view text);

}  // namespace posenc::conformance
