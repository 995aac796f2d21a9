// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <system_error>
#include <thread>

#include "io/files.h"
#include "posenc/core/error.h"
#include "posenc/io/array.h"
#include "posenc/io/gguf.h"
#include "posenc/io/json.h"
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

TEST(Files, LinksToWhatIsNotThereYetAreFollowed) {
  const test::TemporaryDirectory directory;
  fs::create_directory(directory / "sub");
  fs::create_symlink("../second", directory / "sub/first");
  fs::create_symlink("target", directory / "second");
  fs::create_symlink((directory / "sub/first").string(), directory / "link");
  write_file_atomically(directory / "link", filled(2, 2));
  EXPECT_TRUE(fs::is_symlink(directory / "link"));
  EXPECT_TRUE(fs::is_symlink(directory / "second"));
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(directory / "target")));
  EXPECT_EQ(read_file(directory / "link", 10), filled(2, 2));
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

TEST(Files, LoopsOfLinksAreNamed) {
  const test::TemporaryDirectory directory;
  fs::create_symlink("b", directory / "a");
  fs::create_symlink("a", directory / "b");
  for (const auto& f :
       {std::function<void()>([&] { read_file(directory / "a", 10); }),
        std::function<void()>([&] { MappedFile map(directory / "a"); }),
        std::function<void()>([&] { write_file_atomically(directory / "a", filled(1, 1)); })})
    EXPECT_THAT(message_of(f), testing::HasSubstr("its symbolic links form a loop"));
}

TEST(Files, ReplacingKeepsTheMode) {
  const test::TemporaryDirectory directory;
  const ::mode_t mask = ::umask(022);
  write_file_atomically(directory / "new", filled(1, 1));
  EXPECT_EQ(fs::status(directory / "new").permissions(), fs::perms(0644));
  for (const unsigned mode : {0600u, 0640u, 0666u, 0444u, 0755u}) {
    fs::permissions(directory / "new", fs::perms(mode));
    write_file_atomically(directory / "new", filled(2, 2));
    EXPECT_EQ(fs::status(directory / "new").permissions(), fs::perms(mode));
  }
  ::umask(mask);
}

TEST(Files, NamesAsLongAsTheSystemAllows) {
  const test::TemporaryDirectory directory;
  std::string accents(3, 'x');
  while (accents.size() < 254) accents += "\xc3\xa9";
  for (const std::string& name : {std::string(244, 'n'), std::string(255, 'n'), accents}) {
    write_file_atomically(directory / name, filled(3, 3));
    EXPECT_EQ(read_file(directory / name, 10), filled(3, 3));
  }
  EXPECT_EQ(entries(directory.path()), 3u);
}

TEST(Files, UnfinishedOnesAreRemovedOnRequest) {
  const test::TemporaryDirectory directory;
  const auto bytes = filled(1000, 1);
  const std::span<const std::byte> parts[] = {bytes, bytes};
  std::size_t seen = 0;
  EXPECT_THROW(write_parts_atomically(directory / "a", parts,
                                      [&](std::size_t) {
                                        if (seen == 0) seen = entries(directory.path());
                                        remove_unfinished_files();
                                        EXPECT_EQ(entries(directory.path()), 0u);
                                      }),
               std::system_error);
  EXPECT_EQ(seen, 1u);
  write_file_atomically(directory / "a", bytes);
  remove_unfinished_files();
  EXPECT_EQ(entries(directory.path()), 1u) << "what is finished stays";
}

// Writes a file of two parts in a process of its own, which stops after the first until `go` ends.
pid_t start_writer(const fs::path& path, const int (&begun)[2], const int (&go)[2]) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::close(go[1]);
  const auto bytes = filled(1000, 7);
  const std::span<const std::byte> parts[] = {bytes, bytes};
  char byte = 0;
  write_parts_atomically(path, parts, [&](std::size_t done) {
    if (done == 1000 && (::write(begun[1], &byte, 1) != 1 || ::read(go[0], &byte, 1) != 0))
      ::_exit(1);
  });
  ::_exit(0);
}

