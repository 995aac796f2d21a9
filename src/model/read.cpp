// SPDX-License-Identifier: Apache-2.0
#include "posenc/model/read.h"

#include <algorithm>
#include <fstream>
#include <span>
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

}  // namespace

ModelSpec read_model(std::istream& in, const std::string& file, const ReadOptions& options) {
  std::string text(4, '\0');
  const auto more = [&](std::size_t from) {
    in.read(text.data() + from, static_cast<std::streamsize>(text.size() - from));
    text.resize(from + static_cast<std::size_t>(in.gcount()));
  };
  more(0);
  const bool gguf = text == "GGUF";
  const std::size_t most = gguf ? kMostBytes : kMostJson;
  while (in && text.size() <= most) {
    const std::size_t have = text.size();
    text.resize(std::min(most + 1, have + have / 2 + 65536));
    more(have);
  }
  if (text.size() > most)
    throw FormatError(file, "byte " + std::to_string(most),
                      "a " + std::string(gguf ? "GGUF file" : "config") + " has at most " +
                          std::to_string(most / 1'000'000) + " MB");
  if (gguf) return read_gguf(std::as_bytes(std::span(text)), file, options);
  return read_hugging_face(parse_config(text, file), file, options);
}

ModelSpec read_model(const std::filesystem::path& given, const ReadOptions& options) {
  std::filesystem::path path = given;
  std::error_code problem;
  if (std::filesystem::is_directory(path, problem))
    path = model_in(path, options.reader == "llama_cpp");
  if (!std::filesystem::exists(path, problem))
    throw FormatError(given.string(), "file", "no such file");
  if (std::filesystem::is_directory(path, problem))
    throw FormatError(given.string(), "file", path.filename().string() + " is a directory");
  if (!std::filesystem::is_regular_file(path, problem)) {
    std::ifstream pipe(path, std::ios::binary);
    return read_model(pipe, path.string(), options);
  }
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

}  // namespace posenc
