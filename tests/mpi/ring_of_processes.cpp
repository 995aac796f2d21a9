// SPDX-License-Identifier: Apache-2.0
// mpirun -n RANKS test_mpi          calls of several lengths; exit code 1 where a row or a gradient is wrong
// mpirun -n RANKS test_mpi FOLDER   calls without an end, until a rank is lost; each rank writes its process number to
//                                   FOLDER/RANK
#include <mpi.h>

#include <unistd.h>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "parallel/ring_world.h"
#include "posenc/parallel/mpi.h"

namespace posenc {
namespace {

int compare(const Communicator& c, Index rank, Index ranks) {
  const RingWorld w(48 * ranks);
  const CallResult want = of_reference(w.plain);
  int wrong = 0;
  for (const ShardLayout layout :
       {ShardLayout::contiguous, ShardLayout::zigzag, ShardLayout::striped}) {
    const TokenList tokens = shard_tokens(48 * ranks, ranks, rank, layout);
    const double narrow =
        error_of(run_shard(w.narrow, tokens, c), shard_of(want, w.plain, tokens, tokens));
    const double wide =
        error_of(run_shard(w.plain, tokens, c), shard_of(want, w.plain, tokens, tokens));
    if (narrow < 3e-6 && wide < 1e-12) continue;
    std::printf("rank %d, layout %d: %g in float, %g in double\n", static_cast<int>(rank),
                static_cast<int>(layout), narrow, wide);
    ++wrong;
  }
  // Refused with the same words, and nobody waits.
  AttentionArgs a = w.narrow;
  if (rank == ranks - 1) a.scale = std::nullopt;
  try {
    run_shard(a, shard_tokens(48 * ranks, ranks, rank, ShardLayout::zigzag), c);
    ++wrong;
  } catch (const std::invalid_argument& e) {
    if (std::strstr(e.what(), "scale must be given") == nullptr) ++wrong;
  }
  return wrong;
}

[[noreturn]] void run_on(const Communicator& c, Index rank, Index ranks,
                         const std::string& folder) {
  std::ofstream(folder + "/" + std::to_string(rank)) << getpid();
  const RingWorld w(64 * ranks);
  for (;;)
    run_shard(w.narrow, shard_tokens(64 * ranks, ranks, rank, ShardLayout::zigzag), c,
              {.seconds = 2});
}

}  // namespace
}  // namespace posenc

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int wrong = 0;
  {
    const posenc::MpiGroup group;
    const posenc::Communicator c = group.communicator();
    const posenc::Index rank = c.rank(c.context), ranks = c.size(c.context);
    if (argc > 1) posenc::run_on(c, rank, ranks, argv[1]);
    wrong = posenc::compare(c, rank, ranks);
  }
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