TEST(Files, WhatAKilledProcessLeftIsRemovedByTheNextWrite) {
  for (const bool killed : {true, false}) {
    const test::TemporaryDirectory directory;
    int begun[2], go[2];
    ASSERT_EQ(::pipe2(begun, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
    const pid_t child = start_writer(directory / "a", begun, go);
    ::close(go[0]);
    char byte = 0;
    ASSERT_EQ(::read(begun[0], &byte, 1), 1);
    ASSERT_EQ(entries(directory.path()), 1u);
    if (killed) {
      ::kill(child, SIGKILL);
      ASSERT_EQ(::waitpid(child, nullptr, 0), child);
      EXPECT_EQ(entries(directory.path()), 1u) << "nobody could remove it";
      write_file_atomically(directory / "b", filled(10, 1));
      EXPECT_EQ(entries(directory.path()), 2u) << "of another target: not touched";
    }
    write_file_atomically(directory / "a", filled(10, 1));
    EXPECT_EQ(entries(directory.path()), 2u)
        << killed;  // a with b, or a with what is being written
    ::close(go[1]);
    int status = 0;
    if (!killed) {
      ASSERT_EQ(::waitpid(child, &status, 0), child);
    }
    EXPECT_EQ(status, 0) << "a running writer keeps its file";
    EXPECT_EQ(read_file(directory / "a", 3000).size(), killed ? 10u : 2000u);
    for (const int fd : {begun[0], begun[1]}) ::close(fd);
  }
}

TEST(Files, FilesOfOthersAreNeverRemoved) {
  const test::TemporaryDirectory directory;
  const char* kept[] = {".a.posenc-1-2.parts", ".a.posenc-1-.part", ".a.posenc-1.part",
                        ".a.posenc-x-2.part",  ".a.1-2.part",       "a.posenc-1-2.part",
                        ".b.posenc-1-2.part"};
  for (const char* name : kept) std::ofstream(directory / name) << "mine";
  fs::create_directory(directory / ".a.posenc-3-4.part");
  fs::create_symlink("a", directory / ".a.posenc-5-6.part");
  ASSERT_EQ(::mkfifo((directory / ".a.posenc-7-8.part").c_str(), 0600), 0);
  std::ofstream(directory / ".a.posenc-1-2.part") << "left by a run that was killed";
  write_file_atomically(directory / "a", filled(10, 1));
  EXPECT_EQ(entries(directory.path()), std::size(kept) + 4);
  EXPECT_FALSE(fs::exists(directory / ".a.posenc-1-2.part"));
}

// The reader of a pipe that has no end stops where the header says.
template <class Read>
void feed(const fs::path& pipe, const std::vector<std::byte>& begin, Read&& read) {
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ::signal(SIGPIPE, SIG_IGN);
  std::atomic<std::size_t> written{0};
  std::thread writer([&] {
    const int fd = ::open(pipe.c_str(), O_WRONLY);
    std::vector<std::byte> more = begin;
    more.resize(begin.size() + 65536);
    while (::write(fd, more.data(), more.size()) > 0 && written < (std::size_t{1} << 28))
      written += more.size(), more.assign(65536, std::byte{0});
    ::close(fd);
  });
  read();
  writer.join();
  EXPECT_LT(written, std::size_t{1} << 24);
}

TEST(Files, StreamsOfArraysEndWhereTheirHeaderSays) {
  const test::TemporaryDirectory directory;
  const Array a = make_array(DType::f32, {100, 3});
  feed(directory / "a.npy", npy_bytes(a), [&] {
    EXPECT_THAT(message_of([&] { read_npy(directory / "a.npy"); }),
                testing::HasSubstr("the shape needs 1200 bytes of data, got 1201"));
  });
  feed(directory / "zeros.npy", {}, [&] {
    EXPECT_THAT(message_of([&] { read_npy(directory / "zeros.npy"); }),
                testing::HasSubstr("is no .npy file"));
  });
  feed(directory / "a.safetensors", safetensors_bytes({{"a", a}}), [&] {
    EXPECT_THAT(message_of([&] { read_safetensors(directory / "a.safetensors"); }),
                testing::HasSubstr("they end at 1200 of 1201 bytes"));
  });
  EXPECT_THROW(read_npy("/dev/zero"), FormatError);
  EXPECT_THROW(read_safetensors("/dev/zero"), FormatError);
}

TEST(Files, StreamsOfArraysThatEndAreRead) {
  const test::TemporaryDirectory directory;
  Array a = make_array(DType::f32, {100, 3});
  a.bytes[7] = std::byte{9};
  const std::pair<const char*, std::vector<std::byte>> files[] = {
      {"a.npy", npy_bytes(a)}, {"a.safetensors", safetensors_bytes({{"a", a}})}};
  for (const auto& [name, bytes] : files) {
    const fs::path pipe = directory / name;
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    std::thread writer([&, &bytes = bytes] { write_file_atomically(pipe, bytes); });
    const Array got = pipe.extension() == ".npy" ? read_npy(pipe) : read_safetensors(pipe).at("a");
    writer.join();
    EXPECT_EQ(got.shape, a.shape);
    EXPECT_EQ(got.bytes, a.bytes);
  }
}

TEST(Files, WhatMustBeARegularFileIsNotWaitedFor) {
  const test::TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(read_json(directory / "pipe"), FormatError);
  EXPECT_THROW(MappedFile(directory / "pipe"), FormatError);
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
