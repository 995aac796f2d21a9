// SPDX-License-Identifier: Apache-2.0
// A small GGUF file (version 3, little-endian) in memory.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace posenc::gguf {

class Writer {
 public:
  void u32(std::string_view key, std::uint32_t v) {
    begin(key, 4);
    put(keys_, v, 4);
  }
  void f32(std::string_view key, float v) {
    begin(key, 6);
    put(keys_, std::bit_cast<std::uint32_t>(v), 4);
  }
  void boolean(std::string_view key, bool v) {
    begin(key, 7);
    put(keys_, v ? 1 : 0, 1);
  }
  void text(std::string_view key, std::string_view v) {
    begin(key, 8);
    put_text(keys_, v);
  }
  void i32s(std::string_view key, const std::vector<std::int32_t>& v) {
    begin(key, 9);
    put(keys_, 5, 4);
    put(keys_, v.size(), 8);
    for (const std::int32_t x : v) put(keys_, static_cast<std::uint32_t>(x), 4);
  }
  void tensor(std::string_view name, const std::vector<float>& v) {
    put_text(tensors_, name);
    put(tensors_, 1, 4);
    put(tensors_, v.size(), 8);
    put(tensors_, 0, 4);  // f32
    put(tensors_, data_.size(), 8);
    for (const float x : v) put(data_, std::bit_cast<std::uint32_t>(x), 4);
    while (data_.size() % 32 != 0) data_.push_back(std::byte{0});
    ++tensor_count_;
  }

  std::vector<std::byte> bytes() const {
    std::vector<std::byte> out;
    for (const char c : std::string_view("GGUF")) out.push_back(static_cast<std::byte>(c));
    put(out, 3, 4);
    put(out, tensor_count_, 8);
    put(out, key_count_, 8);
    out.insert(out.end(), keys_.begin(), keys_.end());
    out.insert(out.end(), tensors_.begin(), tensors_.end());
    while (out.size() % 32 != 0) out.push_back(std::byte{0});
    out.insert(out.end(), data_.begin(), data_.end());
    return out;
  }

 private:
  static void put(std::vector<std::byte>& to, std::uint64_t v, int size) {
    for (int i = 0; i < size; ++i) to.push_back(static_cast<std::byte>(v >> (8 * i) & 0xff));
  }
  static void put_text(std::vector<std::byte>& to, std::string_view v) {
    put(to, v.size(), 8);
    for (const char c : v) to.push_back(static_cast<std::byte>(c));
  }
  void begin(std::string_view key, std::uint32_t type) {
    put_text(keys_, key);
    put(keys_, type, 4);
    ++key_count_;
  }

  std::vector<std::byte> keys_, tensors_, data_;
  std::uint64_t key_count_ = 0, tensor_count_ = 0;
};

}  // namespace posenc::gguf
