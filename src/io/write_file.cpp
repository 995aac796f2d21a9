// SPDX-License-Identifier: Apache-2.0
// Whole files out. What is written appears under its name complete or not at all.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/files.h"
#include "posenc/core/error.h"
#include "posenc/core/printable.h"
#include "posenc/io/array.h"

namespace posenc::inline v0 {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot(const char* verb, const fs::path& path, int error) {
  std::string text =
      "[file] " + printable(path.string(), std::string::npos) + ": cannot be " + verb;
  if (error == ELOOP) text += ", " + reason(error);
  throw std::system_error(error, std::generic_category(), text);
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

// Names of the temporary files that are being written, where a handler of signals can read them: no memory is
// asked for and no lock taken. A file beyond the last place is written all the same and not in the list.
struct UnfinishedFile {
  enum : int { kFree, kTaken, kNamed };
  std::atomic<int> state{kFree};
  std::array<char, PATH_MAX> path{};
};
std::array<UnfinishedFile, 32> unfinished_files;

class Listed {
 public:
  explicit Listed(const fs::path& path) {
    if (path.native().size() >= PATH_MAX) return;
    for (UnfinishedFile& f : unfinished_files) {
      int free = UnfinishedFile::kFree;
      if (!f.state.compare_exchange_strong(free, UnfinishedFile::kTaken)) continue;
      std::memcpy(f.path.data(), path.c_str(), path.native().size() + 1);
      f.state.store(UnfinishedFile::kNamed);
      file_ = &f;
      return;
    }
  }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;
  ~Listed() {
    if (file_ != nullptr) file_->state.store(UnfinishedFile::kFree);
  }

 private:
  UnfinishedFile* file_ = nullptr;
};

// What the names of temporary files of a target begin with. Of a long name the beginning: the whole must fit what file
// systems allow.
std::string temporary_prefix(const fs::path& target) {
  std::string name = target.filename().string();
  std::size_t keep = std::min(name.size(), std::size_t{100});
  while (keep > 0 && keep < name.size() && (static_cast<unsigned char>(name[keep]) & 0xc0) == 0x80)
    --keep;  // not inside a character
  name.resize(keep);
  return "." + name + ".posenc-";
}

fs::path temporary_name(const fs::path& target) {
  static std::atomic<unsigned> counter{0};
  return target.parent_path() /
         (temporary_prefix(target) + std::to_string(::getpid()) + "-" +
          std::to_string(counter.fetch_add(1, std::memory_order_relaxed)) + ".part");
}

// PREFIX, digits, "-", digits, ".part".
bool is_temporary_name(std::string_view name, std::string_view prefix) {
  constexpr std::string_view kEnd = ".part";
  if (name.size() < prefix.size() + kEnd.size() || !name.starts_with(prefix) ||
      !name.ends_with(kEnd))
    return false;
  name = name.substr(prefix.size(), name.size() - prefix.size() - kEnd.size());
  const std::size_t dash = name.find('-');
  const auto digits = [](std::string_view s) {
    return !s.empty() && s.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return dash != std::string_view::npos && digits(name.substr(0, dash)) &&
         digits(name.substr(dash + 1));
}

// A writer holds a lock on its temporary file until the file has its name, and the system drops the lock of a process
// that is killed. So a file of ours that can be locked belongs to nobody. Where the file system has no locks, nothing
// is removed.
void remove_if_abandoned(const fs::path& path) {
  struct stat before {
  }, opened{};
  if (::lstat(path.c_str(), &before) != 0 || !S_ISREG(before.st_mode) ||
      before.st_uid != ::geteuid())
    return;
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() < 0 || ::fstat(file.get(), &opened) != 0 || opened.st_ino != before.st_ino ||
      opened.st_dev != before.st_dev)
    return;
  if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
}

// What runs that were killed (SIGKILL, no power) left beside the target.
void remove_abandoned(const fs::path& target) {
  const std::string prefix = temporary_prefix(target);
  const fs::path folder = target.parent_path().empty() ? fs::path(".") : target.parent_path();
  std::error_code problem;
  for (fs::directory_iterator entry(folder, problem), end; !problem && entry != end;
       entry.increment(problem))
    if (is_temporary_name(entry->path().filename().native(), prefix))
      remove_if_abandoned(entry->path());
}

// Whether a file that was just created is still there: another process may have found it before it was locked.
bool locked_in_time(int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  struct stat info {};
  return ::fstat(fd, &info) != 0 || info.st_nlink > 0;
}

// Removed when it goes out of scope, unless it was renamed.
class Temporary {
 public:
  // mode: of the file that is replaced.
  Temporary(fs::path target, std::optional<mode_t> mode) : target_(std::move(target)) {
    remove_abandoned(target_);
    for (int tries = 0; tries < 100; ++tries) {
      path_ = temporary_name(target_);
      listed_.emplace(path_);
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode ? 0600 : 0666);
      const int error = errno;
      if (fd_ >= 0 && locked_in_time(fd_)) break;
      listed_.reset();
      if (fd_ < 0 && error != EEXIST) cannot("created", target_, error);
      if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    if (fd_ < 0) cannot("created", target_, EEXIST);
    // Before the data: what others must not read is not shown to them for a moment either. File systems without
    // modes refuse this.
    if (mode && ::fchmod(fd_, *mode & 07777) != 0 && errno != EPERM && errno != ENOTSUP) {
      const int error = errno;
      ::close(fd_);
      ::unlink(path_.c_str());
      cannot("written", target_, error);
    }
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (!renamed_) ::unlink(path_.c_str());
  }

