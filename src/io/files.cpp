// SPDX-License-Identifier: Apache-2.0
// Whole files in, whole files out. What is written appears under its name complete or not at all.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>

#include "io/files.h"
#include "posenc/core/error.h"
#include "posenc/io/array.h"

namespace posenc {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  // False with errno when the last of the data could not be written.
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return ::close(fd) == 0;
  }

 private:
  int fd_;
};

[[noreturn]] void cannot(const char* verb, const fs::path& path, int error) {
  throw std::system_error(error, std::generic_category(),
                          "[file] " + path.string() + ": cannot be " + verb);
}

void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  constexpr std::size_t kChunk = std::size_t{1} << 30;
  for (std::size_t done = 0; done < bytes.size();) {
    const auto n = ::write(fd, bytes.data() + done, std::min(kChunk, bytes.size() - done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) cannot("written", path, errno);
    done += static_cast<std::size_t>(n);
  }
}

// Removed when it goes out of scope, unless it was renamed.
class Temporary {
 public:
  explicit Temporary(fs::path target) : target_(std::move(target)) {
    static std::atomic<unsigned> counter{0};
    for (int tries = 0; tries < 100; ++tries) {
      path_ = target_.parent_path() /
              ("." + target_.filename().string() + "." + std::to_string(::getpid()) + "-" +
               std::to_string(counter.fetch_add(1, std::memory_order_relaxed)) + ".part");
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd_ >= 0) return;
      if (errno != EEXIST) break;
    }
    cannot("created", target_, errno);
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (!renamed_) ::unlink(path_.c_str());
  }

  template <class Write>
  void write(Write&& parts) {
    Descriptor file(fd_);
    parts(file.get());
    if (::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
      cannot("written", target_, errno);
    if (!file.close()) cannot("written", target_, errno);
    if (::rename(path_.c_str(), target_.c_str()) != 0) cannot("written", target_, errno);
    renamed_ = true;
  }

 private:
  fs::path target_, path_;
  int fd_ = -1;
  bool renamed_ = false;
};

}  // namespace

std::vector<std::byte> read_file(const fs::path& path, std::size_t limit) {
  const auto fail = [&](int error) {
    throw FormatError(path.string(), "",
                      "cannot be read: " + std::generic_category().message(error));
  };
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) fail(errno);
  const auto too_large = [&] {
    throw FormatError(
        path.string(), "byte " + std::to_string(limit),
        "the file is larger than " + (limit >= 1000000 ? std::to_string(limit / 1000000) + " MB"
                                                       : std::to_string(limit) + " bytes"));
  };
  const std::size_t size = S_ISREG(info.st_mode) ? static_cast<std::size_t>(info.st_size) : 0;
  if (size > limit) too_large();
  // The size is a hint: pipes have none and files may grow. Memory follows what really arrives.
  std::vector<std::byte> bytes(size + 1);
  std::size_t have = 0;
  for (;;) {
    if (have == bytes.size()) bytes.resize(have + have / 2 + 65536);
    const std::size_t want = std::min(bytes.size() - have, std::size_t{1} << 30);
    const auto n = ::read(file.get(), bytes.data() + have, want);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errno);
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
    if (have > limit) too_large();
  }
  bytes.resize(have);
  return bytes;
}

void write_file_atomically(const fs::path& path, std::span<const std::byte> bytes) {
  write_parts_atomically(path, std::span(&bytes, 1), {});
}

void write_parts_atomically(const fs::path& path, std::span<const std::span<const std::byte>> parts,
                            const std::function<void(std::size_t)>& progress) {
  std::error_code ignored;
  // A link keeps pointing; what it points to is replaced.
  const fs::path target = fs::is_symlink(path, ignored) ? fs::weakly_canonical(path) : path;
  const auto write = [&](int fd) {
    constexpr std::size_t kChunk = std::size_t{1} << 26;
    std::size_t done = 0;
    for (const std::span<const std::byte> part : parts)
      for (std::size_t at = 0; at < part.size(); at += kChunk) {
        const auto chunk = part.subspan(at, std::min(kChunk, part.size() - at));
        write_all(fd, chunk, path);
        done += chunk.size();
        if (progress) progress(done);
      }
  };
  struct stat info {};
  if (::stat(target.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) cannot("written", path, EISDIR);
    // A terminal, a pipe, /dev/null: there is nothing to rename over.
    Descriptor file(::open(target.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) cannot("written", path, errno);
    write(file.get());
    return;
  }
  Temporary(target).write(write);
}

}  // namespace posenc
