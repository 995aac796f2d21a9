// SPDX-License-Identifier: Apache-2.0
// A model on disk, as small as a test needs it.
#pragma once
#include <filesystem>
#include <fstream>

#include "input_configs.h"
#include "posenc/io/array.h"

namespace posenc::test {

// A folder with a config and, beside it, weights.
class Folder {
 public:
  Folder(const char* name, const Json& c, const Arrays& weights)
      : path_(std::filesystem::path(::testing::TempDir()) / name) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / "config.json") << c.dump();
    if (!weights.empty()) write_safetensors(path_ / "model.safetensors", weights);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  std::vector<Finding> findings() const { return doctor(read_model(path_)); }

 private:
  std::filesystem::path path_;
};

}  // namespace posenc::test
