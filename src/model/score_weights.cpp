// SPDX-License-Identifier: Apache-2.0
// What acts in the score of a layer: its learned arrays from the weights.
#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "model/learned_tables.h"
#include "posenc/core/error.h"
#include "posenc/io/array.h"
#include "posenc/model/weights.h"

namespace posenc::inline v0 {
namespace {

std::vector<Index> without_ones(std::vector<Index> shape) {
  std::erase(shape, Index{1});
  return shape;
}

ParameterValues read_as(ModelWeights& weights, const std::string& tensor, std::string name,
                        const std::vector<Index>& shape) {
  ParameterValues out{std::move(name), {}, shape, {}};
  out.tensor = the_tensor(weights, tensor, out.name + " is that");
  if (without_ones(out.tensor.shape) != without_ones(shape))
    throw FormatError(out.tensor.file, out.tensor.name,
                      "has shape " + shape_text(out.tensor.shape) + ", " + out.name + " needs " +
                          shape_text(shape));
  out.values = weights.values(out.tensor);
  return out;
}

// The tensor of a parameter; "1.table" is that of the second scheme. Null: not named.
const std::string* tensor_of(const LayerSpec& layer, std::string_view name) {
  const std::size_t dot = name.find('.');
  std::size_t wanted = 0;
  const char* const end = name.data() + (dot == std::string_view::npos ? 0 : dot);
  const bool numbered = dot != std::string_view::npos &&
                        std::from_chars(name.data(), end, wanted).ptr == end && dot > 0;
  const std::string_view parameter = numbered ? name.substr(dot + 1) : name;
  std::size_t number = 0;
  for (const LayerEncoding& e : layer.encodings) {
    if (!is_relative(e.value.scheme)) continue;
    if (!numbered || number == wanted)
      for (const auto& [own, tensor] : e.tensors)
        if (own == parameter) return &tensor;
    ++number;
  }
  return nullptr;
}

}  // namespace

std::vector<ParameterValues> read_parameters(ModelWeights& weights, const LayerSpec& layer,
                                             const std::vector<Parameter>& needed) {
  std::vector<ParameterValues> out;
  for (const Parameter& p : needed)
    if (const std::string* tensor = tensor_of(layer, p.name))
      out.push_back(read_as(weights, *tensor, p.name, p.shape));
  return out;
}

ParameterValues read_sinks(ModelWeights& weights, const LayerSpec& layer, Index heads) {
  if (layer.sinks.empty()) refuse("read_sinks", "the layer must have sinks, layer", layer.index);
  return read_as(weights, layer.sinks, "sinks", {heads});
}

}  // namespace posenc::v0
