// SPDX-License-Identifier: Apache-2.0
#include "posenc/model/read.h"

#include <fstream>
#include <stdexcept>
#include <vector>

#include "posenc/core/error.h"
#include "posenc/io/array.h"
#include "posenc/io/gguf.h"

namespace posenc {
namespace {

bool is_gguf(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  char magic[4] = {};
  in.read(magic, 4);
  return in.gcount() == 4 && std::string_view(magic, 4) == "GGUF";
}

constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr std::size_t kMostJson = 100'000'000;

// A pipe: read once, whole.
ModelSpec read_stream(const std::filesystem::path& path, const ReadOptions& options) {
  const std::vector<std::byte> bytes = read_file(path, kMostBytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.substr(0, 4) == "GGUF") return read_gguf(bytes, path.string(), options);
  return read_hugging_face(parse_config(text, path.string()), path.string(), options);
}

// What a directory holds: config.json, or else its only GGUF file; the reader llama_cpp takes them
// the other way round.
std::filesystem::path model_in(const std::filesystem::path& folder, bool gguf_first) {
  std::error_code problem;
  const bool config = std::filesystem::exists(folder / "config.json", problem);
  if (config && !gguf_first) return folder / "config.json";
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, problem))
    if (entry.path().extension() == ".gguf") found.push_back(entry.path());
  if (found.size() == 1) return found.front();
  if (config) return folder / "config.json";
  throw FormatError(folder.string(), "file",
                    found.empty()
                        ? "the directory holds no config.json and no GGUF file"
                        : "the directory holds no config.json and " + std::to_string(found.size()) +
                              " GGUF files: name the one that is meant");
}

// What acts where a layer does not turn.
std::string acts_in(const LayerSpec& layer, const std::vector<InputEncoding>& input) {
  const AttentionKind kind = layer.attention.kind;
  if (kind == AttentionKind::linear || kind == AttentionKind::none)
    return "its attention is " + std::string(enum_text(kind));
  if (layer.scheme != "none") return layer.scheme + " acts there";
  std::string text;
  for (const InputEncoding& e : input)
    text += (text.empty() ? "" : " and ") + std::string(card(e.value.scheme).name);
  return text.empty() ? "nothing acts there" : text + " acts at the input";
}

}  // namespace

ModelSpec read_model(const FilePath& given, const ReadOptions& options) {
  std::filesystem::path path(given.string());
  std::error_code problem;
  if (std::filesystem::is_directory(path, problem))
    path = model_in(path, options.reader == "llama_cpp");
  if (!std::filesystem::exists(path, problem))
    throw FormatError(given.string(), "file", "no such file");
  if (std::filesystem::is_directory(path, problem))
    throw FormatError(given.string(), "file", path.filename().string() + " is a directory");
  if (!std::filesystem::is_regular_file(path, problem)) return read_stream(path, options);
  // A file that is called so and does not begin so is a broken one.
  if (is_gguf(path) || path.extension() == ".gguf") {
    const MappedFile file(path);
    ModelSpec spec = read_gguf(file.bytes(), path.string(), options);
    if (spec.reader == "llama_cpp") spec.weights = path.string();
    return spec;
  }
  const std::vector<std::byte> bytes = read_file(path, kMostJson);
  ModelSpec spec = read_hugging_face(
      parse_config({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string()),
      path.string(), options);
  // Beside a config lie weights with the names of its own program.
  if (spec.reader == "transformers")
    spec.weights = path.has_parent_path() ? path.parent_path().string() : std::string(".");
  return spec;
}

const FieldValue* LayerSpec::field(std::string_view name) const {
  for (const FieldValue& f : fields)
    if (f.name == name) return &f;
  return nullptr;
}

bool ModelSpec::has_error() const {
  for (const Finding& f : findings)
    if (f.severity == Severity::error) return true;
  return false;
}

ModelError::ModelError(const std::string& what, std::vector<Finding> findings)
    : std::runtime_error(what), findings_(std::move(findings)) {}

void require_readable(const ModelSpec& spec) {
  std::string text;
  for (const Finding& f : spec.findings)
    if (f.severity == Severity::error)
      text += "\n  " + f.code + " at " + f.where + ": " + f.message +
              (f.fix.empty() ? "" : " (" + f.fix + ")");
  if (!text.empty())
    throw ModelError(spec.file + ": positions cannot be determined:" + text, spec.findings);
}

const RotarySpec& ModelSpec::rotary(Index layer) const {
  require_readable(*this);
  const std::string who = file + ": layer " + std::to_string(layer);
  if (layer < 0 || layer >= static_cast<Index>(layers.size()))
    throw ModelError(who + " is none of the model's " + std::to_string(layers.size()), findings);
  const LayerSpec& at = layers[static_cast<std::size_t>(layer)];
  if (!at.rotary)
    throw ModelError(who + " has no rotary encoding: " + acts_in(at, input), findings);
  return *at.rotary;
}

}  // namespace posenc
