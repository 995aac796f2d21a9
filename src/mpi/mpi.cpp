// SPDX-License-Identifier: Apache-2.0
// MPI moves nothing between calls: test is what moves a transfer on.
#include "posenc/parallel/mpi.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {

struct MpiGroupState {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 0;
};

namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;  // of one message, whose count is an int

struct MpiTransfer {
  std::vector<MPI_Request> requests;
  bool lost = false;
};

MpiGroupState& mpi_group(void* context) {
  return *static_cast<MpiGroupState*>(context);
}
Index mpi_rank(void* context) {
  return mpi_group(context).rank;
}
Index mpi_size(void* context) {
  return mpi_group(context).size;
}

// fn(first byte, bytes) for each message.
template <class F>
void each_message(std::size_t bytes, const F& fn) {
  for (std::size_t at = 0; at < bytes; at += kMaxBytes)
    fn(at, static_cast<int>(std::min(kMaxBytes, bytes - at)));
}

void* mpi_start(void* context, const Transfer& t) {
  const MpiGroupState& g = mpi_group(context);
  auto transfer = std::make_unique<MpiTransfer>();
  const auto begin = [&](const auto& call) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (call(request) != MPI_SUCCESS) transfer->lost = true;
    transfer->requests.push_back(request);
  };
  const int tag = static_cast<int>(t.channel);
  each_message(t.received_bytes, [&](std::size_t at, int bytes) {
    begin([&](MPI_Request& r) {
      return MPI_Irecv(static_cast<std::byte*>(t.received) + at, bytes, MPI_BYTE,
                       static_cast<int>(t.from), tag, g.comm, &r);
    });
  });
  each_message(t.sent_bytes, [&](std::size_t at, int bytes) {
    begin([&](MPI_Request& r) {
      return MPI_Isend(static_cast<const std::byte*>(t.sent) + at, bytes, MPI_BYTE,
                       static_cast<int>(t.to), tag, g.comm, &r);
    });
  });
  return transfer.release();
}

TransferState mpi_test(void*, void* transfer) {
  MpiTransfer& t = *static_cast<MpiTransfer*>(transfer);
  int done = 0;
  if (!t.lost && MPI_Testall(static_cast<int>(t.requests.size()), t.requests.data(), &done,
                             MPI_STATUSES_IGNORE) != MPI_SUCCESS)
    t.lost = true;
  return t.lost ? TransferState::lost : done != 0 ? TransferState::done : TransferState::under_way;
}

TransferState mpi_finish(void* context, void* transfer, double seconds) {
  using Clock = std::chrono::steady_clock;
  const std::unique_ptr<MpiTransfer> t(static_cast<MpiTransfer*>(transfer));
  const auto begin = Clock::now();
  TransferState s = mpi_test(context, transfer);
  while (s == TransferState::under_way) {
    const std::chrono::duration<double> waited = Clock::now() - begin;
    if (waited.count() >= seconds) s = TransferState::late;
    if (s == TransferState::late) break;
    // Whoever has waited for a while leaves the core to others.
    if (waited.count() > 1e-4) std::this_thread::sleep_for(std::chrono::microseconds(50));
    s = mpi_test(context, transfer);
  }
  // Its memory may still be written to, and the other ranks wait.
  if (s != TransferState::done) MPI_Abort(mpi_group(context).comm, 1);
  return s;
}

std::unique_ptr<MpiGroupState> mpi_state(MPI_Comm of) {
  auto g = std::make_unique<MpiGroupState>();
  if (MPI_Comm_dup(of, &g->comm) != MPI_SUCCESS)
    refuse("mpi", "the communicator cannot be duplicated");
  MPI_Comm_set_errhandler(g->comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(g->comm, &g->rank);
  MPI_Comm_size(g->comm, &g->size);
  return g;
}

void check_initialised() {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  if (initialised == 0 || finalised != 0)
    refuse("mpi", "a group must be made between MPI_Init and MPI_Finalize");
}

}  // namespace
}  // namespace detail

MpiGroup::MpiGroup() {
  detail::check_initialised();
  state_ = detail::mpi_state(MPI_COMM_WORLD);
}

MpiGroup::MpiGroup(int communicator) {
  detail::check_initialised();
  const MPI_Comm of = MPI_Comm_f2c(static_cast<MPI_Fint>(communicator));
  if (of == MPI_COMM_NULL)
    refuse_field("mpi", "communicator", "must be what MPI_Comm_c2f gives", Index{communicator});
  state_ = detail::mpi_state(of);
}

MpiGroup::~MpiGroup() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised == 0) MPI_Comm_free(&state_->comm);
}

Communicator MpiGroup::communicator() const noexcept {
  return {state_.get(),      detail::mpi_rank, detail::mpi_size,
          detail::mpi_start, detail::mpi_test, detail::mpi_finish};
}

}  // namespace posenc::v0
