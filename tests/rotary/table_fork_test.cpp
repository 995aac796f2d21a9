// SPDX-License-Identifier: Apache-2.0
// A table in the child of a fork, while another thread of the parent replaces it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "posenc/rotary/table.h"
#include "rotary/table_support.h"

namespace posenc {
namespace {

using namespace test;

// Exit code of what the child does with the table; SIGALRM ends one that hangs.
int in_a_child(RotaryTable& table) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const Index size = table.size();
    table.grow(size + 5000);
    const bool grown = table.size() == size + 5000;
    table.replace(scaled(4, 1.1386));
    ::_exit(grown && table.size() == size + 5000 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(RotaryTable, AForkWhileAnotherThreadReplacesLeavesAnOpenTable) {
  RotaryTable table(plain(), 20000);
  std::atomic<bool> done{false};
  std::atomic<int> replaced{0};
  std::thread writer([&] {
    for (int i = 0; !done; ++i, ++replaced) table.replace(i % 2 == 0 ? scaled(4, 1.1386) : plain());
  });
  while (replaced == 0) std::this_thread::yield();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(in_a_child(table), 0) << i;
  done = true;
  writer.join();
  EXPECT_EQ(table.size(), 20000);
  table.grow(30000);
  EXPECT_EQ(table.size(), 30000);
}

// The parent's own table goes on where the replacing fails: the version that was begun is free again.
TEST(RotaryTable, AReplacementThatIsRefusedChangesNothing) {
  RotaryTable table(plain(), 100);
  RotarySpec none;
  for (int i = 0; i < 3; ++i) EXPECT_THROW(table.replace(none), std::invalid_argument);
  expect_rows(table, plain(), 3.0e-8);
  table.replace(scaled(4, 1.1386));
  expect_rows(table, scaled(4, 1.1386), 6.0e-8);
}

}  // namespace
}  // namespace posenc
