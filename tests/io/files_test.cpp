// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <system_error>
#include <thread>

#include "posenc/core/error.h"
#include "posenc/io/array.h"
#include "support/temporary_directory.h"

namespace posenc {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> filled(std::size_t n, int value) {
  return std::vector<std::byte>(n, static_cast<std::byte>(value));
}
std::size_t entries(const fs::path& directory) {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& e : fs::directory_iterator(directory)) ++n;
  return n;
}

TEST(Files, ReadsWholeFilesUpToALimit) {
  const test::TemporaryDirectory directory;
  const auto bytes = filled(100000, 7);
  write_file_atomically(directory / "a", bytes);
  EXPECT_EQ(read_file(directory / "a", 100000), bytes);
  EXPECT_THROW(read_file(directory / "a", 99999), FormatError);
  EXPECT_THROW(read_file(directory / "none", 10), FormatError);
  EXPECT_THROW(read_file(directory.path(), 10), FormatError);
  write_file_atomically(directory / "empty", {});
  EXPECT_TRUE(read_file(directory / "empty", 0).empty());
}

TEST(Files, ReadsPipes) {
  const test::TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  for (const std::size_t limit : {std::size_t{300000}, std::size_t{299999}}) {
    std::thread writer([&] {
      std::ofstream out(directory / "pipe", std::ios::binary);
      out << std::string(300000, 'x');
    });
    ::signal(SIGPIPE, SIG_IGN);
    if (limit == 300000)
      EXPECT_EQ(read_file(directory / "pipe", limit), filled(300000, 'x'));
    else
      EXPECT_THROW(read_file(directory / "pipe", limit), FormatError);
    writer.join();
  }
}

TEST(Files, WritesReplaceAsAWhole) {
  const test::TemporaryDirectory directory;
  write_file_atomically(directory / "a", filled(10, 1));
  write_file_atomically(directory / "a", filled(5, 2));
  EXPECT_EQ(read_file(directory / "a", 100), filled(5, 2));
  EXPECT_EQ(entries(directory.path()), 1u) << "no temporary file is left";
}

TEST(Files, FailureLeavesTheOldFileAndNothingElse) {
  const test::TemporaryDirectory directory;
  write_file_atomically(directory / "a", filled(10, 1));
  EXPECT_THROW(write_file_atomically(directory / "no/such/folder", filled(1, 1)),
               std::system_error);
  EXPECT_THROW(write_file_atomically(directory.path(), filled(1, 1)), std::system_error);
  // A full disk, made by a limit on the size of files.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(write_file_atomically(directory / "a", filled(100000, 2)), std::system_error);
  EXPECT_THROW(write_file_atomically(directory / "b", filled(100000, 2)), std::system_error);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(read_file(directory / "a", 100), filled(10, 1));
  EXPECT_EQ(entries(directory.path()), 1u);
}

TEST(Files, LinksKeepPointing) {
  const test::TemporaryDirectory directory;
  write_file_atomically(directory / "target", filled(1, 1));
  fs::create_symlink("target", directory / "link");
  write_file_atomically(directory / "link", filled(2, 2));
  EXPECT_TRUE(fs::is_symlink(directory / "link"));
  EXPECT_EQ(read_file(directory / "target", 10), filled(2, 2));
}

TEST(Files, DevicesAreWrittenThrough) {
  const auto before = fs::status("/dev/null");
  write_file_atomically("/dev/null", filled(10, 1));
  EXPECT_EQ(fs::status("/dev/null").type(), before.type());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST(Files, RelativeNames) {
  const test::TemporaryDirectory directory;
  const fs::path here = fs::current_path();
  fs::current_path(directory.path());
  write_file_atomically("bare", filled(3, 3));
  fs::current_path(here);
  EXPECT_EQ(read_file(directory / "bare", 10), filled(3, 3));
}

TEST(Files, ManyWritersOfOneName) {
  const test::TemporaryDirectory directory;
  std::vector<std::thread> writers;
  for (int t = 1; t <= 4; ++t)
    writers.emplace_back([&directory, t] {
      for (int i = 0; i < 10; ++i) write_file_atomically(directory / "a", filled(50000, t));
    });
  for (std::thread& t : writers) t.join();
  const auto bytes = read_file(directory / "a", 100000);
  EXPECT_EQ(bytes, filled(50000, std::to_integer<int>(bytes.at(0)))) << "one writer's, whole";
  EXPECT_EQ(entries(directory.path()), 1u);
}

}  // namespace
}  // namespace posenc
