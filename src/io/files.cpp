// SPDX-License-Identifier: Apache-2.0
// Whole files in. The bound of what is read comes before the reading: a pipe or a device has no end.
#include "io/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "posenc/core/error.h"
#include "posenc/io/array.h"

namespace posenc::inline v0 {

namespace fs = std::filesystem;

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}
bool Descriptor::close() {
  const int fd = fd_;
  fd_ = -1;
  return ::close(fd) == 0;
}

std::string reason(int error) {
  return error == ELOOP ? "its symbolic links form a loop" : std::generic_category().message(error);
}

namespace {

[[noreturn]] void unreadable(const fs::path& path, int error) {
  throw FormatError(path.string(), "", "cannot be read: " + reason(error));
}

[[noreturn]] void too_large(const fs::path& path, std::size_t limit) {
  throw FormatError(
      path.string(), "byte " + std::to_string(limit),
      "the file is larger than " + (limit >= 1000000 ? std::to_string(limit / 1000000) + " MB"
                                                     : std::to_string(limit) + " bytes"));
}

// Bytes in front of the end; 0 at the end.
std::size_t read_some(int fd, std::span<std::byte> to, const fs::path& path) {
  for (;;) {
    const auto n = ::read(fd, to.data(), std::min(to.size(), std::size_t{1} << 30));
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) unreadable(path, errno);
  }
}

struct Opened {
  Opened(const fs::path& path, int flags)
      : file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags)) {
    if (file.get() < 0 || ::fstat(file.get(), &info) != 0) unreadable(path, errno);
  }
  bool regular() const { return S_ISREG(info.st_mode); }

  Descriptor file;
  struct stat info {};
};

std::vector<std::byte> read_whole(const Opened& o, const fs::path& path, std::size_t limit) {
  const std::size_t size = o.regular() ? static_cast<std::size_t>(o.info.st_size) : 0;
  if (size > limit) too_large(path, limit);
  // The size is a hint: pipes have none and files may grow. Memory follows what really arrives.
  std::vector<std::byte> bytes(size + 1);
  std::size_t have = 0;
  for (;;) {
    if (have == bytes.size()) bytes.resize(have + have / 2 + 65536);
    const std::size_t n = read_some(o.file.get(), std::span(bytes).subspan(have), path);
    if (n == 0) break;
    have += n;
    if (have > limit) too_large(path, limit);
  }
  bytes.resize(have);
  return bytes;
}

}  // namespace

std::vector<std::byte> read_file(const fs::path& path, std::size_t limit) {
  return read_whole(Opened(path, 0), path, limit);
}

std::vector<std::byte> read_regular_file(const fs::path& path, std::size_t limit) {
  const Opened o(path, O_NONBLOCK);
  if (!o.regular()) throw FormatError(path.string(), "", "is not a regular file");
  return read_whole(o, path, limit);
}

std::vector<std::byte> read_array_file(const fs::path& path, const StreamBound& bound) {
  constexpr std::size_t kMostOfAStream = std::size_t{1} << 34;
  const Opened o(path, 0);
  if (o.regular()) return read_whole(o, path, std::numeric_limits<std::size_t>::max());
  std::vector<std::byte> bytes;
  for (std::size_t wanted = 0;;) {
    const std::size_t known = bound(bytes);
    if (known > kMostOfAStream) too_large(path, kMostOfAStream);
    if (known <= wanted && bytes.size() > wanted) return bytes;  // the header said no more
    wanted = known;
    while (bytes.size() <= wanted) {
      const std::size_t have = bytes.size();
      bytes.resize(std::min(wanted + 1, have + have / 2 + 65536));
      const std::size_t n = read_some(o.file.get(), std::span(bytes).subspan(have), path);
      bytes.resize(have + n);
      if (n == 0) return bytes;
    }
  }
}

}  // namespace posenc::v0
