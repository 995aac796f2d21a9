// SPDX-License-Identifier: Apache-2.0
// A GGUF file in memory: metadata and float32 tensors that no file holds.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/io/gguf.h"

namespace posenc::inline v0::gguf {

// A GGUF file as it would be read, made in memory.
class MadeFile {
 public:
  explicit MadeFile(std::string name) { file_.file = std::move(name); }

  void add(std::string key, GgufType type, decltype(GgufValue::value) value) {
    keys_.push_back(std::move(key));
    file_.metadata.push_back({keys_.back(), type, value, kBig});
  }
  void add(std::string key, const std::vector<std::int32_t>& values) {
    arrays_.emplace_back();
    append(arrays_.back(), values);
    add(std::move(key), GgufType::array, GgufArray{GgufType::i32, values.size(), arrays_.back()});
  }
  void add_tensor(std::string_view name, const std::vector<float>& values) {
    const std::size_t at = data_.size();
    append(data_, values);
    file_.tensors.push_back({name, 0, {values.size()}, at, data_.size() - at, true});
  }
  const GgufFile& file() {
    file_.big_endian = kBig;
    file_.bytes = data_;
    return file_;
  }

 private:
  static constexpr bool kBig = std::endian::native == std::endian::big;
  template <class T>
  static void append(std::vector<std::byte>& to, const std::vector<T>& values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    to.insert(to.end(), bytes, bytes + values.size() * sizeof(T));
  }

  GgufFile file_;
  std::deque<std::string> keys_;  // what the views of the file look at
  std::deque<std::vector<std::byte>> arrays_;
  std::vector<std::byte> data_;
};

}  // namespace posenc::v0::gguf
