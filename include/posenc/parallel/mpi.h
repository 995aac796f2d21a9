// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes of MPI: the target posenc::mpi, built where MPI is found (POSENC_MPI).
#pragma once
#include <memory>

#include "posenc/parallel/communicator.h"

namespace posenc::inline v0 {

namespace detail {
struct MpiGroupState;
}  // namespace detail

// MPI has no time-out and cannot take a message back: a transfer that is not done in time ends all processes of the
// communicator (MPI_Abort). Threads: those of MPI_Init suffice, the thread that calls must be the one that may call MPI.
class POSENC_API MpiGroup {
 public:
  // Of MPI_COMM_WORLD, or of the communicator that MPI_Comm_c2f gives as a number; it is duplicated, so all its
  // processes must make the group. Between MPI_Init and MPI_Finalize. Throws [mpi]: MPI that is not
  // initialised, a communicator that is none.
  MpiGroup();
  explicit MpiGroup(int communicator);
  ~MpiGroup();
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  Communicator communicator() const noexcept;

 private:
  std::unique_ptr<detail::MpiGroupState> state_;
};

}  // namespace posenc::v0
