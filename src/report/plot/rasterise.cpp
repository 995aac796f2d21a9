// SPDX-License-Identifier: Apache-2.0
#include "posenc/report/picture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>

#include "common.h"

extern char** environ;

namespace posenc::report {
namespace {

// Both ends of a pipe, closed when they are done with.
class Pipe {
 public:
  Pipe() {
    if (pipe2(end_.data(), O_CLOEXEC) != 0)
      throw std::system_error(errno, std::generic_category(), "a pipe to rsvg-convert");
  }
  ~Pipe() { close_read(), close_write(); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int read_end() const { return end_[0]; }
  int write_end() const { return end_[1]; }
  void close_read() { shut(end_[0]); }
  void close_write() { shut(end_[1]); }

 private:
  static void shut(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  std::array<int, 2> end_{-1, -1};
};

pid_t start(const Pipe& in, const Pipe& out) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read_end(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write_end(), STDOUT_FILENO);
  std::array<const char*, 4> words{"rsvg-convert", "--format=png", "--zoom=2", nullptr};
  pid_t child = 0;
  const int problem = posix_spawnp(&child, words[0], &actions, nullptr,
                                   const_cast<char* const*>(words.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (problem == ENOENT)
    throw InputError(
        "a .png needs the program rsvg-convert, which is not on the PATH: install librsvg2-bin "
        "(Debian, Ubuntu) or librsvg (macOS), or write .svg or .html");
  if (problem != 0) throw std::system_error(problem, std::generic_category(), "rsvg-convert");
  return child;
}

// Writes and reads in turns: both pipes may be full.
std::string exchange(Pipe& in, Pipe& out, std::string_view svg) {
  std::string png;
  std::array<char, 65536> buffer{};
  fcntl(in.write_end(), F_SETFL, O_NONBLOCK);
  while (true) {
    std::array<pollfd, 2> wait{pollfd{out.read_end(), POLLIN, 0},
                               pollfd{svg.empty() ? -1 : in.write_end(), POLLOUT, 0}};
    if (poll(wait.data(), wait.size(), -1) < 0) {
      if (errno == EINTR) continue;
      throw std::system_error(errno, std::generic_category(), "rsvg-convert");
    }
    if (wait[1].revents != 0) {
      const ssize_t n = ::write(in.write_end(), svg.data(), svg.size());
      if (n < 0 && errno != EAGAIN && errno != EINTR)
        svg = {};  // it has gone; its exit code says why
      if (n > 0) svg.remove_prefix(static_cast<std::size_t>(n));
      if (svg.empty()) in.close_write();
    }
    if (wait[0].revents == 0) continue;
    const ssize_t n = ::read(out.read_end(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return png;
    png.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

}  // namespace

std::string png_of_svg(std::string_view svg) {
  Pipe in, out;
  const pid_t child = start(in, out);
  in.close_read();
  out.close_write();
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);  // a converter that ends early is an error of its own
  std::string png = exchange(in, out, svg);
  sigaction(SIGPIPE, &before, nullptr);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || png.empty())
    throw InputError("rsvg-convert did not make a .png of the picture; write .svg or .html");
  return png;
}

}  // namespace posenc::report
