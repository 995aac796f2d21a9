// SPDX-License-Identifier: Apache-2.0
// Reading and writing of whole files, for the readers of formats.
#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace posenc::inline v0 {

// A file descriptor that is closed when it goes out of scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  int get() const { return fd_; }
  bool close();  // false with errno when the last of the data could not be written

 private:
  int fd_;
};

// What stands in errno, in words.
std::string reason(int error);

// As read_file, of a regular file alone: a pipe that lies beside a model must not be waited for.
std::vector<std::byte> read_regular_file(const std::filesystem::path&, std::size_t limit);

// A file of arrays. Of one with a size all of it; of a pipe or a device no more than `bound` says of what has come so
// far and one byte, so that what follows is seen.
using StreamBound = std::function<std::size_t(std::span<const std::byte>)>;
std::vector<std::byte> read_array_file(const std::filesystem::path&, const StreamBound& bound);

// Bytes one part after the other, under its name complete or not at all; progress(done) after each 64 MiB.
void write_parts_atomically(const std::filesystem::path&,
                            std::span<const std::span<const std::byte>> parts,
                            const std::function<void(std::size_t)>& progress);

}  // namespace posenc::v0
