// SPDX-License-Identifier: Apache-2.0
#include "posenc/model/weights.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>

#include "model/contains.h"
#include "model/learned_tables.h"
#include "posenc/core/error.h"
#include "posenc/core/printable.h"
#include "posenc/io/array.h"
#include "posenc/io/gguf.h"
#include "posenc/io/safetensors_edit.h"

namespace posenc::inline v0 {
namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 27;
constexpr std::size_t kInFile = std::size_t{1} << 32;  // StoredTensor::at = file * 2^32 + tensor

bool is_called(std::string_view full, std::string_view name) {
  return full == name || (full.ends_with(name) && full[full.size() - name.size() - 1] == '.');
}

struct FloatType {
  std::string_view safetensors, gguf;
  std::uint32_t number;  // ggml's
  DType type;
};
constexpr FloatType kFloatTypes[] = {{"F32", "f32", 0, DType::f32},
                                     {"F16", "f16", 1, DType::f16},
                                     {"F64", "f64", 28, DType::f64},
                                     {"BF16", "bf16", 30, DType::bf16}};
template <class Value>
const FloatType* float_type(Value FloatType::*field, const Value& value) {
  for (const FloatType& f : kFloatTypes)
    if (f.*field == value) return &f;
  return nullptr;
}
const FloatType* float_type(const std::string& dtype) {
  return float_type<std::string_view>(&FloatType::safetensors, dtype);
}

struct OpenFile {
  explicit OpenFile(const std::filesystem::path& path)
      : map(path), index(index_safetensors(map.bytes(), path.string())) {}
  MappedFile map;
  SafetensorsIndex index;
};

// Files that a folder's index names, each once, with the tensors it says they hold.
std::map<std::string, std::string> shards(const std::filesystem::path& path) {
  const Json index = read_json(path);
  const Json* all = index.find("weight_map");
  if (all == nullptr || !all->is_object())
    throw FormatError(path.string(), "#/weight_map", "must be an object of names and files");
  std::map<std::string, std::string> out;
  for (const auto& [name, file] : all->as_object()) {
    if (!file.is_string() || file.as_string().empty() ||
        file.as_string().find_first_of("/\\") != std::string::npos || file.as_string()[0] == '.')
      throw FormatError(path.string(), "#/weight_map/" + printable(name),
                        "must be a file beside the index");
    out[name] = file.as_string();
  }
  return out;
}

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

struct ModelWeights::State {
  std::filesystem::path where;
  std::vector<std::filesystem::path> files;     // of a folder
  std::map<std::string, std::string> shard_of;  // by the index, where there is one
  std::map<std::size_t, std::unique_ptr<OpenFile>> open;
  std::unique_ptr<MappedFile> map;  // of a GGUF file
  GgufFile gguf;

  OpenFile& file(std::size_t i) {
    auto& slot = open[i];
    std::error_code problem;
    // A pipe would wait for a writer; what is missing is said by MappedFile.
    if (!slot && std::filesystem::exists(files[i], problem) &&
        !std::filesystem::is_regular_file(files[i], problem))
      throw FormatError(files[i].string(), "", "is not a regular file");
    if (!slot) slot = std::make_unique<OpenFile>(files[i]);
    return *slot;
  }
  void look_into_folder() {
    std::error_code problem;
    std::filesystem::path index;
    for (const auto& entry : std::filesystem::directory_iterator(where, problem)) {
      const std::string name = entry.path().filename().string();
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
      if (name == "model.safetensors.index.json" && entry.is_regular_file(problem))
        index = entry.path();
    }
    std::ranges::sort(files);
    if (index.empty()) {
      // A whole model before what else lies there (adapters, other programs' copies).
      if (std::filesystem::exists(where / "model.safetensors", problem))
        files = {where / "model.safetensors"};
      return;
    }
    shard_of = shards(index);
    files.clear();
    for (const auto& [name, file] : shard_of)
      if (!contains(files, where / file)) files.push_back(where / file);
  }
};

ModelWeights::ModelWeights(const std::string& where) : state_(std::make_unique<State>()) {
  state_->where = where;
  std::error_code problem;
  if (where.empty() || !std::filesystem::exists(where, problem)) return;
  if (std::filesystem::is_directory(where, problem)) {
    state_->look_into_folder();
    return;
  }
  state_->map = std::make_unique<MappedFile>(std::filesystem::path(where));
  state_->gguf = parse_gguf(state_->map->bytes(), where);
}
ModelWeights::~ModelWeights() = default;
ModelWeights::ModelWeights(ModelWeights&&) noexcept = default;
ModelWeights& ModelWeights::operator=(ModelWeights&&) noexcept = default;

bool ModelWeights::any() const noexcept {
  return !state_->gguf.tensors.empty() || !state_->files.empty();
}

std::string ModelWeights::place() const {
  if (state_->map != nullptr) return state_->where.string();
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(state_->files.size(), 3); ++i)
    text += (i > 0 ? ", " : "") + state_->files[i].string();
  if (state_->files.size() > 3)
    text += " and " + std::to_string(state_->files.size() - 3) + " more files";
  return text.empty() ? state_->where.string() : text;
}

