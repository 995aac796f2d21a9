// SPDX-License-Identifier: Apache-2.0
// A model on stdin, and what a model's file is called in a picture.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "common.h"
#include "posenc/core/printable.h"

namespace posenc::report {

ModelSpec read_stdin_model(const ReadOptions& options) {
  // Bounded before it is read: stdin may have no end.
  auto read_to = [text = std::string()](std::size_t size) mutable -> const std::string& {
    while (text.size() < size && std::cin) {
      const std::size_t have = text.size();
      text.resize(std::min(size, have + have / 2 + 65536));
      std::cin.read(text.data() + have, static_cast<std::streamsize>(text.size() - have));
      text.resize(have + static_cast<std::size_t>(std::cin.gcount()));
    }
    return text;
  };
  const bool gguf = read_to(4) == "GGUF";
  const std::size_t most = gguf ? std::size_t{1} << 30 : 100'000'000;
  const std::string& text = read_to(most + 1);
  if (text.size() > most)
    throw InputError(gguf ? "-: GGUF on stdin may have 1 GiB; name the file instead"
                          : "-: JSON may have at most 100 MB");
  if (gguf) return read_gguf(std::as_bytes(std::span(text.data(), text.size())), "-", options);
  return read_hugging_face(parse_config(text, "-"), "-", options);
}

std::string file_name(const std::string& text) {
  if (text == "-") return "stdin";
  std::filesystem::path p = std::filesystem::path(text).lexically_normal();
  if (!p.has_filename()) p = p.parent_path();
  if (p.filename() == "config.json" && p.has_parent_path())
    return printable((p.parent_path().filename() / p.filename()).string());
  return printable(p.filename().string());
}

}  // namespace posenc::report
