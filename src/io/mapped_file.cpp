// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "io/files.h"
#include "posenc/core/error.h"
#include "posenc/io/gguf.h"

namespace posenc::inline v0 {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const auto fail = [&](std::string problem) { throw FormatError(path.string(), "", problem); };
  // A pipe is not waited for: what is no regular file is refused below.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail("cannot be opened: " + reason(errno));
  struct stat info {};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  void* data = MAP_FAILED;
  if (regular && info.st_size > 0)
    data = ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (!regular) fail("is not a regular file");
  if (info.st_size == 0) return;
  if (data == MAP_FAILED) fail("cannot be mapped: " + reason(errno));
  bytes_ = {static_cast<const std::byte*>(data), static_cast<std::size_t>(info.st_size)};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, std::span<const std::byte>())) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace posenc::v0