std::vector<StoredTensor> ModelWeights::find(std::string_view name) {
  std::vector<StoredTensor> out;
  for (std::size_t t = 0; t < state_->gguf.tensors.size(); ++t) {
    const GgufTensor& g = state_->gguf.tensors[t];
    if (g.name != name) continue;
    const FloatType* type = float_type(&FloatType::number, g.type);
    out.push_back({state_->gguf.file, std::string(g.name),
                   type ? std::string(type->gguf) : "type " + std::to_string(g.type),
                   std::vector<Index>(g.shape.rbegin(), g.shape.rend()), t, type != nullptr});
  }
  for (std::size_t i = 0; i < state_->files.size(); ++i) {
    // Of a model in shards only the one that has it is opened.
    const auto& shards = state_->shard_of;
    if (!shards.empty() && std::ranges::none_of(shards, [&](const auto& entry) {
          return state_->files[i].filename() == entry.second && is_called(entry.first, name);
        }))
      continue;
    const SafetensorsIndex& index = state_->file(i).index;
    for (std::size_t t = 0; t < index.tensors.size(); ++t) {
      const SafetensorsEntry& e = index.tensors[t];
      if (is_called(e.name, name))
        out.push_back({index.file, e.name, e.dtype, e.shape, i * kInFile + t,
                       float_type(e.dtype) != nullptr});
    }
  }
  return out;
}

std::vector<double> ModelWeights::values(const StoredTensor& t) {
  if (state_->map != nullptr) return state_->gguf.values(state_->gguf.tensors[t.at], kMostElements);
  const SafetensorsEntry& e = state_->file(t.at / kInFile).index.tensors[t.at % kInFile];
  const FloatType* type = float_type(e.dtype);
  if (!type)
    throw FormatError(t.file, printable(t.name),
                      "must be F64, F32, F16 or BF16, got " + printable(e.dtype));
  std::uint64_t count = 1;
  for (const Index n : e.shape) {
    if (n > 0 && count > kMostElements / static_cast<std::uint64_t>(n))
      throw FormatError(t.file, printable(t.name), "at most 2^27 elements are read");
    count *= static_cast<std::uint64_t>(n);
  }
  if (count * static_cast<std::uint64_t>(size_of(type->type)) != e.data.size())
    throw FormatError(t.file, printable(t.name), "has other data than its shape needs");
  Array a = make_array(type->type, {static_cast<Index>(count)});
  if (!e.data.empty()) std::memcpy(a.bytes.data(), e.data.data(), e.data.size());
  return a.doubles();
}

StoredTensor the_tensor(ModelWeights& weights, const std::string& name, std::string_view what) {
  if (!weights.any())
    throw std::runtime_error(
        std::string(what) + " of the tensor " + name + ", and no weights lie beside the config" +
        (weights.place().empty() ? "" : " (*.safetensors in " + weights.place() + ")"));
  std::vector<StoredTensor> found = weights.find(name);
  if (found.size() == 1) return std::move(found.front());
  std::vector<std::string> names;
  for (const StoredTensor& t : found) names.push_back(t.name);
  throw std::runtime_error(message("{}: has {} called {}{}", weights.place(),
                                   names.empty() ? "no tensor" : "several tensors", name,
                                   names.empty() ? "" : ": " + listed(names)));
}

std::vector<TableValues> read_tables(ModelWeights& weights, const InputEncoding& e) {
  const std::vector<Parameter> needed = learned_parameters(e.value);
  std::vector<TableValues> out;
  for (std::size_t k = 0; k < needed.size(); ++k) {
    if (k >= e.tensors.size() || e.tensors[k].empty())
      throw std::runtime_error("where the weights keep \"" + needed[k].name + "\" is not known");
    const std::string& name = e.tensors[k];
    TableValues table;
    table.tensor = the_tensor(weights, name, "the rows are those");
    const Stacked place = stacked(e.tensors, k);
    const std::vector<Index> all = stored_shape(needed[k], place);
    if (all.size() != 2 || as_rows(table.tensor.shape) != all)
      throw FormatError(
          table.tensor.file, table.tensor.name,
          "has shape " + shape_text(table.tensor.shape) + ", the config means " + shape_text(all));
    table.rows = needed[k].shape[0], table.width = all[1];
    table.values = weights.values(table.tensor);
    if (place.count > 1) {
      const auto size = static_cast<std::ptrdiff_t>(table.rows * table.width);
      const auto from = table.values.begin() + place.at * size;
      table.values = std::vector<double>(from, from + size);
    }
    out.push_back(std::move(table));
  }
  return out;
}

std::vector<ParameterValues> read_parameters(ModelWeights& weights, const LayerSpec& layer,
                                             const std::vector<Parameter>& needed) {
  std::vector<ParameterValues> out;
  for (const Parameter& p : needed)
    if (const std::string* tensor = tensor_of(layer, p.name))
      out.push_back(read_as(weights, *tensor, p.name, p.shape));
  return out;
}

ParameterValues read_sinks(ModelWeights& weights, const LayerSpec& layer, Index heads) {
  if (layer.sinks.empty()) refuse("read_sinks", message("layer {} has no sinks", layer.index));
  return read_as(weights, layer.sinks, "sinks", {heads});
}

}  // namespace posenc::v0