  template <class Write>
  void write(Write&& parts) {
    Descriptor file(fd_);
    // Of the same open file: closing it does not end the lock, which must last until the file has its name.
    const Descriptor lock(::fcntl(fd_, F_DUPFD_CLOEXEC, 0));
    if (lock.get() < 0) cannot("written", target_, errno);
    parts(file.get());
    if (::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
      cannot("written", target_, errno);
    if (!file.close()) cannot("written", target_, errno);
    if (::rename(path_.c_str(), target_.c_str()) != 0) cannot("written", target_, errno);
    renamed_ = true;
  }

 private:
  fs::path target_, path_;
  std::optional<Listed> listed_;  // ends last: until the file has its name or is removed
  int fd_ = -1;
  bool renamed_ = false;
};

// Where links lead, be there a file or not yet: a link keeps pointing, what it points to is replaced.
fs::path behind_links(const fs::path& path) {
  constexpr int kMostLinks = 40;  // Linux's own
  fs::path at = path;
  std::error_code problem;
  for (int links = 0; fs::is_symlink(fs::symlink_status(at, problem)); ++links) {
    if (links == kMostLinks) cannot("written", path, ELOOP);
    const fs::path to = fs::read_symlink(at, problem);
    if (problem) cannot("written", path, problem.value());
    at = at.parent_path() / to;  // an absolute one replaces what stands before it
  }
  return at;
}

}  // namespace

void remove_unfinished_files() noexcept {
  for (UnfinishedFile& f : unfinished_files)
    if (f.state.load() == UnfinishedFile::kNamed) ::unlink(f.path.data());
}

void write_file_atomically(const fs::path& path, std::span<const std::byte> bytes) {
  write_parts_atomically(path, std::span(&bytes, 1), {});
}

void write_parts_atomically(const fs::path& path, std::span<const std::span<const std::byte>> parts,
                            const std::function<void(std::size_t)>& progress) {
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
  const bool there = ::stat(path.c_str(), &info) == 0;
  if (there && !S_ISREG(info.st_mode)) {
    if (S_ISDIR(info.st_mode)) cannot("written", path, EISDIR);
    // A terminal, a pipe, /dev/null: there is nothing to rename over.
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) cannot("written", path, errno);
    write(file.get());
    return;
  }
  Temporary(behind_links(path), there ? std::optional<mode_t>(info.st_mode) : std::nullopt)
      .write(write);
}

}  // namespace posenc::v0
